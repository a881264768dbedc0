//! Counting refusals where deliveries cannot be parked.

use std::collections::{HashMap, VecDeque};

/// How often deliveries of a key were refused by this process. Bounded: the oldest keys are forgotten first, which
/// costs a few more attempts and loses nothing.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    counts: HashMap<String, u32>,
    order: VecDeque<String>,
}

impl Attempts {
    const KEYS_MAX: usize = 10_000;

    pub(super) fn count(&mut self, key: &str) -> u32 {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return *count;
        }
        if self.order.len() >= Self::KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(key.into());
        self.counts.insert(key.into(), 1);
        1
    }

    pub(super) fn forget(&mut self, key: &str) {
        if self.counts.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}
