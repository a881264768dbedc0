//! Which sent events are published again, and how a replay walks its table.
//!
//! A replay reads the table once, in the order of `sequence`, or of `event_id` where there is none. What it replayed lies
//! behind its position, so that it may be stopped anywhere and go on from there.

use std::time::Duration;

use consign_core::event::EventId;

/// Which SENT events are chosen. Everything that is given must hold. Dates are text as the database has them,
/// `YYYY-MM-DD HH:MM:SS.ffffff`; an event's date is its `sent_at`, or its `created_at` where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayFilter {
    /// Only these; empty for any.
    pub ids: Vec<EventId>,
    /// Of this event type.
    pub event_type: Option<String>,
    /// Of this aggregate, as text.
    pub aggregate: Option<String>,
    /// That name this destination.
    pub destination: Option<String>,
    /// Not before this date.
    pub from: Option<String>,
    /// Not after this date.
    pub until: Option<String>,
}

/// An event that is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayEvent {
    /// The event.
    pub event_id: EventId,
    /// Where the walk is when this event is done.
    pub position: String,
    /// Its date.
    pub at: String,
    /// How long ago that is, by the database's clock.
    pub age: Duration,
}

/// A stretch of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayPage {
    /// The events chosen, in the order of the walk.
    pub chosen: Vec<ReplayEvent>,
    /// Where the stretch ends.
    pub last: Option<String>,
    /// The table goes on behind it.
    pub more: bool,
}
