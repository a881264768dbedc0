//! When a row is tried again, and when it is given up.

use std::time::Duration;

use crate::safeguard::{Safeguard, stands};
use crate::time::Draw;

/// How failed publishes are retried. Every number comes from the config.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryPolicy {
    /// The first delay's ceiling.
    pub base: Duration,
    /// No delay's ceiling is higher than this.
    pub cap: Duration,
    /// The share of each delay that is random, 0 to 1; the whole of it keeps relays and rows out of step best.
    pub jitter: f64,
    /// A row with this many counted attempts may be given up.
    pub attempts_max: u32,
    /// A younger row is never given up for exhaustion, however many attempts it has.
    pub min_age_before_dead: Duration,
    /// A row this old is given up at its next counted failure, however few attempts it has; `None` for never.
    pub max_age: Option<Duration>,
    /// What an unroutable message comes to.
    pub unroutable: UnroutablePolicy,
}

/// What follows an Unroutable outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnroutablePolicy {
    /// Retry with backoff until the attempts are exhausted: topology is often deployed late.
    #[default]
    Retry,
    /// DEAD at once.
    Dead,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            cap: Duration::from_mins(5),
            jitter: 1.0,
            attempts_max: 20,
            min_age_before_dead: Duration::from_mins(15),
            max_age: None,
            unroutable: UnroutablePolicy::Retry,
        }
    }
}

impl RetryPolicy {
    /// The delay before attempt `attempt + 1`: exponential with jitter, never under 100 ms.
    pub fn delay(&self, attempt: u32, draw: &mut impl Draw) -> Duration {
        const FLOOR: Duration = Duration::from_millis(100);
        if !stands(Safeguard::RetryPause) {
            return Duration::ZERO;
        }
        let doublings = attempt.saturating_sub(1).min(20);
        let ceiling = self.base.saturating_mul(1 << doublings).min(self.cap);
        FLOOR + ceiling.mul_f64(1.0 - self.jitter * (1.0 - draw.fraction()))
    }

    /// True when a row with `attempt` counted attempts, created `age` ago, is given up.
    pub fn exhausted(&self, attempt: u32, age: Duration) -> bool {
        let old = age >= self.min_age_before_dead || !stands(Safeguard::MinimumAge);
        (attempt >= self.attempts_max && old) || self.max_age.is_some_and(|max_age| age >= max_age)
    }
}
