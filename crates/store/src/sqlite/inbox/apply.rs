//! One operation in a transaction of the caller's own.

use consign_core::delivery::Message;
use consign_core::guard::{Guard, Verdict};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::Operation;
use consign_core::ports::{Advance, StoreError};
use sqlx::{Acquire, Sqlite, SqliteConnection};

use crate::record::draft::ConflictDraft;
use crate::sqlite::connection::UnitError;
use crate::sqlite::failure;
use crate::sqlite::inbox::marker::{Markers, Prepared};
use crate::sqlite::inbox::{Inbox, progress, record};

impl Inbox {
    /// Applies an operation in a transaction of the caller's own, for consumers with a loop of their own. The business
    /// change follows in the same transaction when, and only when, the answer is [`Processed::Applied`]; whatever the
    /// answer, the message is acknowledged after that transaction has committed, and not before.
    ///
    /// [`Processed::Conflict`] is recorded in the same transaction. A savepoint keeps the transaction usable when the
    /// key is taken, or when a guard says no. Begin it by [`Database::begin`](crate::sqlite::Database::begin) or with
    /// `BEGIN IMMEDIATE`: a deferred one may find the file locked at its first write.
    ///
    /// # Errors
    /// [`ProcessError::Gap`], [`ProcessError::Handler`]: this operation cannot be applied now, or ever; the transaction
    /// is as it was before. [`ProcessError::Store`]: roll it back and receive the message again. Dropping the future
    /// leaves the transaction as it was before.
    pub async fn apply(
        &self,
        tx: &mut sqlx::Transaction<'_, Sqlite>,
        operation: &Operation,
        message: &Message,
    ) -> Result<Processed, ProcessError> {
        let prepared = self.prepared().await.map_err(ProcessError::Store)?;
        let markers = self.shared.prepared.noting(prepared.markers(operation)).map_err(blame)?;
        prepared.check(operation).map_err(blame)?;
        let mut step = tx.begin().await.map_err(|error| blame(failure::store_error(&error)))?;
        let applied = insert(&mut step, &prepared, &markers, operation).await;
        if let Ok(Processed::Applied) = applied {
            step.commit().await.map_err(|error| blame(failure::store_error(&error)))?;
            return applied;
        }
        let undone = step.rollback().await.map_err(|error| blame(failure::store_error(&error)));
        match applied {
            // SQLite may have rolled everything back, the savepoint too; the first error says why.
            Err(ProcessError::Store(error)) => return self.shared.prepared.noting(Err(error)).map_err(blame),
            Err(_) | Ok(Processed::Stale) => return undone.and(applied),
            Ok(Processed::Applied | Processed::Duplicate | Processed::Conflict) => undone?,
        }
        let compared = self.compare(tx, &markers, operation, message).await;
        self.shared.prepared.noting(compared.map_err(UnitError::judged)).map_err(blame)
    }

    /// The key is taken: by the same operation, or by another one.
    async fn compare(
        &self,
        connection: &mut SqliteConnection,
        markers: &Markers,
        operation: &Operation,
        message: &Message,
    ) -> Result<Processed, UnitError> {
        let keys = [operation.key.clone()];
        let mut found = markers.select(connection, &operation.consumer, &keys).await?;
        let Some(existing) = found.remove(&operation.key) else {
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
}

/// Takes the key and asks the guard; [`Processed::Duplicate`] says only that the key is taken.
async fn insert(
    connection: &mut SqliteConnection,
    prepared: &Prepared,
    markers: &Markers,
    operation: &Operation,
) -> Result<Processed, ProcessError> {
    match markers.insert(connection, &[operation]).await {
        Ok(()) => {}
        Err(error) if failure::is_duplicate_of(&error, prepared.key_column()) => {
            return Ok(Processed::Duplicate);
        }
        Err(error) => return Err(blame(failure::store_error(&error))),
    }
    match &operation.guard {
        Some(guard) => advance(connection, &operation.consumer, guard).await,
        None => Ok(Processed::Applied),
    }
}

async fn advance(
    connection: &mut SqliteConnection,
    consumer: &str,
    guard: &Guard,
) -> Result<Processed, ProcessError> {
    let aggregate = guard.aggregate.as_str();
    let standing = progress::select(connection, consumer, &[aggregate]).await;
    let standing = standing.map_err(|error| blame(error.judged()))?.pop().flatten();
    let progress = match guard.judge(standing.as_ref()) {
        Verdict::Apply(progress) => progress,
        Verdict::Stale => return Ok(Processed::Stale),
        Verdict::Gap { expected, version } => {
            return Err(ProcessError::Gap { aggregate: aggregate.to_owned(), expected, version });
        }
        Verdict::Forbidden { from, to } => {
            let from = from.map_or_else(|| "nothing".to_owned(), |from| format!("{from:?}"));
            return Err(ProcessError::Handler(format!("{aggregate} cannot go from {from} to {to:?}")));
        }
    };
    let advances = [Advance { aggregate, progress, first: standing.is_none() }];
    let saved = progress::save(connection, consumer, &advances).await;
    saved.map(|()| Processed::Applied).map_err(|error| blame(error.judged()))
}

/// A value that the database refuses is the message's fault as a refusal is.
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
