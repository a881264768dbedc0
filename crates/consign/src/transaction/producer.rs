//! The caller's side of transaction messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use consign_core::ports::{CommitError, StoreError};
use consign_core::time::Draw;
use consign_core::transaction::Spans;
use consign_core::transaction::half::{EndLost, HalfError, HalfMessage, HalfMessages};
use consign_core::transaction::local::{self, Ended, MarkError};
use consign_core::transaction::message::{InvalidMessage, TransactionKey, TransactionMessage};
use consign_store::transaction::LocalMarkers;
use futures_util::future::BoxFuture;
use sqlx::{Pool, Transaction};
use tokio::time::Instant;

use crate::clock::ProcessClock;
use crate::draw::SystemDraw;
use crate::transaction::dates::Dates;

/// The beginning of 2021 in seconds since the Unix epoch: keys count from it.
const KEY_EPOCH_SECONDS: i64 = 1_609_459_200;

/// Sends messages under local transactions. Cheap to clone.
#[derive(Debug)]
pub struct TransactionProducer<M, H> {
    shared: Arc<Shared<M, H>>,
}

impl<M, H> Clone for TransactionProducer<M, H> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<M, H> {
    markers: M,
    broker: Arc<H>,
    spans: Spans,
    clock: ProcessClock,
    dates: Dates,
    identity: [u8; 8],
    number: AtomicU32,
}

/// No local transaction may run for the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The message does not fit.
    #[error(transparent)]
    Invalid(#[from] InvalidMessage),
    /// The database does not say what time it is, so that it would not take a marker either.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker does not hold it.
    #[error(transparent)]
    Half(#[from] HalfError),
}

/// The local transaction did not commit, as far as anybody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitFailed {
    /// It was certainly rolled back, and the broker was told so.
    #[error("transaction {key} was rolled back: {error}")]
    RolledBack {
        /// The key.
        key: TransactionKey,
        /// Why.
        error: StoreError,
    },
    /// Its COMMIT has no answer. The broker was told nothing: it asks, and the marker tells it and anybody else who looks.
    #[error("whether transaction {key} committed is unknown: {error}")]
    Unknown {
        /// The key.
        key: TransactionKey,
        /// What happened.
        error: StoreError,
    },
}

/// The local transaction committed, and the broker was told, or will ask.
#[derive(Debug)]
pub struct CommitSent {
    /// The key: the message id of every copy.
    pub key: TransactionKey,
    /// Whether the commit left this process. `Ok` is no proof that it arrived, an error no harm: the broker asks.
    pub told: Result<(), EndLost>,
}

/// Why [`TransactionProducer::run`] came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError<E> {
    /// No local transaction ran.
    #[error(transparent)]
    Begin(#[from] BeginError),
    /// The local transaction could not begin, and the message was rolled back.
    #[error("the local transaction could not begin: {0}")]
    Connection(sqlx::Error),
    /// The marker was not taken, and the local transaction was rolled back.
    #[error(transparent)]
    Mark(#[from] MarkError),
    /// The caller's own work failed, and the local transaction was rolled back.
    #[error("the local transaction was rolled back: {0}")]
    Local(E),
    /// The commit failed.
    #[error(transparent)]
    Commit(#[from] CommitFailed),
}

impl<M, H> TransactionProducer<M, H>
where
    M: LocalMarkers + 'static,
    H: HalfMessages + 'static,
{
    /// A producer over a marker store and a broker. `spans` are those of the service that answers for it.
    pub fn new(markers: M, broker: Arc<H>, spans: Spans) -> Self {
        let bits = SystemDraw.bits();
        let (identity, rest) = bits.split_first_chunk::<8>().expect("sixteen bytes have eight");
        let first = rest.first_chunk::<4>().expect("eight bytes have four");
        Self {
            shared: Arc::new(Shared {
                markers,
                broker,
                spans,
                clock: ProcessClock::start(),
                dates: Dates::default(),
                identity: *identity,
                number: AtomicU32::new(u32::from_be_bytes(*first)),
            }),
        }
    }

    /// Sends the half message. Only when the broker took it without reservation may the local transaction run.
    ///
    /// # Errors
    /// Nothing is to be done but to try again under a new key: a half message that the broker may have is dropped when it
    /// asks.
    pub async fn begin(&self, message: TransactionMessage) -> Result<Prepared<M, H>, BeginError> {
        message.check()?;
        let shared = &*self.shared;
        let begun = Instant::now();
        let since = shared.clock.now();
        let begun_at_micros = shared.dates.at(begun, &shared.markers).await?;
        let half = HalfMessage {
            key: shared.key(begun_at_micros),
            store: shared.markers.name().clone(),
            begun_at_micros,
            message,
        };
        let sent = shared.broker.send_half(&half).await?;
        let HalfMessage { key, message, .. } = half;
        let local = local::Prepared::new(sent, key, since, shared.spans.longest());
        Ok(Prepared { local, message, producer: self.clone() })
    }

    /// The whole of it: half message, local transaction on a connection of `pool` with the marker first, commit, and the
    /// end. `local` must not end the transaction by itself, as definitions of tables do in MySQL.
    ///
    /// # Errors
    /// Says how far it came. But for [`CommitFailed::Unknown`] the local transaction is rolled back.
    pub async fn run<T, E, F>(
        &self,
        message: TransactionMessage,
        pool: &Pool<M::Database>,
        local: F,
    ) -> Result<(T, CommitSent), RunError<E>>
    where
        F: for<'t> FnOnce(&'t mut Transaction<'static, M::Database>) -> BoxFuture<'t, Result<T, E>> + Send,
        T: Send,
        E: Send,
    {
        let prepared = self.begin(message).await?;
        let mut tx = match pool.begin().await {
            Ok(tx) => tx,
            Err(error) => {
                prepared.rollback().await;
                return Err(RunError::Connection(error));
            }
        };
        let marked = prepared.mark(&mut tx).await?;
        match local(&mut tx).await {
            Ok(value) => Ok((value, marked.commit(tx).await?)),
            Err(error) => {
                marked.rollback(tx).await;
                Err(RunError::Local(error))
            }
        }
    }

    async fn end(&self, key: &TransactionKey, (half, end): Ended<H::Half>) -> Result<(), EndLost> {
        let told = self.shared.broker.end(half, end).await;
        if let Err(error) = &told {
            tracing::warn!(transaction = %key, %error, "end was not sent, the broker will ask");
        }
        told
    }
}

impl<M, H> Shared<M, H> {
    fn key(&self, begun_at_micros: i64) -> TransactionKey {
        let seconds = (begun_at_micros / 1_000_000 - KEY_EPOCH_SECONDS).max(0);
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        TransactionKey::draw(self.identity, u32::try_from(seconds).unwrap_or(u32::MAX), number)
    }
}

/// The broker holds the message back. Dropped without an end, it is asked about and rolled back after the longest local
/// transaction.
#[must_use = "a half message that nobody ends is asked about"]
pub struct Prepared<M, H: HalfMessages> {
    local: local::Prepared<H::Half>,
    message: TransactionMessage,
    producer: TransactionProducer<M, H>,
}

impl<M, H> Prepared<M, H>
where
    M: LocalMarkers + 'static,
    H: HalfMessages + 'static,
{
    /// The key: the message id of every copy.
    pub fn key(&self) -> &TransactionKey {
        self.local.key()
    }

    /// Inserts the marker in the caller's transaction. As its first statement it also tells early of a transaction that came
    /// too late. Do not end the transaction by other means than [`Marked`]'s.
    ///
    /// # Errors
    /// The transaction must be rolled back: without its marker it may not commit. Nothing is said to the broker, which
    /// must not be waited for while a transaction is open: it asks, and is answered from the markers.
    pub async fn mark(self, tx: &mut Transaction<'_, M::Database>) -> Result<Marked<M, H>, MarkError> {
        let Self { local, message, producer } = self;
        local.in_time(producer.shared.clock.now())?;
        let mark = producer.shared.markers.mark(tx, local.key(), &message).await;
        Ok(Marked { local: local.marked(mark)?, producer })
    }

    /// The local transaction does not take place.
    pub async fn rollback(self) {
        let key = self.local.key().clone();
        let _ = self.producer.end(&key, self.local.abandoned()).await;
    }
}

/// The marker is in the caller's open transaction.
#[must_use = "a half message that nobody ends is asked about"]
pub struct Marked<M, H: HalfMessages> {
    local: local::Marked<H::Half>,
    producer: TransactionProducer<M, H>,
}

impl<M, H> Marked<M, H>
where
    M: LocalMarkers + 'static,
    H: HalfMessages + 'static,
{
    /// The key: the message id of every copy.
    pub fn key(&self) -> &TransactionKey {
        self.local.key()
    }

    /// Commits the local transaction and tells the broker.
    ///
    /// # Errors
    /// The COMMIT was refused, or has no answer. In the second case nothing is said to the broker.
    pub async fn commit(self, tx: Transaction<'_, M::Database>) -> Result<CommitSent, CommitFailed> {
        let committed = self.producer.shared.markers.commit(tx).await;
        self.ended(committed).await
    }

    /// The caller committed the transaction by other means, and has the answer.
    pub async fn committed(self) -> CommitSent {
        let key = self.local.key().clone();
        let ended = self.local.ended(&Ok(())).expect("a committed transaction has an end");
        CommitSent { told: self.producer.end(&key, ended).await, key }
    }

    /// Rolls the local transaction back and tells the broker. When the rollback has no answer the server rolls back by
    /// itself, and the broker asks.
    pub async fn rollback(self, tx: Transaction<'_, M::Database>) {
        let key = self.local.key().clone();
        match tx.rollback().await {
            Ok(()) => {
                let _ = self.producer.end(&key, self.local.rolled_back()).await;
            }
            Err(error) => {
                tracing::warn!(transaction = %key, %error, "rollback has no answer, the broker will ask");
            }
        }
    }

    async fn ended(self, committed: Result<(), CommitError>) -> Result<CommitSent, CommitFailed> {
        let key = self.local.key().clone();
        let told = match self.local.ended(&committed) {
            Some(ended) => self.producer.end(&key, ended).await,
            None => Ok(()),
        };
        match committed {
            Ok(()) => Ok(CommitSent { key, told }),
            Err(CommitError::RolledBack(error)) => Err(CommitFailed::RolledBack { key, error }),
            Err(CommitError::Unknown(error)) => Err(CommitFailed::Unknown { key, error }),
        }
    }
}
