//! Everything that reads what a broker, or somebody in its place, sends.

use std::num::NonZeroU64;

use bytes::{BufMut, Bytes, BytesMut};
use seeded_fuzz::{Source, run};

use crate::confirms::{Confirms, Settled};
use crate::frame::{self, Frame};
use crate::method::Incoming;
use crate::options::ConnectOptions;
use crate::properties::Properties;
use crate::table::{FieldTable, FieldValue};
use crate::wire::{Reader, put_table};

const FRAME_MAX: usize = 4096;

/// The wire of a few frames, most of them right.
fn wire(source: &mut Source) -> Vec<u8> {
    let mut wire = Vec::new();
    for _ in 0..=source.below(4) {
        let payload = source.bytes(60);
        wire.put_u8(*source.pick(&[1, 1, 2, 3, 3, 8, 4]));
        wire.put_u16(*source.pick(&[0, 1, 7, u16::MAX]));
        wire.put_u32(if source.one_in(20) {
            *source.pick(&[u32::MAX, 4089, 4088, 0])
        } else {
            u32::try_from(payload.len()).expect("a short payload")
        });
        wire.put_slice(&payload);
        wire.put_u8(if source.one_in(20) { 0 } else { 0xCE });
    }
    source.mutated(&wire)
}

/// What comes out of a wire that arrives in pieces, up to the first mistake.
fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
    let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match frame::decode(&mut buffer, FRAME_MAX) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, false),
            }
        }
        // A length is believed up to what was agreed, and the buffer grows by doubling at most.
        assert!(buffer.capacity() <= 4 * FRAME_MAX, "{} bytes are reserved", buffer.capacity());
    }
    (frames, true)
}

/// Frames do not depend on the pieces they arrive in, and no length makes the buffer grow beyond what was agreed.
#[test]
fn frame_decoding() {
    run("frame_decoding", |source| {
        let wire = wire(source);
        let (first, second) = wire.split_at(source.index(wire.len() + 1));

        assert_eq!(frames(&[first, second]), frames(&[&wire]));
    });
}

/// A method is read or refused.
#[test]
fn method_decoding() {
    const METHODS: [(u16, u16); 16] = [
        (10, 10),
        (10, 30),
        (10, 50),
        (10, 60),
        (10, 61),
        (20, 11),
        (20, 40),
        (40, 11),
        (50, 11),
        (60, 21),
        (60, 30),
        (60, 50),
        (60, 60),
        (60, 80),
        (60, 120),
        (85, 11),
    ];
    run("method_decoding", |source| {
        let (class, method) = *source.pick(&METHODS);
        let mut payload = [class.to_be_bytes(), method.to_be_bytes()].concat();
        payload.extend(source.bytes(80));
        let payload = source.mutated(&payload);
        if let Ok(method) = Incoming::decode(&payload) {
            // What is kept of it is never more than came.
            assert!(format!("{method:?}").len() <= 2000 + 60 * payload.len());
        }
    });
}

fn table(source: &mut Source, depth: usize) -> FieldTable {
    let mut table = FieldTable::new();
    for _ in 0..source.below(4) {
        table.insert(source.text(4, &["x-death", "a"]), value(source, depth));
    }
    table
}

fn value(source: &mut Source, depth: usize) -> FieldValue {
    match source.below(if depth > 3 { 8 } else { 10 }) {
        0 => FieldValue::Void,
        1 => FieldValue::Bool(source.one_in(2)),
        2 => FieldValue::Int(source.number()),
        3 => FieldValue::Float(f64::from(i32::try_from(source.below(1000)).expect("a small number")) / 8.0),
        4 => FieldValue::Decimal {
            scale: source.bits().to_le_bytes()[0],
            value: i32::try_from(source.number() >> 32).expect("the upper half"),
        },
        5 => FieldValue::Text(source.text(20, &["text"])),
        6 => {
            // Bytes that are UTF-8 could as well have been a text, which they are read as in a long string.
            FieldValue::Bytes(source.bytes(20).into())
        }
        7 => FieldValue::Timestamp(source.bits()),
        8 => FieldValue::Array((0..source.below(4)).map(|_| value(source, depth + 1)).collect()),
        _ => FieldValue::Table(table(source, depth + 1)),
    }
}

/// A header table comes back as it was written.
#[test]
fn header_tables() {
    run("header_tables", |source| {
        let written = table(source, 0);
        let mut wire = BytesMut::new();
        put_table(&mut wire, &written).expect("short keys fit");

        let mut reader = Reader::new(&wire);
        let read = reader.table().expect("what was written can be read");

        assert!(reader.is_empty());
        assert_eq!(read, written);
    });
}

/// Properties come back as they were written; of broken ones, the message id is told alike by both readers.
#[test]
fn message_properties() {
    run("message_properties", |source| {
        let text =
            |source: &mut Source| source.one_in(2).then(|| source.text(10, &["order-1", "text/plain"]));
        let written = Properties {
            content_type: text(source),
            content_encoding: text(source),
            headers: table(source, 0),
            delivery_mode: source.one_in(2).then_some(2),
            priority: source.one_in(2).then_some(9),
            correlation_id: text(source),
            reply_to: text(source),
            expiration: text(source),
            message_id: text(source),
            timestamp: source.one_in(2).then(|| source.bits()),
            kind: text(source),
            user_id: text(source),
            app_id: text(source),
        };
        let mut wire = BytesMut::new();
        written.encode(&mut wire).expect("short texts fit");
        let wire = wire.freeze();
        assert_eq!(Properties::decode(&wire), Ok(written));

        let broken = Bytes::from(source.mutated(&wire));
        if let Ok(read) = Properties::decode(&broken) {
            assert_eq!(Properties::message_id_of(&broken), Ok(read.message_id));
        }
    });
}

/// Every publish gets one verdict, and it is the one that a naive book-keeper comes to.
#[test]
fn confirms_and_returns() {
    run("confirms_and_returns", |source| {
        #[derive(Clone, Debug, PartialEq)]
        enum State {
            Waiting { returned: bool },
            Late,
            Done,
        }
        let mut confirms = Confirms::new();
        let mut book: Vec<(String, State)> = Vec::new();
        for _ in 0..source.below(60) {
            match source.below(5) {
                0 | 1 => {
                    let id = (*source.pick(&["a", "b", "c"])).to_owned();
                    let tag = confirms.register(id.clone(), book.len());
                    assert_eq!(tag.get(), book.len() as u64 + 1);
                    book.push((id, State::Waiting { returned: false }));
                }
                2 => {
                    let id = *source.pick(&["a", "b", "c", "d"]);
                    let mut matched = false;
                    for (known, state) in &mut book {
                        if known == id && *state != State::Done {
                            matched = true;
                            if let State::Waiting { returned } = state {
                                *returned = true;
                            }
                        }
                    }
                    assert_eq!(confirms.on_return(id, 312, "NO_ROUTE").is_ok(), matched);
                }
                3 if !book.is_empty() => {
                    let at = source.index(book.len());
                    let waiter = confirms.on_deadline(NonZeroU64::new(at as u64 + 1).expect("from 1 on"));
                    let waits = matches!(book[at].1, State::Waiting { .. });
                    assert_eq!(waiter, waits.then_some(at));
                    if waits {
                        book[at].1 = State::Late;
                    }
                }
                _ => {
                    let (tag, multiple) = (source.below(book.len() as u64 + 3), source.one_in(2));
                    let positive = source.one_in(2);
                    let mut settled = Vec::new();
                    let settle = |waiter: usize, verdict: Settled| settled.push((waiter, verdict));
                    let result = if positive {
                        confirms.on_ack(tag, multiple, settle)
                    } else {
                        confirms.on_nack(tag, multiple, settle)
                    };
                    let outstanding =
                        |at: usize| book.get(at).is_some_and(|(_, state)| *state != State::Done);
                    let meant: Vec<usize> = match usize::try_from(tag).expect("a small tag") {
                        0 if multiple => (0..book.len()).filter(|&at| outstanding(at)).collect(),
                        0 => Vec::new(),
                        tag if !outstanding(tag - 1) => Vec::new(),
                        tag if multiple => (0..tag).filter(|&at| outstanding(at)).collect(),
                        tag => vec![tag - 1],
                    };
                    assert_eq!(result.is_err(), meant.is_empty() && !(tag == 0 && multiple));
                    let mut wanted = Vec::new();
                    for at in meant {
                        if let State::Waiting { returned } = book[at].1 {
                            wanted.push((at, positive, returned));
                        }
                        book[at].1 = State::Done;
                    }
                    let got: Vec<_> = settled
                        .iter()
                        .map(|(at, verdict)| match verdict {
                            Settled::Acked { .. } => (*at, true, false),
                            Settled::Returned { .. } => (*at, true, true),
                            Settled::Nacked => (*at, false, false),
                        })
                        .collect();
                    let wanted: Vec<_> = wanted
                        .into_iter()
                        .map(|(at, positive, returned)| (at, positive, positive && returned))
                        .collect();
                    assert_eq!(got, wanted);
                }
            }
        }
        let waiting = book.iter().filter(|(_, state)| matches!(state, State::Waiting { .. })).count();
        assert_eq!(confirms.on_close().count(), waiting);
    });
}

/// An address is read or refused, and neither message nor options show the password.
#[test]
fn broker_addresses() {
    const SECRET: &str = "s3cr3tcanary";
    run("broker_addresses", |source| {
        let words = [
            "amqp://",
            "amqps://",
            "guest:",
            "@",
            "host",
            ":5672",
            "/",
            "%2f",
            "?",
            "heartbeat=10",
            "&",
            "[::1]",
        ];
        let text = source.text(10, &words);
        let uri = if source.one_in(2) {
            format!("amqp://guest:{SECRET}@{text}")
        } else {
            format!("{text}:{SECRET}@{}", source.text(4, &words))
        };
        let shown = match uri.parse::<ConnectOptions>() {
            Ok(options) => {
                let password_elsewhere = options.user.contains(SECRET)
                    || options.host.contains(SECRET)
                    || options.virtual_host.contains(SECRET);
                if password_elsewhere { String::new() } else { format!("{options:?}") }
            }
            Err(error) => error.to_string(),
        };
        assert!(!shown.contains(SECRET), "{uri:?} is shown as {shown:?}");
    });
}
