//! Counts, as the database has them at one moment.

use std::time::Duration;

/// The outbox in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxStatus {
    /// Rows waiting to be claimed, due or not.
    pub new: u64,
    /// Rows claimed and not settled.
    pub sending: u64,
    /// Rows a broker took.
    pub sent: u64,
    /// Rows given up.
    pub dead: u64,
    /// Rows an operator put aside.
    pub discarded: u64,
    /// The age of the oldest row that should be on its way: claimed, due, or tried before. `None` without such a row.
    pub oldest_pending: Option<Duration>,
    /// Settlements that came too late, as recorded; `None` without the table `consign_attempt`.
    pub fenced: Option<u64>,
    /// Claimed rows whose lease has ended and that no sweep has taken yet.
    pub expired: u64,
}

/// The inbox in numbers; `None` where the table does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxStatus {
    /// Operations applied, for as long as markers are kept.
    pub markers: Option<u64>,
    /// Recorded conflicts nobody has resolved.
    pub conflicts: Option<u64>,
    /// Recorded dead deliveries nobody has dealt with.
    pub dead_deliveries: Option<u64>,
    /// Deliveries that wait in the database for their next attempt or for the step before them.
    pub parked: Option<u64>,
}
