//! Ports: what adapters implement. Each sentence of a trait's documentation is a test in the conformance suite.

use std::future::Future;
use std::time::Duration;

use crate::declared::Statement;
use crate::delivery::{Message, Receipt};
use crate::guard::Progress;
use crate::lease::{Claim, ClaimRequest, Publish};
use crate::operation::{Operation, StoredMarker};
use crate::outcome::Outcome;
use crate::settle::{SettleBatch, Settled, Settlement, Swept};
use crate::value::Value;

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be reached, is read-only, or its connection broke before COMMIT was sent. Nothing changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A deadlock, a lock wait timeout or a busy database: rolled back, worth another try at once.
    #[error("the store is contended: {0}")]
    Contended(String),
    /// COMMIT was sent and no answer came: it may or may not have been applied.
    #[error("the outcome of COMMIT is unknown: {0}")]
    CommitUnknown(String),
    /// A table, column or privilege is missing or has the wrong type.
    #[error("the schema does not fit: {0}")]
    Schema(String),
    /// A value was refused: too long for its column, out of range, not valid JSON.
    #[error("the store refused a value: {0}")]
    Data(String),
    /// A statement changed another number of rows than it must; the transaction was rolled back.
    #[error("a statement changed an unexpected number of rows: {0}")]
    Mismatch(String),
}

/// What a claim brought.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Rows ready to publish.
    pub claims: Vec<Claim>,
    /// Rows that can never be published, to be settled DEAD.
    pub malformed: Vec<Settlement>,
    /// True when more rows were due than the request allowed.
    pub more: bool,
}

/// A table of events, shared by any number of relays.
pub trait OutboxStore: Send + Sync {
    /// Claims due rows in one short transaction: NEW rows whose `available_at` has come, oldest first, rows locked by
    /// others skipped; each becomes SENDING under the request's token with its attempts raised by one. Returns only
    /// after COMMIT. A row swept twice is claimed alone, marked [`Claim::suspected`]. A row that cannot be
    /// decoded comes back as malformed and hinders nobody. On [`StoreError::CommitUnknown`] nothing is owned.
    /// A store may pass by a row that turns up with an old date, or was locked, for a bounded number of claims.
    /// Dropping the future loses at most time: the unit of work runs to its end.
    fn claim(&self, request: ClaimRequest) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Settles rows under their tokens, in one transaction; the answers are in the order of the batch. A row that no
    /// longer carries its token is [`Settled::Fenced`] and untouched. May be repeated after a lost answer.
    fn settle(&self, batch: &SettleBatch) -> impl Future<Output = Result<Vec<Settled>, StoreError>> + Send;

    /// Puts at most `limit` rows whose lease has ended back to NEW, due after `delay`, or to DEAD when their attempts
    /// reached `attempts_max`. Rows locked by others are skipped. Any relay may sweep.
    fn sweep(
        &self,
        limit: u32,
        delay: Duration,
        attempts_max: u32,
    ) -> impl Future<Output = Result<Swept, StoreError>> + Send;
}

/// Which way a publish takes inside a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Many in flight on a shared channel.
    Window,
    /// Alone on a channel of its own, so that what happens to the channel is this message's doing.
    Quarantine,
}

/// Whether a destination takes publishes now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Connected and not blocked.
    Accepting,
    /// Not connected, or blocked by the broker; with the reason.
    Unavailable(String),
}

/// Somewhere events go.
pub trait Destination: Send + Sync {
    /// Publishes and resolves by the deadline. Never fails: every end is an [`Outcome`]. A timeout is
    /// [`Outcome::Unknown`]; a message of which provably nothing left is [`Outcome::Refused`].
    fn publish(&self, lane: Lane, publish: Publish) -> impl Future<Output = Outcome> + Send;

    /// Resolves when the destination's readiness differs from `known`.
    fn readiness_after(&self, known: &Readiness) -> impl Future<Output = Readiness> + Send;
}

/// Somewhere deliveries come from. One source feeds one consumer.
pub trait Source: Send {
    /// The handle that settles one delivery.
    type Receipt: Receipt + 'static;

    /// The next delivery. The source reconnects by itself; `None` after [`Source::stop`] when nothing more comes.
    fn next(&mut self) -> impl Future<Output = Option<crate::delivery::Delivery<Self::Receipt>>> + Send;

    /// Stops new deliveries; receipts already handed out stay valid.
    fn stop(&mut self) -> impl Future<Output = ()> + Send;

    /// Ends the source after the last receipt was settled, and returns when the broker has taken every settlement or
    /// cannot be reached within seconds. A process that exits without it may lose the last acknowledgements, and
    /// their messages come again.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// What inserting a marker came to. The unique key decides, never a SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The marker is new.
    Inserted,
    /// The key is taken: roll back, then read the marker.
    Taken,
}

/// Why a COMMIT did not succeed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// Certainly rolled back.
    RolledBack(StoreError),
    /// The answer was lost: it may have been applied.
    Unknown(StoreError),
}

/// Why one statement did not run once for each of several operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachError {
    /// The operation at fault, by its place in the list; `None` when it is one of them and nobody knows which.
    pub at: Option<usize>,
    /// What happened.
    pub error: StoreError,
}

/// An aggregate's progress, about to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advance<'a> {
    /// The aggregate.
    pub aggregate: &'a str,
    /// Where it stands now.
    pub progress: Progress,
    /// True when [`InboxTransaction::lock_progress`] found nothing: the row is new, and the unique key decides
    /// between two that write it first.
    pub first: bool,
}

/// One open inbox transaction.
pub trait InboxTransaction: Send + Sized {
    /// Inserts the marker row. Never `INSERT IGNORE`. After [`Mark::Taken`] the caller must roll back.
    fn mark(&mut self, operation: &Operation) -> impl Future<Output = Result<Mark, StoreError>> + Send;

    /// Inserts the markers of several operations of one consumer, in the order given, which every caller sorts by key
    /// so that two of them cannot wait for each other. [`Mark::Taken`] does not say which key it was.
    fn mark_all(
        &mut self,
        operations: &[&Operation],
    ) -> impl Future<Output = Result<Mark, StoreError>> + Send {
        async move {
            for operation in operations {
                if self.mark(operation).await? == Mark::Taken {
                    return Ok(Mark::Taken);
                }
            }
            Ok(Mark::Inserted)
        }
    }

    /// Reads and locks what a consumer applied to each of these aggregates, in the order given, which every caller
    /// sorts. `None` where nothing was applied.
    fn lock_progress(
        &mut self,
        consumer: &str,
        aggregates: &[&str],
    ) -> impl Future<Output = Result<Vec<Option<Progress>>, StoreError>> + Send;

    /// Writes aggregates' progress, in the order given. A row that another transaction wrote first is
    /// [`StoreError::Contended`]: the unit is to be run again.
    fn save_progress(
        &mut self,
        consumer: &str,
        advances: &[Advance<'_>],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Runs a declared statement once for each list of values, in order, and returns the rows each run matched. An
    /// adapter may run fewer statements where the result is provably the same; then it may not know which operation
    /// failed.
    fn execute_each(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
    ) -> impl Future<Output = Result<Vec<u64>, EachError>> + Send {
        async move {
            let mut rows = Vec::with_capacity(values.len());
            for (at, values) in values.iter().enumerate() {
                let matched = self.execute(statement.sql(), values).await;
                rows.push(matched.map_err(|error| EachError { at: Some(at), error })?);
            }
            Ok(rows)
        }
    }

    /// Runs one statement with bound values (`?` placeholders in order) and returns the number of rows it matched.
    fn execute(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> impl Future<Output = Result<u64, StoreError>> + Send;

    /// Commits.
    fn commit(self) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Rolls back, by name; the connection is usable again afterwards or thrown away.
    fn rollback(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A delivery that cannot be processed, about to be put aside for people.
#[derive(Clone, Debug)]
pub struct DeadDelivery<'a> {
    /// The consumer that gave up.
    pub consumer: &'a str,
    /// The delivery's business key, when it could be computed.
    pub business_key: Option<&'a str>,
    /// The message.
    pub message: &'a Message,
    /// Why.
    pub reason: &'a str,
}

/// Why a delivery waits in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkReason {
    /// It was refused and is to be tried again later.
    Retry,
    /// A step of its aggregate before it is missing.
    Gap,
    /// An operator sent it back from the dead deliveries or the conflicts.
    Requeued,
}

/// A delivery that is to wait in the database instead of in front of its queue.
#[derive(Clone, Debug)]
pub struct ParkDelivery<'a> {
    /// The consumer.
    pub consumer: &'a str,
    /// The delivery's business key.
    pub business_key: Option<&'a str>,
    /// The message, kept whole.
    pub message: &'a Message,
    /// Why.
    pub reason: ParkReason,
    /// Why, in words for people.
    pub detail: &'a str,
    /// How often it was refused so far.
    pub attempts: u32,
    /// The aggregate and the version that it waits to apply, for a gap.
    pub step: Option<(&'a str, i64)>,
    /// When it is tried again at the latest. A gap is tried as soon as the step before it was applied.
    pub delay: Duration,
}

/// A delivery that waited in the database.
#[derive(Clone, Debug)]
pub struct ParkedDelivery {
    /// The row.
    pub id: i64,
    /// The lease under which it was handed out.
    pub lease_token: String,
    /// Why it waited.
    pub reason: ParkReason,
    /// True when its time is over, which ends the wait for a gap.
    pub overdue: bool,
    /// The message; its delivery count is the number of attempts so far plus one.
    pub message: Message,
}

/// Deliveries that wait in the consumer's own database: for their next attempt, or for the step before them. They
/// survive restarts, block no queue, and are not counted by the broker.
pub trait Parking: Send + Sync {
    /// Parks a delivery and commits it. The same message of the same consumer is parked once: parking it again
    /// replaces its reason, attempts and delay, and ends a lease on it.
    fn park(&self, parked: &ParkDelivery<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Hands out at most `limit` deliveries of the consumer whose time has come or whose step has become the next
    /// one, oldest first, each leased for `lease`. Rows locked or leased by others are skipped.
    fn due(
        &self,
        consumer: &str,
        limit: u32,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<ParkedDelivery>, StoreError>> + Send;

    /// Removes a delivery after it was processed. `false` when the lease is no longer held: someone else has it.
    fn unpark(&self, id: i64, lease_token: &str) -> impl Future<Output = Result<bool, StoreError>> + Send;
}

/// A consumer's side: markers and business writes in one database.
pub trait InboxStore: Send + Sync {
    /// An open transaction.
    type Transaction: InboxTransaction;

    /// Begins a transaction, READ COMMITTED or stricter.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Reads the committed marker of the operation's key, outside any transaction.
    fn marker(
        &self,
        operation: &Operation,
    ) -> impl Future<Output = Result<Option<StoredMarker>, StoreError>> + Send;

    /// Reads the committed markers of several operations of one consumer, in order, outside any transaction.
    fn markers(
        &self,
        operations: &[&Operation],
    ) -> impl Future<Output = Result<Vec<Option<StoredMarker>>, StoreError>> + Send {
        async move {
            let mut markers = Vec::with_capacity(operations.len());
            for operation in operations {
                markers.push(self.marker(operation).await?);
            }
            Ok(markers)
        }
    }

    /// Records a conflict and commits it. The same conflicting content again raises the record's count.
    fn record_conflict(
        &self,
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Records a dead delivery and commits it.
    fn record_dead(&self, dead: &DeadDelivery<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;
}
