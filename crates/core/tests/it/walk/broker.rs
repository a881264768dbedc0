//! What a destination makes of a publish: when it takes the message, if ever, and what it says about it.

use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::Lane;
use consign_core::time::Monotonic;

use crate::draw::Seeded;
use crate::harness::{confirmed, millis, timed_out};

use super::options::{Fault, Faults};
use super::store::Nature;

/// The fate of one publish.
#[derive(Debug)]
pub struct Fate {
    /// When the broker takes the message; perhaps after its sender has given up on it.
    pub accepted_at: Option<Monotonic>,
    pub ends: End,
    pub ends_at: Monotonic,
}

#[derive(Debug)]
pub enum End {
    Outcome(Outcome),
    /// The channel dies, and everything in flight on it ends as the message does.
    ChannelDeath,
}

pub fn fate(
    draw: &mut Seeded,
    faults: &Faults,
    nature: Nature,
    lane: Lane,
    publish: &Publish,
    now: Monotonic,
) -> Fate {
    let left = publish.deadline.since(now);
    // Now and then as slow as the deadline allows.
    let longest = if draw.chance(5) { left } else { left.min(millis(40)) };
    let delay = millis(1 + draw.below(u64::try_from(longest.as_millis()).unwrap().max(1)));
    let soon = now.plus(delay).min(publish.deadline);
    let says = |outcome| Fate { accepted_at: None, ends: End::Outcome(outcome), ends_at: soon };
    match nature {
        Nature::Plain if faults.may(Fault::Refusals) && draw.chance(15) => {
            let retry_after = draw.chance(20).then(|| millis(500 + draw.below(5_000)));
            says(Outcome::Refused { reason: "nack".into(), retry_after })
        }
        Nature::Plain if faults.may(Fault::LostConfirms) && draw.chance(20) => {
            let zombie = publish.deadline.plus(millis(draw.below(5_000)));
            let accepted_at = [Some(soon), Some(zombie), None][draw.index(3)];
            Fate { accepted_at, ends: End::Outcome(timed_out()), ends_at: publish.deadline }
        }
        Nature::Plain => {
            let ends_at = soon.plus(millis(draw.below(20))).min(publish.deadline);
            Fate { accepted_at: Some(soon), ends: End::Outcome(confirmed()), ends_at }
        }
        Nature::Poison if lane == Lane::Window => {
            Fate { accepted_at: None, ends: End::ChannelDeath, ends_at: soon }
        }
        Nature::Poison => says(Outcome::Rejected { reason: "406 message too large".into() }),
        Nature::Invalid => says(Outcome::Rejected { reason: "a header with a \0 byte".into() }),
        Nature::Unroutable => says(Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }),
        Nature::Malformed | Nature::Stray => panic!("a {nature:?} row was published"),
    }
}

/// The answer of a destination that is not connected: provably nothing left.
pub fn not_connected(now: Monotonic) -> Fate {
    let outcome = Outcome::Refused { reason: "not connected".into(), retry_after: None };
    Fate { accepted_at: None, ends: End::Outcome(outcome), ends_at: now.plus(millis(1)) }
}
