//! Forgetting sent rows and attempts, and the log of attempts itself.

use std::time::Duration;

use consign_core::ports::OutboxStore;
use consign_core::settle::{SettleBatch, Settled};
use consign_store::mysql::PayloadColumn;
use consign_store::retention::{AttemptLog, Keeping, Retention};

use crate::mysql::server::{Bench, Server, request};
use consign_conformance::store::settlement::sent;

const DAY: Duration = Duration::from_hours(24);

on_both_servers!(
    old_sent_rows_go_whatever_the_step_and_young_or_replayed_ones_stay,
    a_table_without_a_sent_date_goes_by_when_rows_were_due,
    every_attempt_that_ended_leaves_a_row_in_its_own_transaction,
    attempts_go_from_the_oldest_on_as_far_as_they_are_old,
);

/// Twenty sent rows, every other one sent eight days ago; one of those was replayed, one is due before it was sent.
async fn filled(bench: &Bench) {
    for number in 0..20 {
        let sent = if number % 2 == 0 { "NOW(6) - INTERVAL 8 DAY" } else { "NOW(6)" };
        bench
            .run(&format!(
                "INSERT INTO outbox_event (event_id, event_type, status, available_at, created_at, sent_at)
             VALUES ('e{number:02}', 'T', 'SENT', {sent}, {sent}, {sent})"
            ))
            .await;
    }
    bench.run("UPDATE outbox_event SET status = 'NEW' WHERE event_id = 'e00'").await;
    bench.run("UPDATE outbox_event SET sent_at = NOW(6) WHERE event_id = 'e02'").await;
}

async fn old_sent_rows_go_whatever_the_step_and_young_or_replayed_ones_stay(server: Server) {
    for rows in [1, 3, 4, 100] {
        let bench = Bench::migrated(server, PayloadColumn::Json).await;
        filled(&bench).await;
        let outbox = bench.outbox();
        let before = outbox.before(7 * DAY).await.unwrap();

        let (mut examined, mut purged, mut after) = (0, 0, None);
        loop {
            let looked = outbox.look_at_sent(&before, after.as_ref(), rows).await.unwrap();
            let step = outbox.purge_sent(&before, after.as_ref(), rows).await.unwrap();
            assert_eq!((looked.old, looked.purged, step.purged), (step.old, 0, step.old), "rows {rows}");
            examined += step.examined;
            purged += step.purged;
            after = step.last;
            if !step.more {
                break;
            }
        }

        assert_eq!((examined, purged), (9, 8), "rows {rows}: what became due later is not looked at");
        let kept =
            "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' OR sent_at > NOW(6) - INTERVAL 1 DAY";
        assert_eq!(
            (bench.number(kept).await, bench.number("SELECT COUNT(*) FROM outbox_event").await),
            (12, 12)
        );
    }
}

async fn a_table_without_a_sent_date_goes_by_when_rows_were_due(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    filled(&bench).await;
    bench.run("ALTER TABLE outbox_event DROP COLUMN sent_at").await;
    let outbox = bench.outbox();
    let before = outbox.before(7 * DAY).await.unwrap();

    let step = outbox.purge_sent(&before, None, 100).await.unwrap();

    assert_eq!(
        (step.examined, step.purged, step.more),
        (9, 9, false),
        "nothing tells that e02 was sent later"
    );
}

async fn every_attempt_that_ended_leaves_a_row_in_its_own_transaction(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let log = "SELECT GROUP_CONCAT(CONCAT(event_id, ':', outcome) ORDER BY event_id SEPARATOR ',') FROM consign_attempt";
    for (attempts, wanted) in [
        (AttemptLog::All, "dead:dead,kept:confirmed,swept:swept"),
        (AttemptLog::Failures, "dead:dead,swept:swept"),
        (AttemptLog::Off, ""),
    ] {
        bench.run("DELETE FROM consign_attempt").await;
        bench.run("DELETE FROM outbox_event").await;
        let lease = Duration::from_secs(30);
        let outbox = bench.outbox_keeping(Keeping { attempts, lease, ..Keeping::default() });
        for id in ["dead", "kept", "back", "swept"] {
            bench.insert(id).await;
        }
        let mut claims = outbox.claim(request(4)).await.unwrap().claims;
        let mut take = |id: &str| {
            let at = claims.iter().position(|claim| claim.event().id.as_str() == id).unwrap();
            claims.swap_remove(at)
        };
        let settlements = vec![
            take("dead").dead("too large"),
            sent(take("kept")),
            take("back").release(Duration::ZERO, ""),
        ];
        drop(take("swept"));
        let batch = SettleBatch { settlements, repeat: false };
        assert_eq!(outbox.settle(&batch).await, Ok(vec![Settled::Applied; 3]));
        let repeat = SettleBatch { settlements: batch.settlements, repeat: true };
        assert_eq!(outbox.settle(&repeat).await, Ok(vec![Settled::AlreadyApplied; 3]));
        bench.run("UPDATE outbox_event SET locked_until = NOW(6) WHERE event_id = 'swept'").await;
        outbox.sweep(10, Duration::ZERO, 20).await.unwrap();

        assert_eq!(
            bench.text(log).await.unwrap_or_default(),
            wanted,
            "each attempt once, and none of what was not tried"
        );
        let odd = "SELECT COUNT(*) FROM consign_attempt WHERE relay <> 'relay-test' OR CHAR_LENGTH(lease_token) <> 32
                   OR started_at IS NULL OR started_at > recorded_at";
        assert_eq!(bench.number(odd).await, 0, "a lease of 30 s began before its attempt ended");
    }
}

async fn attempts_go_from_the_oldest_on_as_far_as_they_are_old(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    for number in 0..10 {
        let at = if number < 6 || number == 8 { "NOW(6) - INTERVAL 8 DAY" } else { "NOW(6)" };
        bench
            .run(&format!(
                "INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome)
             VALUES ('e{number}', 't', 'r', {at}, 'confirmed')"
            ))
            .await;
    }
    let outbox = bench.outbox();
    let before = outbox.before(7 * DAY).await.unwrap();

    let steps = [
        outbox.purge_attempts(&before, 4).await.unwrap(),
        outbox.purge_attempts(&before, 4).await.unwrap(),
        outbox.purge_attempts(&before, 4).await.unwrap(),
    ];

    assert_eq!(steps.clone().map(|step| (step.purged, step.more)), [(4, true), (2, false), (0, false)]);
    assert_eq!(bench.number("SELECT COUNT(*) FROM consign_attempt").await, 4);
    bench.run("DROP TABLE consign_attempt").await;
    let none = bench.outbox().purge_attempts(&before, 4).await.unwrap();
    assert_eq!(none.examined, 0, "a database without the table has none");
}
