//! What is about to happen, in the order of a virtual clock; ties are broken at random.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use consign_core::time::Monotonic;

#[derive(Debug)]
struct Scheduled<E> {
    at: Monotonic,
    tie: u64,
    /// Boxed, so that the heap moves little.
    event: Box<E>,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Scheduled<E> {}

impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Scheduled<E> {
    /// The heap's greatest is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.tie).cmp(&(self.at, self.tie))
    }
}

/// Events by the moment they happen at.
#[derive(Debug)]
pub struct Queue<E>(BinaryHeap<Scheduled<E>>);

impl<E> Queue<E> {
    /// Nothing is to come.
    pub const fn new() -> Self {
        Self(BinaryHeap::new())
    }

    /// Lets `event` happen at `at`; among events of one moment the lower `tie` comes first.
    pub fn push(&mut self, at: Monotonic, tie: u64, event: E) {
        self.0.push(Scheduled { at, tie, event: Box::new(event) });
    }

    /// When the next event happens.
    pub fn next_at(&self) -> Option<Monotonic> {
        self.0.peek().map(|scheduled| scheduled.at)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Monotonic, E)> {
        self.0.pop().map(|scheduled| (scheduled.at, *scheduled.event))
    }
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self::new()
    }
}
