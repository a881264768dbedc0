//! Dead events, and what people do about them.

use bytes::Bytes;
use consign_core::event::EventId;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::TableShape;
use crate::mapping::OutboxMapping;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::outbox::{Outbox, count};
use crate::mysql::statement::{DEAD_EVENT_SELECT, Text};
use crate::record::{DeadEvent, DeadFilter, LIST_PAYLOAD_BYTES};
use crate::settling::micros;

impl Outbox {
    /// The dead events that `filter` lets through, the oldest first, their payloads cut to [`LIST_PAYLOAD_BYTES`].
    ///
    /// # Errors
    /// The server cannot be reached, or the table does not fit.
    pub async fn dead(&self, filter: &DeadFilter) -> Result<Vec<DeadEvent>, StoreError> {
        let (filter, mapping, shape) = (filter.clone(), self.mapping().clone(), self.shape().await?);
        let reading = self.database().read(Lane::General, move |connection| {
            async move { list(connection, &mapping, &shape, &filter).await }.boxed()
        });
        reading.await
    }

    /// One event with its whole payload, whatever its status.
    ///
    /// # Errors
    /// As [`Outbox::dead`].
    pub async fn dead_event(&self, event_id: &EventId) -> Result<Option<DeadEvent>, StoreError> {
        let (id, mapping, shape) = (event_id.clone(), self.mapping().clone(), self.shape().await?);
        let reading = self.database().read(Lane::General, move |connection| {
            async move {
                let text = select_text(&mapping, &shape, [("by_id", true)]);
                let select = query(text.sql()).bind(id.as_str()).bind(1);
                let row = select.fetch_optional(connection).await?;
                Ok(row.as_ref().map(|row| record(row, &shape)).transpose()?)
            }
            .boxed()
        });
        reading.await
    }
}

async fn list(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
    filter: &DeadFilter,
) -> Result<Vec<DeadEvent>, UnitError> {
    // What the table does not keep, no row can have.
    let unknown = filter.destination.is_some() && !shape.has("destination")
        || filter.reason_contains.is_some() && !shape.has("last_error");
    if unknown {
        return Ok(Vec::new());
    }
    let texts = [
        ("by_event_type", &filter.event_type),
        ("by_destination", &filter.destination),
        ("by_reason", &filter.reason_contains),
    ];
    let words = texts.map(|(word, text)| (word, text.is_some()));
    let text =
        select_text(mapping, shape, words.into_iter().chain([("by_age", filter.older_than.is_some())]));
    let mut select = query(text.sql()).bind(i64::try_from(LIST_PAYLOAD_BYTES).unwrap_or(i64::MAX));
    for (_, value) in texts {
        if let Some(value) = value {
            select = select.bind(value);
        }
    }
    if let Some(age) = filter.older_than {
        select = select.bind(micros(age));
    }
    let rows = select.bind(filter.limit).fetch_all(connection).await?;
    let mut events: Vec<DeadEvent> =
        rows.iter().map(|row| record(row, shape)).collect::<Result<_, sqlx::Error>>()?;
    for payload in events.iter_mut().filter_map(|event| event.payload.as_mut()) {
        // The server counted characters.
        payload.truncate(LIST_PAYLOAD_BYTES);
    }
    Ok(events)
}

fn select_text<'w>(
    mapping: &OutboxMapping,
    shape: &TableShape,
    words: impl IntoIterator<Item = (&'w str, bool)>,
) -> Text {
    Text::with_words(DEAD_EVENT_SELECT, mapping.names(), shape, words)
}

fn record(row: &MySqlRow, shape: &TableShape) -> Result<DeadEvent, sqlx::Error> {
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
        payload: row.try_get_unchecked::<Option<Vec<u8>>, _>("payload")?.map(Bytes::from),
        payload_bytes: row.try_get_unchecked::<Option<i64>, _>("payload_bytes")?.map(count),
        created_at: text("created_at")?,
    })
}
