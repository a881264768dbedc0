//! The brake on automatic dead-lettering: when many rows would die of exhaustion at once, the fault is elsewhere.

use std::collections::VecDeque;
use std::time::Duration;

use crate::time::Monotonic;

const WINDOW: Duration = Duration::from_mins(10);
const DEATHS_MAX: usize = 100;

/// Counts rows that died of exhaustion in the last ten minutes.
#[derive(Debug, Default)]
pub(super) struct Brake(VecDeque<Monotonic>);

impl Brake {
    /// True when one more row may die of exhaustion now; counts it.
    pub(super) fn allows(&mut self, now: Monotonic) -> bool {
        while self.0.front().is_some_and(|oldest| now.since(*oldest) > WINDOW) {
            self.0.pop_front();
        }
        if self.0.len() >= DEATHS_MAX {
            return false;
        }
        self.0.push_back(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_death_counts_for_ten_minutes_to_the_last_moment() {
        let mut brake = Brake::default();
        let now = Monotonic::new(Duration::from_hours(1));

        assert!((0..DEATHS_MAX).all(|_| brake.allows(now)));
        assert!(!brake.allows(now.plus(WINDOW)));
        assert!(brake.allows(now.plus(WINDOW + Duration::from_millis(1))));
    }
}
