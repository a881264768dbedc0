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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Fixed;

    fn pauses(error: &StoreError, fraction: f64) -> Vec<u128> {
        let mut backoff = Backoff::default();
        (0..12).map(|_| backoff.failed(error, &mut Fixed(fraction)).as_micros()).collect()
    }

    #[test]
    fn pauses_double_and_a_contended_store_is_asked_again_sooner() {
        let contended = pauses(&StoreError::Contended("deadlock".into()), 1.0);
        let away = pauses(&StoreError::Unavailable("down".into()), 1.0);

        assert_eq!(contended[..7], [5_000, 10_000, 20_000, 40_000, 80_000, 160_000, 200_000]);
        assert_eq!(away[..7], [100_000, 200_000, 400_000, 800_000, 1_600_000, 3_200_000, 5_000_000]);
        assert_eq!((contended[11], away[11]), (200_000, 5_000_000));
    }

    #[test]
    fn jitter_takes_up_to_half_of_a_pause() {
        let away = StoreError::Unavailable("down".into());

        assert_eq!((pauses(&away, 0.0)[0], pauses(&away, 0.5)[0]), (50_000, 75_000));
    }

    #[test]
    fn a_success_ends_the_series() {
        let mut backoff = Backoff::default();
        let fail = |backoff: &mut Backoff| {
            backoff.failed(&StoreError::Contended("deadlock".into()), &mut Fixed(1.0)).as_millis()
        };
        assert!(!backoff.failing());

        fail(&mut backoff);
        assert_eq!((fail(&mut backoff), backoff.failing()), (10, true));
        backoff.succeeded();

        assert!(!backoff.failing());
        assert_eq!(fail(&mut backoff), 5);
    }
}
