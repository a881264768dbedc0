//! Everything that reads what a name server or broker, or somebody in its place, answers.

use std::collections::BTreeMap;

use seeded_fuzz::{Source, run};
use serde_json::Value;

use super::command::Command;
use super::fastjson;
use super::stored::StoredMessage;
use super::stored::tests::Written;

fn command(source: &mut Source) -> Command {
    let text = |source: &mut Source| source.text(5, &["offset", "topic", "\"", "{", "\u{1}"]);
    Command {
        code: i32::try_from(source.below(400)).expect("small"),
        opaque: i32::try_from(source.below(3)).expect("small"),
        flag: i32::try_from(source.below(4)).expect("small"),
        remark: source.one_in(2).then(|| text(source)),
        fields: (0..source.below(4)).map(|_| (text(source), text(source))).collect(),
        body: source.bytes(60).into(),
    }
}

/// A command comes back as it was written, and a damaged frame is an error or another command.
#[test]
fn remoting_frames() {
    run("remoting_frames", |source| {
        let command = command(source);
        let frame = command.encode();
        let length = frame.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes));
        assert_eq!(length.map(|length| length as usize), Some(frame.len() - 4));
        assert_eq!(Command::decode(&frame.slice(4..)), Ok(command));

        let damaged = source.mutated(&frame[4..]);
        if let Ok(other) = Command::decode(&damaged.clone().into()) {
            assert!(other.body.len() + 4 <= damaged.len(), "a body larger than its frame");
        }
    });
}

/// Messages come back as they were stored, and what a damaged one says fits into what came.
#[test]
fn stored_messages() {
    run("stored_messages", |source| {
        let topic = source.text(200, &["TRANS_CHECK_MAX_TIME_TOPIC", "points"]);
        let topic = &topic[..topic.floor_char_boundary(255)];
        let properties = [("UNIQ_KEY", "01AB"), ("REAL_TOPIC", topic), ("TRANSACTION_CHECK_TIMES", "5")];
        let body = source.bytes(60);
        // One more bit than there are flags.
        let flags = u32::try_from(source.below(64)).expect("small");
        let written = Written { topic, properties: &properties, body: &body, flags, queue_offset: 7 };
        let bytes = [written.bytes(), written.bytes()].concat();

        let messages = StoredMessage::decode_all(bytes.clone().into()).expect("as a broker writes them");
        assert_eq!(messages.len(), 2);
        for message in messages {
            assert_eq!((message.topic.as_str(), &message.body[..], message.checks()), (topic, &body[..], 5));
        }

        let damaged = source.mutated(&bytes);
        if let Ok(others) = StoredMessage::decode_all(damaged.clone().into()) {
            let told: usize = others.iter().map(|message| message.body.len() + message.topic.len()).sum();
            assert!(told <= damaged.len(), "more than came");
        }
    });
}

fn value(source: &mut Source, depth: u64) -> Value {
    match source.below(if depth == 0 { 3 } else { 5 }) {
        0 => Value::from(source.number()),
        1 => Value::from(source.text(4, &["{0:", "\"", "\\", "[1,", ":"])),
        2 => Value::from(source.one_in(2)),
        3 => (0..source.below(4)).map(|_| value(source, depth - 1)).collect(),
        _ => (0..source.below(4))
            .map(|_| {
                let number = source.number().to_string();
                let name = if source.one_in(2) { number } else { source.text(3, &["0", "{", "\""]) };
                (name, value(source, depth - 1))
            })
            .collect(),
    }
}

/// The same text with bare numbers where they are names.
fn bare(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(bare).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| {
                let name = if name.parse::<i64>().is_ok_and(|number| number.to_string() == *name) {
                    name.clone()
                } else {
                    Value::from(name.as_str()).to_string()
                };
                format!("{name}:{}", bare(value))
            };
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

/// Standard JSON means what it meant, with and without quotes about numbers that are names.
#[test]
fn bare_names() {
    run("bare_names", |source| {
        let depth = source.below(4);
        let value = value(source, depth);
        assert_eq!(fastjson::parse::<Value>(value.to_string().as_bytes()), Ok(value.clone()));
        let text = bare(&value);
        assert_eq!(fastjson::parse::<Value>(text.as_bytes()), Ok(value));
        let _either = fastjson::parse::<BTreeMap<String, Value>>(&source.mutated(text.as_bytes()));
    });
}
