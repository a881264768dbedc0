//! What the event carries: bytes in are bytes out.

use std::time::Duration;

use bytes::Bytes;
use consign_core::event::Event;
use consign_core::json::Json;

use super::request::{claim, settle};
use super::settle::assert_sent;
use super::settlement::sent;
use super::{NewRow, StoreFixture, insert_all, row};
use crate::waiting::within;

async fn claimed_event<F: StoreFixture>(fixture: &F) -> Event {
    let claimed = within(Duration::from_mins(1), claim(&fixture.store(), 1)).await;
    assert!(claimed.malformed.is_empty(), "{:?}", claimed.malformed);
    claimed.claims.first().expect("a row is due").event().clone()
}

async fn payload_of<F: StoreFixture>(row: NewRow) -> Option<Bytes> {
    let fixture = F::fresh().await;
    insert_all(&fixture, [row]).await;
    claimed_event(&fixture).await.payload
}

/// Payload text is passed on byte by byte; a JSON column keeps its value.
/// Case B48 (`serde-rs/json#1170`): numbers must not pass through a parser, a float or a printer.
pub async fn payload_text_is_passed_on_unchanged<F: StoreFixture>() {
    let texts = [
        r#"{"zeta":1, "a":2,"bb":{"y":1,"x":2}}"#,
        r#"{"id":9007199254740993,"text":"\u0000 nul"}"#,
        r#"{"price":1.5777777777770001,"tax":1.10}"#,
        "{\"text\":\"\u{1f600} \u{4e2d}\u{6587} e\u{301}\"}",
        "[]",
        "\"just text\"",
        "42",
        "null",
    ];
    let capabilities = F::fresh().await.capabilities();
    for text in texts {
        let payload = payload_of::<F>(NewRow::new("event").with_payload(text)).await.expect("a payload");

        if capabilities.exact_json_text {
            assert_eq!(std::str::from_utf8(&payload), Ok(text));
        } else {
            let value = |bytes: &[u8]| Json::parse(bytes).expect("valid JSON");
            // Such a column may print a double in another form; integers, text and structure are kept.
            if !text.contains("price") {
                assert_eq!(value(&payload), value(text.as_bytes()), "{text}");
            }
        }
    }
}

/// Bytes that are no text at all, and text that is no JSON, are kept or refused by the table; never changed.
/// Case B48 (`serde-rs/json#604`): numbers beyond every float stay what they are.
pub async fn binary_payloads_are_passed_on_or_refused_by_the_table<F: StoreFixture>() {
    let payloads: [&[u8]; 6] = [
        b"\0\x01\x02\xff\xfe",
        b"nul in \0 the middle",
        b"not json",
        b"{\"a\":1,\"a\":2}",
        b"1e400",
        b"18446744073709551617",
    ];
    for payload in payloads {
        let fixture = F::fresh().await;
        let inserted = fixture.insert(NewRow::new("event").with_payload(payload)).await;

        if fixture.capabilities().exact_payload {
            inserted.expect("a table of bytes takes every payload");
            assert_eq!(claimed_event(&fixture).await.payload.as_deref(), Some(payload));
        } else if inserted.is_ok() {
            assert!(claimed_event(&fixture).await.payload.is_some());
        }
    }
}

/// A large payload passes unchanged.
pub async fn a_payload_of_eight_mebibytes_is_passed_on_unchanged<F: StoreFixture>() {
    const LENGTH: usize = 8 * 1024 * 1024;
    let mut text = String::with_capacity(LENGTH);
    text.push('"');
    while text.len() < LENGTH - 1 {
        text.push(char::from(b'a' + u8::try_from(text.len() % 26).expect("below 26")));
    }
    text.push('"');

    let payload = payload_of::<F>(NewRow::new("event").with_payload(text.clone())).await.expect("a payload");

    assert_eq!(payload.len(), LENGTH);
    assert!(payload == text.as_bytes(), "the bytes are the same");
}

/// SQL NULL is not an empty payload; both are delivered.
/// Case B57 (`debezium/debezium#4761`): NULL must neither crash nor become something else.
pub async fn null_and_empty_payloads_are_told_apart<F: StoreFixture>() {
    let none = payload_of::<F>(NewRow { payload: None, ..NewRow::new("event") }).await;
    assert_eq!(none, None);

    let fixture = F::fresh().await;
    let inserted = fixture.insert(NewRow::new("event").with_payload("")).await;
    if fixture.capabilities().exact_payload {
        inserted.expect("a table of bytes takes an empty payload");
        assert_eq!(claimed_event(&fixture).await.payload, Some(Bytes::new()));
    } else {
        inserted.expect_err("a JSON column refuses empty text");
    }
}

/// Ids that differ only by case or a trailing space are different rows, also when they are settled.
/// Case B45 (`unkeyed/unkey#4091`): a loose collation makes two events one.
pub async fn ids_that_differ_by_case_or_trailing_space_are_different_rows<F: StoreFixture>() {
    let names = ["order:42", "Order:42", "\u{d6}rder:42", "order:42 "];
    let fixture = F::fresh().await;
    insert_all(&fixture, names.map(NewRow::new)).await;
    let store = fixture.store();

    let claimed = claim(&store, 10).await;
    assert_eq!(claimed.claims.len(), 4);
    let one = claimed.claims.into_iter().find(|claim| claim.event().id.as_str() == "order:42 ");
    settle(&store, vec![sent(one.expect("the id with its space was claimed"))]).await;

    for id in names {
        if id == "order:42 " {
            assert_sent(&fixture, id).await;
        } else {
            assert_eq!(row(&fixture, id).await.status, "SENDING", "row {id:?}");
        }
    }
}

/// Type, aggregate, headers and creation time come with the event.
pub async fn headers_and_names_come_with_the_event<F: StoreFixture>() {
    let fixture = F::fresh().await;
    let full = fixture.capabilities().full_table;
    let headers = full.then(|| r#"{"traceparent":"00-ab-cd-01","n":1}"#.to_owned());
    insert_all(&fixture, [NewRow { headers, aggregate_id: 9_007_199_254_740_993, ..NewRow::new("event") }])
        .await;

    let event = claimed_event(&fixture).await;

    assert_eq!(event.event_type, "OrderPaid");
    assert_eq!(event.aggregate.id.as_deref(), Some("9007199254740993"));
    assert!(event.created_at_micros.is_some_and(|micros| micros > 0));
    let trace = event.headers.iter().find(|(name, _)| name == "traceparent");
    assert_eq!(trace.map(|(_, value)| value.as_str()), full.then_some("00-ab-cd-01"));
}
