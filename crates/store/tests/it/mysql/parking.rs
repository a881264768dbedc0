//! Deliveries that wait in the database.

use std::time::Duration;

use consign_conformance::waiting::eventually;
use consign_core::delivery::Message;
use consign_core::guard::Progress;
use consign_core::ports::{
    Advance, DeadDelivery, InboxStore, InboxTransaction, ParkDelivery, ParkReason, Parking, StoreError,
};
use consign_store::mysql::{Inbox, PayloadColumn};

use crate::mysql::server::{Bench, Server};

const LEASE: Duration = Duration::from_mins(1);
const PATIENCE: Duration = Duration::from_secs(20);

on_both_servers!(
    a_parked_message_comes_back_whole_and_once,
    parking_again_replaces_and_ends_the_lease,
    a_lease_that_ended_lets_another_one_begin,
    the_oldest_come_first_and_only_so_many,
    a_gap_is_due_when_the_step_before_it_was_applied,
    rows_somebody_holds_are_skipped,
    due_deliveries_are_found_by_their_index,
    tables_that_are_missing_say_what_to_do,
    headers_that_are_none_make_the_message_undecodable,
    a_message_that_no_packet_takes_is_refused_with_the_setting_to_raise,
);

fn message(id: &str) -> Message {
    Message {
        id: Some(id.into()),
        message_type: Some("OrderPaid".into()),
        headers: vec![("traceparent".into(), "00-ab".into()), ("é".into(), "\"".into())],
        body: vec![0, 255, 7].into(),
        source: "points".into(),
        ..Message::default()
    }
}

fn parked(message: &Message) -> ParkDelivery<'_> {
    ParkDelivery {
        consumer: "points-award",
        business_key: Some("order:1:paid"),
        message,
        reason: ParkReason::Retry,
        detail: "no such account",
        attempts: 3,
        step: None,
        delay: Duration::ZERO,
    }
}

async fn advance(inbox: &Inbox, version: i64, first: bool) {
    let progress = Progress { version: Some(version), state: None };
    let mut tx = inbox.begin().await.unwrap();
    let advances = [Advance { aggregate: "order:1", progress, first }];
    tx.save_progress("points-award", &advances).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_parked_message_comes_back_whole_and_once(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (inbox, other) = (bench.inbox(), bench.inbox());
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    assert_eq!(inbox.status().await.unwrap().parked, Some(1));
    for another in ["sms", "Points-award", "points-award "] {
        assert!(inbox.due(another, 10, LEASE).await.unwrap().is_empty(), "another consumer's");
    }

    let [due] = &other.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };

    assert_eq!((due.reason, due.overdue), (ParkReason::Retry, true));
    let Message { id, message_type, headers, body, delivery_count, source, undecodable, .. } = &due.message;
    let mut wanted = message.headers.clone();
    wanted.sort();
    assert_eq!((id, message_type, headers), (&message.id, &message.message_type, &wanted));
    assert_eq!((body, source, undecodable), (&message.body, &message.source, &None));
    assert_eq!(*delivery_count, 4, "the attempts so far, and this one");
    assert!(inbox.due("points-award", 10, LEASE).await.unwrap().is_empty(), "leased");
    assert_eq!(inbox.unpark(due.id, "another").await, Ok(false));
    assert_eq!(inbox.unpark(due.id, &due.lease_token).await, Ok(true));
    assert_eq!(inbox.unpark(due.id, &due.lease_token).await, Ok(false));
    assert_eq!(inbox.status().await.unwrap().parked, Some(0));
}

async fn parking_again_replaces_and_ends_the_lease(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    let [first] = &inbox.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };

    inbox.park(&ParkDelivery { attempts: 4, delay: LEASE, ..parked(&message) }).await.unwrap();
    assert_eq!(inbox.unpark(first.id, &first.lease_token).await, Ok(false));
    assert!(inbox.due("points-award", 10, LEASE).await.unwrap().is_empty(), "not due yet");

    inbox.park(&ParkDelivery { attempts: 5, ..parked(&message) }).await.unwrap();
    let [again] = &inbox.due("points-award", 10, LEASE).await.unwrap()[..] else { panic!("it is due") };
    assert_eq!((again.id, again.message.delivery_count), (first.id, 6));
    assert_ne!(again.lease_token, first.lease_token);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consign_parked_delivery").await, 1);
}

async fn a_lease_that_ended_lets_another_one_begin(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (inbox, other) = (bench.inbox(), bench.inbox());
    let message = message("event-1");
    inbox.park(&parked(&message)).await.unwrap();
    let [first] = &inbox.due("points-award", 10, Duration::from_millis(1)).await.unwrap()[..] else {
        panic!("it is due")
    };

    let ended = "SELECT COUNT(*) FROM consign_parked_delivery WHERE locked_until <= NOW(6)";
    eventually(PATIENCE, || async { bench.number(ended).await == 1 }).await;
    let second = other.due("points-award", 10, LEASE).await.unwrap();

    assert_eq!(inbox.unpark(first.id, &first.lease_token).await, Ok(false));
    assert_eq!(other.unpark(second[0].id, &second[0].lease_token).await, Ok(true));
}

async fn the_oldest_come_first_and_only_so_many(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    for number in 0..5 {
        inbox.park(&parked(&message(&format!("event-{number}")))).await.unwrap();
    }
    bench.run("UPDATE consign_parked_delivery SET due_at = CONCAT('2026-01-0', 6 - id)").await;

    let mut ids = Vec::new();
    while let due = inbox.due("points-award", 2, LEASE).await.unwrap()
        && !due.is_empty()
    {
        assert!(due.len() <= 2);
        ids.extend(due.into_iter().map(|due| due.message.id.unwrap()));
    }

    assert_eq!(ids, ["event-4", "event-3", "event-2", "event-1", "event-0"]);
}

/// A gap waits for the step before it, and at the latest for its own time.
async fn a_gap_is_due_when_the_step_before_it_was_applied(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    for version in [3, 4] {
        let message = message(&format!("event-{version}"));
        let gap = ParkDelivery {
            reason: ParkReason::Gap,
            step: Some(("order:1", version)),
            delay: LEASE,
            ..parked(&message)
        };
        inbox.park(&gap).await.unwrap();
    }
    let due = async || inbox.due("points-award", 10, LEASE).await.unwrap();
    assert!(due().await.is_empty());
    advance(&inbox, 1, true).await;
    assert!(due().await.is_empty(), "2 is still missing");

    advance(&inbox, 2, false).await;
    inbox.park(&parked(&message("event-due"))).await.unwrap();
    assert_eq!(
        inbox.due("points-award", 1, LEASE).await.unwrap()[0].message.id.as_deref(),
        Some("event-due")
    );
    let [third] = &due().await[..] else { panic!("3 is next") };
    assert_eq!((third.message.id.as_deref(), third.overdue), (Some("event-3"), false));
    assert_eq!(third.reason, ParkReason::Gap);
    assert!(due().await.is_empty(), "leased");

    bench.run("UPDATE consign_parked_delivery SET due_at = '2026-01-01'").await;
    let [fourth] = &due().await[..] else { panic!("its time is over") };
    assert_eq!((fourth.message.id.as_deref(), fourth.overdue), (Some("event-4"), true));
}

/// Neither due rows nor gaps that are next make a consumer wait for the one that just takes them.
async fn rows_somebody_holds_are_skipped(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    advance(&inbox, 2, true).await;
    for id in ["held", "free"] {
        let (due, next) = (message(&format!("{id}-due")), message(&format!("{id}-next")));
        inbox.park(&parked(&due)).await.unwrap();
        let step = Some(("order:1", 3));
        let gap = ParkDelivery { reason: ParkReason::Gap, step, delay: LEASE, ..parked(&next) };
        inbox.park(&gap).await.unwrap();
    }
    let mut holder = bench.begin().await;
    // The level holds from the next transaction on, and lets rows go that do not match.
    let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; ROLLBACK; BEGIN";
    sqlx::raw_sql(level).execute(&mut *holder).await.unwrap();
    sqlx::query("SELECT id FROM consign_parked_delivery WHERE message_id LIKE 'held%' FOR UPDATE")
        .fetch_all(&mut *holder)
        .await
        .unwrap();

    let due = inbox.due("points-award", 10, LEASE).await.unwrap();

    let ids = due.iter().map(|due| due.message.id.as_deref().unwrap()).collect::<Vec<_>>();
    assert_eq!(ids, ["free-due", "free-next"]);
    holder.rollback().await.unwrap();
    assert_eq!(inbox.due("points-award", 10, LEASE).await.unwrap().len(), 2);
}

/// A look that read the whole table would cost more the more there is parked, and lock it, too.
async fn due_deliveries_are_found_by_their_index(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let [first, later] = ["event-1", "event-2"].map(message);
    inbox.park(&parked(&first)).await.unwrap();
    inbox.park(&ParkDelivery { delay: LEASE, ..parked(&later) }).await.unwrap();
    bench
        .run(
            "INSERT INTO consign_parked_delivery (consumer_name, content_digest, source, payload, reason, detail, attempts,
                 aggregate, version, due_at, parked_at)
             WITH RECURSIVE at (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM at WHERE n < 900)
             SELECT IF(n % 2, 'sms', 'points-award'), n, 's', '', 'RETRY', '', 1, NULL, NULL,
                 NOW(6) + INTERVAL 1 HOUR, NOW(6) FROM at",
        )
        .await;

    let plans = async |file: &str, values: &[&str]| {
        let mut sql = format!("EXPLAIN FORMAT = TRADITIONAL {file}");
        for value in values {
            sql = sql.replacen('?', value, 1);
        }
        let rows = sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).fetch_all(&bench.pool).await.unwrap();
        let text = |row: &sqlx::mysql::MySqlRow, column| {
            let text: Option<String> = sqlx::Row::try_get_unchecked(row, column).unwrap();
            text.unwrap_or_default()
        };
        let plan = |row| (text(row, "table"), text(row, "key"), text(row, "Extra"));
        rows.iter().map(plan).filter(|(table, ..)| !table.starts_with('<')).collect::<Vec<_>>()
    };
    let select = include_str!("../../../src/mysql/sql/parked_select.sql");
    let look = include_str!("../../../src/mysql/sql/parked_look.sql");
    let select = plans(select, &["'points-award'", "10"]).await;
    let look = plans(look, &["'points-award'", "'points-award'", "10"]).await;

    let keys = |plans: &[(String, String, String)]| -> Vec<String> {
        plans.iter().map(|(_, key, _)| key.clone()).collect()
    };
    assert_eq!(keys(&select), ["idx_due"], "{select:?}");
    assert_eq!(keys(&look), ["idx_due", "idx_gap", "PRIMARY"], "{look:?}");
    for (_, _, extra) in select.iter().chain(&look) {
        assert!(!extra.contains("filesort"), "{extra}");
    }
}

async fn tables_that_are_missing_say_what_to_do(server: Server) {
    let bench = Bench::contract(server).await;
    let inbox = bench.inbox();
    let message = message("event-1");

    for error in [
        inbox.park(&parked(&message)).await.unwrap_err(),
        inbox.due("points-award", 1, LEASE).await.unwrap_err(),
        inbox.unpark(1, "token").await.unwrap_err(),
    ] {
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("consign migrate")), "{error}");
    }
    assert_eq!(inbox.status().await.unwrap().parked, None);
}

/// Somebody repaired the headers by hand, badly: the message is put aside, not processed without them.
async fn headers_that_are_none_make_the_message_undecodable(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    inbox.park(&parked(&message("event-1"))).await.unwrap();
    bench.run("UPDATE consign_parked_delivery SET headers = '[1'").await;

    let [due] = &inbox.due("points-award", 1, LEASE).await.unwrap()[..] else { panic!("it is due") };

    assert!(due.message.undecodable.as_ref().is_some_and(|why| why.starts_with("headers: ")));
}

/// B77, `matomo-org/matomo#1781`: the server hangs up on a packet it does not take, and nobody knows why.
async fn a_message_that_no_packet_takes_is_refused_with_the_setting_to_raise(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let _lock = bench.packet_limit_lock().await;
    let limit = usize::try_from(bench.number("SELECT @@GLOBAL.max_allowed_packet").await).unwrap();
    let large = Message { body: vec![b'x'; limit - 32 * 1024].into(), ..message("large") };
    inbox.park(&parked(&large)).await.unwrap();
    let [due] = &inbox.due("points-award", 1, LEASE).await.unwrap()[..] else { panic!("it is due") };
    assert_eq!(due.message.body, large.body);

    let larger = Message { body: vec![b'x'; limit].into(), ..message("larger") };
    let dead =
        DeadDelivery { consumer: "points-award", business_key: None, message: &larger, reason: "refused" };

    for refused in [inbox.park(&parked(&larger)).await, inbox.record_dead(&dead).await] {
        let error = refused.unwrap_err();
        assert!(matches!(&error, StoreError::Data(text) if text.contains("max_allowed_packet")), "{error}");
    }
}
