//! What a simulated process gives its worker, and the filter of repeats that its workers ask.

use std::time::Duration;

use consign_core::consumer::{News, Surroundings};
use consign_core::filter::{Hint, RepeatFilter};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::ParkReason;
use consign_core::time::{Draw, Monotonic};

use crate::options::Fault;

use super::shared::{Shared, State};
use super::situations::Met;
use super::tables::place;

/// The process around a worker.
#[derive(Debug)]
pub struct Around {
    /// What everything shares.
    pub shared: Shared,
    /// The process.
    pub process: usize,
}

impl State {
    fn fact_of_operation(&self, operation: &Operation) -> Option<usize> {
        self.fact_of(operation.event_id.as_ref().map(consign_core::event::EventId::as_str))
    }

    fn processed(&mut self, operation: &Operation, processed: Processed) {
        let fact = self.fact_of_operation(operation);
        let what = match processed {
            Processed::Applied => "was applied",
            Processed::Duplicate => "is a duplicate",
            Processed::Conflict => "is a conflict",
            Processed::Stale => "is stale",
        };
        self.note(what, fact, 0);
        let Some(number) = fact else { return };
        let order = self.facts[number].order;
        let waited = |reason: ParkReason| {
            let id = number.to_string();
            let mine = self.tables.parked.iter().find(|row| row.message.id.as_deref() == Some(id.as_str()));
            mine.is_some_and(|row| row.reason == reason)
        };
        let (gap, retry) = (waited(ParkReason::Gap), waited(ParkReason::Retry));
        let unknown = self.unknown_commits.iter().rev().find(|(known, _)| *known == order);
        let was_applied = unknown.map(|(_, applied)| *applied);
        match processed {
            Processed::Applied => {
                self.book.met.meet(Met::Applied);
                self.book.met.meet_if(gap, Met::GapResumed);
                self.book.met.meet_if(retry, Met::RetryApplied);
                self.book.met.meet_if(was_applied == Some(false), Met::UnknownCommitLost);
            }
            Processed::Duplicate => {
                let key = place(&operation.consumer, &operation.key);
                let id = number.to_string();
                let marked = self.tables.markers.get(&key).and_then(|marker| marker.event_id.clone());
                self.book.met.meet(Met::Duplicate);
                self.book.met.meet_if(marked.is_some_and(|marked| marked != id), Met::Rewrapped);
                self.book.met.meet_if(was_applied == Some(true), Met::UnknownCommitApplied);
                self.book.met.meet_if(self.lost_acks.contains(&number), Met::AckLost);
            }
            Processed::Stale => self.book.met.meet(Met::StaleSkipped),
            Processed::Conflict => {}
        }
    }

    fn put_aside(&mut self, key: Option<&str>, reason: &str) {
        self.note("was put aside", None, 0);
        self.book.met.meet(match key {
            None => Met::Undecodable,
            Some(_) if reason.starts_with("conflict") => Met::ConflictDeadLettered,
            Some(_) if reason.contains("came before version") => Met::GapOverdue,
            Some(_) => Met::AttemptsExhausted,
        });
    }
}

impl Surroundings for Around {
    async fn pause(&self, span: Duration) -> bool {
        self.shared.pause(span).await
    }

    fn now(&self) -> Monotonic {
        self.shared.state().book.now
    }

    fn fraction(&self) -> f64 {
        self.shared.state().draw.fraction()
    }

    fn fresh_id(&self) -> String {
        format!("fresh-{}", self.shared.state().draw.number())
    }

    fn wake_parked(&self) {
        let mut state = self.shared.state();
        state.processes[self.process].look_now = true;
        state.turn_soon(self.process);
    }

    fn halt(&self, _: String) {
        let mut state = self.shared.state();
        state.book.met.meet(Met::ConflictStopped);
        state.processes[self.process].halted = true;
        state.turn_soon(self.process);
    }

    fn tell(&self, news: &News<'_>) {
        let mut state = self.shared.state();
        match *news {
            News::Processed { operation, processed } => state.processed(operation, processed),
            // The queue knows which receipts it took.
            News::Acknowledged { .. } => {}
            News::Refused { operation, error } => {
                let fact = state.fact_of_operation(operation);
                if let (ProcessError::Gap { expected, version, .. }, Some(number)) = (error, fact) {
                    state.note("came too early", fact, 0);
                    state.check_early(number, *expected, *version);
                } else {
                    state.note("was refused", fact, 0);
                }
            }
            News::InHand { operation, tries, .. } => {
                let fact = state.fact_of_operation(operation);
                state.note("stays in hand", fact, u64::from(tries));
            }
            News::Parking { reason, .. } => {
                let met = if reason == ParkReason::Gap { Met::GapParked } else { Met::RetryParked };
                state.book.met.meet(met);
            }
            News::NotParked { operation, .. } => {
                let fact = state.fact_of_operation(operation);
                state.note("was not parked", fact, 0);
            }
            News::Dead { key, reason } => state.put_aside(key, reason),
            News::NotDead { .. } => {
                state.book.met.meet(Met::DeadLetterRefused);
                state.note("was not put aside", None, 0);
            }
        }
    }
}

/// A filter that may say anything.
#[derive(Debug)]
pub struct SimFilter {
    /// What everything shares.
    pub shared: Shared,
    /// Whether there is one at all.
    pub present: bool,
}

impl RepeatFilter for SimFilter {
    async fn hints(&self, operations: &[&Operation]) -> Vec<Hint> {
        if !self.present {
            return vec![Hint::Unknown; operations.len()];
        }
        let mut state = self.shared.state();
        operations.iter().map(|operation| hint(&mut state, operation)).collect()
    }

    async fn remember(&self, operations: &[&Operation]) {
        if !self.present {
            return;
        }
        let mut state = self.shared.state();
        for operation in operations {
            let key = place(&operation.consumer, &operation.key);
            if !state.tables.markers.contains_key(&key) {
                let fact = state.fact_of_operation(operation);
                state.book.violate("I23", fact, "the filter was told of what is not committed".into());
            }
            state.filter.insert(key, operation.comparison.text());
        }
    }
}

fn hint(state: &mut State, operation: &Operation) -> Hint {
    let key = place(&operation.consumer, &operation.key);
    let marked = state.tables.markers.contains_key(&key);
    let hint = if state.strikes(Fault::LyingFilter, 40) {
        state.draw.pick(&[Hint::Unknown, Hint::Repeat, Hint::Contradiction])
    } else {
        match state.filter.get(&key) {
            None => Hint::Unknown,
            Some(content) if *content == operation.comparison.text() => Hint::Repeat,
            Some(_) => Hint::Contradiction,
        }
    };
    let known = hint != Hint::Unknown;
    state.book.met.meet_if(known && !marked, Met::FilterLied);
    state.book.met.meet_if(known && marked, Met::FilterHit);
    hint
}
