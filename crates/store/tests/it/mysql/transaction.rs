//! Markers of transaction messages: the fence against local transactions that are open, late, or see an old snapshot.

use std::time::Duration;

use consign_core::ports::{Mark, StoreError};
use consign_core::transaction::check::check;
use consign_core::transaction::half::Question;
use consign_core::transaction::marker::{Evidence, Fence, Marker, MarkerStore, Unconfirmed};
use consign_core::transaction::message::{StoreName, TransactionKey, TransactionMessage};
use consign_core::transaction::{Doubt, Spans, Verdict};
use consign_store::mysql::{PayloadColumn, TransactionMarkers};
use consign_store::transaction::{LocalMarkers, MarkerKeeping, MessageCopy};
use sqlx::raw_sql;

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    a_late_local_transaction_cannot_commit_behind_a_rollback_marker,
    an_open_local_transaction_makes_the_answer_unknown_and_then_commits,
    an_old_snapshot_does_not_hide_the_rollback_marker,
    a_server_that_does_not_answer_is_unknown,
    keys_tell_case_and_spaces_apart,
    a_committed_transaction_is_handed_out_once_per_pause_until_it_is_confirmed,
    a_broken_row_keeps_no_other_transaction_waiting,
    nothing_is_forgotten_that_the_broker_may_still_ask_about,
);

const HOUR: Duration = Duration::from_hours(1);

fn markers(bench: &Bench, first_look: Duration, copy: MessageCopy) -> TransactionMarkers {
    let name = StoreName::new("orders").expect("a name");
    TransactionMarkers::new(bench.database(), name, MarkerKeeping { copy, first_look })
}

fn key(number: u32) -> TransactionKey {
    TransactionKey::draw(*b"producer", 1, number)
}

fn order() -> TransactionMessage {
    TransactionMessage::new("orders", "OrderPaid", "{\"orderId\":42}").with_header("traceparent", "00-ab")
}

async fn question(markers: &TransactionMarkers, number: u32, age: Duration) -> Question {
    let now = markers.now().await.expect("the time");
    Question {
        key: key(number),
        topic: "orders".into(),
        store: Some("orders".into()),
        begun_at_micros: Some(now - i64::try_from(age.as_micros()).expect("a short time")),
    }
}

async fn answer(markers: &TransactionMarkers, number: u32, age: Duration) -> Verdict {
    let question = question(markers, number, age).await;
    check(markers, &question, &Spans::default()).await
}

async fn a_late_local_transaction_cannot_commit_behind_a_rollback_marker(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, HOUR, MessageCopy::UntilConfirmed);
    bench.run("CREATE TABLE purchase_order (id BIGINT PRIMARY KEY) ENGINE = InnoDB").await;
    let mut tx = bench.begin().await;
    raw_sql("INSERT INTO purchase_order VALUES (42)").execute(&mut *tx).await.expect("the business row");

    assert!(matches!(answer(&markers, 1, HOUR).await, Verdict::Rollback(_)));

    assert_eq!(markers.mark(&mut tx, &key(1), &order()).await, Ok(Mark::Taken));
    tx.rollback().await.expect("the rollback succeeds");
    assert_eq!(bench.number("SELECT COUNT(*) FROM purchase_order").await, 0);
    assert_eq!(markers.look(&key(1)).await.expect("a look").marker, Some(Marker::RolledBack));
    assert!(matches!(answer(&markers, 1, HOUR).await, Verdict::Rollback(_)), "asked again");
}

async fn an_open_local_transaction_makes_the_answer_unknown_and_then_commits(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, HOUR, MessageCopy::UntilConfirmed);
    let mut tx = bench.begin().await;
    assert_eq!(markers.mark(&mut tx, &key(1), &order()).await, Ok(Mark::Inserted));

    let verdict = answer(&markers, 1, HOUR).await;
    assert!(
        matches!(verdict, Verdict::Unknown(Doubt::Store(StoreError::Contended(_)))),
        "the fence waits for the open transaction: {verdict:?}"
    );

    assert_eq!(markers.commit(tx).await, Ok(()));
    assert!(matches!(answer(&markers, 1, HOUR).await, Verdict::Commit(_)));
    assert_eq!(markers.fence(&key(1), "orders").await, Ok(Fence::Taken));
}

/// A producer's REPEATABLE READ snapshot may be older than the rollback marker. The key is checked all the same.
async fn an_old_snapshot_does_not_hide_the_rollback_marker(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, HOUR, MessageCopy::UntilConfirmed);
    let mut tx = bench.begin().await;
    let look = "SELECT CAST(COUNT(*) AS CHAR) FROM consign_transaction";
    raw_sql(look).execute(&mut *tx).await.expect("the snapshot begins");
    assert_eq!(markers.fence(&key(1), "orders").await, Ok(Fence::Inserted));
    let seen = raw_sql(look).fetch_one(&mut *tx).await.expect("a row");
    let seen: String = sqlx::Row::try_get_unchecked(&seen, 0).expect("text");
    assert_eq!(seen, "0", "the snapshot does not show it");

    // MariaDB may say that the row changed since the snapshot instead; both refuse the mark.
    let marked = markers.mark(&mut tx, &key(1), &order()).await;
    assert!(matches!(marked, Ok(Mark::Taken) | Err(StoreError::Contended(_))), "{marked:?}");
}

async fn a_server_that_does_not_answer_is_unknown(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let asked = question(&markers(&bench, HOUR, MessageCopy::Digest), 1, HOUR).await;
    let (proxy, options) = bench.proxied().await;
    drop(proxy);
    let options = consign_store::mysql::Options { connect_timeout: Duration::from_secs(1), ..options };
    let database = consign_store::mysql::Database::open(&options).expect("valid options");
    let away = TransactionMarkers::new(database, StoreName::new("orders").unwrap(), MarkerKeeping::default());

    let verdict = check(&away, &asked, &Spans::default()).await;

    assert!(matches!(verdict, Verdict::Unknown(Doubt::Store(StoreError::Unavailable(_)))), "{verdict:?}");
    assert_eq!(bench.number("SELECT COUNT(*) FROM consign_transaction").await, 0);
}

async fn keys_tell_case_and_spaces_apart(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, HOUR, MessageCopy::Digest);
    for text in ["a", "A", "a ", "\u{e1}"] {
        let key = TransactionKey::new(text).expect("a key");
        assert_eq!(markers.fence(&key, "orders").await, Ok(Fence::Inserted), "{text:?}");
    }
}

async fn a_committed_transaction_is_handed_out_once_per_pause_until_it_is_confirmed(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    for (number, copy) in [(1, MessageCopy::UntilConfirmed), (2, MessageCopy::Digest)] {
        let markers = markers(&bench, Duration::ZERO, copy);
        let mut tx = bench.begin().await;
        assert_eq!(markers.mark(&mut tx, &key(number), &order()).await, Ok(Mark::Inserted));
        markers.commit(tx).await.expect("the commit succeeds");

        let due = readable(markers.unconfirmed(10, HOUR).await);
        assert_eq!(due.len(), 1);
        assert_eq!((&due[0].key, &*due[0].topic, due[0].attempts), (&key(number), "orders", 1));
        let message = (copy == MessageCopy::UntilConfirmed).then(order);
        assert_eq!((&due[0].message, &due[0].digest), (&message, &order().digest()));
        assert_eq!(markers.unconfirmed(10, HOUR).await, Ok(Vec::new()), "it is put off");

        assert_eq!(markers.standing().await.expect("counts").unconfirmed, 1);
        assert_eq!(markers.confirm(&key(number), Evidence::Stored).await, Ok(true));
        assert_eq!(markers.confirm(&key(number), Evidence::Stored).await, Ok(false), "once");
        assert_eq!(markers.standing().await.expect("counts").unconfirmed, 0);
    }
    bench.run("UPDATE consign_transaction SET due_at = UTC_TIMESTAMP(6) - INTERVAL 1 HOUR").await;
    let markers = markers(&bench, HOUR, MessageCopy::Digest);
    assert_eq!(markers.unconfirmed(10, HOUR).await, Ok(Vec::new()));
    let kept = "SELECT COUNT(payload) FROM consign_transaction";
    assert_eq!(bench.number(kept).await, 0, "the copy is dropped with the evidence");
}

/// The transactions of a page, all of whose rows can be read.
fn readable(page: Result<Vec<Result<Unconfirmed, StoreError>>, StoreError>) -> Vec<Unconfirmed> {
    page.expect("a page").into_iter().collect::<Result<_, _>>().expect("readable rows")
}

/// What people wrote into a row is reported under its key, put off with the rest, and keeps no other transaction waiting.
async fn a_broken_row_keeps_no_other_transaction_waiting(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, Duration::ZERO, MessageCopy::UntilConfirmed);
    for number in [1, 2, 3] {
        let mut tx = bench.begin().await;
        assert_eq!(markers.mark(&mut tx, &key(number), &order()).await, Ok(Mark::Inserted));
        markers.commit(tx).await.expect("the commit succeeds");
    }
    let broken = key(2);
    let spoil = format!("UPDATE consign_transaction SET headers = '[1]' WHERE transaction_key = '{broken}'");
    bench.run(&spoil).await;

    let page = markers.unconfirmed(10, HOUR).await.expect("a page");

    let mut keys: Vec<_> = page.iter().flatten().map(|found| found.key.clone()).collect();
    keys.sort();
    assert_eq!(keys, [key(1), key(3)]);
    let problems: Vec<_> = page.iter().filter_map(|row| row.as_ref().err()).collect();
    assert!(
        matches!(problems[..], [StoreError::Data(text)] if text.contains(broken.as_str()) && text.contains("headers")),
        "{problems:?}"
    );
    assert_eq!(markers.unconfirmed(10, HOUR).await, Ok(Vec::new()), "it is put off with the others");
    assert_eq!(markers.standing().await.expect("counts").unconfirmed, 3);
}

async fn nothing_is_forgotten_that_the_broker_may_still_ask_about(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let markers = markers(&bench, HOUR, MessageCopy::Digest);
    let spans = Spans::default();
    let rows = [
        ("confirmed-young", "COMMITTED", 95, Some(95)),
        ("confirmed-late", "COMMITTED", 97, Some(95)),
        ("confirmed-old", "COMMITTED", 97, Some(97)),
        ("rolled-back-young", "ROLLED_BACK", 95, None),
        ("rolled-back-old", "ROLLED_BACK", 97, None),
        ("unconfirmed-young", "COMMITTED", 719, None),
        ("unconfirmed-old", "COMMITTED", 721, None),
    ];
    for (key, state, created, confirmed) in rows {
        let confirmed =
            confirmed.map_or("NULL".into(), |hours| format!("UTC_TIMESTAMP(6) - INTERVAL {hours} HOUR"));
        bench
            .run(&format!(
                "INSERT INTO consign_transaction
                     (transaction_key, state, topic, attempts, created_at, due_at, confirmed_at)
                 VALUES ('{key}', '{state}', 't', 0, UTC_TIMESTAMP(6) - INTERVAL {created} HOUR,
                     UTC_TIMESTAMP(6) - INTERVAL {created} HOUR, {confirmed})"
            ))
            .await;
    }

    let (mut ended, mut unconfirmed) = (0, 0);
    loop {
        let step = markers.forget(&spans, 1).await.expect("a step");
        ended += step.ended;
        unconfirmed += step.unconfirmed;
        if !step.more {
            break;
        }
    }

    assert_eq!((ended, unconfirmed), (2, 1));
    let old = "SELECT COUNT(*) FROM consign_transaction WHERE transaction_key LIKE '%-old'";
    assert_eq!(
        (bench.number(old).await, bench.number("SELECT COUNT(*) FROM consign_transaction").await),
        (0, 4)
    );
}
