//! The dialect's SQL files, and the texts rendered from them.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use crate::introspection::TableShape;
use crate::mapping::Names;
use crate::mysql::packet::ROWS_MAX;
use crate::statement::{LIST_MAX, Rendering, bucket};

/// Begins a unit of work.
pub(crate) const BEGIN: &str = "START TRANSACTION";
/// Ends a unit of work.
pub(crate) const COMMIT: &str = "COMMIT";
/// Undoes a unit of work.
pub(crate) const ROLLBACK: &str = "ROLLBACK";

/// Before others than consign use a transaction: the savepoint is gone when they end it, and what they do afterwards is
/// not committed by itself.
pub(crate) const WATCH: &str = "SET autocommit = 0; SAVEPOINT consign_unit";
/// Commits, unless the transaction that set the savepoint has ended.
pub(crate) const COMMIT_WATCHED: &str = "RELEASE SAVEPOINT consign_unit; COMMIT; SET autocommit = 1";
/// Leaves nothing behind for whoever uses the connection next.
pub(crate) const RESET: &str = "ROLLBACK; SET autocommit = 1";

/// Begins an operation in somebody else's transaction, and tells what their session does about values that do not fit.
pub(crate) const OPERATION_BEGIN: &str =
    "SAVEPOINT consign_operation; SELECT CAST(@@SESSION.sql_mode AS CHAR)";
/// Keeps the operation.
pub(crate) const OPERATION_KEEP: &str = "RELEASE SAVEPOINT consign_operation";
/// Undoes the operation.
pub(crate) const OPERATION_UNDO: &str = "ROLLBACK TO SAVEPOINT consign_operation";

/// Around identifiers.
pub(crate) const QUOTE: char = '`';

macro_rules! files {
    ($($(#[$doc:meta])* $name:ident = $file:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = include_str!(concat!("sql/", $file, ".sql"));)*
    };
}

files! {
    SESSION = "session";
    SESSION_ISOLATION = "session_isolation";
    SESSION_UNLIMITED = "session_unlimited";
    SESSION_FACTS = "session_facts";
    PACKET_LIMIT = "packet_limit";
    CLAIM_SELECT = "claim_select";
    CLAIM_SELECT_FROM = "claim_select_from";
    CLAIM_MARK = "claim_mark";
    CLAIM_FETCH = "claim_fetch";
    ORDERED_PAGE = "ordered_page";
    ORDERED_CHAIN = "ordered_chain";
    /// The same by one plan, where the server has LATERAL.
    ORDERED_CHAINS = "ordered_chains";
    ORDERED_SCAN = "ordered_scan";
    ORDERED_LOCK = "ordered_lock";
    ORDERED_DEFER_LOCK = "ordered_defer_lock";
    ORDERED_DEFER = "ordered_defer";
    BLOCKED_SELECT = "blocked_select";
    PARTITION_HELD = "partition_held";
    PARTITION_LOCK = "partition_lock";
    PARTITION_INSERT = "partition_insert";
    PARTITION_RENEW = "partition_renew";
    PARTITION_TAKE = "partition_take";
    PARTITION_GIVE = "partition_give";
    PARTITION_STATUS = "partition_status";
    RELAY_SEEN = "relay_seen";
    RELAY_LIVE = "relay_live";
    RELAY_LEAVE = "relay_leave";
    SETTLE_SENT = "settle_sent";
    SETTLE_DELETE = "settle_delete";
    SETTLE_RETRY = "settle_retry";
    SETTLE_RELEASE = "settle_release";
    SETTLE_DEAD = "settle_dead";
    SETTLE_INSPECT = "settle_inspect";
    SWEEP_SELECT = "sweep_select";
    SWEEP_RETURN = "sweep_return";
    SWEEP_DEAD = "sweep_dead";
    ATTEMPT_INSERT = "attempt_insert";
    ATTEMPT_COUNT = "attempt_count";
    ATTEMPT_SETTLE = "attempt_settle";
    ATTEMPT_SWEEP = "attempt_sweep";
    ATTEMPT_PAGE = "attempt_page";
    ATTEMPT_PURGE = "attempt_purge";
    SENT_PAGE = "sent_page";
    SENT_PURGE = "sent_purge";
    APPEND = "append";
    DEAD_EVENT_SELECT = "dead_event_select";
    DEAD_EVENT_REQUEUE = "dead_event_requeue";
    EVENT_DISCARD = "event_discard";
    EVENT_REPLAY = "event_replay";
    EVENTS_STANDING = "events_standing";
    REPLAY_PAGE = "replay_page";
    OUTBOX_STATUS = "outbox_status";
    OUTBOX_PENDING = "outbox_pending";
    OUTBOX_FUTURE = "outbox_future";
    MARKER_INSERT = "marker_insert";
    MARKER_SELECT = "marker_select";
    MARKER_COUNT = "marker_count";
    MARKER_DELETE = "marker_delete";
    MARKER_PAGE = "marker_page";
    MARKER_PURGE = "marker_purge";
    PURGE_LIMIT = "purge_limit";
    PROGRESS_SELECT = "progress_select";
    PROGRESS_INSERT = "progress_insert";
    PROGRESS_UPDATE = "progress_update";
    EVENT_PAYLOAD = "event_payload";
    CONFLICT_RECORD = "conflict_record";
    CONFLICT_SELECT = "conflict_select";
    CONFLICT_RESOLVE = "conflict_resolve";
    CONFLICT_COUNT = "conflict_count";
    DEAD_DELIVERY_RECORD = "dead_delivery_record";
    DEAD_DELIVERY_SELECT = "dead_delivery_select";
    DEAD_DELIVERY_RESOLVE = "dead_delivery_resolve";
    DEAD_DELIVERY_COUNT = "dead_delivery_count";
    PARK = "park";
    PARKED_LOOK = "parked_look";
    PARKED_SELECT = "parked_select";
    PARKED_LOCK = "parked_lock";
    PARKED_LEASE = "parked_lease";
    PARKED_FETCH = "parked_fetch";
    PARKED_COUNT = "parked_count";
    UNPARK = "unpark";
    TRANSACTION_CONFIRM = "transaction_confirm";
    TRANSACTION_ENDED = "transaction_ended";
    TRANSACTION_FENCE = "transaction_fence";
    TRANSACTION_FORGET = "transaction_forget";
    TRANSACTION_LOOK = "transaction_look";
    TRANSACTION_MARK = "transaction_mark";
    TRANSACTION_NOW = "transaction_now";
    TRANSACTION_PUT_OFF = "transaction_put_off";
    TRANSACTION_STANDING = "transaction_standing";
    TRANSACTION_UNCONFIRMED = "transaction_unconfirmed";
    TRANSACTION_UNFOUND = "transaction_unfound";
    AUDIT_INSERT = "audit_insert";
    INTROSPECT_TABLE = "introspect_table";
    INTROSPECT_COLUMNS = "introspect_columns";
    INTROSPECT_INDEXES = "introspect_indexes";
    INTROSPECT_TRIGGERS = "introspect_triggers";
    CREATE_OUTBOX_EVENT = "create_outbox_event";
    EXTEND_OUTBOX_EVENT = "extend_outbox_event";
    CREATE_CONSUMED_OPERATION = "create_consumed_operation";
    ADD_COMPARISON_COLUMN = "add_comparison_column";
    EXTEND_CONSUMED_OPERATION = "extend_consumed_operation";
    CREATE_CONSIGN_ATTEMPT = "create_consign_attempt";
    EXTEND_CONSIGN_ATTEMPT = "extend_consign_attempt";
    CREATE_CONSIGN_CONFLICT = "create_consign_conflict";
    CREATE_CONSIGN_DEAD_DELIVERY = "create_consign_dead_delivery";
    EXTEND_CONSIGN_CONFLICT = "extend_consign_conflict";
    EXTEND_CONSIGN_DEAD_DELIVERY = "extend_consign_dead_delivery";
    CREATE_CONSIGN_PROGRESS = "create_consign_progress";
    CREATE_CONSIGN_PARTITION = "create_consign_partition";
    CREATE_CONSIGN_RELAY = "create_consign_relay";
    CREATE_CONSIGN_PARKED_DELIVERY = "create_consign_parked_delivery";
    CREATE_CONSIGN_TRANSACTION = "create_consign_transaction";
    CREATE_CONSIGN_AUDIT = "create_consign_audit";
    MIGRATE_LOCK = "migrate_lock";
    MIGRATE_UNLOCK = "migrate_unlock";
}

/// One rendered statement, shared by all connections.
#[derive(Clone, Debug)]
pub(crate) struct Text(Arc<str>);

impl Text {
    /// Renders `file` for the names and columns at hand.
    pub(crate) fn new(file: &str, names: &Names, shape: &TableShape) -> Self {
        let present = shape.present();
        Self(Rendering::new(QUOTE).names(names).present(&present).render(file).into())
    }

    /// Renders `file` of a table of consign's own, or of none.
    pub(crate) fn own(file: &str) -> Self {
        Self(Rendering::new(QUOTE).render(file).into())
    }

    /// Renders `file` of a table of consign's own with the optional lines of these words.
    pub(crate) fn own_where<'w>(file: &str, words: impl IntoIterator<Item = (&'w str, bool)>) -> Self {
        Self::with_words(file, &Names::new(), &TableShape::default(), words)
    }

    /// Renders `file` for the names and columns at hand with the optional lines of these words.
    pub(crate) fn with_words<'w>(
        file: &str,
        names: &Names,
        shape: &TableShape,
        words: impl IntoIterator<Item = (&'w str, bool)>,
    ) -> Self {
        let mut present = shape.present();
        present.extend(words.into_iter().filter(|(_, taken)| *taken).map(|(word, _)| word.to_owned()));
        Self(Rendering::new(QUOTE).names(names).present(&present).render(file).into())
    }

    /// Renders `file` of a table of consign's own for a list of `length`.
    pub(crate) fn own_list(file: &str, length: usize) -> Self {
        Self(Rendering::new(QUOTE).placeholders(bucket(length)).render(file).into())
    }

    /// Takes a text rendered elsewhere from one of the files.
    pub(crate) fn rendered(text: String) -> Self {
        Self(text.into())
    }

    /// For sqlx: the text holds a file of this crate, validated identifiers and placeholders, nothing else.
    pub(crate) fn sql(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(Arc::clone(&self.0))
    }

    /// The text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// One statement with a list, rendered once for each size of the list (B73).
#[derive(Clone, Debug)]
pub(crate) struct ListText(Vec<Text>);

impl ListText {
    /// Renders `file` for every bucket up to [`LIST_MAX`].
    pub(crate) fn new(file: &str, names: &Names, shape: &TableShape) -> Self {
        let present = shape.present();
        Self::rendered(&Rendering::new(QUOTE).names(names).present(&present), file)
    }

    /// The same as `rendering` has it.
    pub(crate) fn rendered(rendering: &Rendering<'_>, file: &str) -> Self {
        let text = |size| Text(rendering.clone().placeholders(size).render(file).into());
        Self(powers(LIST_MAX).map(text).collect())
    }

    /// The same with the optional lines of these words.
    pub(crate) fn with_words<'w>(
        file: &str,
        names: &Names,
        shape: &TableShape,
        words: impl IntoIterator<Item = (&'w str, bool)>,
    ) -> Self {
        let mut present = shape.present();
        present.extend(words.into_iter().filter(|(_, taken)| *taken).map(|(word, _)| word.to_owned()));
        let rendering = Rendering::new(QUOTE).names(names).present(&present);
        Self::rendered(&rendering, file)
    }

    /// The text for a list of `length`, at most [`LIST_MAX`].
    pub(crate) fn sized(&self, length: usize) -> &Text {
        &self.0[bucket(length).ilog2() as usize]
    }
}

/// One INSERT of many rows, rendered once for each number of rows that `packet::rows` gives.
#[derive(Clone, Debug)]
pub(crate) struct RowsText(Vec<Text>);

impl RowsText {
    /// Renders `file` as `rendering` has it.
    pub(crate) fn rendered(rendering: &Rendering<'_>, file: &str) -> Self {
        let text = |size| Text(rendering.clone().rows(size).render(file).into());
        Self(powers(ROWS_MAX).map(text).collect())
    }

    /// The text for this many rows, a power of two up to [`ROWS_MAX`].
    pub(crate) fn sized(&self, rows: usize) -> &Text {
        &self.0[rows.ilog2() as usize]
    }
}

fn powers(max: usize) -> impl Iterator<Item = usize> {
    (0..=max.ilog2()).map(|power| 1_usize << power)
}
