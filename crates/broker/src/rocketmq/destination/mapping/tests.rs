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

fn mapping(message_type: MessageType) -> Mapping {
    Mapping {
        message_type,
        body_bytes_max: 1000,
        empty_body: EmptyBody::Reject,
        content_type: "application/json".into(),
        source: "shop".into(),
    }
}

fn message(event: &Event) -> Message {
    mapping(MessageType::Normal).message(event, "orders".into()).unwrap()
}

fn rejection(event: &Event) -> String {
    match mapping(MessageType::Normal).message(event, "orders".into()) {
        Err(Outcome::Rejected { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

fn with_header(name: &str, value: &str) -> Event {
    Event { headers: vec![(name.into(), value.into())], ..event() }
}

#[test]
fn an_event_becomes_a_message_with_its_id_tag_keys_time_and_properties() {
    let message = message(&event());

    assert_eq!((message.topic.as_str(), message.message_id.as_str()), ("orders", "e-1"));
    assert_eq!(message.tag.as_deref(), Some("OrderPaid"));
    assert_eq!(message.keys, ["e-1", "order:42:paid"]);
    assert_eq!(message.kind, Kind::Normal);
    assert_eq!(message.born_at, Some(SystemTime::UNIX_EPOCH + Duration::from_micros(1_709_210_096_789_012)));
    assert_eq!(message.trace_context.as_deref(), Some("00-ab-cd-01"));
    assert_eq!(&message.body[..], b"{\"amount\": 5}");
    let properties: Vec<_> =
        message.properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [
        ("CE_datacontenttype", "application/json"),
        ("CE_id", "e-1"),
        ("CE_source", "shop"),
        ("CE_specversion", "1.0"),
        ("CE_subject", "42"),
        ("CE_time", "2024-02-29T12:34:56.789012Z"),
        ("CE_type", "OrderPaid"),
        ("consign-aggregate-id", "42"),
        ("consign-aggregate-type", "order"),
        ("consign-aggregate-version", "3"),
        ("consign-business-key", "order:42:paid"),
        ("traceparent", "00-ab-cd-01"),
    ];
    assert_eq!(properties, expected);
}

#[test]
fn every_copy_of_an_event_is_the_same_message() {
    for message_type in [MessageType::Normal, MessageType::Fifo, MessageType::Delay(Duration::from_secs(5))] {
        let copy = || mapping(message_type).message(&event(), "orders".into()).unwrap();

        assert_eq!(copy(), copy());
    }
}

/// The broker separates keys by spaces.
#[test]
fn keys_with_white_space_are_encoded_and_stay_whole_in_their_property() {
    let spaced =
        Event { id: EventId::stored("e 1"), business_key: Some("order 42\u{3000}100%".into()), ..event() };

    let message = message(&spaced);

    assert_eq!(message.message_id, "e 1");
    assert_eq!(message.keys, ["e%201", "order%2042%E3%80%80100%25"]);
    assert_eq!(message.properties["consign-business-key"], "order 42\u{3000}100%");
}

#[test]
fn keys_that_differ_stay_different_and_equal_ones_are_written_once() {
    assert_ne!(key("a b"), key("a%20b"));
    let same = Event { business_key: Some("e-1".into()), ..event() };
    assert_eq!(message(&same).keys, ["e-1"]);
    let none = Event { business_key: Some(String::new()), ..event() };
    assert_eq!(message(&none).keys, ["e-1"]);
}

/// A subscription is a list of tags separated by `||`, trimmed, and `*` is all of them.
#[test]
fn a_type_that_cannot_be_a_tag_is_spelled_out_in_a_property() {
    for odd in ["Paid|Refunded", "*", " Paid", "Paid "] {
        let message = message(&Event { event_type: odd.into(), ..event() });

        assert_eq!(message.tag, None, "{odd:?}");
        assert_eq!(message.properties[property::EVENT_TYPE], odd);
    }
    let plain = message(&Event { event_type: "Order Paid".into(), ..event() });
    assert_eq!(plain.tag.as_deref(), Some("Order Paid"));
    assert!(!plain.properties.contains_key(property::EVENT_TYPE));
    let untyped = message(&Event { event_type: String::new(), ..event() });
    assert!(untyped.tag.is_none() && !untyped.properties.contains_key(property::EVENT_TYPE));
}

/// Control characters separate properties in the broker: one of them would change the message.
#[test]
fn control_characters_are_rejected_by_the_name_of_their_field() {
    let id = rejection(&Event { id: EventId::stored("e\u{1}1"), ..event() });
    let kind = rejection(&Event { event_type: "Order\tPaid".into(), ..event() });
    let value = rejection(&with_header("note", "two\nlines"));
    let name = rejection(&with_header("no\u{2}te", "x"));
    let key = rejection(&Event { business_key: Some("a\u{85}b".into()), ..event() });

    assert!(id.starts_with("event_id has a control character"), "{id}");
    assert!(kind.starts_with("event_type has a control character"), "{kind}");
    assert!(value.starts_with("header \"note\" has a control character"), "{value}");
    assert!(name.starts_with("header \"no\\u{2}te\" has a control character"), "{name}");
    assert!(key.starts_with("header \"consign-business-key\" has a control character"), "{key}");
    assert!(!value.contains("lines"), "values stay out of messages");
}

#[test]
fn reserved_names_are_rejected_and_consigns_own_do_not_travel() {
    for name in ["KEYS", "TAGS", "DELAY", "UNIQ_KEY", "__SHARDINGKEY", "INNER_MULTI_DISPATCH", "__LITE_TOPIC"]
    {
        let reason = rejection(&with_header(name, "1"));
        assert!(reason.contains(&format!("{name:?}")), "{reason}");
    }
    for name in property::ALL {
        let message = message(&with_header(name, "forged"));
        assert!(!message.properties.contains_key(name), "{name}");
    }
    let forged = message(&with_header("CE_id", "forged"));
    assert_eq!(forged.properties["CE_id"], "e-1");
}

/// The broker's own reader of properties skips a name without a value, so that it would be lost there in silence.
#[test]
fn a_header_with_an_empty_value_does_not_travel() {
    let message = message(&with_header("tracestate", ""));

    assert!(!message.properties.contains_key("tracestate"));
}

#[test]
fn properties_beyond_the_proxys_limits_are_rejected() {
    let computed = message(&Event { headers: Vec::new(), ..event() }).properties.len();
    let headers = |count: usize, bytes: usize| Event {
        headers: (0..count).map(|number| (format!("h{number:03}"), "x".repeat(bytes))).collect(),
        ..event()
    };

    assert_eq!(message(&headers(PROPERTIES_MAX - computed, 1)).properties.len(), PROPERTIES_MAX);
    let many = rejection(&headers(PROPERTIES_MAX - computed + 1, 1));
    assert!(many.starts_with("the event makes 129 user properties"), "{many}");
    let used = PROPERTIES_BYTES_MAX - room(&headers(1, 1));
    assert!(
        mapping(MessageType::Normal)
            .message(&headers(1, 1 + PROPERTIES_BYTES_MAX - used), "t".into())
            .is_ok()
    );
    let large = rejection(&headers(1, 2 + PROPERTIES_BYTES_MAX - used));
    assert!(large.contains("have 16385 bytes together"), "{large}");
}

/// How many bytes of properties, tag and keys the proxy would take beside those of this event.
fn room(event: &Event) -> usize {
    let message = message(event);
    let named: usize = message.properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    let keys: usize = message.keys.iter().map(String::len).sum();
    PROPERTIES_BYTES_MAX - named - keys - message.tag.map_or(0, |tag| tag.len())
}

#[test]
fn a_body_over_the_limit_is_rejected_with_its_size() {
    let body = |bytes: usize| Event { payload: Some(vec![b'x'; bytes].into()), ..event() };

    assert_eq!(message(&body(1000)).body.len(), 1000);
    let reason = rejection(&body(1001));
    assert!(reason.starts_with("the payload has 1001 bytes, the destination takes at most 1000"), "{reason}");
}

/// `B57` (DBZ-6760): NULL and empty stay apart, too, when a byte stands for both.
#[test]
fn an_empty_payload_is_rejected_or_gets_a_placeholder_that_says_so() {
    let empty = Event { payload: Some(Bytes::new()), ..event() };
    let null = Event { payload: None, ..event() };
    let placing = Mapping { empty_body: EmptyBody::Placeholder, ..mapping(MessageType::Normal) };

    for event in [&empty, &null] {
        assert!(rejection(event).contains("empty_body = \"placeholder\""));
        let message = placing.message(event, "orders".into()).unwrap();
        assert_eq!((&message.body[..], message.properties[property::EMPTY].as_str()), (&[0][..], "1"));
    }
    let marked =
        |event| placing.message(event, "orders".into()).unwrap().properties.contains_key("consign-null");
    assert!(marked(&null) && !marked(&empty));
    let full = placing.message(&event(), "orders".into()).unwrap();
    assert!(!full.properties.contains_key(property::EMPTY));
}

fn group_of(event: &Event) -> String {
    match mapping(MessageType::Fifo).message(event, "orders".into()).unwrap().kind {
        Kind::Fifo { group } => group,
        other => panic!("{other:?}"),
    }
}

fn about(kind: Option<&str>, id: Option<&str>) -> Event {
    let aggregate = Aggregate { kind: kind.map(Into::into), id: id.map(Into::into), version: None };
    Event { aggregate, ..event() }
}

#[test]
fn the_message_group_is_the_aggregate_or_else_the_event() {
    assert_eq!(group_of(&about(Some("order"), Some("42"))), "order:42");
    assert_eq!(group_of(&about(None, Some("42"))), "42");
    assert_eq!(group_of(&about(Some("order"), None)), "e-1");
    assert_eq!(group_of(&about(Some("order"), Some(""))), "e-1");
}

/// `maxMessageGroupSize` of the proxy: a group of 64 bytes is too long already.
#[test]
fn a_group_of_64_bytes_or_more_is_hashed() {
    let kept = group_of(&about(None, Some(&"x".repeat(63))));
    let hashed = group_of(&about(None, Some(&"x".repeat(64))));
    let other = group_of(&about(None, Some(&"y".repeat(64))));

    assert_eq!(kept, "x".repeat(63));
    assert_eq!(hashed, "sha256:7ce100971f64e7001e8fe5a51973ecdfe1ced42b");
    assert_ne!(hashed, other);
    assert!(group_of(&about(None, Some("\u{3000}"))).starts_with("sha256:"), "a blank group is none");
}

#[test]
fn a_delay_counts_from_the_event_and_not_from_the_attempt() {
    let delayed = mapping(MessageType::Delay(Duration::from_mins(1)));

    let message = delayed.message(&event(), "orders".into()).unwrap();

    let deliver_at = SystemTime::UNIX_EPOCH + Duration::from_micros(1_709_210_156_789_012);
    assert_eq!(message.kind, Kind::Delay { deliver_at });
    let undated = Event { created_at_micros: None, ..event() };
    assert!(
        matches!(delayed.message(&undated, "orders".into()), Err(Outcome::Rejected { reason }) if reason.contains("created_at"))
    );
}

#[test]
fn a_route_key_that_is_no_topic_leads_nowhere() {
    for topic in [String::new(), "orders.paid".into(), "\u{8ba2}\u{5355}".into(), "t".repeat(128)] {
        let outcome = mapping(MessageType::Normal).message(&event(), topic.clone());
        assert!(matches!(outcome, Err(Outcome::Unroutable { code: 40002, .. })), "{topic:?}: {outcome:?}");
    }
    assert!(mapping(MessageType::Normal).message(&event(), "t".repeat(127)).is_ok());
}

#[test]
fn ids_that_rocketmq_takes_for_none_are_rejected() {
    let blank = rejection(&Event { id: EventId::stored(" \u{3000}"), ..event() });
    let long = rejection(&Event { id: EventId::stored("e".repeat(256)), ..event() });

    assert!(blank.starts_with("event_id is blank"), "{blank}");
    assert_eq!(long, "event_id has 256 bytes: shorten it to at most 255");
}
