//! What a topic holds, against what a database committed. Pure.

use std::collections::{HashMap, HashSet};

/// The messages of a topic as they were read.
#[derive(Debug, Default)]
pub struct Audit {
    /// How many copies of each order's message there are.
    copies: HashMap<u32, u64>,
}

/// What an audit found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Orders in the database.
    pub committed: u64,
    /// Of these, those whose message is in the topic.
    pub delivered: u64,
    /// Of these, those whose message is not.
    pub lost: u64,
    /// Further copies of messages that are there.
    pub repeats: u64,
    /// Messages of orders that are not in the database.
    pub unfounded: u64,
}

impl Audit {
    /// A message of the topic.
    pub fn read(&mut self, order: u32) {
        *self.copies.entry(order).or_default() += 1;
    }

    /// Against the orders that the database committed.
    pub fn against(&self, committed: &HashSet<u32>) -> Findings {
        let mut findings = Findings { committed: committed.len() as u64, ..Findings::default() };
        for (order, copies) in &self.copies {
            findings.repeats += copies - 1;
            if committed.contains(order) {
                findings.delivered += 1;
            } else {
                findings.unfounded += 1;
            }
        }
        findings.lost = findings.committed - findings.delivered;
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(read: &[u32], committed: &[u32]) -> Findings {
        let mut audit = Audit::default();
        for order in read {
            audit.read(*order);
        }
        audit.against(&committed.iter().copied().collect())
    }

    #[test]
    fn every_order_with_one_message_is_delivered() {
        let found = findings(&[3, 1, 2], &[1, 2, 3]);

        assert_eq!(found, Findings { committed: 3, delivered: 3, ..Findings::default() });
    }

    #[test]
    fn an_order_without_a_message_is_lost_whatever_else_was_read() {
        let found = findings(&[1, 1, 9], &[1, 2]);

        assert_eq!(found, Findings { committed: 2, delivered: 1, lost: 1, repeats: 1, unfounded: 1 });
    }

    #[test]
    fn copies_of_a_message_without_an_order_are_one_unfounded_message_and_its_repeats() {
        let found = findings(&[9, 9, 9], &[]);

        assert_eq!(found, Findings { repeats: 2, unfounded: 1, ..Findings::default() });
    }
}
