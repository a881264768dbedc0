//! One open inbox transaction.

use std::fmt;
use std::sync::Arc;

use consign_core::declared::Statement;
use consign_core::guard::Progress;
use consign_core::operation::Operation;
use consign_core::ports::{Advance, CommitError, EachError, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use sqlx::{Sqlite, raw_sql};

use crate::sqlite::connection::{UnitError, shielded};
use crate::sqlite::failure;
use crate::sqlite::inbox::Shared;
use crate::sqlite::inbox::execute::{StatementError, run, run_each};
use crate::sqlite::inbox::marker::Prepared;
use crate::sqlite::inbox::progress;
use crate::sqlite::statement::{END_UNIT, RENEW_UNIT};

type Live = sqlx::Transaction<'static, Sqlite>;

/// One open inbox transaction; it holds the file's write lock. Dropping it, or the future of one of its steps, rolls
/// it back.
#[must_use = "a dropped transaction is rolled back"]
pub struct Transaction {
    /// Absent while a step runs, so that a dropped step takes it along.
    live: Option<Live>,
    /// Why it must not be committed any more.
    failed: Option<StoreError>,
    prepared: Arc<Prepared>,
    /// To look at the table afresh after it did not fit.
    shared: Arc<Shared>,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Transaction").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(super) fn new(live: Live, prepared: Arc<Prepared>, shared: Arc<Shared>) -> Self {
        Self { live: Some(live), failed: None, prepared, shared }
    }

    /// The transaction itself, for handlers that bring their own statements and for appending events to an outbox in
    /// the same file.
    ///
    /// It stays the inbox's to end. A handler that commits it or rolls it back is found out: the commit is refused
    /// then. What the handler committed itself stays committed.
    ///
    /// # Errors
    /// A step of it was dropped or failed: it can only be rolled back.
    #[expect(clippy::unused_async, reason = "the same in every dialect: MySQL's has statements to wait for")]
    pub async fn inner(&mut self) -> Result<&mut Live, StoreError> {
        match (&self.failed, &mut self.live) {
            (Some(failed), _) => Err(failed.clone()),
            (None, Some(live)) => Ok(live),
            (None, None) => Err(abandoned()),
        }
    }

    /// Takes the transaction for one step, which puts it back: a step that is dropped in between takes it along.
    fn take(&mut self) -> Result<Live, StoreError> {
        match &self.failed {
            Some(failed) => Err(failed.clone()),
            None => self.live.take().ok_or_else(abandoned),
        }
    }

    /// Puts the transaction back and says what the step's error means; only a refused value leaves it usable.
    fn conclude<T>(&mut self, live: Live, result: Result<T, UnitError>) -> Result<T, StoreError> {
        self.live = Some(live);
        self.shared.prepared.noting(result.map_err(UnitError::judged)).inspect_err(|error| {
            if !matches!(error, StoreError::Data(_)) {
                self.failed.get_or_insert_with(|| error.clone());
            }
        })
    }

    /// The same for a handler's statement, which may have ended the transaction by failing.
    async fn conclude_statement<T>(
        &mut self,
        mut live: Live,
        result: Result<T, StatementError>,
    ) -> Result<T, StoreError> {
        let result = result.map_err(|error| match error {
            StatementError::Sql(error) => failure::store_error(&error),
            StatementError::Placeholders { wanted, given } => StoreError::Schema(format!(
                "the statement has {wanted} placeholders and {given} values: give one value for each"
            )),
        });
        if let Err(StoreError::Data(_)) = result
            && let Err(error) = raw_sql(RENEW_UNIT).execute(&mut *live).await
        {
            // An OR ROLLBACK clause, or a trigger: what comes next would commit by itself.
            self.failed = Some(ended_early(&error));
        }
        self.conclude(live, result.map_err(UnitError::Store))
    }
}

impl InboxTransaction for Transaction {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        self.mark_all(&[operation]).await
    }

    async fn mark_all(&mut self, operations: &[&Operation]) -> Result<Mark, StoreError> {
        let prepared = Arc::clone(&self.prepared);
        let runs = self.shared.prepared.noting(prepared.runs(operations))?;
        for operation in operations {
            prepared.check(operation)?;
        }
        let mut live = self.take()?;
        for (markers, run) in runs {
            match markers.insert(&mut live, run).await {
                Ok(()) => {}
                Err(error) if failure::is_duplicate_of(&error, prepared.key_column()) => {
                    self.live = Some(live);
                    self.failed = Some(StoreError::Data("the marker is taken".into()));
                    return Ok(Mark::Taken);
                }
                Err(error) => return self.conclude(live, Err(error.into())),
            }
        }
        self.live = Some(live);
        Ok(Mark::Inserted)
    }

    async fn lock_progress(
        &mut self,
        consumer: &str,
        aggregates: &[&str],
    ) -> Result<Vec<Option<Progress>>, StoreError> {
        let mut live = self.take()?;
        let found = progress::select(&mut live, consumer, aggregates).await;
        self.conclude(live, found)
    }

    async fn save_progress(&mut self, consumer: &str, advances: &[Advance<'_>]) -> Result<(), StoreError> {
        let mut live = self.take()?;
        let saved = progress::save(&mut live, consumer, advances).await;
        self.conclude(live, saved)
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let prepared = Arc::clone(&self.prepared);
        let mut live = self.take()?;
        let ran = run(&mut live, prepared.described(), sql, values).await;
        self.conclude_statement(live, ran).await
    }

    async fn execute_each(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
    ) -> Result<Vec<u64>, EachError> {
        let prepared = Arc::clone(&self.prepared);
        let mut live = self.take().map_err(|error| EachError { at: None, error })?;
        let mut rows = Vec::with_capacity(values.len());
        let ran = run_each(&mut live, prepared.described(), statement.sql(), values, &mut rows).await;
        match self.conclude_statement(live, ran).await {
            Ok(()) => Ok(rows),
            Err(error) => Err(EachError { at: Some(rows.len()), error }),
        }
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        let mut live = match self.take() {
            Ok(live) => live,
            Err(error) => {
                // Whether the rollback works or costs the connection, nothing is committed.
                let _ = self.rollback().await;
                return Err(CommitError::RolledBack(error));
            }
        };
        let unit = async move {
            if let Err(error) = raw_sql(END_UNIT).execute(&mut *live).await {
                let _ = live.rollback().await;
                return Err(CommitError::RolledBack(ended_early(&error)));
            }
            live.commit().await.map_err(|error| failure::commit_error(&error))
        };
        shielded(unit).await.unwrap_or_else(|| {
            Err(CommitError::Unknown(StoreError::CommitUnknown("the runtime ended".into())))
        })
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

/// The savepoint is gone: a statement of the handler ended the transaction.
fn ended_early(error: &sqlx::Error) -> StoreError {
    match failure::store_error(error) {
        StoreError::Schema(_) => StoreError::Data(
            "the handler ended the transaction itself, with COMMIT, ROLLBACK or an OR ROLLBACK clause: leave the \
             transaction's end to the inbox, and return the database's errors"
                .into(),
        ),
        other => other,
    }
}
