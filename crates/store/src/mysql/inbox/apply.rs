//! One operation in a transaction of the caller's own.

use consign_core::delivery::Message;
use consign_core::guard::{Guard, Verdict};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::{Advance, StoreError};
use sqlx::{MySql, MySqlConnection, Row, query_with, raw_sql};

use crate::mysql::connection::UnitError;
use crate::mysql::failure;
use crate::mysql::inbox::marker::Prepared;
use crate::mysql::inbox::progress::Wanted;
use crate::mysql::inbox::{Inbox, record};
use crate::mysql::statement::{OPERATION_BEGIN, OPERATION_KEEP, OPERATION_UNDO};
use crate::record::draft::ConflictDraft;

impl Inbox {
    /// Applies an operation in a transaction of the caller's own, for consumers with a loop of their own. The business
    /// change follows in the same transaction when, and only when, the answer is [`Processed::Applied`]; whatever the
    /// answer, the message is acknowledged after that transaction has committed, and not before.
    ///
    /// [`Processed::Conflict`] is recorded in the same transaction. A savepoint keeps the transaction usable when the
    /// key is taken, or when a guard says no. Any isolation level will do. `applied_at` is in the time zone of the
    /// caller's session.
    ///
    /// # Errors
    /// [`ProcessError::Gap`], [`ProcessError::Handler`]: this operation cannot be applied now, or ever; the transaction
    /// is as it was before. [`ProcessError::Store`]: roll it back and receive the message again. That is also the
    /// answer to a session without a strict `sql_mode`, in which the server would cut what does not fit.
    ///
    /// Await it to its end, in a task that nothing aborts. sqlx loses its place among a connection's answers when a
    /// statement is dropped while it is prepared, and even ROLLBACK may hang then: whoever drops this future has to
    /// close the connection.
    pub async fn apply(
        &self,
        tx: &mut sqlx::Transaction<'_, MySql>,
        operation: &Operation,
        message: &Message,
    ) -> Result<Processed, ProcessError> {
        let prepared = self.prepared().await.map_err(ProcessError::Store)?;
        begin(tx).await.map_err(|error| self.blame(error))?;
        let applied = insert(tx, &prepared, operation).await;
        if let Ok(Processed::Applied) = applied {
            raw_sql(OPERATION_KEEP).execute(&mut **tx).await.map_err(|error| self.blame(error.into()))?;
            return Ok(Processed::Applied);
        }
        let undone = raw_sql(OPERATION_UNDO).execute(&mut **tx).await;
        let undone = undone.map(|_| ()).map_err(|error| self.blame(error.into()));
        let processed = match applied {
            Ok(processed) => processed,
            Err(Refusal::Process(error)) => {
                undone?;
                return Err(error);
            }
            Err(Refusal::Unit(error)) => {
                let error = self.blame(error);
                // After a deadlock the savepoint is gone with everything else, and the first error says why.
                if matches!(error, ProcessError::Handler(_)) {
                    undone?;
                }
                return Err(error);
            }
        };
        undone?;
        if processed != Processed::Duplicate {
            return Ok(processed);
        }
        self.compare(tx, &prepared, operation, message).await.map_err(|error| self.blame(error))
    }

    /// The key is taken: by the same operation, or by another one.
    async fn compare(
        &self,
        connection: &mut MySqlConnection,
        prepared: &Prepared,
        operation: &Operation,
        message: &Message,
    ) -> Result<Processed, UnitError> {
        let reading = prepared.reading(&[operation])?;
        // Locked, so that it is the newest marker that is read, not the one of an older snapshot.
        let Some(existing) = reading.run_locked(connection).await?.pop().flatten() else {
            return Err(StoreError::Contended("the marker vanished".into()).into());
        };
        match operation.same_as(&existing) {
            Ok(true) => Ok(Processed::Duplicate),
            Ok(false) => {
                let draft = ConflictDraft::new(operation, message, &existing)?;
                record::conflict(connection, &draft, self.shared.outbox.as_ref()).await?;
                Ok(Processed::Conflict)
            }
            // Nothing is wrong with the message: it waits until the config knows the version.
            Err(unknown) => Err(StoreError::Schema(unknown.to_string()).into()),
        }
    }

    /// What an error means for the caller. A value that the database refuses is the message's fault as a refusal is.
    fn blame(&self, error: UnitError) -> ProcessError {
        let error = match error {
            UnitError::Sql(error) => self.database().judge(&error),
            UnitError::Store(error) => error,
        };
        match self.shared.prepared.noting::<()>(Err(error)) {
            Err(StoreError::Data(reason)) => ProcessError::Handler(reason),
            Err(error) => ProcessError::Store(error),
            Ok(()) => unreachable!("an error stays one"),
        }
    }
}

/// Why the operation was not applied.
enum Refusal {
    /// A statement failed.
    Unit(UnitError),
    /// The guard says no.
    Process(ProcessError),
}

impl<E: Into<UnitError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self::Unit(error.into())
    }
}

/// Takes the key and asks the guard; [`Processed::Duplicate`] says only that the key is taken.
async fn insert(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    operation: &Operation,
) -> Result<Processed, Refusal> {
    for (text, arguments) in prepared.inserts(&[operation])? {
        match query_with(text.sql(), arguments).execute(&mut *connection).await {
            Ok(_) => {}
            Err(error) if failure::is_duplicate(&error) => return Ok(Processed::Duplicate),
            Err(error) => return Err(error.into()),
        }
    }
    match &operation.guard {
        Some(guard) => advance(connection, prepared, &operation.consumer, guard).await,
        None => Ok(Processed::Applied),
    }
}

/// Sets the savepoint. A session in which the server would cut a key or a compared value, instead of refusing it, is
/// itself refused.
async fn begin(connection: &mut MySqlConnection) -> Result<(), UnitError> {
    let rows = raw_sql(OPERATION_BEGIN).fetch_all(connection).await?;
    let mode: String = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get_unchecked(0)?;
    if mode.split(',').any(|word| ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"].contains(&word)) {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "the session's sql_mode is {mode:?}, in which values that do not fit are cut: add STRICT_TRANS_TABLES"
    ))
    .into())
}

async fn advance(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    consumer: &str,
    guard: &Guard,
) -> Result<Processed, Refusal> {
    let aggregate = guard.aggregate.as_str();
    let wanted = Wanted::new(consumer, &[aggregate])?;
    let standing = prepared.progress.lock(connection, &wanted).await.map_err(failure::migrated)?;
    let standing = standing.into_iter().next().flatten();
    let progress = match guard.judge(standing.as_ref()) {
        Verdict::Apply(progress) => progress,
        Verdict::Stale => return Ok(Processed::Stale),
        Verdict::Gap { expected, version } => {
            let aggregate = aggregate.to_owned();
            return Err(Refusal::Process(ProcessError::Gap { aggregate, expected, version }));
        }
        Verdict::Forbidden { from, to } => {
            let from = from.map_or_else(|| "nothing".to_owned(), |from| format!("{from:?}"));
            let reason = format!("{aggregate} cannot go from {from} to {to:?}");
            return Err(Refusal::Process(ProcessError::Handler(reason)));
        }
    };
    let advances = [Advance { aggregate, progress, first: standing.is_none() }];
    for (text, arguments) in prepared.progress.save(consumer, &advances)? {
        match query_with(text.sql(), arguments).execute(&mut *connection).await {
            Ok(_) => {}
            Err(error) if failure::is_duplicate(&error) => {
                let taken = "somebody else took the aggregate's first step";
                return Err(StoreError::Contended(taken.into()).into());
            }
            Err(error) => return Err(failure::migrated(error).into()),
        }
    }
    Ok(Processed::Applied)
}
