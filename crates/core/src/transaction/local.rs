//! The producer's way through one transaction. Each step consumes the one before, so that none can be left out or done
//! twice.

use std::time::Duration;

use crate::ports::{CommitError, Mark, StoreError};
use crate::time::Monotonic;
use crate::transaction::message::TransactionKey;
use crate::transaction::{Commit, End, Rollback};

/// A half message, and how its transaction ended.
pub type Ended<H> = (H, End);

/// The broker holds the half message; the local transaction has no marker yet.
#[must_use = "a half message that nobody ends is asked about"]
#[derive(Debug)]
pub struct Prepared<H> {
    half: H,
    key: TransactionKey,
    since: Monotonic,
    longest: Duration,
}

/// The marker is inserted in the local transaction, which is open.
#[must_use = "a half message that nobody ends is asked about"]
#[derive(Debug)]
pub struct Marked<H> {
    half: H,
    key: TransactionKey,
}

/// The local transaction can no longer commit with its message: roll it back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// A check-back found no marker after the longest local transaction and fenced the key.
    #[error("transaction {key} was fenced: it took longer than the longest local transaction; roll back")]
    Fenced {
        /// The key.
        key: TransactionKey,
    },
    /// The transaction has had its time: a check-back may be fencing it just now.
    #[error("transaction {key} is older than {longest:?}: roll back, or raise longest_local")]
    TooLate {
        /// The key.
        key: TransactionKey,
        /// The longest local transaction.
        longest: Duration,
    },
    /// The store did not take the marker.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<H> Prepared<H> {
    /// The half message is sent; the transaction began at `since`, before it left.
    pub fn new(half: H, key: TransactionKey, since: Monotonic, longest: Duration) -> Self {
        Self { half, key, since, longest }
    }

    /// The key.
    pub fn key(&self) -> &TransactionKey {
        &self.key
    }

    /// Whether a marker may still be inserted.
    ///
    /// # Errors
    /// The transaction has had its time.
    pub fn in_time(&self, now: Monotonic) -> Result<(), MarkError> {
        if now.since(self.since) < self.longest {
            return Ok(());
        }
        Err(MarkError::TooLate { key: self.key.clone(), longest: self.longest })
    }

    /// The marker is inserted, or was not: a key that is taken was fenced, so that nothing can commit under it. Then nothing
    /// is said to the broker, since the local transaction is still open; the broker asks, and the markers tell.
    ///
    /// # Errors
    /// The local transaction must be rolled back.
    pub fn marked(self, mark: Result<Mark, StoreError>) -> Result<Marked<H>, MarkError> {
        match mark {
            Ok(Mark::Inserted) => Ok(Marked { half: self.half, key: self.key }),
            Ok(Mark::Taken) => Err(MarkError::Fenced { key: self.key }),
            Err(error) => Err(MarkError::Store(error)),
        }
    }

    /// The local transaction does not take place: nothing can commit under the key, which is given up here.
    pub fn abandoned(self) -> Ended<H> {
        (self.half, End::Rollback(Rollback(())))
    }
}

impl<H> Marked<H> {
    /// The key.
    pub fn key(&self) -> &TransactionKey {
        &self.key
    }

    /// How the local transaction ended, by the answer to its COMMIT. Without an answer nothing is said: the broker asks, and
    /// the marker tells.
    pub fn ended(self, commit: &Result<(), CommitError>) -> Option<Ended<H>> {
        match commit {
            Ok(()) => Some((self.half, End::Commit(Commit(())))),
            Err(CommitError::RolledBack(_)) => Some(self.rolled_back()),
            Err(CommitError::Unknown(_)) => None,
        }
    }

    /// The local transaction was rolled back.
    pub fn rolled_back(self) -> Ended<H> {
        (self.half, End::Rollback(Rollback(())))
    }
}
