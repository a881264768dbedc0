//! How far a consumer came with an aggregate.

use consign_core::guard::Progress;
use consign_core::ports::{Advance, StoreError};
use sqlx::{Row, SqliteConnection, query};

use crate::record::draft::{whole_aggregate, whole_consumer, whole_state};
use crate::sqlite::connection::UnitError;
use crate::sqlite::failure::{self, migrated};
use crate::sqlite::statement::{PROGRESS_INSERT, PROGRESS_SELECT, PROGRESS_UPDATE, Text};

/// Reads each aggregate's progress, in order. The unit holds the write lock already.
pub(super) async fn select(
    connection: &mut SqliteConnection,
    consumer: &str,
    aggregates: &[&str],
) -> Result<Vec<Option<Progress>>, UnitError> {
    let text = Text::own(PROGRESS_SELECT);
    let consumer = whole_consumer(consumer)?;
    let mut found = Vec::with_capacity(aggregates.len());
    for aggregate in aggregates {
        let aggregate = whole_aggregate(aggregate)?;
        let select = query(text.sql()).bind(&consumer).bind(aggregate);
        let row = select.fetch_optional(&mut *connection).await.map_err(migrated)?;
        found.push(match row {
            Some(row) => Some(Progress { version: row.try_get(0)?, state: row.try_get(1)? }),
            None => None,
        });
    }
    Ok(found)
}

/// Writes each aggregate's progress, in order.
pub(super) async fn save(
    connection: &mut SqliteConnection,
    consumer: &str,
    advances: &[Advance<'_>],
) -> Result<(), UnitError> {
    let consumer = whole_consumer(consumer)?;
    let (insert, update) = (Text::own(PROGRESS_INSERT), Text::own(PROGRESS_UPDATE));
    for advance in advances {
        let aggregate = whole_aggregate(advance.aggregate)?;
        let state = advance.progress.state.as_deref().map(whole_state).transpose()?;
        let text = if advance.first { &insert } else { &update };
        let write = query(text.sql())
            .bind(advance.progress.version)
            .bind(state)
            .bind(&consumer)
            .bind(&aggregate)
            .execute(&mut *connection)
            .await;
        let overtaken = match write {
            Ok(written) => written.rows_affected() != 1,
            Err(error) if failure::is_duplicate_of(&error, "aggregate") => true,
            Err(error) => return Err(migrated(error)),
        };
        if overtaken {
            let text = format!("another unit changed how far {consumer:?} came with {aggregate:?}");
            return Err(StoreError::Contended(text).into());
        }
    }
    Ok(())
}
