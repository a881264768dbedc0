//! Settlements: what becomes of a claimed row, under its own token only.

use std::time::Duration;

use crate::event::EventId;
use crate::lease::{Lease, LeaseToken};
use crate::outcome::Proof;

/// One row's way out of SENDING. Private fields: it comes from a claim and nowhere else, so settling needs the
/// token of that very claim.
///
/// ```
/// # use consign_core::settle::{Settlement, Transition};
/// fn goes_back(settlement: &Settlement) -> bool {
///     matches!(settlement.to(), Transition::Retry { .. } | Transition::Release { .. })
/// }
/// ```
///
/// It cannot be forged, nor turned into another one, nor sent twice:
///
/// ```compile_fail,E0451
/// # use consign_core::{event::EventId, settle::{Settlement, Transition}};
/// fn forge(id: EventId, to: Transition) -> Settlement {
///     Settlement { id, to, ..unreachable!() }
/// }
/// ```
///
/// ```compile_fail,E0616
/// # use consign_core::settle::{Settlement, Transition};
/// fn turn(settlement: &mut Settlement, to: Transition) {
///     settlement.to = to;
/// }
/// ```
///
/// ```compile_fail,E0382
/// # use consign_core::settle::{SettleBatch, Settlement};
/// fn settle_twice(settlement: Settlement) -> SettleBatch {
///     SettleBatch { settlements: vec![settlement, settlement], repeat: false }
/// }
/// ```
#[must_use = "an unsettled row stays SENDING until its lease ends"]
#[derive(Debug)]
pub struct Settlement {
    id: EventId,
    lease: Lease,
    to: Transition,
}

impl Settlement {
    pub(crate) fn new(id: EventId, lease: Lease, to: Transition) -> Self {
        Self { id, lease, to }
    }

    /// Puts a reason that any store takes in the place of its own; false when it carries none of its own.
    pub(crate) fn forget_reason(&mut self) -> bool {
        const PLAIN: &str = "the store refused the text of the reason";
        let reason = match &mut self.to {
            Transition::Sent(_) => return false,
            Transition::Retry { why, .. } | Transition::Release { why, .. } => why,
            Transition::Dead { reason } => reason,
        };
        if reason.is_empty() || reason == PLAIN {
            return false;
        }
        *reason = PLAIN.into();
        true
    }

    /// The row's id.
    pub fn id(&self) -> &EventId {
        &self.id
    }

    /// The token its claim wrote.
    pub fn token(&self) -> &LeaseToken {
        &self.lease.token
    }

    /// Where the row goes.
    pub fn to(&self) -> &Transition {
        &self.to
    }
}

/// Where a row goes from SENDING.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// SENT: the broker proved that it took the message.
    Sent(Proof),
    /// Back to NEW after `delay`; the attempt counts.
    Retry {
        /// How long until the row may be claimed again.
        delay: Duration,
        /// For `last_error`.
        why: String,
    },
    /// Back to NEW after `delay`; the attempt is given back, since the row was not at fault.
    Release {
        /// How long until the row may be claimed again.
        delay: Duration,
        /// For `last_error`; empty when there is nothing to tell.
        why: String,
    },
    /// DEAD, with the reason.
    Dead {
        /// For `last_error`.
        reason: String,
    },
}

impl Transition {
    /// The word for `last_outcome`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Sent(_) => "confirmed",
            Self::Retry { .. } => "retry",
            Self::Release { .. } => "released",
            Self::Dead { .. } => "dead",
        }
    }
}

/// Settlements that go to the store together.
#[derive(Debug)]
pub struct SettleBatch {
    /// The rows, in the order the answers are given.
    pub settlements: Vec<Settlement>,
    /// True when an earlier try of the same batch may have been applied: its COMMIT got no answer.
    pub repeat: bool,
}

/// What the store did with one settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The row changed.
    Applied,
    /// A repeated settle found the row where the first try had put it.
    AlreadyApplied,
    /// The row no longer carries this token: somebody else owns or settled it. Counted, never forced.
    Fenced,
}

/// What one sweep did with rows whose lease had ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Rows put back to NEW.
    pub returned: u32,
    /// Rows that reached the attempts cap.
    pub dead: u32,
}
