//! What the suites cannot see: statements' row counts, lost answers, records, names.

use std::time::Duration;

use consign_conformance::proxy::{Direction, Flow};
use consign_conformance::waiting::eventually;
use consign_core::event::NewEvent;
use consign_core::ports::{OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled};
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{Database, Options, Outbox, PayloadColumn, Schema};

use crate::mysql::server::{Bench, Server, claim, ids, released, request, request_bytes, settle};

on_both_servers!(
    a_claim_that_changes_more_rows_than_it_read_is_rolled_back,
    a_claim_under_an_unknown_commit_is_healed_by_a_sweep,
    a_settle_whose_commit_got_no_answer_is_repeated_and_never_fenced,
    a_fenced_settle_is_recorded_and_counted,
    fenced_settles_are_not_counted_without_their_table,
    a_retried_row_is_claimed_alone_where_no_column_tells_a_retry_from_a_sweep,
    the_byte_limit_counts_payload_bytes_and_leaves_the_rest_new,
    every_name_can_be_mapped,
    a_table_added_later_is_found_without_a_restart,
    a_dropped_column_is_a_schema_error_once_and_then_done_without,
    a_lease_ends_by_the_servers_clock,
    claimed_rows_without_a_lease_end_are_swept,
    status_counts_rows_by_state,
);

/// Row counts are guards, not decoration: a table without a unique key holds two rows under one id.
async fn a_claim_that_changes_more_rows_than_it_read_is_rolled_back(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE outbox_event DROP PRIMARY KEY, ADD KEY (event_id)").await;
    bench.insert("twice").await;
    bench.insert("twice").await;

    let claimed = bench.outbox().claim(request(1)).await;

    assert!(matches!(claimed, Err(StoreError::Mismatch(_))), "{claimed:?}");
    let untouched = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND attempts = 0";
    assert_eq!(bench.number(untouched).await, 2);
}

/// After how many bytes to cut the answers of a unit of work that are `total` long: here and there, and closely around
/// the last one, which is COMMIT's.
fn cuts(total: u64) -> impl Iterator<Item = u64> {
    let last = total.saturating_sub(120);
    (0..last).step_by(usize::try_from(last / 8 + 1).expect("a small number")).chain((last..total).step_by(4))
}

/// A store of its own behind the proxy, with one open connection per kind of work: the next unit begins with BEGIN.
async fn warm(options: &Options) -> Outbox {
    let database = Database::open(options).expect("valid options");
    let outbox = Outbox::new(database, OutboxMapping::default(), "relay-proxied");
    claim(&outbox, 0).await;
    outbox.sweep(0, Duration::ZERO, 20).await.expect("the sweep succeeds");
    outbox
}

/// An unknown claim is not owned: whether it was applied or not, the lease ends and the row comes again.
async fn a_claim_under_an_unknown_commit_is_healed_by_a_sweep(server: Server) {
    let bench = Bench::contract(server).await;
    let (proxy, options) = bench.proxied().await;
    let direct = bench.outbox();
    let proxied = warm(&options).await;
    bench.insert("event-none").await;
    let before = proxy.bytes(Direction::ToClient);
    assert_eq!(ids(&claim(&proxied, 1).await), ["event-none"]);
    let total = proxy.bytes(Direction::ToClient) - before;
    bench.run("DELETE FROM outbox_event").await;
    let (mut unknown, mut applied) = (0, 0);
    for cut in cuts(total) {
        let id = format!("event-{cut:04}");
        let proxied = warm(&options).await;
        bench.insert(&id).await;
        proxy.set(Direction::ToClient, Flow::CutAfter(cut));

        let claimed = proxied.claim(request(1)).await;

        proxy.heal();
        match claimed {
            Ok(claimed) => assert_eq!(ids(&claimed), [id.as_str()]),
            Err(StoreError::CommitUnknown(_)) => unknown += 1,
            Err(StoreError::Unavailable(_)) => {}
            Err(other) => panic!("cut after {cut} bytes: {other}"),
        }
        eventually(Duration::from_secs(20), || async { bench.open_transactions().await == 0 }).await;
        applied += i32::from(bench.status_of(&id).await == "SENDING");
        bench.run("UPDATE outbox_event SET locked_until = NOW(6) - INTERVAL 1 SECOND").await;
        direct.sweep(10, Duration::ZERO, 20).await.expect("the sweep succeeds");
        assert_eq!(ids(&claim(&direct, 10).await), [id.as_str()]);
        bench.run("DELETE FROM outbox_event").await;
    }
    assert!(unknown > 0, "no cut hit the answer to COMMIT");
    assert!(applied > 0, "no claim was applied");
}

/// A settle may be repeated after a lost answer: the repeat finds the row where the first try put it.
async fn a_settle_whose_commit_got_no_answer_is_repeated_and_never_fenced(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let (proxy, options) = bench.proxied().await;
    let direct = bench.outbox();
    let proxied = warm(&options).await;
    bench.insert("event-none").await;
    let claims = claim(&direct, 1).await.claims;
    let before = proxy.bytes(Direction::ToClient);
    settle(&proxied, claims.into_iter().map(|claim| claim.dead("test")).collect()).await;
    let total = proxy.bytes(Direction::ToClient) - before;
    let (mut unknown, mut already) = (0, 0);
    for cut in cuts(total) {
        let id = format!("event-{cut:04}");
        let proxied = warm(&options).await;
        bench.insert(&id).await;
        let claims = claim(&direct, 1).await.claims;
        let settlements = claims.into_iter().map(|claim| claim.dead("test")).collect();
        let mut batch = SettleBatch { settlements, repeat: false };
        proxy.set(Direction::ToClient, Flow::CutAfter(cut));

        let settled = proxied.settle(&batch).await;

        proxy.heal();
        batch.repeat = match settled {
            Ok(answers) => {
                assert_eq!(answers, [Settled::Applied]);
                false
            }
            Err(StoreError::CommitUnknown(_)) => {
                unknown += 1;
                true
            }
            Err(StoreError::Unavailable(_)) => true,
            Err(other) => panic!("cut after {cut} bytes: {other}"),
        };
        if batch.repeat {
            // The server may still have to notice that the session is gone.
            eventually(Duration::from_secs(20), || async { bench.open_transactions().await == 0 }).await;
            let answers = direct.settle(&batch).await.expect("the repeat succeeds");
            assert_ne!(answers, [Settled::Fenced], "cut after {cut} bytes");
            already += i32::from(answers == [Settled::AlreadyApplied]);
        }
        assert_eq!(bench.status_of(&id).await, "DEAD");
    }
    assert!(unknown > 0, "no cut hit the answer to COMMIT");
    assert!(already > 0, "no lost settle had been applied");
}

/// B01, `xavierjohn/Trellis#644`: the late settle of a slow relay changes nothing and is visible.
async fn a_fenced_settle_is_recorded_and_counted(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    bench.insert("a").await;
    bench.insert("b").await;
    bench.run("UPDATE outbox_event SET available_at = '2026-01-01'").await;
    let (slow, other) = (bench.outbox(), bench.outbox());
    let claims = claim(&slow, 2).await.claims;
    bench.run("UPDATE outbox_event SET locked_until = NOW(6) - INTERVAL 1 SECOND WHERE event_id = 'a'").await;
    other.sweep(10, Duration::ZERO, 20).await.expect("the sweep succeeds");
    let current = claim(&other, 1).await.claims;

    let late = settle(&slow, claims.into_iter().map(|claim| claim.dead("late")).collect()).await;

    assert_eq!(late, [Settled::Fenced, Settled::Applied]);
    assert_eq!(bench.status_of("a").await, "SENDING");
    assert_eq!(slow.status().await.expect("a status").fenced, Some(1));
    let recorded = "SELECT CONCAT_WS('|', event_id, relay, outcome, CHAR_LENGTH(lease_token)) FROM consign_attempt WHERE outcome = 'fenced'";
    assert_eq!(bench.text(recorded).await.as_deref(), Some("a|relay-test|fenced|32"));
    assert_eq!(settle(&other, released(current)).await, [Settled::Applied]);
}

async fn fenced_settles_are_not_counted_without_their_table(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    let outbox = bench.outbox();
    let claims = claim(&outbox, 1).await.claims;
    bench.run("UPDATE outbox_event SET lease_token = 'another'").await;

    let answers = settle(&outbox, released(claims)).await;

    assert_eq!(answers, [Settled::Fenced]);
    assert_eq!(outbox.status().await.expect("a status").fenced, None);
}

async fn a_retried_row_is_claimed_alone_where_no_column_tells_a_retry_from_a_sweep(server: Server) {
    let bench = Bench::contract(server).await;
    for id in ["a", "b", "c"] {
        bench.insert(id).await;
    }
    bench.run("UPDATE outbox_event SET attempts = 2 WHERE event_id = 'b'").await;
    bench.run("UPDATE outbox_event SET available_at = '2026-01-01'").await;
    let outbox = bench.outbox();

    let batches = [claim(&outbox, 10).await, claim(&outbox, 10).await, claim(&outbox, 10).await];

    assert_eq!(batches.each_ref().map(ids), [["a"], ["b"], ["c"]]);
    assert_eq!(batches.each_ref().map(|batch| batch.more), [true, true, false]);
}

async fn the_byte_limit_counts_payload_bytes_and_leaves_the_rest_new(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::LongBlob).await;
    for (id, bytes) in [("a", 600), ("b", 400), ("c", 1)] {
        bench.insert(id).await;
        let grow = format!("UPDATE outbox_event SET payload = REPEAT('x', {bytes}) WHERE event_id = '{id}'");
        bench.run(&grow).await;
    }
    bench.run("UPDATE outbox_event SET available_at = '2026-01-01'").await;

    let claimed = bench.outbox().claim(request_bytes(10, 1000)).await.expect("the claim succeeds");

    assert_eq!(ids(&claimed), ["a", "b"]);
    assert!(claimed.more);
    assert_eq!(bench.status_of("c").await, "NEW");
}

/// B87, `namastack/namastack-outbox#404`: configured names, among them names that hold or swap default ones.
async fn every_name_can_be_mapped(server: Server) {
    let bench = Bench::new(server).await;
    let renamed = [
        ("event_id", "Key$1"),
        ("status", "payload"),
        ("payload", "status"),
        ("attempts", "outbox_event"),
        ("lease_token", "select"),
        ("created_at", "event_id"),
        ("last_error", "consign_outbox_body"),
    ];
    let table = Identifier::table(&format!("{}.Order_Outbox$", bench.name)).expect("a valid name");
    let mapping = renamed.iter().fold(OutboxMapping::new(table), |mapping, (contract, actual)| {
        let actual = Identifier::column(actual).expect("a valid name");
        mapping.with_column(contract, actual).expect("a contract column")
    });
    let database = bench.database();
    let schema = Schema::new(database.clone()).with_outbox(mapping.clone(), PayloadColumn::Json);
    schema.apply().await.expect("the migration succeeds");
    let outbox = Outbox::new(database, mapping, "relay-test");
    let mut tx = bench.begin().await;
    let event = NewEvent::new("OrderPaid", 42, "{}");
    let id = outbox.append(&mut tx, event).await.expect("the event fits");
    tx.commit().await.expect("the commit succeeds");

    let claims = claim(&outbox, 10).await.claims;
    assert_eq!(claims[0].event().id, id);
    let dead = claims.into_iter().map(|claim| claim.dead("over")).collect();
    assert_eq!(settle(&outbox, dead).await, [Settled::Applied]);

    assert_eq!(outbox.sweep(10, Duration::ZERO, 20).await.expect("the sweep succeeds").returned, 0);
    assert_eq!(outbox.status().await.expect("a status").dead, 1);
    let row = "SELECT CONCAT(`payload`, `consign_outbox_body`) FROM `Order_Outbox$`";
    assert_eq!(bench.text(row).await.as_deref(), Some("DEADover"));
    assert!(schema.plan().await.expect("a plan").is_empty());
}

async fn a_table_added_later_is_found_without_a_restart(server: Server) {
    let bench = Bench::new(server).await;
    let outbox = bench.outbox();
    let before = outbox.claim(request(1)).await;
    let Err(StoreError::Schema(text)) = before else { panic!("{before:?}") };
    assert!(text.contains("outbox_event") && text.contains("consign migrate"), "{text}");

    bench.migrate(PayloadColumn::Json).await;

    assert!(claim(&outbox, 1).await.claims.is_empty());
}

async fn a_dropped_column_is_a_schema_error_once_and_then_done_without(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let outbox = bench.outbox();
    bench.insert("a").await;
    claim(&outbox, 0).await;
    bench.run("ALTER TABLE outbox_event DROP COLUMN route_key").await;

    let first = outbox.claim(request(1)).await;

    assert!(matches!(first, Err(StoreError::Schema(_))), "{first:?}");
    assert_eq!(ids(&claim(&outbox, 1).await), ["a"]);
}

async fn a_lease_ends_by_the_servers_clock(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;

    let claimed = claim(&bench.outbox(), 1).await;

    assert_eq!(claimed.claims.len(), 1);
    let left = "SELECT TIMESTAMPDIFF(SECOND, NOW(6), locked_until) FROM outbox_event";
    assert!((10..=30).contains(&bench.number(left).await));
}

async fn claimed_rows_without_a_lease_end_are_swept(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("a").await;
    bench.run("UPDATE outbox_event SET status = 'SENDING'").await;
    let outbox = bench.outbox();
    assert_eq!(outbox.status().await.expect("a status").expired, 1);

    let swept = outbox.sweep(10, Duration::from_secs(10), 20).await.expect("the sweep succeeds");

    assert_eq!((swept.returned, swept.dead), (1, 0));
    assert_eq!(bench.status_of("a").await, "NEW");
}

async fn status_counts_rows_by_state(server: Server) {
    let bench = Bench::contract(server).await;
    for (id, status) in
        [("a", "NEW"), ("b", "SENDING"), ("c", "SENT"), ("d", "SENT"), ("e", "DEAD"), ("f", "DISCARDED")]
    {
        bench.insert(id).await;
        bench.run(&format!("UPDATE outbox_event SET status = '{status}' WHERE event_id = '{id}'")).await;
    }
    bench.insert("later").await;
    let later = "available_at = NOW(6) + INTERVAL 1 HOUR, created_at = NOW(6) - INTERVAL 1 DAY";
    bench.run(&format!("UPDATE outbox_event SET {later} WHERE event_id = 'later'")).await;
    bench.run("UPDATE outbox_event SET created_at = NOW(6) - INTERVAL 1 HOUR WHERE event_id = 'a'").await;

    let status = bench.outbox().status().await.expect("a status");

    assert_eq!((status.new, status.sending, status.sent, status.dead, status.discarded), (2, 1, 2, 1, 1));
    let oldest = status.oldest_pending.expect("rows are pending");
    assert!((3600..3700).contains(&oldest.as_secs()), "{oldest:?}");
}
