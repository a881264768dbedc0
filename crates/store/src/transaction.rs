//! Markers of transaction messages: what both dialects share.

use std::time::Duration;

use consign_core::event::EventId;
use consign_core::ports::{CommitError, Mark, StoreError};
use consign_core::transaction::marker::{Marker, MarkerStore, Unconfirmed};
use consign_core::transaction::message::{TransactionKey, TransactionMessage};

use crate::headers;

/// Markers of local transactions, in a producer's own sqlx transaction on the same database.
pub trait LocalMarkers: MarkerStore {
    /// The kind of database.
    type Database: sqlx::Database;

    /// Inserts the marker in the producer's own transaction. It belongs to the transaction itself and not behind a savepoint:
    /// one that is rolled back takes the marker with it. After [`Mark::Taken`] the transaction must be rolled back.
    fn mark(
        &self,
        tx: &mut sqlx::Transaction<'_, Self::Database>,
        key: &TransactionKey,
        message: &TransactionMessage,
    ) -> impl Future<Output = Result<Mark, StoreError>> + Send;

    /// Commits, and tells a COMMIT that was refused from one without an answer.
    fn commit(
        &self,
        tx: sqlx::Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), CommitError>> + Send;
}

/// Whether a marker carries its message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageCopy {
    /// Until the message was found in its topic: whatever the broker loses can be sent again.
    #[default]
    UntilConfirmed,
    /// Never, only its digest: what the broker gave up on can be sent again, what it lost cannot.
    Digest,
}

/// How markers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerKeeping {
    /// Whether markers carry their messages.
    pub copy: MessageCopy,
    /// How long after its commit a transaction's message is first looked for in its topic.
    pub first_look: Duration,
}

impl Default for MarkerKeeping {
    /// With the message; two minutes.
    fn default() -> Self {
        Self { copy: MessageCopy::default(), first_look: Duration::from_mins(2) }
    }
}

/// The columns of a marker, checked.
#[derive(Debug)]
pub(crate) struct MarkerRow<'a> {
    pub headers: Option<String>,
    pub payload: Option<&'a [u8]>,
    pub digest: String,
}

impl<'a> MarkerRow<'a> {
    /// Checks a message and makes a row of it.
    pub fn new(message: &'a TransactionMessage, copy: MessageCopy) -> Result<Self, StoreError> {
        message.check().map_err(|error| StoreError::Data(error.to_string()))?;
        let kept = copy == MessageCopy::UntilConfirmed;
        let headers = match headers::write(&message.headers) {
            Ok(headers) => headers.filter(|_| kept),
            Err(name) => return Err(StoreError::Data(format!("header {name:?} is there twice"))),
        };
        let payload = kept.then_some(&*message.payload);
        Ok(Self { headers, payload, digest: message.digest() })
    }
}

/// The columns of an unconfirmed transaction, as they are stored.
#[derive(Debug)]
pub(crate) struct StoredTransaction {
    pub key: String,
    pub topic: String,
    pub event_id: Option<String>,
    pub event_type: Option<String>,
    pub business_key: Option<String>,
    pub headers: Option<Vec<u8>>,
    pub payload: Option<Vec<u8>>,
    pub digest: Option<String>,
    pub attempts: i64,
}

impl StoredTransaction {
    /// The transaction. A row that people broke is an error that names its key.
    pub fn unconfirmed(self) -> Result<Unconfirmed, StoreError> {
        let broken = |what: String| StoreError::Data(format!("consign_transaction {:?}: {what}", self.key));
        let key = TransactionKey::new(self.key.as_str()).map_err(|error| broken(error.to_string()))?;
        let headers = headers::read(self.headers.as_deref().unwrap_or(b"null"))
            .map_err(|problem| broken(format!("headers: {problem}")))?;
        let message = self.payload.map(|payload| TransactionMessage {
            topic: self.topic.clone(),
            event_id: self.event_id.map(EventId::stored),
            event_type: self.event_type.unwrap_or_default(),
            business_key: self.business_key,
            headers,
            payload: payload.into(),
        });
        Ok(Unconfirmed {
            key,
            topic: self.topic,
            message,
            digest: self.digest.unwrap_or_default(),
            attempts: u32::try_from(self.attempts).unwrap_or(u32::MAX),
        })
    }
}

/// What a state word means.
pub(crate) fn marker(state: Option<&str>) -> Result<Option<Marker>, StoreError> {
    match state {
        None => Ok(None),
        Some("COMMITTED") => Ok(Some(Marker::Committed)),
        Some("ROLLED_BACK") => Ok(Some(Marker::RolledBack)),
        Some(other) => {
            Err(StoreError::Data(format!("state {other:?} of a marker is neither COMMITTED nor ROLLED_BACK")))
        }
    }
}
