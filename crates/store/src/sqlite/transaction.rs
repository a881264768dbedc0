//! Markers of transaction messages.

use std::time::Duration;

use consign_core::event::EventId;
use consign_core::ports::{CommitError, Mark, StoreError};
use consign_core::transaction::Spans;
use consign_core::transaction::marker::{
    Evidence, Fence, Forgotten, Look, MarkerStore, Standing, Unconfirmed,
};
use consign_core::transaction::message::{StoreName, TransactionKey, TransactionMessage};
use futures_util::FutureExt;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, Sqlite, SqliteConnection, Transaction, query};

use crate::settling::micros;
use crate::sqlite::connection::{Database, UnitError};
use crate::sqlite::failure::{self, migrated};
use crate::sqlite::statement::{
    TRANSACTION_CONFIRM, TRANSACTION_ENDED, TRANSACTION_FENCE, TRANSACTION_FORGET, TRANSACTION_LOOK,
    TRANSACTION_MARK, TRANSACTION_NOW, TRANSACTION_PUT_OFF, TRANSACTION_STANDING, TRANSACTION_UNCONFIRMED,
    TRANSACTION_UNFOUND, Text, after, before,
};
use crate::statement::{LIST_MAX, lists, padded};
use crate::transaction::{LocalMarkers, MarkerKeeping, MarkerRow, StoredTransaction, marker};

/// The markers in `consign_transaction`. Cloning it shares the connections.
#[derive(Clone, Debug)]
pub struct TransactionMarkers {
    database: Database,
    name: StoreName,
    keeping: MarkerKeeping,
}

impl TransactionMarkers {
    /// The markers of `database`. `name` is the same wherever this table is seen.
    pub fn new(database: Database, name: StoreName, keeping: MarkerKeeping) -> Self {
        Self { database, name, keeping }
    }

    /// The database they are in.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

impl LocalMarkers for TransactionMarkers {
    type Database = Sqlite;

    async fn mark(
        &self,
        tx: &mut Transaction<'_, Sqlite>,
        key: &TransactionKey,
        message: &TransactionMessage,
    ) -> Result<Mark, StoreError> {
        let row = MarkerRow::new(message, self.keeping.copy)?;
        let inserted = query(Text::own(TRANSACTION_MARK).sql())
            .bind(key.as_str())
            .bind(&message.topic)
            .bind(message.event_id.as_ref().map(EventId::as_str))
            .bind(&message.event_type)
            .bind(message.business_key.as_deref())
            .bind(row.headers.as_deref())
            .bind(row.payload)
            .bind(&row.digest)
            .bind(after(micros(self.keeping.first_look)))
            .execute(&mut **tx)
            .await;
        match inserted {
            Ok(_) => Ok(Mark::Inserted),
            Err(error) if failure::is_duplicate_of(&error, "transaction_key") => Ok(Mark::Taken),
            Err(error) => Err(migrated(error).judged()),
        }
    }
    async fn commit(&self, tx: Transaction<'_, Sqlite>) -> Result<(), CommitError> {
        tx.commit().await.map_err(|error| failure::commit_error(&error))
    }
}

impl MarkerStore for TransactionMarkers {
    fn name(&self) -> &StoreName {
        &self.name
    }

    async fn look(&self, key: &TransactionKey) -> Result<Look, StoreError> {
        let key = key.clone();
        let reading = self.database.read(move |connection| {
            async move {
                let select = query(Text::own(TRANSACTION_LOOK).sql()).bind(key.as_str());
                let row = select.fetch_one(connection).await.map_err(migrated)?;
                let state: Option<String> = row.try_get_unchecked("state")?;
                Ok(Look {
                    marker: marker(state.as_deref())?,
                    now_micros: row.try_get_unchecked("now_micros")?,
                })
            }
            .boxed()
        });
        reading.await
    }

    async fn fence(&self, key: &TransactionKey, topic: &str) -> Result<Fence, StoreError> {
        let (key, topic) = (key.clone(), topic.to_owned());
        let unit = self.database.transact(move |connection| {
            async move {
                let insert = query(Text::own(TRANSACTION_FENCE).sql()).bind(key.as_str()).bind(&topic);
                match insert.execute(connection).await {
                    Ok(_) => Ok(Fence::Inserted),
                    Err(error) if failure::is_duplicate_of(&error, "transaction_key") => Ok(Fence::Taken),
                    Err(error) => Err(migrated(error)),
                }
            }
            .boxed()
        });
        unit.await
    }

    async fn now(&self) -> Result<i64, StoreError> {
        let reading = self.database.read(move |connection| {
            async move {
                let row = query(Text::own(TRANSACTION_NOW).sql()).fetch_one(connection).await?;
                Ok(row.try_get_unchecked("now_micros")?)
            }
            .boxed()
        });
        reading.await
    }

    async fn unconfirmed(
        &self,
        limit: u32,
        pause: Duration,
    ) -> Result<Vec<Result<Unconfirmed, StoreError>>, StoreError> {
        let limit = limit.min(u32::try_from(LIST_MAX).unwrap_or(u32::MAX));
        let unit = self
            .database
            .transact(move |connection| async move { due(connection, limit, pause).await }.boxed());
        Ok(unit.await?.into_iter().map(StoredTransaction::unconfirmed).collect())
    }

    async fn confirm(&self, key: &TransactionKey, evidence: Evidence) -> Result<bool, StoreError> {
        let key = key.clone();
        let unit = self.database.transact(move |connection| {
            async move {
                let update =
                    query(Text::own(TRANSACTION_CONFIRM).sql()).bind(evidence.word()).bind(key.as_str());
                Ok(update.execute(connection).await.map_err(migrated)?.rows_affected() == 1)
            }
            .boxed()
        });
        unit.await
    }

    async fn forget(&self, spans: &Spans, limit: u32) -> Result<Forgotten, StoreError> {
        let spans = *spans;
        let unit = self.database.transact(move |connection| {
            async move {
                let keep = before(micros(spans.keep()));
                let ended = query(Text::own(TRANSACTION_ENDED).sql());
                let ended = keys(connection, ended.bind(&keep).bind(limit)).await?;
                let keep_unfound = before(micros(spans.keep_unconfirmed()));
                let unfound = query(Text::own(TRANSACTION_UNFOUND).sql()).bind(&keep_unfound).bind(limit);
                let unfound = keys(connection, unfound).await?;
                let more = [ended.len(), unfound.len()].iter().any(|&found| found >= limit as usize);
                Ok(Forgotten {
                    ended: delete(connection, ended, &keep).await?,
                    unconfirmed: delete(connection, unfound, &keep_unfound).await?,
                    more,
                })
            }
            .boxed()
        });
        unit.await
    }

    async fn standing(&self) -> Result<Standing, StoreError> {
        let reading = self.database.read(move |connection| {
            async move {
                let select = query(Text::own(TRANSACTION_STANDING).sql());
                let row = select.fetch_one(connection).await.map_err(migrated)?;
                let unconfirmed: i64 = row.try_get_unchecked("unconfirmed")?;
                let oldest: Option<i64> = row.try_get_unchecked("oldest_micros")?;
                Ok(Standing {
                    unconfirmed: unconfirmed.unsigned_abs(),
                    oldest_unconfirmed: oldest.map(|age| Duration::from_micros(age.max(0).unsigned_abs())),
                })
            }
            .boxed()
        });
        reading.await
    }
}

/// Takes what is due, and puts it off.
async fn due(
    connection: &mut SqliteConnection,
    limit: u32,
    pause: Duration,
) -> Result<Vec<StoredTransaction>, UnitError> {
    let select = query(Text::own(TRANSACTION_UNCONFIRMED).sql()).bind(limit);
    let rows = select.fetch_all(&mut *connection).await.map_err(migrated)?;
    let mut found = rows.iter().map(stored).collect::<Result<Vec<_>, _>>()?;
    let mut ids: Vec<&str> = found.iter().map(|row| row.key.as_str()).collect();
    ids.sort_unstable();
    for list in lists(&ids) {
        let text = Text::own_list(TRANSACTION_PUT_OFF, list.len());
        let mut update = query(text.sql()).bind(after(micros(pause)));
        for id in padded(list) {
            update = update.bind(*id);
        }
        update.execute(&mut *connection).await?;
    }
    for row in &mut found {
        row.attempts += 1;
    }
    Ok(found)
}

fn stored(row: &SqliteRow) -> Result<StoredTransaction, sqlx::Error> {
    Ok(StoredTransaction {
        key: row.try_get_unchecked("transaction_key")?,
        topic: row.try_get_unchecked("topic")?,
        event_id: row.try_get_unchecked("event_id")?,
        event_type: row.try_get_unchecked("event_type")?,
        business_key: row.try_get_unchecked("business_key")?,
        headers: row.try_get_unchecked("headers")?,
        payload: row.try_get_unchecked("payload")?,
        digest: row.try_get_unchecked("payload_digest")?,
        attempts: row.try_get_unchecked("attempts")?,
    })
}

async fn keys(
    connection: &mut SqliteConnection,
    select: Query<'_, Sqlite, SqliteArguments>,
) -> Result<Vec<String>, UnitError> {
    let rows = select.fetch_all(connection).await.map_err(migrated)?;
    let mut keys =
        rows.iter().map(|row| row.try_get_unchecked(0)).collect::<Result<Vec<String>, sqlx::Error>>()?;
    // Rows are changed in key order, as everywhere.
    keys.sort_unstable();
    Ok(keys)
}

async fn delete(connection: &mut SqliteConnection, keys: Vec<String>, keep: &str) -> Result<u64, UnitError> {
    let mut deleted = 0;
    for list in lists(&keys) {
        let text = Text::own_list(TRANSACTION_FORGET, list.len());
        let mut statement = query(text.sql());
        for key in padded(list) {
            statement = statement.bind(key);
        }
        deleted += statement.bind(keep).execute(&mut *connection).await?.rows_affected();
    }
    Ok(deleted)
}
