//! What is encoded decodes to itself, and no bytes whatever make a decoder panic.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::method::Incoming;
use crate::table::FieldValue;

fn value() -> impl Strategy<Value = FieldValue> {
    let leaf = prop_oneof![
        Just(FieldValue::Void),
        any::<bool>().prop_map(FieldValue::Bool),
        any::<i64>().prop_map(FieldValue::Int),
        any::<i32>().prop_map(|value| FieldValue::Float(f64::from(value) / 16.0)),
        (any::<u8>(), any::<i32>()).prop_map(|(scale, value)| FieldValue::Decimal { scale, value }),
        ".{0,20}".prop_map(FieldValue::Text),
        vec(any::<u8>(), 0..20).prop_map(|bytes| FieldValue::Bytes(bytes.into())),
        any::<u64>().prop_map(FieldValue::Timestamp),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(FieldValue::Array),
            table(inner).prop_map(FieldValue::Table)
        ]
    })
}

fn table(value: impl Strategy<Value = FieldValue>) -> impl Strategy<Value = FieldTable> {
    vec((".{0,10}", value), 0..4).prop_map(FieldTable::from_iter)
}

fn properties() -> impl Strategy<Value = Properties> {
    let text = || option::of(".{0,30}");
    (
        (text(), text(), table(value()), option::of(any::<u8>()), option::of(any::<u8>()), text(), text()),
        (text(), text(), option::of(any::<u64>()), text(), text(), text()),
    )
        .prop_map(|(first, second)| {
            let (content_type, content_encoding, headers, delivery_mode, priority, correlation_id, reply_to) =
                first;
            let (expiration, message_id, timestamp, kind, user_id, app_id) = second;
            Properties {
                content_type,
                content_encoding,
                headers,
                delivery_mode,
                priority,
                correlation_id,
                reply_to,
                expiration,
                message_id,
                timestamp,
                kind,
                user_id,
                app_id,
            }
        })
}

fn encoded(properties: &Properties) -> Bytes {
    let mut buffer = BytesMut::new();
    properties.encode(&mut buffer).unwrap();
    buffer.freeze()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn properties_decode_to_what_was_encoded(properties in properties()) {
        let raw = encoded(&properties);
        prop_assert_eq!(Properties::decode(&raw), Ok(properties.clone()));
        prop_assert_eq!(Properties::message_id_of(&raw), Ok(properties.message_id));
    }

    #[test]
    fn damaged_properties_are_an_error_or_other_properties(
        properties in properties(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut raw = encoded(&properties).to_vec();
        let place = place.index(raw.len());
        raw[place] = byte;
        let _ = Properties::decode(&raw.clone().into());
        let _ = Properties::message_id_of(&raw);
        raw.truncate(cut.index(raw.len()));
        if let Err(error) = Properties::decode(&raw.clone().into()) {
            prop_assert_eq!(&error.raw[..], &raw[..]);
        }
    }

    #[test]
    fn arbitrary_methods_do_not_panic(class in 0..100_u16, method in 0..130_u16, rest in vec(any::<u8>(), 0..60)) {
        let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), &rest].concat();
        if let Ok(incoming) = Incoming::decode(&payload) {
            let id = incoming.id();
            prop_assert_eq!((id.class, id.method), (class, method));
        }
    }
}

#[test]
fn tables_nested_without_end_are_refused() {
    let mut table = FieldTable::new();
    for _ in 0..100 {
        table = FieldTable::new().with("t", table);
    }
    let properties = Properties { headers: table, ..Properties::default() };
    let error = Properties::decode(&encoded(&properties)).unwrap_err();
    assert!(error.reason.contains("deeper"), "{error}");
    let mut array = FieldValue::Array(Vec::new());
    for _ in 0..100 {
        array = FieldValue::Array(vec![array]);
    }
    let properties = Properties { headers: FieldTable::new().with("a", array), ..Properties::default() };
    assert!(Properties::decode(&encoded(&properties)).is_err());
}
