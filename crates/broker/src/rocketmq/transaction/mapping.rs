//! A transaction's message on its way to RocketMQ and back. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use consign_core::event::EventId;
use consign_core::transaction::half::HalfMessage;
use consign_core::transaction::message::{BEGUN_HEADER, STORE_HEADER, TransactionMessage};
use consign_rocketmq::admin::StoredMessage;
use consign_rocketmq::{Kind, Message};

use crate::envelope::BUSINESS_KEY;
use crate::rocketmq::destination::mapping::{
    PLACEHOLDER, check_characters, check_property, check_size, key, tag,
};
use crate::rocketmq::property::{EMPTY, EVENT_ID, EVENT_TYPE};

/// The half message. A payload that is empty travels as a placeholder: its marker may be committed by then.
///
/// # Errors
/// RocketMQ does not take it: names the field and the fix.
pub(super) fn message(half: &HalfMessage, check_after: Option<Duration>) -> Result<Message, String> {
    let TransactionMessage { topic, event_id, event_type, business_key, headers, payload } = &half.message;
    half.message.check().map_err(|invalid| invalid.to_string())?;
    check_characters("event_type", event_type)?;
    let mut properties = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        check_property(name, value)?;
        properties.insert(name.clone(), value.clone());
    }
    let mut keys = vec![key(half.key.as_str())];
    let (tag, spelled_out) = tag(event_type);
    let mut put = |name: &str, value: String| properties.insert(name.to_owned(), value);
    if spelled_out {
        put(EVENT_TYPE, event_type.clone());
    }
    if let Some(id) = event_id {
        check_characters("event_id", id.as_str())?;
        keys.push(key(id.as_str()));
        put(EVENT_ID, id.as_str().to_owned());
    }
    if let Some(business_key) = business_key.as_ref().filter(|key| !key.is_empty()) {
        check_characters("business_key", business_key)?;
        keys.push(key(business_key));
        put(BUSINESS_KEY, business_key.clone());
    }
    let body = if payload.is_empty() {
        put(EMPTY, "1".to_owned());
        Bytes::from_static(PLACEHOLDER)
    } else {
        payload.clone()
    };
    put(STORE_HEADER, half.store.as_str().to_owned());
    put(BEGUN_HEADER, half.begun_at_micros.to_string());
    check_size(&properties, tag.as_deref(), &keys)?;
    Ok(Message {
        topic: topic.clone(),
        message_id: half.key.as_str().to_owned(),
        body,
        tag,
        keys,
        trace_context: properties.get("traceparent").cloned(),
        properties,
        kind: Kind::Normal,
        born_at: None,
        check_after,
    })
}

/// The message of a half message that a broker put aside; `None` when it does not say for which topic it was.
pub(super) fn stored(stored: &StoredMessage) -> Option<TransactionMessage> {
    const OWN: [&str; 6] = [STORE_HEADER, BEGUN_HEADER, EVENT_ID, EVENT_TYPE, EMPTY, BUSINESS_KEY];
    let topic = stored.real_topic()?.to_owned();
    let owned = |name: &str| stored.property(name).map(ToOwned::to_owned);
    let headers = stored.user_properties().filter(|(name, _)| !OWN.contains(name));
    Some(TransactionMessage {
        topic,
        event_id: owned(EVENT_ID).and_then(|id| EventId::new(id).ok()),
        event_type: owned(EVENT_TYPE).or_else(|| stored.tag().map(ToOwned::to_owned)).unwrap_or_default(),
        business_key: owned(BUSINESS_KEY),
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        payload: if owned(EMPTY).is_some() { Bytes::new() } else { stored.body.clone() },
    })
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::SystemTime;

    use consign_core::transaction::message::{StoreName, TransactionKey};

    use super::*;

    fn half(message: TransactionMessage) -> HalfMessage {
        HalfMessage {
            key: TransactionKey::new("01AB").unwrap(),
            store: StoreName::new("orders").unwrap(),
            begun_at_micros: 17,
            message,
        }
    }

    /// As a broker puts it aside: in a system topic, with what it must know in properties.
    fn put_aside(message: Message) -> StoredMessage {
        let mut properties = message.properties;
        properties.insert("REAL_TOPIC".into(), message.topic);
        properties.insert("UNIQ_KEY".into(), message.message_id);
        properties.extend(message.tag.map(|tag| ("TAGS".to_owned(), tag)));
        StoredMessage {
            topic: "TRANS_CHECK_MAX_TIME_TOPIC".into(),
            queue_id: 0,
            queue_offset: 0,
            log_offset: 0,
            born_at: SystemTime::UNIX_EPOCH,
            stored_at: SystemTime::UNIX_EPOCH,
            store_host: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            compressed: false,
            body: message.body,
            properties,
        }
    }

    #[test]
    fn a_message_comes_back_from_what_the_broker_gave_up_on_as_it_was() {
        let whole = TransactionMessage::new("orders", "OrderPaid", r#"{"orderId":1}"#)
            .with_event_id(EventId::new("e-1").unwrap())
            .with_business_key("order:1 paid")
            .with_header("traceparent", "00-ab-cd-01");
        for message in [
            whole.clone(),
            TransactionMessage::new("orders", "a|b", ""),
            TransactionMessage { event_type: String::new(), ..whole },
        ] {
            let sent = super::message(&half(message.clone()), None).unwrap();

            assert!(!sent.body.is_empty(), "a proxy takes no empty body");
            assert_eq!(sent.message_id, "01AB");
            assert_eq!(sent.properties[STORE_HEADER], "orders");
            assert_eq!(sent.properties[BEGUN_HEADER], "17");
            assert_eq!(stored(&put_aside(sent)), Some(message));
        }
    }

    #[test]
    fn what_rocketmq_would_refuse_or_take_for_something_else_is_not_sent() {
        let plain = || TransactionMessage::new("orders", "OrderPaid", "{}");
        for (message, problem) in [
            (plain().with_header("__SHARDINGKEY", "7"), "has a meaning of its own in RocketMQ"),
            (plain().with_header("a", "b\u{1}"), "control character"),
            (TransactionMessage::new("orders", "Order\u{2}Paid", "{}"), "event_type has a control character"),
            (plain().with_header("a", "x".repeat(17_000)), "RocketMQ takes at most 16384"),
            (plain().with_header(STORE_HEADER, "other"), "is taken"),
        ] {
            let refused = super::message(&half(message), None).unwrap_err();

            assert!(refused.contains(problem), "{refused}");
        }
    }
}
