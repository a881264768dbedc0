//! Producers: an event is in the outbox if and only if the producer's transaction commits.

use std::time::Duration;

use consign_conformance::store::request::claim;
use consign_core::event::{EventId, NewEvent};
use consign_store::append::AppendError;
use sqlx::Row;

use crate::sqlite::file::File;

fn paid(id: &str) -> NewEvent {
    NewEvent::new("OrderPaid", 42, r#"{"orderId": 42, "amount": 1.10}"#).with_id(EventId::stored(id))
}

#[tokio::test]
async fn an_event_is_published_if_and_only_if_its_transaction_commits() {
    let file = File::migrated().await;
    file.run("CREATE TABLE purchase_order (id BIGINT PRIMARY KEY, status VARCHAR(16))").await;
    let outbox = file.outbox().await;

    for (id, commits) in [("kept", true), ("lost", false)] {
        let mut tx = outbox.database().begin().await.unwrap();
        sqlx::query("INSERT INTO purchase_order VALUES (?, 'PAID')")
            .bind(i64::from(commits))
            .execute(&mut *tx)
            .await
            .unwrap();
        outbox.append(&mut tx, paid(id)).await.unwrap();
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }

    let claimed = claim(&outbox, 10).await;
    let ids: Vec<_> = claimed.claims.iter().map(|claim| claim.event().id.as_str()).collect();
    assert_eq!(ids, ["kept"]);
    assert_eq!(file.number("SELECT COUNT(*) FROM purchase_order").await, 1);
}

#[tokio::test]
async fn every_field_of_an_event_comes_back_from_a_claim() {
    let file = File::migrated().await;
    let outbox = file.outbox().await;
    let mut event = paid("full");
    event.aggregate.kind = Some("order".into());
    event.aggregate.version = Some(3);
    event.business_key = Some("order:42:paid".into());
    event.headers = vec![("traceparent".into(), "00-ab-cd-01".into())];
    event.destination = Some("broker".into());
    event.route_key = Some("orders.paid".into());

    let mut tx = outbox.database().begin().await.unwrap();
    outbox.append(&mut tx, event.clone()).await.unwrap();
    tx.commit().await.unwrap();

    let claimed = claim(&outbox, 1).await;
    let read = claimed.claims[0].event();
    assert_eq!(read.aggregate, event.aggregate);
    assert_eq!((&read.payload, &read.headers), (&event.payload, &event.headers));
    assert_eq!((&read.business_key, &read.destination), (&event.business_key, &event.destination));
    assert_eq!(read.route_key, event.route_key);
}

#[tokio::test]
async fn an_id_is_drawn_when_the_producer_gives_none() {
    let file = File::contract().await;
    let outbox = file.outbox().await;
    let mut tx = outbox.database().begin().await.unwrap();

    let first = outbox.append(&mut tx, NewEvent::new("OrderPaid", 1, "{}")).await.unwrap();
    let second = outbox.append(&mut tx, NewEvent::new("OrderPaid", 1, "{}")).await.unwrap();

    assert_ne!(first, second);
    tx.commit().await.unwrap();
    assert_eq!(file.number("SELECT COUNT(*) FROM outbox_event").await, 2);
}

#[tokio::test]
async fn a_taken_id_is_a_duplicate() {
    let file = File::contract().await;
    let outbox = file.outbox().await;
    let mut tx = outbox.database().begin().await.unwrap();
    outbox.append(&mut tx, paid("one")).await.unwrap();

    let refused = outbox.append(&mut tx, paid("one")).await;

    assert_eq!(refused, Err(AppendError::Duplicate(EventId::stored("one"))));
}

#[tokio::test]
async fn what_the_table_cannot_hold_is_refused_and_never_cut() {
    let file = File::contract().await;
    let outbox = file.outbox().await;
    let mut tx = outbox.database().begin().await.unwrap();

    let long = outbox.append(&mut tx, paid(&"i".repeat(65))).await;
    let keyed = outbox.append(&mut tx, NewEvent { business_key: Some("k".into()), ..paid("keyed") }).await;
    let broken = outbox.append(&mut tx, NewEvent { payload: Some("{".into()), ..paid("broken") }).await;

    assert_eq!(long, Err(AppendError::TooLong { field: "event_id", length: 65, limit: 64 }));
    assert_eq!(keyed, Err(AppendError::NoColumn { field: "business_key" }));
    assert!(matches!(broken, Err(AppendError::Unfit { field: "payload", .. })), "{broken:?}");
    tx.commit().await.unwrap();
    assert_eq!(file.number("SELECT COUNT(*) FROM outbox_event").await, 0);
}

#[tokio::test]
async fn a_delayed_event_waits() {
    let file = File::migrated().await;
    let outbox = file.outbox().await;
    let mut tx = outbox.database().begin().await.unwrap();
    outbox.append(&mut tx, NewEvent { delay: Duration::from_mins(10), ..paid("later") }).await.unwrap();
    tx.commit().await.unwrap();

    assert!(claim(&outbox, 10).await.claims.is_empty());
    let seconds = "SELECT CAST(ROUND((julianday(available_at) - julianday(created_at)) * 86400) AS INTEGER) \
                   FROM outbox_event";
    assert_eq!(file.number(seconds).await, 600);
}

/// The contract's JSON column has numeric affinity in SQLite: `1.10` written as text would come back as `1.1`.
/// Case B48 (`serde-rs/json#1170`).
#[tokio::test]
async fn bare_numbers_pass_unchanged_through_a_column_declared_json() {
    let file = File::contract().await;
    let outbox = file.outbox().await;
    let payloads = ["1.10", "18446744073709551617", "1e400", "-0", "{\"a\":1.10}", "\"1.10\"", " 7 "];
    for (number, payload) in payloads.into_iter().enumerate() {
        let mut tx = outbox.database().begin().await.unwrap();
        outbox
            .append(&mut tx, NewEvent { payload: Some(payload.into()), ..paid(&number.to_string()) })
            .await
            .unwrap();
        tx.commit().await.unwrap();

        let claimed = claim(&outbox, 1).await;

        assert_eq!(claimed.claims[0].event().payload.as_deref(), Some(payload.as_bytes()));
    }
}

#[tokio::test]
async fn many_events_are_appended_in_their_order() {
    let file = File::migrated().await;
    let outbox = file.outbox().await;
    let ids: Vec<String> = (0..1000).map(|number| format!("event-{number:04}")).collect();

    let mut tx = outbox.database().begin().await.unwrap();
    let appended = outbox.append_all(&mut tx, ids.iter().map(|id| paid(id)).collect()).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(appended.iter().map(EventId::as_str).collect::<Vec<_>>(), ids);
    let rows = sqlx::query("SELECT event_id FROM outbox_event ORDER BY sequence")
        .fetch_all(&file.eye)
        .await
        .unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn an_inbox_handler_can_append_in_its_own_transaction() {
    use consign_core::ports::{InboxStore, InboxTransaction};
    let file = File::migrated().await;
    let (outbox, inbox) = (file.outbox().await, file.inbox().await);

    for commits in [false, true] {
        let mut tx = inbox.begin().await.unwrap();
        outbox.append(tx.inner().await.unwrap(), paid("follow-up")).await.unwrap();
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(file.number("SELECT COUNT(*) FROM outbox_event").await, i64::from(commits));
    }
}
