//! Pauses after store failures: one series per kind of work, so that a claim that succeeds does not hurry a settle
//! that keeps failing.

use std::time::Duration;

use crate::ports::StoreError;
use crate::time::Draw;

/// How often one kind of work failed in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The pause after another failure: doubling, with jitter so that relays get out of step.
    pub(super) fn failed(&mut self, error: &StoreError, draw: &mut impl Draw) -> Duration {
        const DOUBLINGS_MAX: u32 = 10;
        let (base, cap) = match error {
            // Rolled back because others were in the way: worth another try almost at once.
            StoreError::Contended(_) => (Duration::from_millis(5), Duration::from_millis(200)),
            StoreError::Unavailable(_)
            | StoreError::CommitUnknown(_)
            | StoreError::Schema(_)
            | StoreError::Data(_)
            | StoreError::Mismatch(_) => (Duration::from_millis(100), Duration::from_secs(5)),
        };
        let ceiling = base.saturating_mul(1 << self.failures.min(DOUBLINGS_MAX)).min(cap);
        self.failures = self.failures.saturating_add(1);
        ceiling.mul_f64(0.5 + draw.fraction() / 2.0)
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// True while the last try failed.
    pub(super) fn failing(&self) -> bool {
        self.failures > 0
    }
}
