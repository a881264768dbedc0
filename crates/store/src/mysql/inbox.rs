//! The inbox: markers and business writes in one transaction.

use std::fmt;
use std::sync::Arc;

use consign_core::delivery::Message;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{CommitError, DeadDelivery, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, query};

use crate::mapping::MarkerMapping;
use crate::mysql::connection::{Database, Lane, shielded};
use crate::mysql::failure;
use crate::mysql::inbox::marker::Prepared;
use crate::mysql::inbox::value::bind_value;
use crate::mysql::prepared::Kept;
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

    /// The server.
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
    /// The server cannot be reached.
    pub async fn status(&self) -> Result<InboxStatus, StoreError> {
        record::status(self.database(), self.mapping()).await
    }

    /// Checks the marker table and consign's own tables. Looks at them afresh.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn findings(&self) -> Result<Vec<consign_core::finding::Finding>, StoreError> {
        crate::mysql::findings::inbox(self.database(), self.mapping()).await
    }

    async fn prepared(&self) -> Result<Arc<Prepared>, StoreError> {
        let mapping = self.shared.mapping.clone();
        let reading = self.database().read(Lane::General, move |connection| {
            async move { Prepared::read(connection, mapping).await }.boxed()
        });
        self.shared.prepared.get(reading).await
    }
}

impl InboxStore for Inbox {
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction, StoreError> {
        let prepared = self.prepared().await?;
        let database = self.database().clone();
        let unit = async move {
            let begun = tokio::time::timeout(database.unit_timeout(), database.pool().begin()).await;
            match begun {
                Ok(Ok(live)) => Ok(Transaction { live: Some(live), failed: None, database, prepared }),
                Ok(Err(error)) => Err(database.judge(&error)),
                Err(_) => Err(StoreError::Unavailable("the server does not answer to BEGIN".into())),
            }
        };
        shielded(unit).await.unwrap_or_else(|| Err(ended()))
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        let prepared = self.prepared().await?;
        let markers = prepared.markers(&operation.comparison)?;
        let key = (operation.consumer.clone(), operation.key.clone());
        let reading = self.database().read(Lane::General, move |connection| {
            async move { markers.select(connection, &key.0, &key.1).await }.boxed()
        });
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

/// One open inbox transaction. Dropping it rolls back.
///
/// Each step runs in a task of its own: a dropped future lets the statement end and then rolls back.
#[must_use = "a dropped transaction is rolled back"]
pub struct Transaction {
    live: Option<sqlx::Transaction<'static, MySql>>,
    /// Why it must not be committed any more.
    failed: Option<StoreError>,
    database: Database,
    prepared: Arc<Prepared>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Transaction").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Transaction {
    /// The transaction itself, for handlers that bring their own statements and for appending events to an outbox in
    /// the same database.
    ///
    /// # Errors
    /// A step of it was dropped or failed: it can only be rolled back.
    pub fn inner(&mut self) -> Result<&mut sqlx::Transaction<'static, MySql>, StoreError> {
        match (&self.failed, &mut self.live) {
            (Some(failed), _) => Err(failed.clone()),
            (None, Some(live)) => Ok(live),
            (None, None) => Err(abandoned()),
        }
    }

    /// Runs one statement to its end, whatever becomes of the caller.
    async fn step<T, W>(&mut self, work: W) -> Result<T, StepError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        self.inner().map_err(StepError::Store)?;
        let mut live = self.live.take().ok_or_else(|| StepError::Store(abandoned()))?;
        let limit = self.database.unit_timeout();
        let ran = shielded(async move {
            // On a timeout the transaction is dropped here, and its connection ends in the pool's bounded ROLLBACK.
            tokio::time::timeout(limit, work(&mut live)).await.ok().map(|result| (live, result))
        });
        match ran.await {
            Some(Some((live, result))) => {
                self.live = Some(live);
                result.map_err(StepError::Sql)
            }
            Some(None) => Err(StepError::Store(StoreError::Unavailable(format!(
                "a statement took longer than {limit:?}"
            )))),
            None => Err(StepError::Store(ended())),
        }
    }

    /// What an error means; only a refused value leaves the transaction usable.
    fn judge(&mut self, error: StepError) -> StoreError {
        let error = match error {
            StepError::Sql(error) => self.database.judge(&error),
            StepError::Store(error) => error,
        };
        if !matches!(error, StoreError::Data(_)) {
            // A lock wait timeout undoes one statement only: committing the rest would commit half (B10).
            self.failed.get_or_insert_with(|| error.clone());
        }
        error
    }
}

enum StepError {
    Sql(sqlx::Error),
    Store(StoreError),
}

impl InboxTransaction for Transaction {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        let markers = self.prepared.markers(&operation.comparison)?;
        self.prepared.check(operation)?;
        let operation = operation.clone();
        let step =
            self.step(move |connection| async move { markers.insert(connection, &operation).await }.boxed());
        match step.await {
            Ok(()) => Ok(Mark::Inserted),
            Err(StepError::Sql(error)) if failure::is_duplicate(&error) => {
                self.failed = Some(StoreError::Data("the marker is taken".into()));
                Ok(Mark::Taken)
            }
            Err(error) => Err(self.judge(error)),
        }
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let (sql, values) = (sql.to_owned(), values.to_vec());
        let step = self.step(move |connection| {
            async move {
                // The statement comes from the config or the handler's code; payload fields are bound.
                let mut statement = query(AssertSqlSafe(sql));
                for value in &values {
                    statement = bind_value(statement, value);
                }
                Ok(statement.execute(connection).await?.rows_affected())
            }
            .boxed()
        });
        match step.await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.judge(error)),
        }
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        if let Err(error) = self.inner() {
            // Whether the rollback works or costs the connection, nothing is committed.
            let _ = self.rollback().await;
            return Err(CommitError::RolledBack(error));
        }
        let Some(live) = self.live.take() else { return Err(CommitError::RolledBack(abandoned())) };
        let limit = self.database.unit_timeout();
        let unknown = |reason: &str| CommitError::Unknown(StoreError::CommitUnknown(reason.into()));
        match shielded(async move { tokio::time::timeout(limit, live.commit()).await }).await {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(self.database.judge_commit(&error)),
            Some(Err(_)) => Err(unknown("the server does not answer")),
            None => Err(unknown("the runtime ended")),
        }
    }

    async fn rollback(mut self) -> Result<(), StoreError> {
        let Some(live) = self.live.take() else { return Ok(()) };
        let limit = self.database.unit_timeout();
        let ran = shielded(async move { tokio::time::timeout(limit, live.rollback()).await });
        match ran.await {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(self.database.judge(&error)),
            Some(Err(_)) => Err(StoreError::Unavailable("the server does not answer to ROLLBACK".into())),
            None => Err(ended()),
        }
    }
}

fn abandoned() -> StoreError {
    StoreError::Unavailable("a step of the transaction was dropped: it was rolled back".into())
}

fn ended() -> StoreError {
    StoreError::Unavailable("the runtime ended".into())
}
