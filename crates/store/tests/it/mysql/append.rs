//! Producers: events inside the caller's own transaction.

use consign_core::event::{EventId, NewEvent};
use consign_store::mysql::PayloadColumn;

use crate::mysql::server::{Bench, Server, claim, ids};

on_both_servers!(
    an_event_exists_if_and_only_if_its_transaction_commits,
    what_does_not_fit_is_refused_before_any_sql,
    headers_without_their_column_name_the_remedy,
);

async fn an_event_exists_if_and_only_if_its_transaction_commits(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    let outbox = bench.outbox();
    for (id, commits) in [("rolled-back", false), ("committed", true)] {
        let mut tx = bench.begin().await;
        let event = NewEvent::new("OrderPaid", 42, "{\"note\":\"a\u{0}b😀\"}");
        outbox.append(&mut tx, event.with_id(EventId::new(id).unwrap())).await.unwrap();
        if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }

    let claimed = claim(&outbox, 10).await;

    assert_eq!(ids(&claimed), ["committed"]);
    assert_eq!(claimed.claims[0].event().payload.as_deref(), Some("{\"note\":\"a\u{0}b😀\"}".as_bytes()));
}

/// B49 (`transact-rs/sqlx#1553`): two keys with the same beginning must never become one by truncation.
async fn what_does_not_fit_is_refused_before_any_sql(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let mut tx = bench.begin().await;

    let long_type = outbox.append(&mut tx, NewEvent::new("x".repeat(65), 1, "{}")).await;
    let id = EventId::new("i".repeat(65)).unwrap();
    let long_id = outbox.append(&mut tx, NewEvent::new("OrderPaid", 1, "{}").with_id(id)).await;
    outbox.append(&mut tx, NewEvent::new("OrderPaid", 1, "{}")).await.unwrap();
    tx.commit().await.unwrap();

    assert!(long_type.unwrap_err().to_string().contains("event_type"));
    assert!(long_id.unwrap_err().to_string().contains("event_id"));
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event").await, 1);
}

async fn headers_without_their_column_name_the_remedy(server: Server) {
    let bench = Bench::contract(server).await;
    let mut event = NewEvent::new("OrderPaid", 1, "{}");
    event.headers = vec![("traceparent".into(), "00-ab".into())];
    let mut tx = bench.begin().await;

    let refused = bench.outbox().append(&mut tx, event).await.unwrap_err().to_string();

    assert!(refused.contains("headers") && refused.contains("migrate"), "{refused}");
}
