//! The book of one seed: what was met, what happened, and the first thing that must not have happened.

use consign_core::time::Monotonic;

use crate::situation::Witness;
use crate::trace::{Actor, Step, Trace};

/// An invariant that does not hold. The ids are those of `docs/proof/simulator.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which one, for instance `I2`.
    pub invariant: &'static str,
    /// The event of the outbox concerned.
    pub row: Option<usize>,
    /// What was seen.
    pub what: String,
    /// When.
    pub at: Monotonic,
}

/// What is written down while a seed runs.
#[derive(Debug)]
pub struct Book {
    /// The world's time.
    pub now: Monotonic,
    /// Situations met.
    pub met: Witness,
    /// Steps.
    pub trace: Trace,
    /// The first violation; the seed ends with it.
    pub violation: Option<Violation>,
}

impl Book {
    /// An empty book that begins at `now`.
    pub fn new(now: Monotonic, keep: bool) -> Self {
        Self { now, met: Witness::default(), trace: Trace::new(keep), violation: None }
    }

    /// Writes a step down.
    pub fn note(&mut self, actor: Actor, what: &'static str, row: Option<usize>, detail: u64) {
        self.trace.push(Step { at: self.now, actor, what, row, detail, change: None });
    }

    /// Writes down that a row changed.
    pub fn note_change(
        &mut self,
        actor: Actor,
        what: &'static str,
        row: usize,
        change: (&'static str, &'static str),
    ) {
        self.trace.push(Step { at: self.now, actor, what, row: Some(row), detail: 0, change: Some(change) });
    }

    /// Something is as it must not be.
    pub fn violate(&mut self, invariant: &'static str, row: Option<usize>, what: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, row, what, at: self.now });
        }
    }
}

/// Checks an invariant: `require!(book, "I2", row, condition, "what was seen {}", …)`.
#[macro_export]
macro_rules! require {
    ($book:expr, $invariant:literal, $row:expr, $condition:expr, $($what:tt)+) => {
        if !$condition {
            let what = format!($($what)+);
            $book.violate($invariant, $row, what);
        }
    };
}
