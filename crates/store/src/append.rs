//! What a producer may append: checked against the table before any SQL, so that nothing is cut or dropped.

use bytes::Bytes;
use consign_core::event::{EventId, InvalidEvent, NewEvent};
use consign_core::ports::StoreError;

use crate::headers;
use crate::introspection::{ColumnKind, TableShape};
use crate::settling::micros;

/// Why an event was not appended. After any error the producer's transaction must be rolled back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// No broker could publish it.
    #[error(transparent)]
    Invalid(#[from] InvalidEvent),
    /// The table has no column for a field that is set.
    #[error(
        "the outbox table has no column for {field}: add it with `consign migrate` or leave the field empty"
    )]
    NoColumn {
        /// The contract's column.
        field: &'static str,
    },
    /// The field is longer than its column.
    #[error("{field} is {length} long and its column holds {limit}: shorten it or widen the column")]
    TooLong {
        /// The contract's column.
        field: &'static str,
        /// The field's length in the column's unit.
        length: u64,
        /// What the column holds.
        limit: u64,
    },
    /// The field does not fit its column's type.
    #[error("{field} does not fit its column: {problem}")]
    Unfit {
        /// The contract's column.
        field: &'static str,
        /// Why.
        problem: String,
    },
    /// An event with this id is already in the outbox.
    #[error("event {0} is already in the outbox: give every event its own id")]
    Duplicate(EventId),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An event that fits the table, ready to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The id, drawn when the producer gave none.
    pub id: EventId,
    /// `aggregate_type`.
    pub aggregate_type: Option<String>,
    /// `aggregate_id`.
    pub aggregate_id: Option<String>,
    /// `aggregate_version`.
    pub aggregate_version: Option<i64>,
    /// `event_type`.
    pub event_type: String,
    /// `payload`.
    pub payload: Option<Bytes>,
    /// `business_key`.
    pub business_key: Option<String>,
    /// `headers` as JSON text.
    pub headers: Option<String>,
    /// `destination`.
    pub destination: Option<String>,
    /// `route_key`.
    pub route_key: Option<String>,
    /// The wait before it is due, in microseconds.
    pub delay_micros: i64,
}

impl Appended {
    /// Checks `event` against the table.
    ///
    /// # Errors
    /// Names the field, its length or type, and the fix.
    pub fn new(event: NewEvent, shape: &TableShape) -> Result<Self, AppendError> {
        let headers = headers::write(&event.headers).map_err(|name| AppendError::Unfit {
            field: "headers",
            problem: format!("two headers are named {name:?}"),
        })?;
        let appended = Self {
            id: event.id.unwrap_or_else(|| EventId::stored(uuid::Uuid::now_v7().to_string())),
            aggregate_type: event.aggregate.kind,
            aggregate_id: event.aggregate.id,
            aggregate_version: event.aggregate.version,
            event_type: event.event_type,
            payload: event.payload,
            business_key: event.business_key,
            headers,
            destination: event.destination,
            route_key: event.route_key,
            delay_micros: micros(event.delay),
        };
        appended.check(shape)?;
        Ok(appended)
    }

    /// Bytes it takes in a statement, roughly.
    pub fn weight(&self) -> usize {
        const REST_BYTES: usize = 1024;
        self.payload.as_ref().map_or(0, Bytes::len)
            + self.headers.as_ref().map_or(0, String::len)
            + REST_BYTES
    }

    fn check(&self, shape: &TableShape) -> Result<(), AppendError> {
        EventId::new(self.id.as_str())?;
        for (field, text) in [("event_type", Some(&self.event_type)), ("route_key", self.route_key.as_ref())]
        {
            let bytes = text.map_or(0, String::len);
            if bytes > consign_core::event::NAME_BYTES_MAX {
                return Err(InvalidEvent::TooLong { field, bytes }.into());
            }
        }
        if self.aggregate_version.is_some() && !shape.has("aggregate_version") {
            return Err(AppendError::NoColumn { field: "aggregate_version" });
        }
        fits(shape, "event_id", Some(self.id.as_str()))?;
        fits(shape, "event_type", Some(&self.event_type))?;
        fits(shape, "aggregate_type", self.aggregate_type.as_deref())?;
        fits(shape, "business_key", self.business_key.as_deref())?;
        fits(shape, "headers", self.headers.as_deref())?;
        fits(shape, "destination", self.destination.as_deref())?;
        fits(shape, "route_key", self.route_key.as_deref())?;
        self.check_aggregate_id(shape)?;
        self.check_payload(shape)
    }

    fn check_aggregate_id(&self, shape: &TableShape) -> Result<(), AppendError> {
        let integer = shape.column("aggregate_id").is_some_and(|column| column.kind == ColumnKind::Integer);
        match &self.aggregate_id {
            Some(id) if integer && id.parse::<i64>().is_err() && id.parse::<u64>().is_err() => {
                Err(AppendError::Unfit {
                    field: "aggregate_id",
                    problem: format!("{id:?} is not a whole number and the column is one"),
                })
            }
            Some(id) if !integer => fits(shape, "aggregate_id", Some(id)),
            _ => Ok(()),
        }
    }

    fn check_payload(&self, shape: &TableShape) -> Result<(), AppendError> {
        let (Some(payload), Some(column)) = (&self.payload, shape.column("payload")) else { return Ok(()) };
        let unfit = |problem| Err(AppendError::Unfit { field: "payload", problem });
        match column.kind {
            ColumnKind::Json => match consign_core::json::Json::parse(payload) {
                Ok(_) => Ok(()),
                Err(error) => unfit(error.to_string()),
            },
            ColumnKind::Text => match std::str::from_utf8(payload) {
                Ok(text) => fits(shape, "payload", Some(text)),
                Err(error) => unfit(format!("the column holds text and the payload is no UTF-8: {error}")),
            },
            ColumnKind::Bytes
            | ColumnKind::Integer
            | ColumnKind::Decimal
            | ColumnKind::Float
            | ColumnKind::DateTime
            | ColumnKind::Other => match column.length {
                Some(limit) if payload.len() as u64 > limit => {
                    Err(AppendError::TooLong { field: "payload", length: payload.len() as u64, limit })
                }
                _ => Ok(()),
            },
        }
    }
}

fn fits(shape: &TableShape, field: &'static str, text: Option<&str>) -> Result<(), AppendError> {
    let Some(text) = text else { return Ok(()) };
    let Some(column) = shape.column(field) else { return Err(AppendError::NoColumn { field }) };
    match column.excess(text) {
        Some(length) => Err(AppendError::TooLong { field, length, limit: column.length.unwrap_or(length) }),
        None => Ok(()),
    }
}
