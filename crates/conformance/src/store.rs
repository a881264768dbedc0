//! The store suite: claims, settles and sweeps of one outbox table.

pub mod cancel;
pub mod claim;
pub mod payload;
pub mod request;
pub mod settle;
pub mod settlement;
pub mod sweep;

use std::fmt::Debug;
use std::future::Future;

use consign_core::ports::OutboxStore;

/// Expands the store suite for a [`StoreFixture`] into `mod $module`, one `#[test]` per behaviour.
#[macro_export]
macro_rules! store_suite {
    ($module:ident, $fixture:ident) => {
        $crate::expand_suite! {
            $module, $fixture, store,
            claim: [
                a_claim_takes_the_oldest_due_rows_first,
                a_claim_takes_at_most_its_limit_and_says_that_more_are_due,
                a_claim_writes_status_token_and_attempt,
                every_claim_writes_its_own_token,
                rows_of_the_future_wait,
                rows_that_are_not_new_are_never_claimed,
                an_empty_table_gives_an_empty_claim,
                a_locked_row_does_not_hold_up_the_others,
                two_claimers_share_nothing,
                many_claimers_claim_every_row_once,
                a_claim_reads_at_most_its_bytes,
                a_row_larger_than_the_byte_limit_is_claimed_alone,
                a_malformed_row_hinders_nobody,
                a_row_with_a_retry_behind_it_is_claimed_once_by_eight_relays,
            ]
            settle: [
                sent_ends_the_row,
                retry_keeps_the_attempt_and_waits_for_the_delay,
                release_gives_the_attempt_back,
                dead_keeps_its_reason,
                an_old_token_is_fenced_and_changes_nothing,
                a_late_settle_does_not_undo_a_later_one,
                a_repeated_settle_is_already_applied,
                a_repeated_settle_after_another_claim_is_fenced,
                a_first_settle_of_a_settled_row_is_fenced,
                a_mixed_batch_is_answered_in_its_order,
                a_settle_of_a_vanished_row_is_fenced,
                a_large_batch_settles_whole,
                an_endless_reason_never_fails_a_settle,
            ]
            sweep: [
                an_expired_lease_goes_back_to_new_after_the_delay,
                a_live_lease_is_left_alone,
                a_row_at_the_attempts_cap_goes_dead,
                a_sweep_takes_at_most_its_limit,
                a_swept_row_is_fenced_for_its_old_owner,
                a_row_swept_once_is_claimed_with_others,
                a_row_swept_twice_is_claimed_alone_and_suspected,
                a_suspect_that_was_sent_back_by_a_settle_is_a_suspect_no_more,
                a_locked_expired_row_does_not_hold_up_the_sweep,
                many_sweepers_sweep_every_row_once,
            ]
            payload: [
                payload_text_is_passed_on_unchanged,
                binary_payloads_are_passed_on_or_refused_by_the_table,
                a_payload_of_eight_mebibytes_is_passed_on_unchanged,
                null_and_empty_payloads_are_told_apart,
                ids_that_differ_by_case_or_trailing_space_are_different_rows,
                headers_and_names_come_with_the_event,
            ]
            cancel: [
                a_dropped_claim_leaves_nothing_half_done,
                a_dropped_settle_leaves_nothing_half_done,
                a_dropped_sweep_leaves_nothing_half_done,
            ]
        }
    };
}

/// What a store's server can and cannot do.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
#[derive(Clone, Copy, Debug)]
pub struct StoreCapabilities {
    /// Rows locked by another session are skipped one by one. Without it a lock covers the whole table: a claim
    /// waits or says `Contended`, and changes nothing.
    pub skip_locked: bool,
    /// The payload column keeps bytes as written, JSON or not. Without it (a JSON column) the content is kept
    /// by value and other bytes are refused at insertion.
    pub exact_payload: bool,
    /// The payload column keeps text as written, as long as it is JSON.
    pub exact_json_text: bool,
    /// A sent row stays as SENT. Without it the settle deletes the row.
    pub keeps_sent: bool,
    /// The table has the optional columns: headers, destination, route key, aggregate type and version, business
    /// key, last error and last outcome.
    pub full_table: bool,
}

/// A row to be written behind the store's back, as a producer in any language would.
#[derive(Clone, Debug)]
pub struct NewRow {
    /// `event_id`.
    pub id: String,
    /// `event_type`.
    pub event_type: String,
    /// `payload`; `None` is SQL NULL.
    pub payload: Option<Vec<u8>>,
    /// `aggregate_id`.
    pub aggregate_id: i64,
    /// `attempts`.
    pub attempts: u32,
    /// `available_at`, in milliseconds from the database's now; negative for the past.
    pub due_in_millis: i64,
    /// `status`.
    pub status: &'static str,
    /// `headers` as JSON text, on full tables only.
    pub headers: Option<String>,
}

impl NewRow {
    /// A NEW row that is due since a second.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            event_type: "OrderPaid".into(),
            payload: Some(br#"{"orderId":42,"amount":100}"#.to_vec()),
            aggregate_id: 42,
            attempts: 0,
            due_in_millis: -1000,
            status: "NEW",
            headers: None,
        }
    }

    /// The same row, due at `millis` from the database's now.
    #[must_use]
    pub fn due_in_millis(mut self, millis: i64) -> Self {
        self.due_in_millis = millis;
        self
    }

    /// The same row with another payload.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }
}

/// A row as it stands, read behind the store's back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// `status`.
    pub status: String,
    /// `attempts`.
    pub attempts: u32,
    /// `lease_token`.
    pub token: Option<String>,
    /// True when `locked_until` is set.
    pub leased: bool,
    /// `available_at`, in milliseconds from the database's now; negative for the past.
    pub due_in_millis: i64,
    /// `last_error`, on full tables.
    pub last_error: Option<String>,
}

/// A fresh table and the means to look behind the store.
pub trait StoreFixture: Send + Sync + Sized + 'static {
    /// The store under test.
    type Store: OutboxStore + Clone + Send + Sync + 'static;
    /// A row lock held by another session; released when dropped or by [`StoreFixture::unlock`].
    type Lock: Send + Debug;

    /// A fresh, empty schema.
    fn fresh() -> impl Future<Output = Self> + Send;

    /// What the server can do.
    fn capabilities(&self) -> StoreCapabilities;

    /// The store.
    fn store(&self) -> Self::Store;

    /// A second store on the same table with connections of its own, as another relay process has it.
    fn another_store(&self) -> impl Future<Output = Self::Store> + Send;

    /// Inserts a row; gives the server's refusal as an error.
    fn insert(&self, row: NewRow) -> impl Future<Output = Result<(), String>> + Send;

    /// Reads a row.
    fn row(&self, id: &str) -> impl Future<Output = Option<StoredRow>> + Send;

    /// Deletes a row.
    fn delete(&self, id: &str) -> impl Future<Output = ()> + Send;

    /// Moves the row's `locked_until` into the past.
    fn expire_lease(&self, id: &str) -> impl Future<Output = ()> + Send;

    /// Moves the row's `available_at` into the past.
    fn make_due(&self, id: &str) -> impl Future<Output = ()> + Send;

    /// Locks the row from another session and keeps the transaction open.
    fn lock(&self, id: &str) -> impl Future<Output = Self::Lock> + Send;

    /// Rolls the locking transaction back.
    fn unlock(&self, lock: Self::Lock) -> impl Future<Output = ()> + Send;

    /// How many transactions sessions other than the fixture's have open on this schema.
    fn open_transactions(&self) -> impl Future<Output = u32> + Send;
}

/// Inserts rows that the table must take.
pub(crate) async fn insert_all<F: StoreFixture>(fixture: &F, rows: impl IntoIterator<Item = NewRow>) {
    for row in rows {
        let id = row.id.clone();
        fixture.insert(row).await.unwrap_or_else(|error| panic!("row {id:?} was refused: {error}"));
    }
}

/// Reads a row that must be there.
pub(crate) async fn row<F: StoreFixture>(fixture: &F, id: &str) -> StoredRow {
    fixture.row(id).await.unwrap_or_else(|| panic!("row {id:?} is gone"))
}
