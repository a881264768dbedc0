//! What a consumer with version checks sees. Pure.

use std::collections::HashMap;

/// The versions of every aggregate as they came.
#[derive(Debug, Default)]
pub struct Audit {
    /// The highest version of each aggregate. Versions start at 1 and have no holes, so it says which were seen.
    seen: HashMap<u32, u32>,
    /// Distinct events.
    pub events: u64,
    /// Copies of events seen before.
    pub repeats: u64,
    /// Events that came before the one they follow.
    pub violations: u64,
}

impl Audit {
    /// One delivery. A step over a missing version is a violation; so nothing old can come later without having been
    /// seen before.
    pub fn delivered(&mut self, aggregate: u32, version: u32) {
        let seen = self.seen.entry(aggregate).or_default();
        if version <= *seen {
            self.repeats += 1;
            return;
        }
        if version != *seen + 1 {
            self.violations += 1;
        }
        self.events += u64::from(version - *seen);
        *seen = version;
    }
}

#[cfg(test)]
mod tests {
    use super::Audit;

    fn audit(deliveries: &[(u32, u32)]) -> Audit {
        let mut audit = Audit::default();
        for (aggregate, version) in deliveries {
            audit.delivered(*aggregate, *version);
        }
        audit
    }

    #[test]
    fn steps_in_order_and_copies_are_no_violation() {
        let audit = audit(&[(7, 1), (9, 1), (7, 2), (7, 1), (7, 2), (7, 3)]);

        assert_eq!((audit.events, audit.repeats, audit.violations), (4, 2, 0));
    }

    #[test]
    fn a_step_over_a_missing_version_is_a_violation() {
        assert_eq!(audit(&[(7, 1), (7, 3), (7, 2)]).violations, 1);
        assert_eq!(audit(&[(7, 2)]).violations, 1);
    }
}
