//! Ordered claims: per aggregate, in order, whatever the number of relays.
//!
//! - [`plan`]: which of the due rows one claim takes, and which stand in the way. [`share`]: which partitions a relay keeps.
//!
//! # What the order rests on
//!
//! On the states of the rows alone. An aggregate's *head* is its earliest NEW row; a claim takes it, and the rows that
//! follow it without a gap, only when no row of the aggregate is SENDING and, under [`DeadHead::Block`], none before
//! it is DEAD. Partitions spread aggregates over relays and spare them looking at each other's rows; without them, or
//! with two relays that both believe in the same one, the order is the same. Each race ends harmlessly:
//!
//! - *A second claimer* reads the same head. Rows are locked by primary key, locked ones skipped, and must still be
//!   NEW; a chain ends before its first row that was not had. The head is the first of every chain, so one of the two
//!   gets nothing of the aggregate.
//! - *Between the look and the lock* rows before the head do not come back: they are SENT or DISCARDED. A replay makes SENT
//!   rows NEW again, and with them repeats an event its consumers have had. Head, gaps and SENDING rows of a longer
//!   chain are read by one statement, so in one snapshot: a row that changes from NEW to SENDING and back is never missed.
//! - *A sweep* makes SENDING rows NEW one by one. As long as one of them is left, it holds its aggregate up.
//! - *A paused relay* wakes up: its settlements are fenced by their tokens, and the engine publishes nothing whose
//!   lease is nearly over. What it had sent before may arrive once more, as at any time.
//! - *An operator* requeues a DEAD row: it is the head again. Where later rows were published meanwhile, because the
//!   policy is [`DeadHead::Skip`], this is what was asked for.
//! - *A taken partition*: claims read their partitions in the transaction that claims, under a shared lock, so a
//!   partition changes hands between two claims and never during one.
//!
//! A transaction that commits late with an earlier `sequence` is the producer's matter: who appends the events of one
//! aggregate in transactions that overlap has given them no order. The row is published when it is seen.

pub(crate) mod findings;
pub mod plan;
pub mod share;

use std::collections::HashSet;
use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::Claimed;
use consign_core::relay::DeadHead;

use crate::introspection::{ColumnKind, TableShape};
use crate::row::StoredRow;

/// How ordered claims work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderSettings {
    /// Into how many partitions aggregates fall, the same number for all relays of a table; 0 means that nobody shares,
    /// and every relay claims everything.
    pub partitions: u16,
    /// What a DEAD row means for those behind it.
    pub dead: DeadHead,
}

/// The partitions one relay holds after a look at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Their numbers, ascending.
    pub partitions: Vec<u16>,
    /// How many of them are new.
    pub taken: u16,
    /// How many were given up, or lost to another relay.
    pub gone: u16,
    /// How many relays share the table.
    pub relays: u16,
}

/// How the aggregates of one outbox are spread, and which of them wait for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrderStatus {
    /// Who holds how many partitions, by name.
    pub relays: Vec<RelayShare>,
    /// Partitions nobody holds, or whose holder has not been heard of for a lease.
    pub free: u64,
    /// Aggregates that wait behind a DEAD event, at most [`BLOCKED_MAX`].
    pub blocked: Vec<BlockedAggregate>,
}

/// One relay's share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayShare {
    /// The relay's name in the partitions, unique for each of its lives.
    pub relay: String,
    /// How many partitions it holds.
    pub partitions: u64,
}

/// An aggregate that waits behind a DEAD event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockedAggregate {
    /// `aggregate_type`, when the table has it.
    pub aggregate_type: Option<String>,
    /// `aggregate_id`.
    pub aggregate_id: String,
    /// How many of its events are DEAD.
    pub dead: u64,
    /// How many wait.
    pub waiting: u64,
}

impl OrderSettings {
    /// Which optional lines of the ordered statements a table needs. `shared` restricts them to partitions.
    pub(crate) fn words(self, shape: &TableShape, shared: bool) -> [(&'static str, bool); 6] {
        let block = self.dead == DeadHead::Block;
        let (typed, numbered) = (shape.has("aggregate_type"), shape.has("sequence"));
        [
            ("block", block),
            ("block_typed", block && typed),
            ("block_sequence", block && numbered),
            ("block_created", block && !numbered),
            ("shared", shared),
            ("shared_typed", shared && typed),
        ]
    }

    /// Turns marked rows into what the claim brings. A row that can never be published is as good as DEAD: under
    /// [`DeadHead::Block`] those behind it go back at once.
    pub(crate) fn deal(
        self,
        rows: impl IntoIterator<Item = (StoredRow, String)>,
        request: &ClaimRequest,
        more: bool,
    ) -> Claimed {
        let mut claimed = Claimed { more, ..Claimed::default() };
        let mut dead = HashSet::new();
        for (row, head) in rows {
            match row.claim(request) {
                Ok(claim) if self.dead == DeadHead::Block && dead.contains(&head) => {
                    claimed.malformed.push(claim.release(DEAD_DELAY, BEHIND_MALFORMED));
                }
                Ok(claim) => claimed.claims.push(claim),
                Err(settlement) => {
                    claimed.malformed.push(settlement);
                    dead.insert(head);
                }
            }
        }
        claimed
    }
}

/// The columns of an index by which ordered claims find the earliest rows of an aggregate, as the contract calls them.
pub(crate) fn index_columns(shape: &TableShape) -> &'static [&'static str] {
    if shape.has("sequence") {
        &["aggregate_id", "status", "sequence"]
    } else {
        &["aggregate_id", "status", "created_at", "event_id"]
    }
}

/// The word for the index in `extend_outbox_event.sql`; `None` for a column that is too long for one.
pub(crate) fn index_word(shape: &TableShape) -> Option<&'static str> {
    const CHARACTERS_MAX: u64 = 255;
    let column = shape.column("aggregate_id")?;
    let text = matches!(column.kind, ColumnKind::Text | ColumnKind::Bytes);
    let short = column.length.is_some_and(|length| length <= CHARACTERS_MAX);
    let other = matches!(column.kind, ColumnKind::Integer | ColumnKind::Decimal);
    let word = if shape.has("sequence") { "order_by_sequence" } else { "order_by_date" };
    (other || text && short).then_some(word)
}

/// Blocked aggregates told at most.
pub const BLOCKED_MAX: u32 = 100;

/// Rows behind a DEAD one are looked at again after this long.
pub(crate) const DEAD_DELAY: Duration = Duration::from_secs(30);

/// Why the rows behind a malformed one go back.
const BEHIND_MALFORMED: &str = "an earlier event of its aggregate is DEAD";
