//! Dead deliveries, and what people do about them.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use crate::mysql::audit;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::inbox::{Inbox, parking};
use crate::mysql::outbox::count;
use crate::mysql::statement::{DEAD_DELIVERY_RESOLVE, DEAD_DELIVERY_SELECT, Text};
use crate::record::draft::{AuditDraft, ParkedDraft};
use crate::record::{Audit, DeadDeliveryRecord, DeadFilter, LIST_PAYLOAD_BYTES};
use crate::settling::micros;

impl Inbox {
    /// The dead deliveries that `filter` lets through, the oldest first, their payloads cut to
    /// [`LIST_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// The server cannot be reached, or the database has no table of dead deliveries.
    pub async fn dead_deliveries(&self, filter: &DeadFilter) -> Result<Vec<DeadDeliveryRecord>, StoreError> {
        let filter = filter.clone();
        let reading = self
            .database()
            .read(Lane::General, move |connection| async move { list(connection, &filter).await }.boxed());
        reading.await
    }

    /// One dead delivery, with its whole payload.
    ///
    /// # Errors
    /// As [`Inbox::dead_deliveries`].
    pub async fn dead_delivery(&self, id: i64) -> Result<Option<DeadDeliveryRecord>, StoreError> {
        let reading = self
            .database()
            .read(Lane::General, move |connection| async move { find(connection, id, false).await }.boxed());
        reading.await
    }

    /// Parks a dead delivery for its consumer, due now and with all its attempts. `false` when there is no such
    /// delivery, or somebody dealt with it before.
    ///
    /// # Errors
    /// [`StoreError::Data`]: an earlier version of consign cut the message. Otherwise the server cannot be reached, or
    /// refuses. In either case nothing is changed.
    pub async fn requeue_dead_delivery(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let audit = audit.clone();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let Some(dead) = find(connection, id, true).await? else { return Ok(false) };
                if dead.resolved_at.is_some() {
                    return Ok(false);
                }
                parking::insert(connection, &ParkedDraft::requeued(&dead)?).await?;
                resolve(connection, &dead, "requeued", &audit, "dead_delivery_requeue").await
            }
            .boxed()
        });
        unit.await
    }

    /// Decides that a dead delivery is not to be processed. `false` when there is no such delivery, or somebody dealt
    /// with it before.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses: nothing is changed.
    pub async fn discard_dead_delivery(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let audit = audit.clone();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let Some(dead) = find(connection, id, true).await? else { return Ok(false) };
                resolve(connection, &dead, "discarded", &audit, "dead_delivery_discard").await
            }
            .boxed()
        });
        unit.await
    }
}

async fn list(
    connection: &mut MySqlConnection,
    filter: &DeadFilter,
) -> Result<Vec<DeadDeliveryRecord>, UnitError> {
    let texts = [
        ("consumer", &filter.consumer),
        ("event_type", &filter.event_type),
        ("reason_contains", &filter.reason_contains),
    ];
    let words = texts.map(|(word, text)| (word, text.is_some()));
    let others = [("older_than", filter.older_than.is_some()), ("unresolved", filter.unresolved_only)];
    let text = Text::own_where(DEAD_DELIVERY_SELECT, words.into_iter().chain(others));
    let mut select = query(text.sql()).bind(i64::try_from(LIST_PAYLOAD_BYTES).unwrap_or(i64::MAX));
    for (_, value) in texts {
        if let Some(value) = value {
            select = select.bind(value);
        }
    }
    if let Some(age) = filter.older_than {
        select = select.bind(micros(age));
    }
    let rows = select.bind(filter.limit).fetch_all(connection).await.map_err(migrated)?;
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}

/// One dead delivery; locked when it is about to be dealt with, so that only one of two people does.
async fn find(
    connection: &mut MySqlConnection,
    id: i64,
    locked: bool,
) -> Result<Option<DeadDeliveryRecord>, UnitError> {
    let text = Text::own_where(DEAD_DELIVERY_SELECT, [("id", true), ("locked", locked)]);
    let select = query(text.sql()).bind(i64::MAX).bind(id).bind(1);
    let row = select.fetch_optional(connection).await.map_err(migrated)?;
    Ok(row.as_ref().map(record).transpose()?)
}

fn record(row: &MySqlRow) -> Result<DeadDeliveryRecord, sqlx::Error> {
    let attempts: Option<i64> = row.try_get_unchecked("attempts")?;
    Ok(DeadDeliveryRecord {
        id: row.try_get_unchecked("id")?,
        consumer: row.try_get_unchecked("consumer_name")?,
        business_key: row.try_get_unchecked("business_key")?,
        message_id: row.try_get_unchecked("message_id")?,
        message_type: row.try_get_unchecked("message_type")?,
        source: row.try_get_unchecked("source")?,
        reason: row.try_get_unchecked("reason")?,
        attempts: attempts.map(|attempts| u32::try_from(attempts.max(0)).unwrap_or(u32::MAX)),
        headers: parking::headers_of(row)?.0,
        payload: row.try_get_unchecked::<Vec<u8>, _>("payload")?.into(),
        payload_bytes: count(row.try_get_unchecked("payload_bytes")?),
        count: count(row.try_get_unchecked("count")?),
        first_seen_at: row.try_get_unchecked("first_seen_at")?,
        last_seen_at: row.try_get_unchecked("last_seen_at")?,
        resolved_at: row.try_get_unchecked("resolved_at")?,
        resolution: row.try_get_unchecked("resolution")?,
    })
}

async fn resolve(
    connection: &mut MySqlConnection,
    dead: &DeadDeliveryRecord,
    resolution: &'static str,
    audit: &Audit,
    action: &'static str,
) -> Result<bool, UnitError> {
    let update = query(Text::own(DEAD_DELIVERY_RESOLVE).sql()).bind(resolution).bind(dead.id);
    if update.execute(&mut *connection).await.map_err(migrated)?.rows_affected() == 0 {
        return Ok(false);
    }
    let message = dead.message_id.as_deref().unwrap_or_default();
    let subject = format!("dead delivery {}: {} {message}", dead.id, dead.consumer);
    audit::insert(connection, &AuditDraft::new(audit, action, &subject)).await?;
    Ok(true)
}
