//! Markers: what a store keeps of transactions.

use std::future::Future;
use std::time::Duration;

use crate::ports::StoreError;
use crate::transaction::Spans;
use crate::transaction::message::{StoreName, TransactionKey, TransactionMessage};

/// What a committed marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// The local transaction committed.
    Committed,
    /// It did not, and cannot any more.
    RolledBack,
}

/// A look at one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The marker, when one is committed.
    pub marker: Option<Marker>,
    /// The store's time, in microseconds since the Unix epoch.
    pub now_micros: i64,
}

/// What inserting a rollback marker came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// It is committed: no local transaction can commit under this key any more.
    Inserted,
    /// The key is taken. By what, a look tells.
    Taken,
}

/// What shows that consumers can get a message. The final commit does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A copy was found in its topic.
    Stored,
}

impl Evidence {
    /// The word in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stored => "STORED",
        }
    }
}

/// A committed transaction whose message nobody has found in its topic yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// The key.
    pub key: TransactionKey,
    /// The topic.
    pub topic: String,
    /// The whole message, when the store keeps messages until they are confirmed.
    pub message: Option<TransactionMessage>,
    /// SHA-256 of the payload.
    pub digest: String,
    /// How often somebody looked for it, this time included.
    pub attempts: u32,
}

/// What a step of forgetting deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forgotten {
    /// Markers of transactions that are over.
    pub ended: u64,
    /// Committed ones that were never confirmed.
    pub unconfirmed: u64,
    /// There is more to forget.
    pub more: bool,
}

/// What a table of markers holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Committed transactions whose message was not found in its topic yet.
    pub unconfirmed: u64,
    /// The age of the oldest of them.
    pub oldest_unconfirmed: Option<Duration>,
}

/// A table of markers, seen by every instance that answers for it. The markers of local transactions are inserted in
/// these transactions themselves, by each dialect's own `mark`.
pub trait MarkerStore: Send + Sync {
    /// The store's name.
    fn name(&self) -> &StoreName;

    /// Reads the committed marker of a key and the store's time in one statement, outside any transaction and from no
    /// replica: a snapshot that began earlier could not see what was committed since.
    fn look(&self, key: &TransactionKey) -> impl Future<Output = Result<Look, StoreError>> + Send;

    /// Inserts a rollback marker and commits it. The unique key decides, never a SELECT. While a local transaction holds
    /// the key uncommitted this waits, and at last is [`StoreError::Contended`]. [`StoreError::CommitUnknown`] is no
    /// [`Fence::Inserted`].
    fn fence(
        &self,
        key: &TransactionKey,
        topic: &str,
    ) -> impl Future<Output = Result<Fence, StoreError>> + Send;

    /// The store's time, in microseconds since the Unix epoch.
    fn now(&self) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Hands out at most `limit` unconfirmed transactions that are due, the oldest first, and puts each off by `pause`,
    /// so that instances side by side do not look for the same ones. A row that people broke is an error of its own, which
    /// names its key; it keeps no other waiting.
    fn unconfirmed(
        &self,
        limit: u32,
        pause: Duration,
    ) -> impl Future<Output = Result<Vec<Result<Unconfirmed, StoreError>>, StoreError>> + Send;

    /// Notes evidence, and drops the message that was kept. `false` when the key has no unconfirmed marker.
    fn confirm(
        &self,
        key: &TransactionKey,
        evidence: Evidence,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Deletes at most `limit` markers of each kind that are old enough, in one short transaction. Never one that the
    /// broker may still ask about.
    fn forget(&self, spans: &Spans, limit: u32)
    -> impl Future<Output = Result<Forgotten, StoreError>> + Send;

    /// Counts.
    fn standing(&self) -> impl Future<Output = Result<Standing, StoreError>> + Send;
}
