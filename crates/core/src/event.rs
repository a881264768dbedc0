//! A business event: one row of the outbox, as every copy of it carries it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

/// The longest name an AMQP short string can carry, in bytes; ids and types longer than this cannot be
/// published by any broker consign speaks to.
pub const NAME_BYTES_MAX: usize = 255;

/// The id of an event, stable for ever: every copy of the event carries it as its message id.
///
/// It is kept exactly as stored. `A`, `a` and `a ` are three different ids.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Box<str>);

impl EventId {
    /// Takes an id as a store holds it, without judging it: rows that people wrote must stay addressable.
    pub fn stored(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// Takes an id from a producer.
    ///
    /// # Errors
    /// The id is empty or longer than [`NAME_BYTES_MAX`] bytes.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let text = text.into();
        check_id(&text)?;
        Ok(Self(text))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EventId({:?})", &self.0)
    }
}

/// The thing an event is about: order 42 at version 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aggregate {
    /// The kind of thing, for instance `order`; absent in tables without the column.
    pub kind: Option<String>,
    /// Which one; text, since tables hold numbers as well as names here.
    pub id: Option<String>,
    /// Its version after the event; absent when the producer keeps none.
    pub version: Option<i64>,
}

/// Text headers of an event, in the order they were written.
pub type Headers = Vec<(String, String)>;

/// One event as claimed from the outbox. Payload bytes are passed on unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's id.
    pub id: EventId,
    /// What the event is about.
    pub aggregate: Aggregate,
    /// The event's type, for instance `OrderPaid`; may be empty.
    pub event_type: String,
    /// The business key, when the table has the column and the producer set it.
    pub business_key: Option<String>,
    /// The payload: `None` is an SQL `NULL`, which is not the same as an empty payload.
    pub payload: Option<Bytes>,
    /// Headers the producer wrote.
    pub headers: Headers,
    /// The destination the producer asked for, overriding the routes.
    pub destination: Option<String>,
    /// The route key the producer asked for, overriding the route's template.
    pub route_key: Option<String>,
    /// When the row was created, in microseconds since the Unix epoch, computed by the database.
    pub created_at_micros: Option<i64>,
}

impl Event {
    /// The size that counts against byte limits: the payload plus a flat allowance for the rest.
    pub fn weight(&self) -> usize {
        const ROW_ALLOWANCE_BYTES: usize = 256;
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.payload.as_ref().map_or(0, Bytes::len) + headers + ROW_ALLOWANCE_BYTES
    }

    /// Checks what every broker needs of an event.
    ///
    /// # Errors
    /// Names the field, its length and the limit.
    pub fn check(&self) -> Result<(), InvalidEvent> {
        check_id(self.id.as_str())?;
        check_length("event_type", &self.event_type)?;
        self.route_key.as_deref().map_or(Ok(()), |key| check_length("route_key", key))
    }
}

/// What makes a row impossible to publish, whatever the broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEvent {
    /// The event id is empty.
    #[error("event_id is empty: give every event a unique id of 1 to {NAME_BYTES_MAX} bytes")]
    EmptyId,
    /// A field does not fit a broker's short string.
    #[error("{field} has {bytes} bytes: shorten it to at most {NAME_BYTES_MAX}")]
    TooLong {
        /// The column's name in the contract.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
}

fn check_id(text: &str) -> Result<(), InvalidEvent> {
    if text.is_empty() {
        return Err(InvalidEvent::EmptyId);
    }
    check_length("event_id", text)
}

fn check_length(field: &'static str, text: &str) -> Result<(), InvalidEvent> {
    if text.len() > NAME_BYTES_MAX {
        return Err(InvalidEvent::TooLong { field, bytes: text.len() });
    }
    Ok(())
}

/// What a producer appends to its outbox. Fields the table has no column for are refused, not dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The event's id; `None` lets the library draw a time-ordered UUID.
    pub id: Option<EventId>,
    /// What the event is about.
    pub aggregate: Aggregate,
    /// The event's type.
    pub event_type: String,
    /// The payload; for the contract's JSON column it must be JSON text.
    pub payload: Option<Bytes>,
    /// The business key consumers deduplicate by.
    pub business_key: Option<String>,
    /// Headers to carry, such as the trace context.
    pub headers: Headers,
    /// A destination that overrides the routes.
    pub destination: Option<String>,
    /// A route key that overrides the route's template.
    pub route_key: Option<String>,
    /// How long to wait before the event may be published; zero for at once.
    pub delay: Duration,
}

impl NewEvent {
    /// An event of `event_type` about aggregate `aggregate_id`, with a JSON payload.
    pub fn new(
        event_type: impl Into<String>,
        aggregate_id: impl fmt::Display,
        payload: impl Into<Bytes>,
    ) -> Self {
        Self {
            id: None,
            aggregate: Aggregate { kind: None, id: Some(aggregate_id.to_string()), version: None },
            event_type: event_type.into(),
            payload: Some(payload.into()),
            business_key: None,
            headers: Headers::new(),
            destination: None,
            route_key: None,
            delay: Duration::ZERO,
        }
    }

    /// The same event under a chosen id.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }
}
