//! Forgetting sent rows and attempts, and the log of attempts itself.

use std::time::Duration;

use consign_core::ports::OutboxStore;
use consign_core::settle::{SettleBatch, Settled};
use consign_store::retention::{AttemptLog, Keeping, Retention};

use crate::sqlite::file::File;
use consign_conformance::store::request::request;
use consign_conformance::store::settlement::sent;

const DAY: Duration = Duration::from_hours(24);

/// Twenty sent rows, every other one sent eight days ago; one of those was replayed, one is due before it was sent.
async fn filled(file: &File) {
    for number in 0..20 {
        let sent = if number % 2 == 0 {
            "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-8 days')"
        } else {
            "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
        };
        file.run(&format!(
            "INSERT INTO outbox_event (event_id, event_type, status, available_at, created_at, sent_at)
             VALUES ('e{number:02}', 'T', 'SENT', {sent}, {sent}, {sent})"
        ))
        .await;
    }
    file.run("UPDATE outbox_event SET status = 'NEW' WHERE event_id = 'e00'").await;
    file.run(
        "UPDATE outbox_event SET sent_at = strftime('%Y-%m-%d %H:%M:%f000', 'now') WHERE event_id = 'e02'",
    )
    .await;
}

#[tokio::test]
async fn old_sent_rows_go_whatever_the_step_and_young_or_replayed_ones_stay() {
    for rows in [1, 3, 4, 100] {
        let file = File::migrated().await;
        filled(&file).await;
        let outbox = file.outbox().await;
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
        let kept = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' OR sent_at > strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 days')";
        assert_eq!(
            (file.number(kept).await, file.number("SELECT COUNT(*) FROM outbox_event").await),
            (12, 12)
        );
    }
}

#[tokio::test]
async fn a_table_without_a_sent_date_goes_by_when_rows_were_due() {
    let file = File::migrated().await;
    filled(&file).await;
    file.run("ALTER TABLE outbox_event DROP COLUMN sent_at").await;
    let outbox = file.outbox().await;
    let before = outbox.before(7 * DAY).await.unwrap();

    let step = outbox.purge_sent(&before, None, 100).await.unwrap();

    assert_eq!(
        (step.examined, step.purged, step.more),
        (9, 9, false),
        "nothing tells that e02 was sent later"
    );
}

#[tokio::test]
async fn every_attempt_that_ended_leaves_a_row_in_its_own_transaction() {
    let file = File::migrated().await;
    let log = "SELECT group_concat(event_id || ':' || outcome, ',') FROM (SELECT * FROM consign_attempt ORDER BY event_id)";
    for (attempts, wanted) in [
        (AttemptLog::All, "dead:dead,kept:confirmed,swept:swept"),
        (AttemptLog::Failures, "dead:dead,swept:swept"),
        (AttemptLog::Off, ""),
    ] {
        file.run("DELETE FROM consign_attempt").await;
        file.run("DELETE FROM outbox_event").await;
        let lease = Duration::from_secs(30);
        let outbox = file.outbox_keeping(Keeping { attempts, lease, ..Keeping::default() }).await;
        for id in ["dead", "kept", "back", "swept"] {
            file.run(&format!(
                "INSERT INTO outbox_event (event_id, event_type, status) VALUES ('{id}', 'T', 'NEW')"
            ))
            .await;
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
        file.run("UPDATE outbox_event SET locked_until = strftime('%Y-%m-%d %H:%M:%f000', 'now') WHERE event_id = 'swept'").await;
        outbox.sweep(10, Duration::ZERO, 20).await.unwrap();

        assert_eq!(
            sqlx::query_scalar::<_, Option<String>>(log)
                .fetch_one(&file.eye)
                .await
                .unwrap()
                .unwrap_or_default(),
            wanted,
            "each attempt once, and none of what was not tried"
        );
        let odd = "SELECT COUNT(*) FROM consign_attempt WHERE relay <> 'test' OR length(lease_token) <> 32
                   OR started_at IS NULL OR started_at > recorded_at";
        assert_eq!(file.number(odd).await, 0, "a lease of 30 s began before its attempt ended");
    }
}

#[tokio::test]
async fn attempts_go_from_the_oldest_on_as_far_as_they_are_old() {
    let file = File::migrated().await;
    for number in 0..10 {
        let at = if number < 6 || number == 8 {
            "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-8 days')"
        } else {
            "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
        };
        file.run(&format!(
            "INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome)
             VALUES ('e{number}', 't', 'r', {at}, 'confirmed')"
        ))
        .await;
    }
    let outbox = file.outbox().await;
    let before = outbox.before(7 * DAY).await.unwrap();

    let steps = [
        outbox.purge_attempts(&before, 4).await.unwrap(),
        outbox.purge_attempts(&before, 4).await.unwrap(),
        outbox.purge_attempts(&before, 4).await.unwrap(),
    ];

    assert_eq!(steps.clone().map(|step| (step.purged, step.more)), [(4, true), (2, false), (0, false)]);
    assert_eq!(file.number("SELECT COUNT(*) FROM consign_attempt").await, 4);
    file.run("DROP TABLE consign_attempt").await;
    let none = file.outbox().await.purge_attempts(&before, 4).await.unwrap();
    assert_eq!(none.examined, 0, "a database without the table has none");
}
