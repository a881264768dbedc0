//! Conflicts, and what people decide about them.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::TableShape;
use crate::mapping::MarkerMapping;
use crate::mysql::audit;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::inbox::{Inbox, parking};
use crate::mysql::outbox::count;
use crate::mysql::statement::{CONFLICT_RESOLVE, CONFLICT_SELECT, MARKER_DELETE, Text};
use crate::record::draft::{AuditDraft, ParkedDraft};
use crate::record::{Audit, ConflictFilter, ConflictRecord, LIST_PAYLOAD_BYTES};

impl Inbox {
    /// The recorded conflicts that `filter` lets through, the newest first, their payloads cut to
    /// [`LIST_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// The server cannot be reached, or the database has no table of conflicts.
    pub async fn conflicts(&self, filter: &ConflictFilter) -> Result<Vec<ConflictRecord>, StoreError> {
        let filter = filter.clone();
        let reading = self
            .database()
            .read(Lane::General, move |connection| async move { list(connection, &filter).await }.boxed());
        reading.await
    }

    /// One conflict, with all that is kept of both payloads.
    ///
    /// # Errors
    /// As [`Inbox::conflicts`].
    pub async fn conflict(&self, id: i64) -> Result<Option<ConflictRecord>, StoreError> {
        let reading = self
            .database()
            .read(Lane::General, move |connection| async move { find(connection, id, false).await }.boxed());
        reading.await
    }

    /// Decides that what was applied stays. `false` when there is no such conflict, or it was decided before.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses: nothing is changed.
    pub async fn keep_conflict(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let audit = audit.clone();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let Some(conflict) = find(connection, id, true).await? else { return Ok(false) };
                resolve(connection, &conflict, "kept", &audit, "conflict_keep").await
            }
            .boxed()
        });
        unit.await
    }

    /// Decides that what was refused is to be applied instead: takes the marker away and parks the message for its
    /// consumer, due now. What the applied operation changed stays as it is; undoing it is up to the business.
    /// `false` when there is no such conflict, or it was decided before.
    ///
    /// # Errors
    /// [`StoreError::Data`]: the message was cut when it was recorded. Otherwise the server cannot be reached, or
    /// refuses. In either case nothing is changed.
    pub async fn reprocess_conflict(&self, id: i64, audit: &Audit) -> Result<bool, StoreError> {
        let (audit, mapping) = (audit.clone(), self.mapping().clone());
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let Some(conflict) = find(connection, id, true).await? else { return Ok(false) };
                if conflict.resolved_at.is_some() {
                    return Ok(false);
                }
                let parked = ParkedDraft::reprocessed(&conflict)?;
                delete_marker(connection, &mapping, &conflict).await?;
                parking::insert(connection, &parked).await?;
                resolve(connection, &conflict, "reprocessed", &audit, "conflict_reprocess").await
            }
            .boxed()
        });
        unit.await
    }
}

async fn list(
    connection: &mut MySqlConnection,
    filter: &ConflictFilter,
) -> Result<Vec<ConflictRecord>, UnitError> {
    let words = [
        ("consumer", filter.consumer.is_some()),
        ("key", filter.key.is_some()),
        ("unresolved", filter.unresolved_only),
    ];
    let text = Text::own_where(CONFLICT_SELECT, words);
    let payload_bytes = i64::try_from(LIST_PAYLOAD_BYTES).unwrap_or(i64::MAX);
    let mut select = query(text.sql()).bind(payload_bytes).bind(payload_bytes);
    for value in [&filter.consumer, &filter.key].into_iter().flatten() {
        select = select.bind(value);
    }
    let rows = select.bind(filter.limit).fetch_all(connection).await.map_err(migrated)?;
    Ok(rows.iter().map(record).collect::<Result<_, _>>()?)
}

/// One conflict; locked when it is about to be decided, so that only one decision is made.
async fn find(
    connection: &mut MySqlConnection,
    id: i64,
    locked: bool,
) -> Result<Option<ConflictRecord>, UnitError> {
    let text = Text::own_where(CONFLICT_SELECT, [("id", true), ("locked", locked)]);
    let select = query(text.sql()).bind(i64::MAX).bind(i64::MAX).bind(id).bind(1);
    let row = select.fetch_optional(connection).await.map_err(migrated)?;
    Ok(row.as_ref().map(record).transpose()?)
}

fn record(row: &MySqlRow) -> Result<ConflictRecord, sqlx::Error> {
    Ok(ConflictRecord {
        id: row.try_get_unchecked("id")?,
        consumer: row.try_get_unchecked("consumer_name")?,
        business_key: row.try_get_unchecked("business_key")?,
        event_id: row.try_get_unchecked("event_id")?,
        existing_event_id: row.try_get_unchecked("existing_event_id")?,
        comparison: row.try_get_unchecked("comparison")?,
        existing: row.try_get_unchecked("existing")?,
        message_id: row.try_get_unchecked("message_id")?,
        message_type: row.try_get_unchecked("message_type")?,
        source: row.try_get_unchecked("source")?,
        headers: parking::headers_of(row)?.0,
        payload: row.try_get_unchecked::<Vec<u8>, _>("payload")?.into(),
        payload_bytes: count(row.try_get_unchecked("payload_bytes")?),
        existing_payload: row.try_get_unchecked::<Option<Vec<u8>>, _>("existing_payload")?.map(Into::into),
        existing_payload_bytes: row.try_get_unchecked::<Option<i64>, _>("existing_payload_bytes")?.map(count),
        count: count(row.try_get_unchecked("count")?),
        first_seen_at: row.try_get_unchecked("first_seen_at")?,
        last_seen_at: row.try_get_unchecked("last_seen_at")?,
        resolved_at: row.try_get_unchecked("resolved_at")?,
        resolution: row.try_get_unchecked("resolution")?,
    })
}

async fn delete_marker(
    connection: &mut MySqlConnection,
    mapping: &MarkerMapping,
    conflict: &ConflictRecord,
) -> Result<(), UnitError> {
    let text = Text::new(MARKER_DELETE, mapping.names(), &TableShape::default());
    let delete = query(text.sql()).bind(&conflict.consumer).bind(&conflict.business_key);
    delete.execute(connection).await?;
    Ok(())
}

async fn resolve(
    connection: &mut MySqlConnection,
    conflict: &ConflictRecord,
    resolution: &'static str,
    audit: &Audit,
    action: &'static str,
) -> Result<bool, UnitError> {
    let update = query(Text::own(CONFLICT_RESOLVE).sql()).bind(resolution).bind(conflict.id);
    if update.execute(&mut *connection).await.map_err(migrated)?.rows_affected() == 0 {
        return Ok(false);
    }
    let subject = format!("conflict {}: {} {}", conflict.id, conflict.consumer, conflict.business_key);
    audit::insert(connection, &AuditDraft::new(audit, action, &subject)).await?;
    Ok(true)
}
