//! An event as an AMQP message, and an AMQP message as a [`Message`]. Pure.

use std::sync::Arc;

use consign_amqp::{FieldTable, FieldValue, Properties, Publication, UndecodableProperties};
use consign_core::delivery::Message;
use consign_core::event::{Event, Headers, NAME_BYTES_MAX};

use crate::envelope;

/// What every message of a destination has in common.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub exchange: String,
    pub content_type: String,
    pub source: Arc<str>,
}

impl Mapping {
    /// The message for `event` under `routing_key`. Text headers only: streams drop or refuse nested values (B56).
    ///
    /// # Errors
    /// The event cannot be expressed in AMQP; the reason names the field.
    pub fn publication(&self, event: &Event, routing_key: String) -> Result<Publication, String> {
        event.check().map_err(|invalid| invalid.to_string())?;
        let mut headers = FieldTable::new();
        for (name, value) in envelope::headers(event, &self.source) {
            check_header(&name)?;
            headers.insert(name, value);
        }
        let seconds = event.created_at_micros.and_then(|micros| u64::try_from(micros / 1_000_000).ok());
        let properties = Properties {
            content_type: Some(self.content_type.clone()).filter(|content_type| !content_type.is_empty()),
            headers,
            delivery_mode: Some(2),
            message_id: Some(event.id.as_str().to_owned()),
            timestamp: seconds,
            kind: Some(event.event_type.clone()).filter(|kind| !kind.is_empty()),
            app_id: Some("consign".to_owned()),
            ..Properties::default()
        };
        Ok(Publication {
            exchange: self.exchange.clone(),
            routing_key,
            properties,
            body: event.payload.clone().unwrap_or_default(),
        })
    }
}

fn check_header(name: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES_MAX {
        let start: String = name.chars().take(40).collect();
        return Err(format!(
            "header {start:?}... has a name of {} bytes: shorten it to at most {NAME_BYTES_MAX}",
            name.len()
        ));
    }
    // RabbitMQ reads these two as lists of further routing keys and closes the channel on anything else.
    if matches!(name, "CC" | "BCC") {
        return Err(format!("header {name:?} has a meaning of its own in RabbitMQ: give it another name"));
    }
    Ok(())
}

/// The message of a delivery from `queue`. Properties that do not decode spoil this message only (B55).
pub(super) fn message(
    properties: Result<Properties, UndecodableProperties>,
    body: bytes::Bytes,
    redelivered: bool,
    queue: &str,
) -> Message {
    let (properties, undecodable) = match properties {
        Ok(properties) => (properties, None),
        Err(error) => (Properties::default(), Some(error.to_string())),
    };
    Message {
        id: properties.message_id.filter(|id| !id.is_empty()),
        message_type: properties.kind.filter(|kind| !kind.is_empty()),
        delivery_count: delivery_count(&properties.headers),
        headers: text_headers(&properties.headers),
        body,
        redelivered,
        source: queue.to_owned(),
        undecodable,
    }
}

/// Quorum queues count earlier deliveries: `x-delivery-count` those that failed, and from 4.3 `x-acquired-count` all.
fn delivery_count(headers: &FieldTable) -> u32 {
    let earlier = ["x-delivery-count", "x-acquired-count"]
        .into_iter()
        .filter_map(|name| headers.get(name)?.as_int())
        .max()
        .unwrap_or(0);
    u32::try_from(earlier.max(0)).unwrap_or(u32::MAX).saturating_add(1)
}

/// Headers whose value has a text form; lists, tables and raw bytes have none.
fn text_headers(headers: &FieldTable) -> Headers {
    headers.iter().filter_map(|(name, value)| Some((name.to_owned(), text(value)?))).collect()
}

fn text(value: &FieldValue) -> Option<String> {
    match value {
        FieldValue::Text(text) => Some(text.clone()),
        FieldValue::Bool(truth) => Some(truth.to_string()),
        FieldValue::Int(number) => Some(number.to_string()),
        FieldValue::Float(number) => Some(number.to_string()),
        FieldValue::Timestamp(seconds) => Some(seconds.to_string()),
        FieldValue::Decimal { scale, value } => Some(decimal(*value, *scale)),
        _ => None,
    }
}

fn decimal(value: i32, scale: u8) -> String {
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if value < 0 { "-" } else { "" };
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use consign_core::event::{Aggregate, EventId};

    use super::*;

    fn event() -> Event {
        Event {
            id: EventId::stored("e-1"),
            aggregate: Aggregate { kind: Some("order".into()), id: Some("42".into()), version: Some(3) },
            event_type: "OrderPaid".into(),
            business_key: Some("order:42:paid".into()),
            payload: Some("{\"amount\": 5}".into()),
            headers: vec![("traceparent".into(), "00-ab-cd-01".into())],
            destination: None,
            route_key: None,
            created_at_micros: Some(1_709_210_096_789_012),
        }
    }

    fn publication(event: &Event) -> Result<Publication, String> {
        let mapping = Mapping {
            exchange: "orders".into(),
            content_type: "application/json".into(),
            source: "shop".into(),
        };
        mapping.publication(event, "order.paid".into())
    }

    #[test]
    fn an_event_becomes_a_persistent_message_with_its_id_type_time_and_headers() {
        let publication = publication(&event()).unwrap();

        let properties = &publication.properties;
        assert_eq!(
            (publication.exchange.as_str(), publication.routing_key.as_str()),
            ("orders", "order.paid")
        );
        assert_eq!(properties.message_id.as_deref(), Some("e-1"));
        assert_eq!(properties.kind.as_deref(), Some("OrderPaid"));
        assert_eq!(properties.delivery_mode, Some(2));
        assert_eq!(properties.timestamp, Some(1_709_210_096));
        assert_eq!(properties.content_type.as_deref(), Some("application/json"));
        assert_eq!(properties.app_id.as_deref(), Some("consign"));
        let header = |name: &str| properties.headers.get(name).and_then(FieldValue::as_text);
        assert_eq!(header("traceparent"), Some("00-ab-cd-01"));
        assert_eq!(header("consign-business-key"), Some("order:42:paid"));
        assert_eq!(header("cloudEvents:type"), Some("OrderPaid"));
        assert_eq!(&publication.body[..], b"{\"amount\": 5}");
    }

    /// `B56` (rabbitmq/rabbitmq-server#3565): streams take no nested values.
    #[test]
    fn every_header_is_plain_text() {
        let publication = publication(&event()).unwrap();

        assert!(publication.properties.headers.iter().all(|(_, value)| value.as_text().is_some()));
    }

    /// `B54` (streadway/amqp#76): what AMQP cannot express is refused before anything is sent.
    #[test]
    fn names_beyond_255_bytes_and_reserved_headers_are_refused_by_name() {
        let long = "ü".repeat(200);
        let with_header = |name: &str| Event { headers: vec![(name.into(), "1".into())], ..event() };

        let kind = publication(&Event { event_type: long.clone(), ..event() }).unwrap_err();
        let id = publication(&Event { id: EventId::stored(long.clone()), ..event() }).unwrap_err();
        let header = publication(&with_header(&long)).unwrap_err();
        let reserved = publication(&with_header("CC")).unwrap_err();

        assert_eq!(kind, "event_type has 400 bytes: shorten it to at most 255");
        assert_eq!(id, "event_id has 400 bytes: shorten it to at most 255");
        assert!(header.contains("400 bytes"), "{header}");
        assert!(reserved.contains("\"CC\""), "{reserved}");
    }

    fn delivered(headers: FieldTable) -> Message {
        message(Ok(Properties { headers, ..Properties::default() }), "x".into(), true, "points")
    }

    #[test]
    fn typed_headers_arrive_in_their_text_form_and_nested_ones_are_left_out() {
        let headers = FieldTable::new()
            .with("text", "a")
            .with("number", i64::MAX)
            .with("truth", true)
            .with("price", FieldValue::Decimal { scale: 2, value: -5 })
            .with("list", vec![FieldValue::Int(1)])
            .with("table", FieldTable::new());

        let message = delivered(headers);

        let expected =
            [("text", "a"), ("number", "9223372036854775807"), ("truth", "true"), ("price", "-0.05")];
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(message.headers, expected);
    }

    #[test]
    fn deliveries_are_counted_from_one_by_the_larger_of_the_brokers_counts() {
        assert_eq!(delivered(FieldTable::new()).delivery_count, 1);
        assert_eq!(delivered(FieldTable::new().with("x-delivery-count", 2)).delivery_count, 3);
        let both = FieldTable::new().with("x-delivery-count", 1).with("x-acquired-count", 4);
        assert_eq!(delivered(both).delivery_count, 5);
    }

    /// `B55` (pika/pika#1205): one delivery with odd properties is put aside, the consumer lives.
    #[test]
    fn undecodable_properties_mark_the_message_and_keep_the_body() {
        let odd =
            UndecodableProperties { reason: "field type 0x7a is unknown".into(), raw: bytes::Bytes::new() };

        let message = message(Err(odd), "x".into(), false, "points");

        assert!(message.undecodable.unwrap().contains("0x7a"));
        assert_eq!(&message.body[..], b"x");
    }
}
