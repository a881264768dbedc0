//! Locks on rows and on keys that are not rows yet. Who waits for a lock in a circle is a deadlock.

use std::task::Waker;

/// What can be locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockKey {
    /// A place in the marker table's unique key.
    Marker(String),
    /// A place in the progress table's unique key.
    Progress(String),
    /// An account.
    Account(i64),
}

/// What asking for a lock comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is the transaction's.
    Granted,
    /// This other transaction has it.
    Busy(usize),
    /// Waiting for it would close a circle with this other transaction.
    Deadlock(usize),
}

/// A transaction that waits for a lock.
#[derive(Debug)]
pub struct Waiter {
    /// The transaction.
    pub transaction: usize,
    key: LockKey,
    /// The await that goes on once the lock is free.
    pub ticket: u64,
    /// Who polls it outside a simulation.
    pub waker: Option<Waker>,
}

/// All locks of the database.
#[derive(Debug, Default)]
pub struct Locks {
    held: Vec<(LockKey, usize)>,
    waiters: Vec<Waiter>,
}

impl Locks {
    /// Asks for a lock; asking again is granted again.
    pub fn ask(&mut self, transaction: usize, key: &LockKey) -> Asked {
        self.waiters.retain(|waiter| waiter.transaction != transaction);
        match self.holder(key) {
            None => {
                self.held.push((key.clone(), transaction));
                Asked::Granted
            }
            Some(holder) if holder == transaction => Asked::Granted,
            Some(holder) if self.waits_for(holder, transaction) => Asked::Deadlock(holder),
            Some(holder) => Asked::Busy(holder),
        }
    }

    fn holder(&self, key: &LockKey) -> Option<usize> {
        self.held.iter().find(|(held, _)| held == key).map(|(_, holder)| *holder)
    }

    /// True when `transaction` waits, directly or not, for something of `goal`.
    fn waits_for(&self, transaction: usize, goal: usize) -> bool {
        let mut at = transaction;
        // A chain is no longer than there are waiters: circles are never closed.
        for _ in 0..=self.waiters.len() {
            let Some(waiter) = self.waiters.iter().find(|waiter| waiter.transaction == at) else {
                return false;
            };
            match self.holder(&waiter.key) {
                Some(holder) if holder == goal => return true,
                Some(holder) => at = holder,
                None => return false,
            }
        }
        false
    }

    /// Lets a transaction wait for a lock that it was not given.
    pub fn wait(&mut self, transaction: usize, key: LockKey, ticket: u64, waker: Option<Waker>) {
        self.waiters.push(Waiter { transaction, key, ticket, waker });
    }

    /// The wait is over without the lock.
    pub fn give_up(&mut self, transaction: usize) -> Option<Waiter> {
        let at = self.waiters.iter().position(|waiter| waiter.transaction == transaction)?;
        Some(self.waiters.remove(at))
    }

    /// Lets go of everything that a transaction holds, and returns who waited for any of it.
    pub fn release(&mut self, transaction: usize) -> Vec<Waiter> {
        self.waiters.retain(|waiter| waiter.transaction != transaction);
        let (released, held) =
            std::mem::take(&mut self.held).into_iter().partition(|(_, by)| *by == transaction);
        self.held = held;
        let released: Vec<(LockKey, usize)> = released;
        let free = |waiter: &mut Waiter| released.iter().any(|(key, _)| *key == waiter.key);
        self.waiters.extract_if(.., free).collect()
    }

    /// True when some transaction holds this lock.
    pub fn is_held(&self, key: &LockKey) -> bool {
        self.holder(key).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_of_waiters_is_a_deadlock_and_a_chain_is_not() {
        let mut locks = Locks::default();
        let (one, two, three) = (LockKey::Account(1), LockKey::Account(2), LockKey::Account(3));
        for (transaction, key) in [(1, &one), (2, &two), (3, &three)] {
            assert_eq!(locks.ask(transaction, key), Asked::Granted);
        }

        assert_eq!(locks.ask(1, &two), Asked::Busy(2));
        locks.wait(1, two.clone(), 11, None);
        assert_eq!(locks.ask(2, &three), Asked::Busy(3));
        locks.wait(2, three.clone(), 12, None);

        assert_eq!(locks.ask(3, &one), Asked::Deadlock(1));
        let woken: Vec<u64> = locks.release(3).into_iter().map(|waiter| waiter.ticket).collect();
        assert_eq!(woken, [12]);
        assert_eq!(locks.ask(2, &three), Asked::Granted);
        assert!(locks.is_held(&two) && locks.is_held(&three));
    }
}
