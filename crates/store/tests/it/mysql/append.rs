//! Producers: events inside the caller's own transaction.

use std::time::Duration;

use consign_core::event::{EventId, NewEvent};
use consign_core::ports::{InboxStore, InboxTransaction, StoreError};
use consign_store::append::AppendError;
use consign_store::mysql::{Outbox, PayloadColumn};

use crate::mysql::server::{Bench, Server, claim, ids};

on_both_servers!(
    an_event_exists_if_and_only_if_its_transaction_commits,
    every_field_arrives,
    fields_without_a_column_are_refused_by_name,
    values_that_do_not_fit_are_refused_and_never_cut,
    a_repeated_id_is_refused_by_name,
    a_thousand_events_are_appended_in_order,
    a_delayed_event_waits,
    numbers_beyond_every_float_arrive_in_a_numeric_aggregate_id,
    events_larger_than_the_packet_limit_are_split_or_refused,
    an_event_can_be_appended_inside_an_inbox_transaction,
);

fn paid() -> NewEvent {
    NewEvent::new("OrderPaid", 42, r#"{"orderId":42}"#)
}

async fn append(bench: &Bench, outbox: &Outbox, event: NewEvent) -> Result<EventId, AppendError> {
    let mut tx = bench.begin().await;
    let id = outbox.append(&mut tx, event).await?;
    tx.commit().await.expect("the commit succeeds");
    Ok(id)
}

async fn an_event_exists_if_and_only_if_its_transaction_commits(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    let outbox = bench.outbox();
    let payload = "{\"note\":\"a\u{0}b\u{1f600}\"}";
    for (id, commits) in [("rolled-back", false), ("committed", true)] {
        let mut tx = bench.begin().await;
        let event = NewEvent::new("OrderPaid", 42, payload).with_id(EventId::stored(id));
        outbox.append(&mut tx, event).await.expect("the event fits");
        assert!(claim(&outbox, 10).await.claims.is_empty(), "it is not committed yet");
        if commits { tx.commit().await } else { tx.rollback().await }.expect("the transaction ends");
    }

    let claimed = claim(&outbox, 10).await;

    assert_eq!(ids(&claimed), ["committed"]);
    assert_eq!(claimed.claims[0].event().payload.as_deref(), Some(payload.as_bytes()));
}

async fn every_field_arrives(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let outbox = bench.outbox();
    let mut event = paid();
    event.aggregate.kind = Some("order".into());
    event.aggregate.version = Some(3);
    event.business_key = Some("order:42:paid".into());
    event.headers = vec![("traceparent".into(), "00-ab\u{1f600}\"".into())];
    event.destination = Some("main".into());
    event.route_key = Some("orders.paid".into());
    append(&bench, &outbox, event.clone()).await.expect("the event fits");

    let claimed = claim(&outbox, 1).await;

    let found = claimed.claims[0].event();
    assert_eq!(found.aggregate, event.aggregate);
    assert_eq!(found.headers, event.headers);
    assert_eq!((&found.business_key, &found.destination), (&event.business_key, &event.destination));
    assert_eq!((&found.route_key, &found.event_type), (&event.route_key, &event.event_type));
    let skew = "SELECT ABS(TIMESTAMPDIFF(SECOND, created_at, NOW(6))) FROM outbox_event";
    assert!(bench.number(skew).await < 60);
}

async fn fields_without_a_column_are_refused_by_name(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let mut versioned = paid();
    versioned.aggregate.version = Some(1);
    let mut routed = paid();
    routed.route_key = Some("x".into());
    let mut traced = paid();
    traced.headers = vec![("a".into(), "b".into())];
    for (event, field) in [(versioned, "aggregate_version"), (routed, "route_key"), (traced, "headers")] {
        let refused = append(&bench, &outbox, event).await.expect_err("there is no column");

        assert_eq!(refused, AppendError::NoColumn { field });
        assert!(refused.to_string().contains("consign migrate"), "{refused}");
    }
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event").await, 0);
}

/// B49, `transact-rs/sqlx#1553`: in a lenient mode the server cuts with a warning nobody reads, and two keys with the
/// same beginning become one.
async fn values_that_do_not_fit_are_refused_and_never_cut(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let long_id = paid().with_id(EventId::new("x".repeat(65)).expect("a broker takes it"));
    let long_type = NewEvent { event_type: "t".repeat(65), ..paid() };
    let endless_type = NewEvent { event_type: "t".repeat(256), ..paid() };
    let wrong_aggregate = NewEvent::new("T", "order-1", "{}");
    let no_json = NewEvent::new("T", 1, "{");
    let no_text = NewEvent::new("T", 1, vec![0xff]);
    for (event, field) in [
        (long_id, "event_id"),
        (long_type, "event_type"),
        (endless_type, "event_type"),
        (wrong_aggregate, "aggregate_id"),
        (no_json, "payload"),
        (no_text, "payload"),
    ] {
        let mut tx = bench.begin().await;
        sqlx::raw_sql("SET SESSION sql_mode = ''").execute(&mut *tx).await.expect("a lenient session");

        let refused = outbox.append(&mut tx, event).await.expect_err("it does not fit");

        // MariaDB's JSON is text with a constraint, so there the server refuses what is no JSON.
        let by_server = matches!(refused, AppendError::Store(StoreError::Data(_)));
        let by_constraint = server == Server::MariaDb && field == "payload";
        assert!(!matches!(refused, AppendError::Store(_)) || (by_server && by_constraint), "{refused}");
        assert!(refused.to_string().contains(field), "{refused}");
        outbox.append(&mut tx, paid()).await.expect("the transaction is still of use");
    }
}

async fn a_repeated_id_is_refused_by_name(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let id = append(&bench, &outbox, paid()).await.expect("the event fits");

    let refused = append(&bench, &outbox, paid().with_id(id.clone())).await;

    assert_eq!(refused, Err(AppendError::Duplicate(id)));
}

async fn a_thousand_events_are_appended_in_order(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let outbox = bench.outbox();
    let events = (0..1000).map(|number| NewEvent::new("T", number, "{}")).collect();
    let mut tx = bench.begin().await;

    let ids = outbox.append_all(&mut tx, events).await.expect("the events fit");

    tx.commit().await.expect("the commit succeeds");
    assert_eq!(ids.len(), 1000);
    let order = "SELECT COUNT(*) FROM (SELECT CAST(aggregate_id AS SIGNED) AS number, \
                 ROW_NUMBER() OVER (ORDER BY sequence) - 1 AS place FROM outbox_event) events WHERE number = place";
    assert_eq!(bench.number(order).await, 1000);
}

async fn a_delayed_event_waits(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let event = NewEvent { delay: Duration::from_hours(1), ..paid() };

    append(&bench, &outbox, event).await.expect("the event fits");

    assert!(claim(&outbox, 1).await.claims.is_empty());
    let wait = "SELECT TIMESTAMPDIFF(SECOND, NOW(6), available_at) FROM outbox_event";
    assert!((3500..=3600).contains(&bench.number(wait).await));
}

async fn numbers_beyond_every_float_arrive_in_a_numeric_aggregate_id(server: Server) {
    let bench = Bench::contract(server).await;
    let outbox = bench.outbox();
    let event = NewEvent::new("T", 9_007_199_254_740_993_i64, "{}");

    append(&bench, &outbox, event).await.expect("the event fits");

    let claimed = claim(&outbox, 1).await;
    assert_eq!(claimed.claims[0].event().aggregate.id.as_deref(), Some("9007199254740993"));
}

/// B77, `matomo-org/matomo#1781`: an oversize statement makes the server hang up.
async fn events_larger_than_the_packet_limit_are_split_or_refused(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    let outbox = bench.outbox();
    let _lock = bench.packet_limit_lock().await;
    let limit = usize::try_from(bench.number("SELECT @@GLOBAL.max_allowed_packet").await).expect("a size");
    let third = || NewEvent::new("T", 1, vec![b'x'; limit / 3]);
    let mut tx = bench.begin().await;
    outbox.append_all(&mut tx, vec![third(), third(), third(), third()]).await.expect("split, they fit");

    let refused = outbox.append(&mut tx, NewEvent::new("T", 1, vec![b'x'; limit + 1])).await;

    let refused = refused.expect_err("no packet takes it");
    assert!(matches!(refused, AppendError::TooLong { field: "payload", .. }), "{refused:?}");
    outbox.append(&mut tx, paid()).await.expect("the transaction is still of use");
}

async fn an_event_can_be_appended_inside_an_inbox_transaction(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (outbox, inbox) = (bench.outbox(), bench.inbox());
    let mut tx = inbox.begin().await.expect("a transaction");
    outbox.append(tx.inner().await.expect("it is open"), paid()).await.expect("the event fits");
    tx.rollback().await.expect("the rollback succeeds");
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event").await, 0);

    let mut tx = inbox.begin().await.expect("a transaction");
    outbox.append(tx.inner().await.expect("it is open"), paid()).await.expect("the event fits");
    assert_eq!(tx.execute("UPDATE outbox_event SET attempts = 0", &[]).await, Ok(1));
    tx.commit().await.expect("the commit succeeds");

    assert_eq!(claim(&outbox, 1).await.claims.len(), 1);
}
