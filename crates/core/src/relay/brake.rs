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
