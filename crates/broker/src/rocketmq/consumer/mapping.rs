//! A RocketMQ message as a [`Message`]. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use consign_core::delivery::Message;
use consign_rocketmq::{Handle, Received};

use super::holdings::Arrival;
use crate::rocketmq::property::{EMPTY, EVENT_ID, EVENT_TYPE};

/// Where a trace context stands among the headers.
const TRACE_PARENT: &str = "traceparent";

/// The message of a delivery, with what keeps its order and what settles it.
pub(super) fn arrival(received: Received) -> Arrival<Handle> {
    let Received {
        topic,
        message_id,
        tag,
        group,
        body,
        undecodable,
        properties,
        trace_context,
        delivery_attempt,
        broker,
        queue_id,
        handle,
        ..
    } = received;
    let wire =
        Wire { topic, message_id, tag, body, undecodable, properties, trace_context, delivery_attempt };
    // Without a message group, what came in one queue keeps its order.
    let group = group.unwrap_or_else(|| format!("{broker}/{queue_id}"));
    Arrival { message: wire.message(), group, handle }
}

/// What a delivery says about its message.
#[derive(Debug, Default)]
struct Wire {
    topic: String,
    message_id: String,
    tag: Option<String>,
    body: Bytes,
    undecodable: Option<String>,
    properties: BTreeMap<String, String>,
    trace_context: Option<String>,
    delivery_attempt: u32,
}

impl Wire {
    fn message(self) -> Message {
        let Self {
            topic,
            message_id,
            tag,
            mut body,
            undecodable,
            mut properties,
            trace_context,
            delivery_attempt,
        } = self;
        if properties.remove(EMPTY).is_some() {
            body = Bytes::new();
        }
        let id = properties.remove(EVENT_ID).unwrap_or(message_id);
        let message_type = properties.remove(EVENT_TYPE).or(tag);
        if let Some(context) = trace_context {
            properties.entry(TRACE_PARENT.to_owned()).or_insert(context);
        }
        Message {
            id: Some(id).filter(|id| !id.is_empty()),
            message_type: message_type.filter(|message_type| !message_type.is_empty()),
            headers: properties.into_iter().collect(),
            body,
            redelivered: delivery_attempt > 1,
            delivery_count: delivery_attempt.max(1),
            source: topic,
            undecodable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(properties: &[(&str, &str)]) -> Wire {
        Wire {
            topic: "orders".into(),
            message_id: "e-1".into(),
            tag: Some("OrderPaid".into()),
            body: "{}".into(),
            properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            delivery_attempt: 1,
            ..Wire::default()
        }
    }

    #[test]
    fn id_tag_properties_and_body_become_those_of_the_event() {
        let message = wire(&[("consign-aggregate-id", "42"), ("traceparent", "00-ab-cd-01")]).message();

        assert_eq!(
            (message.id.as_deref(), message.message_type.as_deref()),
            (Some("e-1"), Some("OrderPaid"))
        );
        let expected = [("consign-aggregate-id", "42"), ("traceparent", "00-ab-cd-01")];
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(message.headers, expected);
        assert_eq!((&message.body[..], message.source.as_str()), (&b"{}"[..], "orders"));
        assert_eq!((message.redelivered, message.delivery_count), (false, 1));
    }

    #[test]
    fn an_id_and_a_type_that_fit_into_no_field_come_from_their_properties() {
        let message = wire(&[(EVENT_ID, "a long one"), (EVENT_TYPE, "Order|Paid")]).message();

        assert_eq!(message.id.as_deref(), Some("a long one"));
        assert_eq!(message.message_type.as_deref(), Some("Order|Paid"));
        assert_eq!(message.headers, []);
    }

    /// `B57` (DBZ-6760, DBZ-5654): a placeholder never reaches a handler, and NULL stays told from empty.
    #[test]
    fn a_placeholder_stands_for_an_empty_body() {
        let empty = wire(&[(EMPTY, "1")]).message();
        let null = wire(&[(EMPTY, "1"), ("consign-null", "1")]).message();

        assert!(empty.body.is_empty() && null.body.is_empty());
        assert_eq!(empty.headers, []);
        assert_eq!(null.headers, [("consign-null".to_owned(), "1".to_owned())]);
    }

    #[test]
    fn the_systems_trace_context_is_a_header_unless_the_producer_wrote_one() {
        let context = Some("00-system".to_owned());
        let alone = Wire { trace_context: context.clone(), ..wire(&[]) }.message();
        let beside = Wire { trace_context: context, ..wire(&[("traceparent", "00-own")]) }.message();

        assert_eq!(alone.headers, [("traceparent".to_owned(), "00-system".to_owned())]);
        assert_eq!(beside.headers, [("traceparent".to_owned(), "00-own".to_owned())]);
    }

    #[test]
    fn a_second_delivery_says_so() {
        let message = Wire { delivery_attempt: 2, ..wire(&[]) }.message();

        assert_eq!((message.redelivered, message.delivery_count), (true, 2));
    }

    /// A body whose digest does not fit is put aside with its reason, and the consumer lives.
    #[test]
    fn what_cannot_be_decoded_keeps_its_body_and_says_why() {
        let message = Wire { undecodable: Some("crc32 differs".into()), ..wire(&[]) }.message();

        assert_eq!(message.undecodable.as_deref(), Some("crc32 differs"));
        assert_eq!(&message.body[..], b"{}");
    }
}
