//! Appending: a producer's events, inside the producer's own transaction.

use consign_core::event::{EventId, NewEvent};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, query};

use crate::append::{AppendError, Appended};
use crate::introspection::{ColumnKind, TableShape};
use crate::mysql::failure;
use crate::mysql::outbox::{Outbox, Prepared};
use crate::mysql::statement::{self, QUOTE, Text};
use crate::statement::Rendering;

/// The most rows of one INSERT.
const ROWS_MAX: usize = 64;
/// No more than this in one INSERT of several rows: a packet above 16 KiB waits some 40 ms on its way, see
/// [`crate::statement::LIST_MAX`].
const BYTES_MAX: usize = 12 << 10;

/// Checks all events, then inserts them in as few statements as the packet limit allows.
pub(crate) async fn append(
    outbox: &Outbox,
    prepared: &Prepared,
    connection: &mut MySqlConnection,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>, AppendError> {
    let events = events
        .into_iter()
        .map(|event| Appended::new(event, &prepared.shape))
        .collect::<Result<Vec<_>, _>>()?;
    if let Some(event) = events.iter().find(|event| event.weight() > prepared.packet_bytes_max) {
        // The server would hang up instead of answering (B77).
        let length = event.payload.as_ref().map_or(0, bytes::Bytes::len) as u64;
        let limit = prepared.packet_bytes_max as u64;
        return Err(AppendError::TooLong { field: "payload", length, limit });
    }
    let mut rest = events.as_slice();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk(rest, BYTES_MAX.min(prepared.packet_bytes_max / 2)));
        insert(outbox, prepared, connection, chunk).await?;
        rest = after;
    }
    Ok(events.into_iter().map(|event| event.id).collect())
}

/// How many of the events the next INSERT takes: a power of two, so that few texts are prepared, and at least one.
fn chunk(events: &[Appended], bytes_max: usize) -> usize {
    let mut bytes = 0_usize;
    let fitting = events.iter().take(ROWS_MAX).take_while(|event| {
        bytes = bytes.saturating_add(event.weight());
        bytes <= bytes_max
    });
    1 << fitting.count().max(1).ilog2()
}

async fn insert(
    outbox: &Outbox,
    prepared: &Prepared,
    connection: &mut MySqlConnection,
    events: &[Appended],
) -> Result<(), AppendError> {
    let present = prepared.shape.present();
    let rendering =
        Rendering::new(QUOTE).names(outbox.mapping().names()).present(&present).rows(events.len());
    let text = Text::rendered(rendering.render(statement::APPEND));
    let mut insert = query(text.sql());
    for event in events {
        insert = bind(insert, event, &prepared.shape, outbox.database().time_zone());
    }
    let result = insert.execute(connection).await;
    match result {
        Ok(_) => Ok(()),
        Err(error) if failure::is_duplicate(&error) => match events {
            [event] => Err(AppendError::Duplicate(event.id.clone())),
            _ => Err(AppendError::Store(failure::store_error(&error))),
        },
        Err(error) => Err(AppendError::Store(failure::store_error(&error))),
    }
}

fn bind<'q>(
    insert: Query<'q, MySql, MySqlArguments>,
    event: &'q Appended,
    shape: &TableShape,
    time_zone: Option<&'q str>,
) -> Query<'q, MySql, MySqlArguments> {
    let kind = |column: &str| shape.column(column).map(|column| column.kind);
    let mut insert = insert.bind(event.id.as_str());
    insert = match (kind("aggregate_id"), event.aggregate_id.as_deref()) {
        // Bound as a number, so that no key beyond 2^53 passes through a float.
        (Some(ColumnKind::Integer), Some(id)) => match id.parse::<i64>() {
            Ok(id) => insert.bind(id),
            Err(_) => insert.bind(id.parse::<u64>().ok()),
        },
        (_, id) => insert.bind(id),
    };
    insert = insert.bind(event.event_type.as_str());
    insert = match (kind("payload"), event.payload.as_deref()) {
        // A JSON or text column takes text only: bytes would come in the character set "binary".
        (Some(ColumnKind::Json | ColumnKind::Text), Some(payload)) => {
            insert.bind(std::str::from_utf8(payload).ok())
        }
        (_, payload) => insert.bind(payload),
    };
    insert = insert.bind(time_zone).bind(event.delay_micros).bind(time_zone);
    if shape.has("aggregate_type") {
        insert = insert.bind(event.aggregate_type.as_deref());
    }
    if shape.has("aggregate_version") {
        insert = insert.bind(event.aggregate_version);
    }
    for (column, text) in [
        ("business_key", &event.business_key),
        ("headers", &event.headers),
        ("destination", &event.destination),
        ("route_key", &event.route_key),
    ] {
        if shape.has(column) {
            insert = insert.bind(text.as_deref());
        }
    }
    insert
}
