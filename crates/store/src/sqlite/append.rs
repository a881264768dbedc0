//! Appending: a producer's events, inside the producer's own transaction.

use consign_core::event::{EventId, NewEvent};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqliteConnection, query};

use crate::append::{AppendError, Appended};
use crate::introspection::{ColumnKind, TableShape};
use crate::sqlite::failure;
use crate::sqlite::outbox::{Outbox, Prepared};
use crate::sqlite::statement::{self, QUOTE, Text, after};
use crate::statement::Rendering;

/// The most rows of one INSERT.
const ROWS_MAX: usize = 64;
/// The most bytes of one INSERT, though always at least one event.
const BYTES_MAX: usize = 4 << 20;

/// Checks all events, then inserts them in as few statements as the limits allow.
pub(crate) async fn append(
    outbox: &Outbox,
    prepared: &Prepared,
    connection: &mut SqliteConnection,
    events: Vec<NewEvent>,
) -> Result<Vec<EventId>, AppendError> {
    let events = events
        .into_iter()
        .map(|event| Appended::new(event, &prepared.shape))
        .collect::<Result<Vec<_>, _>>()?;
    let mut rest = events.as_slice();
    while !rest.is_empty() {
        let (chunk, after) = rest.split_at(chunk(rest, BYTES_MAX));
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
    connection: &mut SqliteConnection,
    events: &[Appended],
) -> Result<(), AppendError> {
    let present = prepared.shape.present();
    let rendering =
        Rendering::new(QUOTE).names(outbox.mapping().names()).present(&present).rows(events.len());
    let text = Text::rendered(rendering.render(statement::APPEND));
    let mut insert = query(text.sql());
    for event in events {
        insert = bind(insert, event, &prepared.shape);
    }
    let result = insert.execute(connection).await;
    let id = outbox.mapping().names()["event_id"].as_str();
    match result {
        Ok(_) => Ok(()),
        Err(error) if failure::is_duplicate_of(&error, id) => match events {
            [event] => Err(AppendError::Duplicate(event.id.clone())),
            _ => Err(AppendError::Store(failure::store_error(&error))),
        },
        Err(error) => Err(AppendError::Store(failure::store_error(&error))),
    }
}

fn bind<'q>(
    insert: Query<'q, Sqlite, SqliteArguments>,
    event: &'q Appended,
    shape: &TableShape,
) -> Query<'q, Sqlite, SqliteArguments> {
    // A whole number in text becomes one exactly where the column wants it.
    let mut insert =
        insert.bind(event.id.as_str()).bind(event.aggregate_id.as_deref()).bind(event.event_type.as_str());
    insert = match payload_text(event, shape) {
        Some(text) => insert.bind(text),
        None => insert.bind(event.payload.as_deref()),
    };
    insert = insert.bind(after(event.delay_micros));
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

/// The payload as text, where text keeps it as it is. Text is what people and SQL functions can read; but a column
/// of numeric affinity, such as JSON, would turn text that looks like a number into one. Bytes are never converted.
fn payload_text<'a>(event: &'a Appended, shape: &TableShape) -> Option<&'a str> {
    let text = std::str::from_utf8(event.payload.as_ref()?).ok()?;
    let keeps_text = match shape.column("payload")?.kind {
        ColumnKind::Text | ColumnKind::Bytes => true,
        ColumnKind::Integer
        | ColumnKind::Decimal
        | ColumnKind::Float
        | ColumnKind::Json
        | ColumnKind::DateTime
        | ColumnKind::Other => text.trim_start().starts_with(['{', '[', '"']),
    };
    keeps_text.then_some(text)
}
