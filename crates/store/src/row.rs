//! A stored row on its way to a claim. Whatever people wrote into a row, it becomes an event or a reason; it never
//! stops its neighbours.

use std::time::Duration;

use bytes::Bytes;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::lease::{Claim, ClaimRequest};
use consign_core::settle::Settlement;

use crate::headers;

/// One claimed row as the database gave it, texts still bytes.
#[derive(Clone, Debug, Default)]
pub struct StoredRow {
    /// The id.
    pub event_id: String,
    /// `aggregate_type`, when there is the column.
    pub aggregate_type: Option<Vec<u8>>,
    /// `aggregate_id` as text.
    pub aggregate_id: Option<Vec<u8>>,
    /// `aggregate_version`, when there is the column.
    pub aggregate_version: Option<i64>,
    /// `event_type`.
    pub event_type: Option<Vec<u8>>,
    /// `payload`, exactly as the column gives it.
    pub payload: Option<Bytes>,
    /// `business_key`, when there is the column.
    pub business_key: Option<Vec<u8>>,
    /// `headers`, when there is the column.
    pub headers: Option<Vec<u8>>,
    /// `destination`, when there is the column.
    pub destination: Option<Vec<u8>>,
    /// `route_key`, when there is the column.
    pub route_key: Option<Vec<u8>>,
    /// `attempts` after the claim counted its own.
    pub attempts: i64,
    /// `created_at` in microseconds since the Unix epoch.
    pub created_at_micros: Option<i64>,
    /// How long ago the row was created, in microseconds.
    pub age_micros: Option<i64>,
    /// True when the row was swept twice.
    pub suspect: bool,
}

impl StoredRow {
    /// The claim on this row, or the settlement that ends it.
    pub fn claim(self, request: &ClaimRequest) -> Result<Claim, Settlement> {
        let id = EventId::stored(self.event_id.as_str());
        let age = Duration::from_micros(self.age_micros.unwrap_or(0).try_into().unwrap_or(0));
        let suspect = self.suspect;
        let attempts = u32::try_from(self.attempts.max(0)).unwrap_or(u32::MAX);
        let counted = if self.attempts < 1 {
            Err(format!("attempts was {}: set it to 0 or more", self.attempts.saturating_sub(1)))
        } else {
            Ok(attempts)
        };
        let event = counted.and_then(|_| self.event());
        match event {
            Ok(event) => {
                let claim = request.claim(event, attempts, age);
                Ok(if suspect { claim.suspected() } else { claim })
            }
            Err(reason) => Err(request.malformed(id, reason)),
        }
    }

    fn event(self) -> Result<Event, String> {
        let event = Event {
            id: EventId::stored(self.event_id),
            aggregate: Aggregate {
                kind: text("aggregate_type", self.aggregate_type)?,
                id: text("aggregate_id", self.aggregate_id)?,
                version: self.aggregate_version,
            },
            event_type: text("event_type", self.event_type)?.unwrap_or_default(),
            business_key: text("business_key", self.business_key)?,
            payload: self.payload,
            headers: match self.headers {
                Some(json) => headers::read(&json).map_err(|problem| format!("headers: {problem}"))?,
                None => Vec::new(),
            },
            destination: text("destination", self.destination)?.filter(|name| !name.is_empty()),
            route_key: text("route_key", self.route_key)?,
            created_at_micros: self.created_at_micros,
        };
        event.check().map_err(|invalid| invalid.to_string())?;
        Ok(event)
    }
}

fn text(column: &str, bytes: Option<Vec<u8>>) -> Result<Option<String>, String> {
    bytes
        .map(|bytes| {
            String::from_utf8(bytes).map_err(|error| format!("{column} is not UTF-8: {}", error.utf8_error()))
        })
        .transpose()
}

/// How many of the due rows one claim takes: those before the byte limit, at least one; a suspect only alone.
///
/// `due` holds each row's payload bytes and whether it is a suspect, in claim order.
pub fn cut(due: &[(u64, bool)], bytes_max: usize) -> usize {
    if due.first().is_some_and(|&(_, suspect)| suspect) {
        return 1;
    }
    let mut bytes = 0_u64;
    let fitting = due.iter().take_while(|&&(length, suspect)| {
        bytes = bytes.saturating_add(length);
        !suspect && bytes <= bytes_max as u64
    });
    fitting.count().max(1).min(due.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cut_the_batch_but_never_to_nothing() {
        assert_eq!(cut(&[(60, false), (40, false), (1, false)], 100), 2);
        assert_eq!(cut(&[(1000, false), (1, false)], 100), 1);
        assert_eq!(cut(&[], 100), 0);
    }

    #[test]
    fn a_suspect_is_taken_alone_and_only_when_it_comes_first() {
        assert_eq!(cut(&[(1, true), (1, false)], 100), 1);
        assert_eq!(cut(&[(1, false), (1, false), (1, true), (1, false)], 100), 2);
    }
}
