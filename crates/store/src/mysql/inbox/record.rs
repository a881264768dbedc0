//! Records for people: conflicts and dead deliveries, in tables of consign's own.

use std::fmt::Write;

use consign_core::delivery::Message;
use consign_core::event::{EventId, Headers};
use consign_core::json::Json;
use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::{DeadDelivery, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use sqlx::{MySqlConnection, Row, query};

use crate::diagnostic::cut;
use crate::mapping::{Identifier, MarkerMapping};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::introspection;
use crate::mysql::outbox::count;
use crate::mysql::statement::{
    CONFLICT_COUNT, CONFLICT_RECORD, DEAD_DELIVERY_COUNT, DEAD_DELIVERY_RECORD, MARKER_COUNT, Text,
};
use crate::status::InboxStatus;

/// Of a payload, this many bytes are kept; its real length is recorded.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The limits of the tables' text columns, in bytes, so that they hold whatever the characters.
const TEXT_BYTES_MAX: usize = 60_000;
const REASON_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
/// The limits of the tables' key columns, in characters.
const CONSUMER_MAX: usize = 128;
const KEY_MAX: usize = 512;

/// One record about to be written.
pub(super) trait Record: Send + 'static {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

/// A key that came again with other content.
pub(super) struct Conflict {
    consumer: String,
    key: String,
    event_id: Option<String>,
    existing_event_id: Option<String>,
    comparison: String,
    existing: String,
    source: String,
    payload: Payload,
}

/// A delivery no consumer could process.
pub(super) struct Dead {
    consumer: String,
    digest: String,
    key: Option<String>,
    message_id: Option<String>,
    message_type: Option<String>,
    source: String,
    reason: String,
    headers: String,
    payload: Payload,
}

struct Payload {
    kept: Vec<u8>,
    bytes: i64,
}

/// Writes a record and commits it.
pub(super) async fn write(database: &Database, record: impl Record + Sync) -> Result<(), StoreError> {
    let written = database.transact(Lane::General, move |connection| {
        async move { record.insert(connection).await.map_err(UnitError::Sql) }.boxed()
    });
    written.await.map_err(|error| match error {
        StoreError::Schema(text) => StoreError::Schema(format!("{text}: run `consign migrate`")),
        other => other,
    })
}

impl Conflict {
    pub(super) fn new(
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> Result<Self, StoreError> {
        let name = |text: &str| cut(text, NAME_BYTES_MAX).to_owned();
        let event_id = operation.event_id.as_ref().map(EventId::as_str).or(message.id.as_deref());
        Ok(Self {
            consumer: whole("consumer_name", &operation.consumer, CONSUMER_MAX)?,
            key: whole("business_key", &operation.key, KEY_MAX)?,
            event_id: event_id.map(name),
            existing_event_id: existing.event_id.as_deref().map(name),
            comparison: operation.comparison.text(),
            existing: existing_text(&operation.comparison, existing),
            source: name(&message.source),
            payload: Payload::new(&message.body),
        })
    }
}

impl Record for Conflict {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        async move {
            query(Text::own(CONFLICT_RECORD).sql())
                .bind(&self.consumer)
                .bind(&self.key)
                .bind(digest([self.comparison.as_bytes()]))
                .bind(&self.event_id)
                .bind(&self.existing_event_id)
                .bind(cut(&self.comparison, TEXT_BYTES_MAX))
                .bind(cut(&self.existing, TEXT_BYTES_MAX))
                .bind(&self.source)
                .bind(&self.payload.kept)
                .bind(self.payload.bytes)
                .execute(connection)
                .await
                .map(|_| ())
        }
        .boxed()
    }
}

impl Dead {
    pub(super) fn new(dead: &DeadDelivery<'_>) -> Result<Self, StoreError> {
        let name = |text: &str| cut(text, NAME_BYTES_MAX).to_owned();
        let message = dead.message;
        let id = message.id.as_deref().unwrap_or_default();
        Ok(Self {
            consumer: whole("consumer_name", dead.consumer, CONSUMER_MAX)?,
            digest: digest([id.as_bytes(), &[0], &message.body]),
            key: dead.business_key.map(name),
            message_id: message.id.as_deref().map(name),
            message_type: message.message_type.as_deref().map(name),
            source: name(&message.source),
            reason: cut(dead.reason, REASON_BYTES_MAX).to_owned(),
            headers: cut(&headers_text(&message.headers), TEXT_BYTES_MAX).to_owned(),
            payload: Payload::new(&message.body),
        })
    }
}

impl Record for Dead {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        async move {
            query(Text::own(DEAD_DELIVERY_RECORD).sql())
                .bind(&self.consumer)
                .bind(&self.digest)
                .bind(&self.key)
                .bind(&self.message_id)
                .bind(&self.message_type)
                .bind(&self.source)
                .bind(&self.reason)
                .bind(&self.headers)
                .bind(&self.payload.kept)
                .bind(self.payload.bytes)
                .execute(connection)
                .await
                .map(|_| ())
        }
        .boxed()
    }
}

impl Payload {
    fn new(body: &[u8]) -> Self {
        let kept = body[..body.len().min(PAYLOAD_BYTES_MAX)].to_vec();
        Self { kept, bytes: i64::try_from(body.len()).unwrap_or(i64::MAX) }
    }
}

/// Counts markers and records; `None` for tables that do not exist.
pub(super) async fn status(database: &Database, mapping: &MarkerMapping) -> Result<InboxStatus, StoreError> {
    let mapping = mapping.clone();
    let own = |name| Identifier::table(name).expect("a constant name");
    database
        .read(Lane::General, move |connection| {
            async move {
                let markers =
                    Text::new(MARKER_COUNT, mapping.names(), &crate::introspection::TableShape::default());
                let conflicts = Text::own(CONFLICT_COUNT);
                let dead = Text::own(DEAD_DELIVERY_COUNT);
                Ok(InboxStatus {
                    markers: count_rows(connection, mapping.table(), &markers).await?,
                    conflicts: count_rows(connection, &own("consign_conflict"), &conflicts).await?,
                    dead_deliveries: count_rows(connection, &own("consign_dead_delivery"), &dead).await?,
                })
            }
            .boxed()
        })
        .await
}

async fn count_rows(
    connection: &mut MySqlConnection,
    table: &Identifier,
    text: &Text,
) -> Result<Option<u64>, sqlx::Error> {
    if introspection::engine(connection, table).await?.is_none() {
        return Ok(None);
    }
    let row = query(text.sql()).fetch_one(connection).await?;
    Ok(Some(count(row.try_get_unchecked(0)?)))
}

/// A key as it is: a cut key would be another key.
fn whole(column: &str, text: &str, characters_max: usize) -> Result<String, StoreError> {
    let characters = text.chars().count();
    if characters > characters_max {
        return Err(StoreError::Data(format!(
            "{column} has {characters} characters and its record holds {characters_max}: shorten it"
        )));
    }
    Ok(text.into())
}

fn existing_text(comparison: &Comparison, existing: &StoredMarker) -> String {
    match comparison {
        Comparison::Columns(columns) => columns
            .iter()
            .zip(&existing.columns)
            .map(|(compared, text)| format!("{}={}", compared.column, text.as_deref().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(", "),
        Comparison::Fingerprint(_) => {
            format!("fingerprint={}", existing.fingerprint.as_deref().unwrap_or_default())
        }
    }
}

/// Headers as a JSON object; of a repeated name the values are listed, as in HTTP.
fn headers_text(headers: &Headers) -> String {
    let mut joined: Vec<(String, String)> = Vec::with_capacity(headers.len());
    for (name, text) in headers {
        match joined.iter_mut().find(|(known, _)| known == name) {
            Some((_, list)) => {
                let _ = write!(list, ", {text}");
            }
            None => joined.push((name.clone(), text.clone())),
        }
    }
    Json::Object(joined.into_iter().map(|(name, text)| (name, Json::Text(text))).collect()).canonical()
}

fn digest<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
