//! One row of the table, with what the world knows about it and the database does not.

use bytes::Bytes;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::time::Monotonic;

use crate::book::Book;
use crate::trace::Actor;
use crate::world::DESTINATIONS;

use super::SWEEPS_TO_SUSPECT;

/// The states of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not committed yet, or rolled back: nobody sees it.
    Absent,
    /// To be published.
    New,
    /// Claimed.
    Sending,
    /// Published, with proof.
    Sent,
    /// Given up.
    Dead,
    /// Put aside by people.
    Discarded,
    /// Deleted after it was sent.
    Purged,
}

impl Status {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Absent => "-",
            Self::New => "NEW",
            Self::Sending => "SENDING",
            Self::Sent => "SENT",
            Self::Dead => "DEAD",
            Self::Discarded => "DISCARDED",
            Self::Purged => "(purged)",
        }
    }
}

/// What a row is like, and so what must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// Deliverable.
    Plain,
    /// Kills the channel it is published on.
    Poison,
    /// Rejected for its own sake; the reason is one that the store cannot hold.
    Invalid,
    /// The broker has nowhere to put it.
    Unroutable,
    /// Cannot be decoded.
    Malformed,
    /// No route takes it.
    Stray,
}

/// One row of the table.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub struct Row {
    /// Its number, which is also its event id.
    pub number: usize,
    /// What it is like.
    pub nature: Nature,
    /// Where it goes.
    pub destination: usize,
    /// Events of one aggregate are in the order of their numbers.
    pub aggregate: Option<usize>,
    /// The event as a table of another kind has it; none for the simulator's own events.
    pub given: Option<Event>,
    /// The payload: every copy must carry these very bytes.
    pub payload: Bytes,
    /// `status`.
    pub status: Status,
    /// `lease_token`.
    pub token: Option<u128>,
    /// `attempts`.
    pub attempts: u32,
    /// `locked_until`, by the database's clock.
    pub locked_until: Monotonic,
    /// `available_at`, by the database's clock.
    pub available_at: Monotonic,
    /// `created_at`, by the database's clock.
    pub created_at: Monotonic,
    /// Leases that ended by themselves since the last settle.
    pub sweeps: u32,
    /// The last settle that was applied: its token and the word for where it went.
    pub settled: Option<(u128, &'static str)>,
    /// When the lease ends that its owner counts on, on the world's clock.
    pub leased_until: Monotonic,
    /// Another session has it locked.
    pub locked: bool,
    /// Copies that the broker accepted since the row was last given to the relays.
    pub copies_of_this_life: u32,
    /// Copies that the broker accepted in all.
    pub copies: u32,
    /// Publishes that relays started.
    pub publishes: u32,
    /// It was SENT before.
    pub was_sent: bool,
    /// It was DEAD or DISCARDED before, so that later events may have gone on without it.
    pub was_passed: bool,
    /// It was requeued by people.
    pub was_requeued: bool,
    /// It was replayed by people.
    pub was_replayed: bool,
    /// A message of it came back as unroutable although it is not.
    pub was_returned: bool,
}

impl Row {
    /// A row that its producer has inserted and not committed yet.
    pub fn new(number: usize, nature: Nature, destination: usize, padding: usize) -> Self {
        let start = Monotonic::default();
        Self {
            number,
            nature,
            destination,
            aggregate: None,
            given: None,
            payload: Bytes::from(format!(r#"{{"event":{number},"padding":"{:padding$}"}}"#, "")),
            status: Status::Absent,
            token: None,
            attempts: 0,
            locked_until: start,
            available_at: start,
            created_at: start,
            sweeps: 0,
            settled: None,
            leased_until: start,
            locked: false,
            copies_of_this_life: 0,
            copies: 0,
            publishes: 0,
            was_sent: false,
            was_passed: false,
            was_requeued: false,
            was_replayed: false,
            was_returned: false,
        }
    }

    /// I9: the closed state machine.
    pub(super) fn turn(&mut self, book: &mut Book, actor: Actor, what: &'static str, to: Status) {
        let from = self.status;
        let allowed = match to {
            Status::Absent => false,
            Status::New => match from {
                Status::Absent | Status::Sending => true,
                // Requeued or replayed by people.
                Status::Dead | Status::Sent => actor == Actor::Operator,
                Status::New | Status::Discarded | Status::Purged => false,
            },
            Status::Sending => from == Status::New,
            Status::Sent | Status::Dead => from == Status::Sending,
            Status::Discarded => matches!(from, Status::New | Status::Dead) && actor == Actor::Operator,
            Status::Purged => from == Status::Sent && actor == Actor::Operator,
        };
        if !allowed {
            book.violate("I9", Some(self.number), format!("{} became {}", from.word(), to.word()));
        }
        book.note_change(actor, what, self.number, (from.word(), to.word()));
        self.was_sent |= to == Status::Sent;
        self.was_passed |= matches!(to, Status::Dead | Status::Discarded);
        self.status = to;
    }

    /// True when it is to be claimed with nothing beside it.
    pub fn suspect(&self) -> bool {
        self.sweeps >= SWEEPS_TO_SUSPECT
    }

    /// True when nothing more can become of the row.
    pub fn ended(&self) -> bool {
        match self.status {
            Status::Absent | Status::Sent | Status::Dead | Status::Discarded | Status::Purged => true,
            Status::New => self.nature == Nature::Stray,
            Status::Sending => false,
        }
    }

    /// The event as a claim reads it.
    pub fn event(&self) -> Event {
        if let Some(given) = &self.given {
            return given.clone();
        }
        let event_type =
            if self.nature == Nature::Stray { "nowhere" } else { DESTINATIONS[self.destination] };
        Event {
            id: EventId::stored(self.number.to_string()),
            aggregate: Aggregate {
                id: self.aggregate.map(|aggregate| aggregate.to_string()),
                ..Aggregate::default()
            },
            event_type: event_type.into(),
            business_key: None,
            payload: Some(self.payload.clone()),
            headers: Vec::new(),
            destination: None,
            route_key: None,
            created_at_micros: None,
        }
    }
}
