//! What the relay tells people.

use crate::event::EventId;
use crate::ports::StoreError;
use crate::route::DestinationName;

/// Something people should know about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A row has nowhere to go; it waits.
    NoRoute(EventId, String),
    /// A message was unroutable.
    Unroutable(EventId, DestinationName, String),
    /// A row went DEAD.
    Dead(EventId, String),
    /// Too many rows would die of exhaustion at once: they wait instead.
    BrakeOn(EventId),
    /// A destination failed too often and is left alone for a while.
    CircuitOpened(DestinationName, String),
    /// A destination became available.
    Available(DestinationName),
    /// A destination became unavailable.
    Unavailable(DestinationName, String),
    /// A settle found that its row belongs to somebody else.
    Fenced(EventId),
    /// Channel death: these messages are tried one at a time.
    Quarantined(DestinationName, String),
    /// The store failed.
    Store(&'static str, StoreError),
}

/// Totals since start, for metrics and logs. Audits query the database instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows claimed.
    pub claimed: u64,
    /// Publishes started.
    pub published: u64,
    /// Rows settled SENT.
    pub sent: u64,
    /// Rows settled back to NEW with the attempt counted.
    pub retried: u64,
    /// Rows settled back to NEW with the attempt given back.
    pub released: u64,
    /// Rows settled DEAD.
    pub dead: u64,
    /// Settlements that were fenced.
    pub fenced: u64,
    /// Unroutable outcomes.
    pub unroutable: u64,
    /// Unknown outcomes.
    pub unknown: u64,
    /// Refused outcomes.
    pub refused: u64,
    /// Rows swept.
    pub swept: u64,
    /// Outcomes that came for an attempt no longer held.
    pub late_outcomes: u64,
}
