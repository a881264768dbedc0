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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_for_each_key_apart_until_it_is_forgotten() {
        let mut attempts = Attempts::default();

        let counts = ["a", "b", "a", "a", "b"].map(|key| attempts.count(key));
        attempts.forget("a");
        attempts.forget("never counted");

        assert_eq!(counts, [1, 1, 2, 3, 2]);
        assert_eq!((attempts.count("a"), attempts.count("b")), (1, 3));
    }

    #[test]
    fn the_oldest_keys_make_room_for_new_ones() {
        let mut attempts = Attempts::default();
        let oldest = ["forgotten", "oldest", "older"];
        for key in oldest {
            attempts.count(key);
        }
        attempts.forget("forgotten");

        for number in 0..Attempts::KEYS_MAX - 1 {
            attempts.count(&number.to_string());
        }

        assert_eq!(attempts.counts.len(), Attempts::KEYS_MAX);
        assert_eq!(attempts.count("older"), 2, "it is among the newest");
        assert_eq!(attempts.count("oldest"), 1, "it was forgotten");
        assert_eq!(attempts.counts.len(), Attempts::KEYS_MAX);
    }
}
