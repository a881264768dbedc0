//! The inbox: markers and business writes in one transaction.

use std::fmt;
use std::sync::Arc;

use consign_core::delivery::Message;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{CommitError, DeadDelivery, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::{Sqlite, SqliteConnection};

use crate::mapping::MarkerMapping;
use crate::sqlite::connection::{Database, shielded};
use crate::sqlite::failure;
use crate::sqlite::inbox::marker::Prepared;
use crate::sqlite::inbox::value::{StatementError, run};
use crate::sqlite::prepared::Kept;
use crate::status::InboxStatus;

mod marker;
mod record;
mod value;

/// An inbox: a marker table, and consign's own tables beside it. Cloning it shares everything.
#[derive(Clone, Debug)]
pub struct Inbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    mapping: MarkerMapping,
    prepared: Kept<Prepared>,
}

impl Inbox {
    /// The inbox whose markers are at `mapping` in `database`.
    pub fn new(database: Database, mapping: MarkerMapping) -> Self {
        Self { shared: Arc::new(Shared { database, mapping, prepared: Kept::default() }) }
    }

    /// The file.
    pub fn database(&self) -> &Database {
        &self.shared.database
    }

    /// The table's names.
    pub fn mapping(&self) -> &MarkerMapping {
        &self.shared.mapping
    }

    /// Counts markers and records.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn status(&self) -> Result<InboxStatus, StoreError> {
        record::status(self.database(), self.mapping()).await
    }

    /// Checks the marker table and consign's own tables. Looks at them afresh.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn findings(&self) -> Result<Vec<consign_core::finding::Finding>, StoreError> {
        crate::sqlite::findings::inbox(self.database(), self.mapping()).await
    }

    async fn prepared(&self) -> Result<Arc<Prepared>, StoreError> {
        let mapping = self.shared.mapping.clone();
        let reading = self
            .database()
            .read(move |connection| async move { Prepared::read(connection, mapping).await }.boxed());
        self.shared.prepared.get(reading).await
    }
}

impl InboxStore for Inbox {
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction, StoreError> {
        let prepared = self.prepared().await?;
        let live = self.database().begin().await?;
        Ok(Transaction { live: Some(live), failed: None, prepared })
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        let prepared = self.prepared().await?;
        let markers = prepared.markers(&operation.comparison)?;
        let key = (operation.consumer.clone(), operation.key.clone());
        let reading = self
            .database()
            .read(move |connection| async move { markers.select(connection, &key.0, &key.1).await }.boxed());
        self.shared.prepared.noting(reading.await)
    }

    async fn record_conflict(
        &self,
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> Result<(), StoreError> {
        let record = record::Conflict::new(operation, message, existing)?;
        record::write(self.database(), record).await
    }

    async fn record_dead(&self, dead: &DeadDelivery<'_>) -> Result<(), StoreError> {
        let record = record::Dead::new(dead)?;
        record::write(self.database(), record).await
    }
}

/// One open inbox transaction; it holds the file's write lock. Dropping it, or the future of one of its steps, rolls
/// it back.
#[must_use = "a dropped transaction is rolled back"]
pub struct Transaction {
    /// Absent while a step runs, so that a dropped step takes it along.
    live: Option<sqlx::Transaction<'static, Sqlite>>,
    /// Why it must not be committed any more.
    failed: Option<StoreError>,
    prepared: Arc<Prepared>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Transaction").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Transaction {
    /// The transaction itself, for handlers that bring their own statements and for appending events to an outbox in
    /// the same file.
    ///
    /// # Errors
    /// A step of it was dropped or failed: it can only be rolled back.
    pub fn inner(&mut self) -> Result<&mut sqlx::Transaction<'static, Sqlite>, StoreError> {
        match (&self.failed, &mut self.live) {
            (Some(failed), _) => Err(failed.clone()),
            (None, Some(live)) => Ok(live),
            (None, None) => Err(abandoned()),
        }
    }

    async fn step<T, W>(&mut self, work: W) -> Result<T, StepError>
    where
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StatementError>>,
    {
        self.inner().map_err(StepError::Store)?;
        let mut live = self.live.take().ok_or_else(|| StepError::Store(abandoned()))?;
        let result = work(&mut live).await;
        self.live = Some(live);
        result.map_err(StepError::Statement)
    }

    /// What an error means; only a refused value leaves the transaction usable.
    fn judge(&mut self, error: StepError) -> StoreError {
        let error = match error {
            StepError::Statement(StatementError::Sql(error)) => failure::store_error(&error),
            StepError::Statement(StatementError::Placeholders { wanted, given }) => {
                StoreError::Schema(format!(
                    "the statement has {wanted} placeholders and {given} values: give one value for each"
                ))
            }
            StepError::Store(error) => error,
        };
        if !matches!(error, StoreError::Data(_)) {
            self.failed.get_or_insert_with(|| error.clone());
        }
        error
    }
}

enum StepError {
    Statement(StatementError),
    Store(StoreError),
}

impl InboxTransaction for Transaction {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        let prepared = Arc::clone(&self.prepared);
        let markers = prepared.markers(&operation.comparison)?;
        prepared.check(operation)?;
        let step = self.step(|connection| {
            let operation = operation.clone();
            async move { markers.insert(connection, &operation).await.map_err(StatementError::Sql) }.boxed()
        });
        match step.await {
            Ok(()) => Ok(Mark::Inserted),
            Err(StepError::Statement(StatementError::Sql(error)))
                if failure::is_duplicate_of(&error, prepared.key_column()) =>
            {
                self.failed = Some(StoreError::Data("the marker is taken".into()));
                Ok(Mark::Taken)
            }
            Err(error) => Err(self.judge(error)),
        }
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        let step =
            self.step(move |connection| async move { run(connection, &sql, &values).await }.boxed()).await;
        step.map_err(|error| self.judge(error))
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        if let Err(error) = self.inner() {
            // Whether the rollback works or costs the connection, nothing is committed.
            let _ = self.rollback().await;
            return Err(CommitError::RolledBack(error));
        }
        let Some(live) = self.live.take() else { return Err(CommitError::RolledBack(abandoned())) };
        match shielded(live.commit()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(failure::commit_error(&error)),
            None => Err(CommitError::Unknown(StoreError::CommitUnknown("the runtime ended".into()))),
        }
    }

    async fn rollback(mut self) -> Result<(), StoreError> {
        let Some(live) = self.live.take() else { return Ok(()) };
        match shielded(live.rollback()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(failure::store_error(&error)),
            None => Err(StoreError::Unavailable("the runtime ended".into())),
        }
    }
}

fn abandoned() -> StoreError {
    StoreError::Unavailable("a step of the transaction was dropped: it was rolled back".into())
}
