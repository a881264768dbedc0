//! Units of work on their way to the store and back: they may fail, and their answers may be lost whether they were
//! applied or not.

use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::StoreError;
use consign_core::relay::Input;
use consign_core::settle::{SettleBatch, Transition};

use crate::options::Fault;
use crate::trace::Actor;

use super::situations::Met;
use super::{Event, World};

/// A unit of work on its way to the store.
#[derive(Debug)]
pub(super) enum Work {
    Claim(ClaimRequest),
    Settle(SettleBatch),
    Sweep { limit: u32, delay: Duration, attempts_max: u32 },
}

impl Work {
    fn word(&self) -> &'static str {
        match self {
            Self::Claim(_) => "claim",
            Self::Settle(_) => "settle",
            Self::Sweep { .. } => "sweep",
        }
    }

    fn fail(self, error: StoreError) -> Input {
        match self {
            Self::Claim(_) => Input::ClaimFailed(error),
            Self::Settle(batch) => Input::SettleFailed(batch, error),
            Self::Sweep { .. } => Input::SweepFailed(error),
        }
    }
}

impl World {
    pub(super) fn send_to_store(&mut self, relay: usize, work: Work) {
        let delay = self.store_delay();
        self.schedule(delay, Event::Work(relay, self.slots[relay].incarnation, work));
    }

    fn store_delay(&mut self) -> Duration {
        let longest = if self.strikes(Fault::SlowStore, 10) { 8_000 } else { 20 };
        self.span(longest)
    }

    /// The store runs a unit of work, whether or not its relay still lives.
    pub(super) fn work(&mut self, relay: usize, incarnation: u64, work: Work) {
        let alive = self.slots[relay].is(incarnation);
        // A dead relay's unit may still be in a buffer that is lost; after the end nobody would clean up behind it.
        if !alive && (self.finishing || self.draw.chance(50)) {
            return;
        }
        let answer = match self.failure(&work) {
            Some((error, after)) => {
                self.book.note(Actor::Store, failed(&work), None, 0);
                return self.answer(relay, incarnation, work.fail(error), after);
            }
            None => self.apply(work, alive),
        };
        let lost = self.strikes(Fault::LostCommits, 15);
        let answer = if lost { self.lose(answer) } else { answer };
        self.answer(relay, incarnation, answer, Duration::ZERO);
    }

    fn answer(&mut self, relay: usize, incarnation: u64, answer: Input, after: Duration) {
        let delay = self.store_delay();
        self.schedule(after + delay, Event::Reply(relay, incarnation, answer));
    }

    /// Why the unit is rolled back, and after how long a wait.
    fn failure(&mut self, work: &Work) -> Option<(StoreError, Duration)> {
        if let Work::Settle(batch) = work
            && batch.settlements.iter().any(|settlement| unfit(settlement.to()))
        {
            self.book.met.meet(Met::SettleNarrowed);
            return Some((StoreError::Data("invalid byte sequence 0x00".into()), Duration::ZERO));
        }
        if self.strikes(Fault::Deadlocks, 15) {
            self.book.met.meet(match work {
                Work::Claim(_) => Met::ClaimDeadlock,
                Work::Settle(_) => Met::SettleDeadlock,
                Work::Sweep { .. } => Met::SweepDeadlock,
            });
            return Some((StoreError::Contended("deadlock".into()), Duration::ZERO));
        }
        if self.strikes(Fault::LockWaits, 10) {
            self.book.met.meet(Met::LockWaitTimedOut);
            let wait = self.span(2_000);
            return Some((StoreError::Contended("lock wait timeout".into()), wait));
        }
        if self.strikes(Fault::StoreFailures, 15) {
            return Some((StoreError::Unavailable("read-only".into()), Duration::ZERO));
        }
        if self.strikes(Fault::LostCommits, 10) {
            self.book.met.meet_if(matches!(work, Work::Settle(_)), Met::SettleUnknownNotApplied);
            return Some((StoreError::CommitUnknown("connection lost".into()), Duration::ZERO));
        }
        None
    }

    fn apply(&mut self, work: Work, alive: bool) -> Input {
        match work {
            Work::Claim(request) => {
                let claimed = self.store.claim(&mut self.book, &request);
                self.book.met.meet_if(!alive && !claimed.claims.is_empty(), Met::ClaimOfTheDead);
                Input::Claimed(claimed)
            }
            Work::Settle(batch) => {
                self.book.met.meet_if(!alive, Met::SettleOfTheDead);
                let answers = self.store.settle(&mut self.book, &batch);
                Input::Settled(batch, answers)
            }
            Work::Sweep { limit, delay, attempts_max } => {
                self.check_sweep();
                Input::Swept(self.store.sweep(&mut self.book, limit, delay, attempts_max))
            }
        }
    }

    /// The unit was applied, and nobody hears of it.
    fn lose(&mut self, answer: Input) -> Input {
        let error = StoreError::CommitUnknown("connection lost".into());
        self.book.note(Actor::Store, "the answer is lost", None, 0);
        match answer {
            Input::Claimed(claimed) => {
                self.book.met.meet_if(!claimed.claims.is_empty(), Met::ClaimUnknownButApplied);
                Input::ClaimFailed(error)
            }
            Input::Settled(batch, _) => Input::SettleFailed(batch, error),
            Input::Swept(swept) => {
                self.book.met.meet_if(swept.returned > 0, Met::SweepUnknownButApplied);
                Input::SweepFailed(error)
            }
            failed => failed,
        }
    }
}

/// A reason that the column does not take.
fn unfit(to: &Transition) -> bool {
    matches!(to, Transition::Dead { reason } if reason.contains('\0'))
}

fn failed(work: &Work) -> &'static str {
    match work.word() {
        "claim" => "claim fails",
        "settle" => "settle fails",
        _ => "sweep fails",
    }
}
