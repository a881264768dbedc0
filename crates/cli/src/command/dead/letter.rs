//! A dead letter of either side under one name: an event of the outbox that was given up, or a delivery.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use consign_core::event::Headers;
use consign_store::record::{DeadDeliveryRecord, DeadEvent};
use serde_json::{Map, Value, json};

use crate::config::{Config, OutboxConfig};
use crate::output::Payload;

/// The name of a dead letter on the command line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LetterId {
    /// `outbox:EVENT_ID`, or `outbox/NAME:EVENT_ID` where there are several.
    Event {
        /// The outbox's name, when it is given.
        outbox: Option<String>,
        /// The event.
        event_id: String,
    },
    /// `delivery:ID`.
    Delivery(i64),
}

/// A dead letter.
#[derive(Clone, Debug)]
pub enum Letter {
    /// An event of an outbox.
    Event {
        /// Its name.
        id: LetterId,
        /// The outbox's name.
        outbox: String,
        /// What is known about it.
        event: DeadEvent,
    },
    /// A delivery.
    Delivery(DeadDeliveryRecord),
}

impl LetterId {
    /// The name of an event; its outbox is named only where there are several.
    pub fn of_event(config: &Config, outbox: &OutboxConfig, event_id: &str) -> Self {
        let outbox = (config.outboxes.len() > 1).then(|| outbox.name.clone());
        Self::Event { outbox, event_id: event_id.into() }
    }
}

/// The outbox that a name means.
pub fn outbox<'a>(config: &'a Config, name: Option<&str>) -> anyhow::Result<&'a OutboxConfig> {
    let names = || config.outboxes.iter().map(|outbox| outbox.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, config.outboxes.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => bail!("there are several outboxes: write outbox/NAME:EVENT_ID with one of {}", names()),
        (Some(name), outboxes) => outboxes
            .iter()
            .find(|outbox| outbox.name == name)
            .with_context(|| format!("there is no outbox {name:?}: the config has {}", names())),
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event { outbox: None, event_id } => write!(formatter, "outbox:{event_id}"),
            Self::Event { outbox: Some(outbox), event_id } => write!(formatter, "outbox/{outbox}:{event_id}"),
            Self::Delivery(id) => write!(formatter, "delivery:{id}"),
        }
    }
}

impl FromStr for LetterId {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        const FORMS: &str =
            "write delivery:ID, outbox:EVENT_ID or outbox/NAME:EVENT_ID, as `consign dead list` does";
        let bad = || anyhow::anyhow!("{text:?} names no dead letter: {FORMS}");
        // An event id may hold colons, an outbox's name may not.
        let (side, id) = text.split_once(':').filter(|(_, id)| !id.is_empty()).ok_or_else(bad)?;
        match side.split_once('/') {
            None if side == "delivery" => {
                id.parse().ok().filter(|id| *id > 0).map(Self::Delivery).ok_or_else(bad)
            }
            None if side == "outbox" => Ok(Self::Event { outbox: None, event_id: id.into() }),
            Some(("outbox", name)) if !name.is_empty() => {
                Ok(Self::Event { outbox: Some(name.into()), event_id: id.into() })
            }
            _ => Err(bad()),
        }
    }
}

impl Letter {
    /// Its name.
    pub fn id(&self) -> LetterId {
        match self {
            Self::Event { id, .. } => id.clone(),
            Self::Delivery(delivery) => LetterId::Delivery(delivery.id),
        }
    }

    /// When it died, as far as that is kept: the delivery's last time, or when the event was written.
    pub fn at(&self) -> &str {
        match self {
            Self::Event { event, .. } => event.created_at.as_deref().unwrap_or_default(),
            Self::Delivery(delivery) => &delivery.last_seen_at,
        }
    }

    /// Why, when that is kept.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Event { event, .. } => event.last_error.as_deref().or(event.last_outcome.as_deref()),
            Self::Delivery(delivery) => Some(&delivery.reason),
        }
    }

    /// Its type.
    pub fn letter_type(&self) -> Option<&str> {
        match self {
            Self::Event { event, .. } => Some(&event.event_type),
            Self::Delivery(delivery) => delivery.message_type.as_deref(),
        }
    }

    /// Its business key, when it is known.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Event { event, .. } => event.business_key.as_deref(),
            Self::Delivery(delivery) => delivery.business_key.as_deref(),
        }
    }

    /// Where it did not get: the destination that the event names, or the consumer.
    pub fn addressee(&self) -> Option<&str> {
        match self {
            Self::Event { event, .. } => event.destination.as_deref(),
            Self::Delivery(delivery) => Some(&delivery.consumer),
        }
    }

    /// How often it was tried, when that is kept.
    pub fn attempts(&self) -> Option<u32> {
        match self {
            Self::Event { event, .. } => Some(event.attempts),
            Self::Delivery(delivery) => delivery.attempts,
        }
    }

    /// What lists and pages say, payload and headers left out.
    pub fn facts(&self) -> Map<String, Value> {
        let facts = match self {
            Self::Event { id, outbox, event } => json!({
                "id": id.to_string(), "side": "outbox", "outbox": outbox, "event_id": event.event_id,
                "status": event.status, "type": event.event_type, "aggregate_type": event.aggregate_type,
                "aggregate_id": event.aggregate_id, "key": event.business_key, "destination": event.destination,
                "reason": self.reason(), "last_outcome": event.last_outcome, "attempts": event.attempts,
                "payload_bytes": event.payload_bytes, "at": event.created_at,
            }),
            Self::Delivery(delivery) => json!({
                "id": self.id().to_string(), "side": "inbox", "consumer": delivery.consumer,
                "key": delivery.business_key, "message_id": delivery.message_id, "type": delivery.message_type,
                "source": delivery.source, "reason": delivery.reason, "attempts": delivery.attempts,
                "count": delivery.count, "payload_bytes": delivery.payload_bytes,
                "first_seen_at": delivery.first_seen_at, "at": delivery.last_seen_at,
                "resolution": delivery.resolution, "resolved_at": delivery.resolved_at,
            }),
        };
        match facts {
            Value::Object(facts) => facts,
            _ => Map::new(),
        }
    }

    /// The message's headers; those of events are made when they are published.
    pub fn headers(&self) -> &[(String, String)] {
        let headers: Option<&Headers> = match self {
            Self::Event { .. } => None,
            Self::Delivery(delivery) => Some(&delivery.headers),
        };
        headers.map_or(&[], |headers| headers)
    }

    /// Its payload, when there is one.
    pub fn payload(&self) -> Option<Payload<'_>> {
        match self {
            Self::Event { event, .. } => {
                let kept = event.payload.as_ref()?;
                let length = u64::try_from(kept.len()).unwrap_or(u64::MAX);
                Some(Payload::new(kept, event.payload_bytes.unwrap_or(length)))
            }
            Self::Delivery(delivery) => Some(Payload::new(&delivery.payload, delivery.payload_bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_is_written() {
        for text in ["delivery:7", "outbox:e-1", "outbox:urn:uuid:1", "outbox/orders:e:1", "outbox: e "] {
            assert_eq!(text.parse::<LetterId>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn other_names_are_refused_with_the_forms() {
        for text in [
            "",
            "7",
            "delivery:",
            "delivery:x",
            "delivery:0",
            "delivery:-1",
            "delivery/a:1",
            "outbox:",
            "outbox/:e",
            "inbox:1",
        ] {
            let error = text.parse::<LetterId>().unwrap_err().to_string();
            assert!(error.contains("delivery:ID") && error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
