//! The inbox: marker and business change in one transaction, commit, then ack.
//!
//! ```text
//! Delivery ─► begin ─► marker ─► guard ─► handler ─► commit ─► Committed ─ack─► done
//!                        │         └ stale | gap ─► rollback
//!                        └ taken ─► rollback ─► read marker ─► Duplicate | Conflict (recorded)
//! ```
//!
//! Many deliveries may share one transaction ([`Inbox::process_all`]); each comes to what it would have come to alone.

use std::future::Future;
use std::time::Duration;

use crate::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use crate::operation::Operation;
use crate::outcome::Proof;
use crate::ports::{DeadDelivery, InboxStore, ParkDelivery, Parking, StoreError};
use crate::safeguard::{Safeguard, stands};

mod batch;
mod unit;

/// What processing a delivery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Processed {
    /// The business change was made and committed.
    Applied,
    /// The same operation was applied before: nothing was changed.
    Duplicate,
    /// The same key with other content: nothing was changed, the conflict is recorded and committed.
    Conflict,
    /// Something newer was applied to the aggregate: nothing was changed.
    Stale,
}

/// Why a delivery could not be processed. Nothing of it is committed, except perhaps under `CommitUnknown`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProcessError {
    /// The store failed; the delivery is not at fault.
    #[error(transparent)]
    Store(StoreError),
    /// The handler, or the database over one of its values, refused: the delivery counts an attempt.
    #[error("{0}")]
    Handler(String),
    /// A step of the aggregate before this one is missing: the delivery is to wait.
    #[error("version {version} of {aggregate} came before version {expected}")]
    Gap {
        /// The aggregate.
        aggregate: String,
        /// The version that must come first.
        expected: i64,
        /// The version that came.
        version: i64,
    },
    /// COMMIT got no answer. The redelivery finds the marker if it was applied.
    #[error("{0}")]
    CommitUnknown(StoreError),
}

/// A handler's failure; everything is rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// The message cannot be applied as things are: wrong row count, invalid content.
    Refused(String),
    /// The store failed underneath.
    Store(StoreError),
}

impl From<StoreError> for HandlerError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The business change, run inside the transaction that holds the marker.
pub trait Handler<Tx>: Send + Sync {
    /// Makes the change. An error rolls back everything, the marker too.
    fn apply(
        &self,
        tx: &mut Tx,
        operation: &Operation,
        message: &Message,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Makes the changes of several operations, in order, in one transaction. What it does must be what
    /// [`Handler::apply`] does one after another; an error says which operation is at fault, when that is known.
    fn apply_each<'a>(
        tx: &'a mut Tx,
        work: &'a [Work<'a, Self>],
    ) -> impl Future<Output = Result<(), EachFailed>> + Send + 'a
    where
        Self: Sized,
        Tx: Send,
    {
        async move {
            for (at, work) in work.iter().enumerate() {
                let applied = work.handler.apply(tx, work.operation, work.message).await;
                applied.map_err(|error| EachFailed { at: Some(at), error })?;
            }
            Ok(())
        }
    }
}

/// One operation of several that share a transaction.
#[derive(Debug)]
pub struct Work<'a, H> {
    /// What is asked for.
    pub operation: &'a Operation,
    /// The message that asks.
    pub message: &'a Message,
    /// What carries it out.
    pub handler: &'a H,
}

impl<H> Clone for Work<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Work<'_, H> {}

/// Why several changes were not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EachFailed {
    /// The operation at fault, by its place in the list; `None` when it is one of them and nobody knows which.
    pub at: Option<usize>,
    /// What happened.
    pub error: HandlerError,
}

/// A processed delivery whose result is committed: only now can it be acknowledged.
///
/// ```
/// # use consign_core::{delivery::Receipt, inbox::Committed};
/// async fn acknowledge(committed: Committed<impl Receipt>) {
///     let _ = committed.ack().await;
/// }
/// ```
///
/// It cannot be acknowledged twice, nor its receipt be taken out to acknowledge another delivery:
///
/// ```compile_fail,E0382
/// # use consign_core::{delivery::Receipt, inbox::Committed};
/// async fn acknowledge_twice(committed: Committed<impl Receipt>) {
///     let _ = committed.ack().await;
///     let _ = committed.ack().await;
/// }
/// ```
///
/// ```compile_fail,E0616
/// # use consign_core::{delivery::Receipt, inbox::Committed};
/// fn take<R: Receipt>(committed: Committed<R>) -> R {
///     committed.receipt
/// }
/// ```
#[must_use = "an unacknowledged delivery comes again"]
#[derive(Debug)]
pub struct Committed<R> {
    /// What it came to.
    pub processed: Processed,
    /// The message.
    pub message: Message,
    receipt: R,
}

impl<R: Receipt> Committed<R> {
    /// Acknowledges. A lost receipt is no error of the effect: the redelivery becomes a duplicate.
    pub async fn ack(self) -> Result<Processed, ReceiptLost> {
        self.receipt.ack(AckPermit(())).await.map(|()| self.processed)
    }

    /// Gives up the result, because the consumer's policy does not take it for done: a recorded conflict that is to
    /// be put aside, or that stops the consumer.
    pub fn refuse(self, reason: impl Into<String>) -> Failed<R> {
        let Self { message, receipt, .. } = self;
        Failed { error: ProcessError::Handler(reason.into()), message, receipt }
    }
}

/// A delivery that could not be processed. It can come again or be put aside, never acknowledged as success.
///
/// ```compile_fail,E0599
/// # use consign_core::{delivery::Receipt, inbox::Failed};
/// async fn acknowledge(failed: Failed<impl Receipt>) {
///     let _ = failed.ack().await;
/// }
/// ```
#[must_use = "a failed delivery must be retried or put aside"]
#[derive(Debug)]
pub struct Failed<R> {
    /// Why.
    pub error: ProcessError,
    /// The message.
    pub message: Message,
    receipt: R,
}

impl<R: Receipt> Failed<R> {
    /// A delivery that was refused before any transaction: invalid, undecodable, without a key.
    pub fn refused(delivery: Delivery<R>, reason: impl Into<String>) -> Self {
        let Delivery { message, receipt } = delivery;
        Self { error: ProcessError::Handler(reason.into()), message, receipt }
    }

    /// The delivery as it was, to be processed again without bothering the broker: what a store that is away calls
    /// for, since brokers count what is handed back and drop what is handed back too often (quorum queues,
    /// `x-delivery-limit`).
    pub fn again(self) -> Delivery<R> {
        let Self { message, receipt, .. } = self;
        Delivery { message, receipt }
    }

    /// True when it is to be handed back rather than parked ([`Receipt::stays_with_broker`]).
    pub fn stays_with_broker(&self) -> bool {
        self.receipt.stays_with_broker()
    }

    /// Hands it back, to come again after about `delay`.
    pub async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.receipt.retry(delay).await
    }

    /// Acknowledges it, because a dead-letter destination has proved that it took the message.
    pub async fn dead_lettered(self, published: &Proof) -> Result<(), ReceiptLost> {
        // The proof is the permission; its content was checked when it was made.
        let _ = published;
        self.receipt.ack(AckPermit(())).await
    }

    /// Acknowledges it after parking it in the consumer's own database, where it waits for its next attempt.
    ///
    /// # Errors
    /// It could not be parked: the failed delivery comes back with the store's error.
    pub async fn park<S: Parking>(
        self,
        store: &S,
        parked: ParkDelivery<'_>,
    ) -> Result<Result<(), ReceiptLost>, (Self, StoreError)> {
        let parked = ParkDelivery { message: &self.message, ..parked };
        match store.park(&parked).await {
            Err(error) if stands(Safeguard::ParkCommitted) => Err((self, error)),
            Ok(()) | Err(_) => Ok(self.receipt.ack(AckPermit(())).await),
        }
    }

    /// Puts it aside after recording it as a dead delivery in the consumer's own database ([`Receipt::put_aside`]).
    ///
    /// # Errors
    /// The record could not be committed: the failed delivery comes back with the store's error.
    pub async fn record_dead<S: InboxStore>(
        self,
        store: &S,
        consumer: &str,
        business_key: Option<&str>,
    ) -> Result<Result<(), ReceiptLost>, (Self, StoreError)> {
        let reason = self.error.to_string();
        let dead = DeadDelivery { consumer, business_key, message: &self.message, reason: &reason };
        match store.record_dead(&dead).await {
            Err(error) if stands(Safeguard::DeadRecordCommitted) => Err((self, error)),
            Ok(()) | Err(_) => Ok(self.receipt.put_aside(AckPermit(())).await),
        }
    }
}

/// The inbox of one store.
#[derive(Clone, Debug)]
pub struct Inbox<S> {
    store: S,
}

impl<S: InboxStore> Inbox<S> {
    /// An inbox over `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Processes one delivery: at most one effect for any number of copies of the operation.
    ///
    /// Run it in a task that nothing aborts: a unit of work must reach its COMMIT or ROLLBACK.
    ///
    /// # Errors
    /// [`Failed`] holds the receipt: the caller retries it or puts it aside.
    pub async fn process<R: Receipt>(
        &self,
        delivery: Delivery<R>,
        operation: &Operation,
        handler: &impl Handler<S::Transaction>,
    ) -> Result<Committed<R>, Failed<R>> {
        let Delivery { message, receipt } = delivery;
        let work = [Work { operation, message: &message, handler }];
        let result = batch::run(&self.store, &work, false).await.remove(0);
        conclude(result, message, receipt)
    }

    /// Processes several deliveries of one consumer in as few transactions as their content allows. The results are
    /// in the order of the deliveries, each what it would have been alone.
    ///
    /// `look_first` reads the markers before the first transaction: worth a round trip when repeats are common. The
    /// unique key decides in either case.
    ///
    /// Run it in a task that nothing aborts: a unit of work must reach its COMMIT or ROLLBACK.
    pub async fn process_all<R: Receipt, H: Handler<S::Transaction>>(
        &self,
        units: Vec<Unit<R, H>>,
        look_first: bool,
    ) -> Vec<Concluded<R, H>> {
        let work: Vec<Work<'_, H>> = units.iter().map(Unit::work).collect();
        let results = batch::run(&self.store, &work, look_first).await;
        let mut concluded = Vec::with_capacity(units.len());
        for (unit, result) in units.into_iter().zip(results) {
            let Unit { delivery, operation, handler } = unit;
            let result = conclude(result, delivery.message, delivery.receipt);
            concluded.push(Concluded { result, operation, handler });
        }
        concluded
    }
}

/// What one delivery of several came to, with what it asked for: a failed one may be processed again.
#[must_use = "a delivery that is neither acknowledged nor handed back waits for ever"]
#[derive(Debug)]
pub struct Concluded<R, H> {
    /// What it came to.
    pub result: Result<Committed<R>, Failed<R>>,
    /// What it asked for.
    pub operation: Operation,
    /// What was to carry it out.
    pub handler: H,
}

/// One delivery, read into what it asks for.
#[derive(Debug)]
pub struct Unit<R, H> {
    /// The delivery.
    pub delivery: Delivery<R>,
    /// What it asks for.
    pub operation: Operation,
    /// What carries it out.
    pub handler: H,
}

impl<R, H> Unit<R, H> {
    fn work(&self) -> Work<'_, H> {
        Work { operation: &self.operation, message: &self.delivery.message, handler: &self.handler }
    }
}

#[cfg(feature = "mutants")]
impl<R, H> Concluded<R, H> {
    /// A repeat that nobody has looked up: what a missing guard makes of a hint.
    pub(crate) fn believed(unit: Unit<R, H>) -> Self {
        let Unit { delivery, operation, handler } = unit;
        let result = conclude(Ok(Processed::Duplicate), delivery.message, delivery.receipt);
        Self { result, operation, handler }
    }
}

#[expect(
    clippy::result_large_err,
    reason = "either side holds the delivery: boxing one would only move it once more"
)]
fn conclude<R>(
    result: Result<Processed, ProcessError>,
    message: Message,
    receipt: R,
) -> Result<Committed<R>, Failed<R>> {
    match result {
        Ok(processed) => Ok(Committed { processed, message, receipt }),
        Err(error) => Err(Failed { error, message, receipt }),
    }
}
