//! A state of the merged model in 64 bits, exactly: no two states have the same code.
//!
//! Numbers in a mixed base: for each event its row and both relays' attempts, then the faults left and the excess.

use crate::search::Compact;

use super::state::{Attempt, EVENTS_MAX, Event, Faults, Phase, State, Status};
use super::{Lease, Steps};

/// NEW, SENDING, SENDING with an ended lease, SENT, DEAD, DISCARDED.
const STANDINGS: u64 = 6;
/// 0 to 3 attempts.
const ATTEMPTS: u64 = 4;
/// None, or held or written, each with a lease, an ended lease, or a lost row.
const WORKS: u64 = 7;
/// 0 to 7 messages on their way without a sender.
const LATE: u64 = 8;
/// 0 to 3 faults of a kind.
const FAULTS: u64 = 4;
/// 0 to 31 further copies.
const EXCESS: u64 = 32;

impl Compact for Lease {
    fn code(&self, state: &State) -> u64 {
        assert!(self.bounds.steps == Steps::Merged && self.bounds.hands == 1 && !self.bounds.counts);
        let mut code = Code(0);
        for row in &state.events {
            let standing = match (row.status, row.live) {
                (Status::New, _) => 0,
                (Status::Sending, true) => 1,
                (Status::Sending, false) => 2,
                (Status::Sent, _) => 3,
                (Status::Dead, _) => 4,
                (Status::Discarded, _) => 5,
            };
            code.push(standing, STANDINGS);
            code.push(row.attempts.into(), ATTEMPTS);
            code.push(row.copies.into(), 2);
            code.push(row.late.into(), LATE);
            for attempt in &row.places[..2] {
                code.push(work(*attempt), WORKS);
            }
        }
        let left = state.left;
        for faults in [left.crashes, left.expiries, left.doubts, left.unanswered, left.operations] {
            code.push(faults.into(), FAULTS);
        }
        code.push(state.excess.into(), EXCESS);
        code.0
    }

    fn state(&self, code: u64) -> State {
        let mut code = Code(code);
        let excess = code.pop(EXCESS);
        let [operations, unanswered, doubts, expiries, crashes] = std::array::from_fn(|_| code.pop(FAULTS));
        let mut events = [Event::default(); EVENTS_MAX];
        for row in events.iter_mut().rev() {
            row.places[1] = attempt(code.pop(WORKS));
            row.places[0] = attempt(code.pop(WORKS));
            row.late = code.pop(LATE);
            row.copies = code.pop(2);
            row.attempts = code.pop(ATTEMPTS);
            row.charged = row.attempts;
            (row.status, row.live) = match code.pop(STANDINGS) {
                0 => (Status::New, false),
                1 => (Status::Sending, true),
                2 => (Status::Sending, false),
                3 => (Status::Sent, false),
                4 => (Status::Dead, false),
                _ => (Status::Discarded, false),
            };
            row.claim = u8::from(row.status == Status::Sending);
        }
        State {
            events,
            left: Faults { crashes, expiries, doubts, unanswered, operations },
            excess,
            broken: None,
        }
    }
}

fn work(attempt: Option<Attempt>) -> u64 {
    let Some(Attempt { phase, claim, over }) = attempt else { return 0 };
    let standing = match (claim, over) {
        (1, false) => 0,
        (1, true) => 1,
        _ => 2,
    };
    1 + standing + if phase == Phase::Written { 3 } else { 0 }
}

fn attempt(work: u8) -> Option<Attempt> {
    let index = work.checked_sub(1)?;
    let phase = if index >= 3 { Phase::Written } else { Phase::Held };
    let (claim, over) = match index % 3 {
        0 => (1, false),
        1 => (1, true),
        _ => (2, true),
    };
    Some(Attempt { phase, claim, over })
}

struct Code(u64);

impl Code {
    fn push(&mut self, digit: u64, base: u64) {
        assert!(digit < base, "a state is too large for its code");
        self.0 = self.0 * base + digit;
    }

    fn pop(&mut self, base: u64) -> u8 {
        let digit = self.0 % base;
        self.0 /= base;
        u8::try_from(digit).expect("bases are small")
    }
}
