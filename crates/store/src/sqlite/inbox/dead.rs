//! Dead deliveries, and what people do about them.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use crate::record::draft::{AuditDraft, ParkedDraft};
use crate::record::{Audit, DeadDeliveryRecord, DeadFilter, LIST_PAYLOAD_BYTES};
use crate::settling::micros;
use crate::sqlite::audit;
use crate::sqlite::connection::UnitError;
use crate::sqlite::failure::migrated;
use crate::sqlite::inbox::{Inbox, parking};
use crate::sqlite::outbox::count;
use crate::sqlite::statement::{DEAD_DELIVERY_RESOLVE, DEAD_DELIVERY_SELECT, Text, before};

impl Inbox {
    /// The dead deliveries that `filter` lets through, the oldest first, their payloads cut to
    /// [`LIST_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// The file cannot be read, or has no table of dead deliveries.
    pub async fn dead_deliveries(&self, filter: &DeadFilter) -> Result<Vec<DeadDeliveryRecord>, StoreError> {
        let filter = filter.clone();
        self.database().read(move |connection| async move { list(connection, &filter).await }.boxed()).await
    }

    /// One dead delivery, with its whole payload.
    ///
    /// # Errors
    /// As [`Inbox::dead_deliveries`].
    pub async fn dead_delivery(&self, id: i64) -> Result<Option<DeadDeliveryRecord>, StoreError> {
        self.database().read(move |connection| async move { find(connection, id).await }.boxed()).await
    }

    /// Parks a dead delivery for its consumer, due now and with all its attempts. `false` when there is no such
    /// delivery, or somebody dealt with it before.
    ///
    /// # Errors
    /// [`StoreError::Data`]: an earlier version of consign cut the message. Otherwise the file cannot be written. In
    /// either case nothing is changed.
    pub async fn requeue_dead_delivery(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let audit = audit.clone();
        let unit = self.database().transact(move |connection| {
            async move {
                let Some(dead) = find(connection, id).await? else { return Ok(false) };
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
    /// The file cannot be written: nothing is changed.
    pub async fn discard_dead_delivery(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let audit = audit.clone();
        let unit = self.database().transact(move |connection| {
            async move {
                let Some(dead) = find(connection, id).await? else { return Ok(false) };
                resolve(connection, &dead, "discarded", &audit, "dead_delivery_discard").await
            }
            .boxed()
        });
        unit.await
    }
}

async fn list(
    connection: &mut SqliteConnection,
    filter: &DeadFilter,
) -> Result<Vec<DeadDeliveryRecord>, UnitError> {
    let older_than = filter.older_than.map(|age| before(micros(age)));
    let texts = [
        ("consumer", &filter.consumer),
        ("event_type", &filter.event_type),
        ("reason_contains", &filter.reason_contains),
        ("older_than", &older_than),
    ];
    let words = texts.map(|(word, text)| (word, text.is_some()));
    let words = words.into_iter().chain([("unresolved", filter.unresolved_only)]);
    let text = Text::own_where(DEAD_DELIVERY_SELECT, words);
    let mut select = query(text.sql()).bind(i64::try_from(LIST_PAYLOAD_BYTES).unwrap_or(i64::MAX));
    for (_, value) in texts {
        if let Some(value) = value {
            select = select.bind(value);
        }
    }
    let rows = select.bind(filter.limit).fetch_all(connection).await.map_err(migrated)?;
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}

async fn find(connection: &mut SqliteConnection, id: i64) -> Result<Option<DeadDeliveryRecord>, UnitError> {
    let text = Text::own_where(DEAD_DELIVERY_SELECT, [("id", true)]);
    let select = query(text.sql()).bind(i64::MAX).bind(id).bind(1);
    let row = select.fetch_optional(connection).await.map_err(migrated)?;
    Ok(row.as_ref().map(record).transpose()?)
}

fn record(row: &SqliteRow) -> Result<DeadDeliveryRecord, sqlx::Error> {
    let attempts: Option<i64> = row.try_get("attempts")?;
    Ok(DeadDeliveryRecord {
        id: row.try_get("id")?,
        consumer: row.try_get("consumer_name")?,
        business_key: row.try_get("business_key")?,
        message_id: row.try_get("message_id")?,
        message_type: row.try_get("message_type")?,
        source: row.try_get("source")?,
        reason: row.try_get("reason")?,
        attempts: attempts.map(|attempts| u32::try_from(attempts.max(0)).unwrap_or(u32::MAX)),
        headers: parking::headers_of(row)?.0,
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
        payload_bytes: count(row.try_get("payload_bytes")?),
        count: count(row.try_get("count")?),
        first_seen_at: row.try_get("first_seen_at")?,
        last_seen_at: row.try_get("last_seen_at")?,
        resolved_at: row.try_get("resolved_at")?,
        resolution: row.try_get("resolution")?,
    })
}

async fn resolve(
    connection: &mut SqliteConnection,
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
