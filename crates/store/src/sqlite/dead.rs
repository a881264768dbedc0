//! Dead events, and what people do about them.

use consign_core::event::EventId;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::TableShape;
use crate::mapping::OutboxMapping;
use crate::record::{DeadEvent, DeadFilter, LIST_PAYLOAD_BYTES};
use crate::settling::micros;
use crate::sqlite::connection::UnitError;
use crate::sqlite::outbox::{Outbox, count};
use crate::sqlite::statement::{DEAD_EVENT_SELECT, Text, before};

impl Outbox {
    /// The dead events that `filter` lets through, the oldest first, their payloads cut to [`LIST_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// The file cannot be read, or the table does not fit.
    pub async fn dead(&self, filter: &DeadFilter) -> Result<Vec<DeadEvent>, StoreError> {
        let (filter, mapping, shape) = (filter.clone(), self.mapping().clone(), self.shape().await?);
        self.database()
            .read(move |connection| async move { list(connection, &mapping, &shape, &filter).await }.boxed())
            .await
    }

    /// One event with its whole payload, whatever its status.
    ///
    /// # Errors
    /// As [`Outbox::dead`].
    pub async fn dead_event(&self, event_id: &EventId) -> Result<Option<DeadEvent>, StoreError> {
        let (id, mapping, shape) = (event_id.clone(), self.mapping().clone(), self.shape().await?);
        self.database()
            .read(move |connection| {
                async move {
                    let text = select_text(&mapping, &shape, [("by_id", true)]);
                    let select = query(text.sql()).bind(i64::MAX).bind(id.as_str()).bind(1);
                    let row = select.fetch_optional(connection).await?;
                    Ok(row.as_ref().map(|row| record(row, &shape)).transpose()?)
                }
                .boxed()
            })
            .await
    }
}

async fn list(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
    filter: &DeadFilter,
) -> Result<Vec<DeadEvent>, UnitError> {
    let older_than = filter.older_than.map(|age| before(micros(age)));
    let texts = [
        ("by_event_type", &filter.event_type),
        ("by_destination", &filter.destination),
        ("by_reason", &filter.reason_contains),
        ("by_age", &older_than),
    ];
    // What the table does not keep, no row can have.
    let unknown = filter.destination.is_some() && !shape.has("destination")
        || filter.reason_contains.is_some() && !shape.has("last_error");
    if unknown {
        return Ok(Vec::new());
    }
    let text = select_text(mapping, shape, texts.map(|(word, text)| (word, text.is_some())));
    let mut select = query(text.sql()).bind(i64::try_from(LIST_PAYLOAD_BYTES).unwrap_or(i64::MAX));
    for (_, value) in texts {
        if let Some(value) = value {
            select = select.bind(value);
        }
    }
    let rows = select.bind(filter.limit).fetch_all(connection).await?;
    Ok(rows.iter().map(|row| record(row, shape)).collect::<Result<_, _>>()?)
}

fn select_text<const N: usize>(
    mapping: &OutboxMapping,
    shape: &TableShape,
    words: [(&str, bool); N],
) -> Text {
    Text::with_words(DEAD_EVENT_SELECT, mapping.names(), shape, words)
}

fn record(row: &SqliteRow, shape: &TableShape) -> Result<DeadEvent, sqlx::Error> {
    let text = |column: &str| row.try_get_unchecked::<Option<String>, _>(column);
    let optional = |column: &str| if shape.has(column) { text(column) } else { Ok(None) };
    let attempts: i64 = row.try_get_unchecked("attempts")?;
    Ok(DeadEvent {
        event_id: row.try_get_unchecked("event_id")?,
        status: text("status")?.unwrap_or_default(),
        event_type: text("event_type")?.unwrap_or_default(),
        aggregate_type: optional("aggregate_type")?,
        aggregate_id: text("aggregate_id")?,
        business_key: optional("business_key")?,
        destination: optional("destination")?,
        attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX),
        last_error: optional("last_error")?,
        last_outcome: optional("last_outcome")?,
        payload: row.try_get_unchecked::<Option<Vec<u8>>, _>("payload")?.map(Into::into),
        payload_bytes: row.try_get_unchecked::<Option<i64>, _>("payload_bytes")?.map(count),
        created_at: text("created_at")?,
    })
}
