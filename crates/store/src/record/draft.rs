//! Records about to be written: bounded by what their tables hold, the same for every dialect.

use std::fmt::Write;

use bytes::Bytes;
use consign_core::delivery::Message;
use consign_core::event::{EventId, Headers};
use consign_core::json::Json;
use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::{DeadDelivery, ParkDelivery, ParkReason, StoreError};
use sha2::{Digest, Sha256};

use crate::diagnostic::cut;
use crate::record::Audit;

mod again;

/// Of a payload in a conflict, this many bytes are kept; its real length is recorded.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The limits of the tables' text columns, in bytes, so that they hold whatever the characters.
pub(crate) const TEXT_BYTES_MAX: usize = 60_000;
const REASON_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 255;
const ACTOR_BYTES_MAX: usize = 128;
/// The limits of the tables' key columns, in characters.
const CONSUMER_MAX: usize = 128;
const KEY_MAX: usize = 512;
const AGGREGATE_MAX: usize = 255;
const STATE_MAX: usize = 64;

/// The parts of a message that come back when it is processed again.
#[derive(Clone, Debug)]
pub(crate) struct MessageDraft {
    pub(crate) id: Option<String>,
    pub(crate) message_type: Option<String>,
    pub(crate) source: String,
    /// A JSON object.
    pub(crate) headers: String,
    /// Whole.
    pub(crate) body: Bytes,
}

/// A key that came again with other content.
#[derive(Clone, Debug)]
pub(crate) struct ConflictDraft {
    pub(crate) consumer: String,
    pub(crate) key: String,
    /// Of what came, as the consumer compares it.
    pub(crate) digest: String,
    pub(crate) event_id: Option<String>,
    pub(crate) existing_event_id: Option<String>,
    pub(crate) comparison: String,
    pub(crate) existing: String,
    pub(crate) message: MessageDraft,
}

/// A delivery no consumer could process.
#[derive(Clone, Debug)]
pub(crate) struct DeadDraft {
    pub(crate) consumer: String,
    /// Of the message's id and body.
    pub(crate) digest: String,
    pub(crate) key: Option<String>,
    pub(crate) reason: String,
    pub(crate) attempts: i64,
    pub(crate) message: MessageDraft,
}

/// A delivery that is to wait in the database.
#[derive(Clone, Debug)]
pub(crate) struct ParkedDraft {
    pub(crate) consumer: String,
    /// Of the message's id and body.
    pub(crate) digest: String,
    pub(crate) key: Option<String>,
    pub(crate) reason: ParkReason,
    pub(crate) detail: String,
    pub(crate) attempts: i64,
    pub(crate) aggregate: Option<String>,
    pub(crate) version: Option<i64>,
    pub(crate) delay_micros: i64,
    pub(crate) message: MessageDraft,
}

/// One line of the audit.
#[derive(Clone, Debug)]
pub(crate) struct AuditDraft {
    pub(crate) actor: String,
    pub(crate) action: &'static str,
    pub(crate) subject: String,
    pub(crate) detail: Option<String>,
}

impl MessageDraft {
    fn new(message: &Message) -> Self {
        Self {
            id: message.id.as_deref().map(name),
            message_type: message.message_type.as_deref().map(name),
            source: name(&message.source),
            headers: headers_text(&message.headers),
            body: message.body.clone(),
        }
    }

    /// The body, cut to `bytes_max`.
    pub(crate) fn body_within(&self, bytes_max: usize) -> &[u8] {
        &self.body[..self.body.len().min(bytes_max)]
    }

    /// The body's real length.
    pub(crate) fn body_bytes(&self) -> i64 {
        i64::try_from(self.body.len()).unwrap_or(i64::MAX)
    }
}

impl ConflictDraft {
    /// # Errors
    /// The consumer's name or the key is longer than its column.
    pub(crate) fn new(
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> Result<Self, StoreError> {
        let event_id = operation.event_id.as_ref().map(EventId::as_str).or(message.id.as_deref());
        let comparison = operation.comparison.text();
        Ok(Self {
            consumer: whole_consumer(&operation.consumer)?,
            key: whole("business_key", &operation.key, KEY_MAX)?,
            digest: digest([comparison.as_bytes()]),
            event_id: event_id.map(name),
            existing_event_id: existing.event_id.as_deref().map(name),
            comparison: cut(&comparison, TEXT_BYTES_MAX).to_owned(),
            existing: cut(&existing_text(&operation.comparison, existing), TEXT_BYTES_MAX).to_owned(),
            message: MessageDraft::new(message),
        })
    }
}

impl DeadDraft {
    /// # Errors
    /// The consumer's name is longer than its column.
    pub(crate) fn new(dead: &DeadDelivery<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            consumer: whole_consumer(dead.consumer)?,
            digest: message_digest(dead.message),
            key: dead.business_key.map(name),
            reason: cut(dead.reason, REASON_BYTES_MAX).to_owned(),
            attempts: i64::from(dead.message.delivery_count),
            message: MessageDraft::new(dead.message),
        })
    }
}

impl ParkedDraft {
    /// # Errors
    /// The consumer's name, the key or the aggregate is longer than its column.
    pub(crate) fn new(parked: &ParkDelivery<'_>) -> Result<Self, StoreError> {
        let aggregate = parked.step.map(|(aggregate, _)| whole_aggregate(aggregate)).transpose()?;
        Ok(Self {
            consumer: whole_consumer(parked.consumer)?,
            digest: message_digest(parked.message),
            key: parked.business_key.map(|key| whole("business_key", key, KEY_MAX)).transpose()?,
            reason: parked.reason,
            detail: cut(parked.detail, REASON_BYTES_MAX).to_owned(),
            attempts: i64::from(parked.attempts),
            aggregate,
            version: parked.step.map(|(_, version)| version),
            delay_micros: crate::settling::micros(parked.delay),
            message: MessageDraft::new(parked.message),
        })
    }
}

impl AuditDraft {
    pub(crate) fn new(audit: &Audit, action: &'static str, subject: &str) -> Self {
        Self {
            actor: cut(&audit.actor, ACTOR_BYTES_MAX).to_owned(),
            action,
            subject: name(subject),
            detail: audit.detail.as_deref().map(|detail| cut(detail, REASON_BYTES_MAX).to_owned()),
        }
    }
}

/// The word for a reason in `consign_parked_delivery`.
pub(crate) const fn reason_word(reason: ParkReason) -> &'static str {
    match reason {
        ParkReason::Retry => "RETRY",
        ParkReason::Gap => "GAP",
        ParkReason::Requeued => "REQUEUED",
    }
}

/// The reason behind a word. A word from a newer version is tried as what it can only be: due.
pub(crate) fn reason_of(word: &str) -> ParkReason {
    match word {
        "GAP" => ParkReason::Gap,
        "REQUEUED" => ParkReason::Requeued,
        _ => ParkReason::Retry,
    }
}

/// A consumer's name as it is: a cut one would be another consumer.
///
/// # Errors
/// It is longer than its column.
pub(crate) fn whole_consumer(consumer: &str) -> Result<String, StoreError> {
    whole("consumer_name", consumer, CONSUMER_MAX)
}

/// An aggregate as it is: a cut one would be another aggregate.
///
/// # Errors
/// It is longer than its column.
pub(crate) fn whole_aggregate(aggregate: &str) -> Result<String, StoreError> {
    whole("aggregate", aggregate, AGGREGATE_MAX)
}

/// A state as it is.
///
/// # Errors
/// It is longer than its column.
pub(crate) fn whole_state(state: &str) -> Result<String, StoreError> {
    whole("state", state, STATE_MAX)
}

/// The digest under which a message is put aside or parked once, whatever it came to before.
pub(crate) fn message_digest(message: &Message) -> String {
    let id = message.id.as_deref().unwrap_or_default();
    digest([id.as_bytes(), &[0], &message.body])
}

fn name(text: &str) -> String {
    cut(text, NAME_BYTES_MAX).to_owned()
}

/// A key as it is: a cut key would be another key.
fn whole(column: &str, text: &str, characters_max: usize) -> Result<String, StoreError> {
    let characters = text.chars().count();
    if characters > characters_max {
        return Err(StoreError::Data(format!(
            "{column} has {characters} characters and its column holds {characters_max}: shorten it"
        )));
    }
    Ok(text.into())
}

fn existing_text(comparison: &Comparison, existing: &StoredMarker) -> String {
    let Comparison::Columns(compared) = comparison else {
        return format!("fingerprint={}", existing.fingerprint.as_deref().unwrap_or_default());
    };
    let text = |column: &str| existing.columns.get(column).and_then(Option::as_deref).unwrap_or_default();
    let texts = compared.iter().map(|compared| format!("{}={}", compared.column, text(&compared.column)));
    texts.collect::<Vec<_>>().join(", ")
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
