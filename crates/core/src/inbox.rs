//! The inbox: marker and business change in one transaction, commit, then ack.
//!
//! ```text
//! Delivery ─► begin ─► marker ─► handler ─► commit ─► Committed ─ack─► done
//!                        └ taken ─► rollback ─► read marker ─► Duplicate | Conflict (recorded)
//! ```

use std::future::Future;
use std::time::Duration;

use crate::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use crate::operation::Operation;
use crate::outcome::Proof;
use crate::ports::{CommitError, DeadDelivery, InboxStore, InboxTransaction, Mark, StoreError};

/// How often a unit of work that lost a lock race is run again before the delivery is handed back.
const CONTENDED_TRIES: u32 = 5;

/// What processing a delivery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Processed {
    /// The business change was made and committed.
    Applied,
    /// The same operation was applied before: nothing was changed.
    Duplicate,
    /// The same key with other content: nothing was changed, the conflict is recorded and committed.
    Conflict,
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
    receipt: R,
}

impl<R: Receipt> Committed<R> {
    /// Acknowledges. A lost receipt is no error of the effect: the redelivery becomes a duplicate.
    pub async fn ack(self) -> Result<Processed, ReceiptLost> {
        self.receipt.ack(AckPermit(())).await.map(|()| self.processed)
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

    /// Acknowledges it after recording it as a dead delivery in the consumer's own database.
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
            Ok(()) => Ok(self.receipt.ack(AckPermit(())).await),
            Err(error) => Err((self, error)),
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
        match self.apply(operation, &message, handler).await {
            Ok(processed) => Ok(Committed { processed, receipt }),
            Err(error) => Err(Failed { error, message, receipt }),
        }
    }

    async fn apply(
        &self,
        operation: &Operation,
        message: &Message,
        handler: &impl Handler<S::Transaction>,
    ) -> Result<Processed, ProcessError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.apply_once(operation, message, handler).await {
                Err(ProcessError::Store(StoreError::Contended(_))) if tries < CONTENDED_TRIES => {}
                result => return result,
            }
        }
    }

    async fn apply_once(
        &self,
        operation: &Operation,
        message: &Message,
        handler: &impl Handler<S::Transaction>,
    ) -> Result<Processed, ProcessError> {
        let mut tx = self.store.begin().await.map_err(ProcessError::Store)?;
        match tx.mark(operation).await {
            Ok(Mark::Inserted) => {}
            Ok(Mark::Taken) => {
                tx.rollback().await.map_err(ProcessError::Store)?;
                return self.compare(operation, message).await;
            }
            Err(error) => return Err(roll_back(tx, blame(error)).await),
        }
        match handler.apply(&mut tx, operation, message).await {
            Ok(()) => {}
            Err(HandlerError::Refused(reason)) => {
                return Err(roll_back(tx, ProcessError::Handler(reason)).await);
            }
            Err(HandlerError::Store(error)) => return Err(roll_back(tx, blame(error)).await),
        }
        match tx.commit().await {
            Ok(()) => Ok(Processed::Applied),
            Err(CommitError::RolledBack(error)) => Err(blame(error)),
            Err(CommitError::Unknown(error)) => Err(ProcessError::CommitUnknown(error)),
        }
    }

    async fn compare(&self, operation: &Operation, message: &Message) -> Result<Processed, ProcessError> {
        let stored = self.store.marker(operation).await.map_err(blame)?;
        let Some(stored) = stored else {
            // Whoever held the key rolled back in between: the unit is worth another try.
            return Err(ProcessError::Store(StoreError::Contended("the marker vanished".into())));
        };
        if operation.comparison.matches(&stored) {
            return Ok(Processed::Duplicate);
        }
        self.store.record_conflict(operation, message, &stored).await.map_err(blame)?;
        Ok(Processed::Conflict)
    }
}

/// A value that the database refuses, such as a key too long for its column, is the message's fault as a refusal is:
/// it would be refused however often the delivery came again.
fn blame(error: StoreError) -> ProcessError {
    match error {
        StoreError::Data(reason) => ProcessError::Handler(reason),
        StoreError::Unavailable(_)
        | StoreError::Contended(_)
        | StoreError::CommitUnknown(_)
        | StoreError::Schema(_)
        | StoreError::Mismatch(_) => ProcessError::Store(error),
    }
}

async fn roll_back<Tx: InboxTransaction>(tx: Tx, error: ProcessError) -> ProcessError {
    match tx.rollback().await {
        Ok(()) => error,
        Err(rollback) => match error {
            // The first error says what happened; a failed rollback only costs the connection.
            ProcessError::Handler(reason) => ProcessError::Handler(reason),
            ProcessError::Store(_) | ProcessError::CommitUnknown(_) => ProcessError::Store(rollback),
        },
    }
}
