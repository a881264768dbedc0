//! One open inbox transaction.

use std::fmt;
use std::sync::Arc;

use consign_core::declared::Statement;
use consign_core::guard::Progress;
use consign_core::operation::Operation;
use consign_core::ports::{Advance, CommitError, EachError, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use consign_failpoint as failpoint;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::mysql::MySqlArguments;
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, query_with, raw_sql};

use crate::mysql::connection::{Database, shielded};
use crate::mysql::failure;
use crate::mysql::inbox::marker::{Prepared, Ready};
use crate::mysql::inbox::progress::Wanted;
use crate::mysql::inbox::value::add_value;
use crate::mysql::statement::{COMMIT_WATCHED, WATCH};

/// One open inbox transaction. Dropping it rolls back.
///
/// Each step runs in a task of its own: a dropped future lets the statement end and then rolls back.
#[must_use = "a dropped transaction is rolled back"]
pub struct Transaction {
    live: Option<sqlx::Transaction<'static, MySql>>,
    /// Why it must not be committed any more.
    failed: Option<StoreError>,
    /// A savepoint stands that is gone when somebody else ends the transaction.
    watched: bool,
    database: Database,
    prepared: Arc<Prepared>,
}

/// Why a step did not succeed.
pub(super) enum StepError {
    Sql(sqlx::Error),
    Store(StoreError),
}

impl fmt::Debug for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Transaction").field("failed", &self.failed).finish_non_exhaustive()
    }
}

impl Transaction {
    pub(super) async fn begin(database: Database, prepared: Arc<Prepared>) -> Result<Self, StoreError> {
        let unit = async move {
            let begun = tokio::time::timeout(database.unit_timeout(), database.pool().begin()).await;
            match begun {
                Ok(Ok(live)) => {
                    Ok(Self { live: Some(live), failed: None, watched: false, database, prepared })
                }
                Ok(Err(error)) => Err(database.judge(&error)),
                Err(_) => Err(StoreError::Unavailable("the server does not answer to BEGIN".into())),
            }
        };
        shielded(unit).await.unwrap_or_else(|| Err(ended()))
    }

    /// The transaction itself, for handlers that bring their own statements and for appending events to an outbox in
    /// the same database.
    ///
    /// It stays the inbox's to end. A handler that commits it, runs a statement that commits by itself, or goes on
    /// after the server rolled it back for a deadlock is found out: the commit is refused then, and what it did since is
    /// rolled back. What the handler committed itself stays committed.
    ///
    /// # Errors
    /// A step of it was dropped or failed: it can only be rolled back.
    pub async fn inner(&mut self) -> Result<&mut sqlx::Transaction<'static, MySql>, StoreError> {
        self.watch().await?;
        self.usable()
    }

    fn usable(&mut self) -> Result<&mut sqlx::Transaction<'static, MySql>, StoreError> {
        match (&self.failed, &mut self.live) {
            (Some(failed), _) => Err(failed.clone()),
            (None, Some(live)) => Ok(live),
            (None, None) => Err(abandoned()),
        }
    }

    /// Sets the savepoint that tells whether the transaction is still the one that began.
    async fn watch(&mut self) -> Result<(), StoreError> {
        if self.watched {
            return Ok(());
        }
        let set =
            self.step(|connection| raw_sql(WATCH).execute(connection).map(|done| done.map(|_| ())).boxed());
        match set.await {
            Ok(()) => {
                self.watched = true;
                Ok(())
            }
            Err(error) => Err(self.judge(error)),
        }
    }

    /// Runs one statement to its end, whatever becomes of the caller.
    pub(super) async fn step<T, W>(&mut self, work: W) -> Result<T, StepError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Send + 'static,
    {
        self.usable().map_err(StepError::Store)?;
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

    /// Runs statements one after another, up to the first that fails.
    async fn steps(&mut self, statements: Vec<Ready>) -> Result<(), StepError> {
        self.step(move |connection| {
            async move {
                for (text, arguments) in statements {
                    query_with(text.sql(), arguments).execute(&mut *connection).await?;
                }
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Runs a statement from the config or the handler's code; payload fields are bound.
    pub(super) async fn bound(&mut self, sql: &str, arguments: MySqlArguments) -> Result<u64, StepError> {
        let sql = sql.to_owned();
        self.step(move |connection| {
            async move {
                let done = query_with(AssertSqlSafe(sql), arguments).execute(connection).await?;
                Ok(done.rows_affected())
            }
            .boxed()
        })
        .await
    }

    /// What an error means; only a refused value leaves the transaction usable.
    pub(super) fn judge(&mut self, error: StepError) -> StoreError {
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

    pub(super) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// Refuses to be committed, for this reason.
    pub(super) fn fail(&mut self, error: StoreError) -> StoreError {
        self.failed.get_or_insert(error).clone()
    }
}

impl InboxTransaction for Transaction {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        self.mark_all(&[operation]).await
    }

    async fn mark_all(&mut self, operations: &[&Operation]) -> Result<Mark, StoreError> {
        let inserts = self.prepared.inserts(operations)?;
        match self.steps(inserts).await {
            Ok(()) => Ok(Mark::Inserted),
            Err(StepError::Sql(error)) if failure::is_duplicate(&error) => {
                self.fail(StoreError::Data("the marker is taken".into()));
                Ok(Mark::Taken)
            }
            Err(error) => Err(self.judge(error)),
        }
    }

    async fn lock_progress(
        &mut self,
        consumer: &str,
        aggregates: &[&str],
    ) -> Result<Vec<Option<Progress>>, StoreError> {
        let wanted = Wanted::new(consumer, aggregates)?;
        let prepared = Arc::clone(&self.prepared);
        let step = self
            .step(move |connection| async move { prepared.progress.lock(connection, &wanted).await }.boxed());
        match step.await {
            Ok(progress) => Ok(progress),
            Err(error) => Err(unmigrated(self.judge(error))),
        }
    }

    async fn save_progress(&mut self, consumer: &str, advances: &[Advance<'_>]) -> Result<(), StoreError> {
        let statements = self.prepared.progress.save(consumer, advances)?;
        match self.steps(statements).await {
            Ok(()) => Ok(()),
            Err(StepError::Sql(error)) if failure::is_duplicate(&error) => {
                Err(self.fail(StoreError::Contended("somebody else took an aggregate's first step".into())))
            }
            Err(error) => Err(unmigrated(self.judge(error))),
        }
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        if may_end_transactions(sql) {
            self.watch().await?;
        }
        let mut arguments = MySqlArguments::default();
        for value in values {
            add_value(&mut arguments, value);
        }
        match self.bound(sql, arguments).await {
            Ok(rows) => Ok(rows),
            Err(error) => Err(self.judge(error)),
        }
    }

    async fn execute_each(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
    ) -> Result<Vec<u64>, EachError> {
        self.each(statement, values).await
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        if let Err(error) = self.usable() {
            // Whether the rollback works or costs the connection, nothing is committed.
            let _ = self.rollback().await;
            return Err(CommitError::RolledBack(error));
        }
        let Some(mut live) = self.live.take() else { return Err(CommitError::RolledBack(abandoned())) };
        let limit = self.database.unit_timeout();
        let watched = self.watched;
        failpoint::pass("consume.before_commit");
        let commit = async move {
            if !watched {
                return live.commit().await;
            }
            // An error skips the statements behind it. The transaction object is dropped and rolls back what is open.
            raw_sql(COMMIT_WATCHED).execute(&mut *live).await.map(|_| ())
        };
        let unknown = |reason: &str| CommitError::Unknown(StoreError::CommitUnknown(reason.into()));
        match shielded(async move { tokio::time::timeout(limit, commit).await }).await {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) if failure::is_savepoint_gone(&error) => {
                Err(CommitError::RolledBack(ended_by_handler()))
            }
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

/// True unless the statement only reads or changes rows.
fn may_end_transactions(sql: &str) -> bool {
    let word = sql.trim_start().split(|next: char| !next.is_ascii_alphabetic()).next().unwrap_or_default();
    !["INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "WITH"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

/// A missing table of consign's own is added by a migration.
pub(super) fn unmigrated(error: StoreError) -> StoreError {
    match error {
        StoreError::Schema(text) => StoreError::Schema(format!("{text}: run `consign migrate`")),
        other => other,
    }
}

fn ended_by_handler() -> StoreError {
    StoreError::Data(
        "the handler ended the transaction itself, with COMMIT, a statement that commits by itself, or by going on \
         after a deadlock: leave the transaction's end to the inbox, and return the database's errors"
            .into(),
    )
}

fn abandoned() -> StoreError {
    StoreError::Unavailable("a step of the transaction was dropped: it was rolled back".into())
}

fn ended() -> StoreError {
    StoreError::Unavailable("the runtime ended".into())
}
