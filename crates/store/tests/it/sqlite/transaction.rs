//! Markers of transaction messages in a file.

use std::time::Duration;

use consign_core::ports::{Mark, StoreError};
use consign_core::transaction::check::check;
use consign_core::transaction::half::Question;
use consign_core::transaction::marker::{Evidence, Marker, MarkerStore};
use consign_core::transaction::message::{StoreName, TransactionKey, TransactionMessage};
use consign_core::transaction::{Doubt, Spans, Verdict};
use consign_store::sqlite::TransactionMarkers;
use consign_store::transaction::{LocalMarkers, MarkerKeeping, MessageCopy};

use crate::sqlite::file::File;

const HOUR: Duration = Duration::from_hours(1);

async fn markers(file: &File) -> TransactionMarkers {
    let keeping = MarkerKeeping { copy: MessageCopy::UntilConfirmed, first_look: Duration::ZERO };
    TransactionMarkers::new(file.database().await, StoreName::new("orders").unwrap(), keeping)
}

fn key() -> TransactionKey {
    TransactionKey::draw(*b"producer", 1, 1)
}

fn order() -> TransactionMessage {
    TransactionMessage::new("orders", "OrderPaid", "{\"orderId\":42}").with_header("traceparent", "00-ab")
}

async fn answer(markers: &TransactionMarkers) -> Verdict {
    let hour = i64::try_from(HOUR.as_micros()).unwrap();
    let question = Question {
        key: key(),
        topic: "orders".into(),
        store: Some("orders".into()),
        begun_at_micros: Some(markers.now().await.unwrap() - hour),
    };
    check(markers, &question, &Spans::default()).await
}

#[tokio::test]
async fn a_late_local_transaction_cannot_commit_behind_a_rollback_marker() {
    let file = File::migrated().await;
    let markers = markers(&file).await;

    assert!(matches!(answer(&markers).await, Verdict::Rollback(_)));

    let mut tx = file.eye.begin().await.unwrap();
    assert_eq!(markers.mark(&mut tx, &key(), &order()).await, Ok(Mark::Taken));
    tx.rollback().await.unwrap();
    assert_eq!(markers.look(&key()).await.unwrap().marker, Some(Marker::RolledBack));
}

#[tokio::test]
async fn an_open_local_transaction_makes_the_answer_unknown_and_then_commits_and_is_confirmed() {
    let file = File::migrated().await;
    let markers = markers(&file).await;
    let mut tx = file.eye.begin().await.unwrap();
    assert_eq!(markers.mark(&mut tx, &key(), &order()).await, Ok(Mark::Inserted));

    let verdict = answer(&markers).await;
    assert!(
        matches!(verdict, Verdict::Unknown(Doubt::Store(StoreError::Contended(_)))),
        "the fence waits for the open transaction: {verdict:?}"
    );

    assert_eq!(markers.commit(tx).await, Ok(()));
    assert!(matches!(answer(&markers).await, Verdict::Commit(_)));
    let due: Vec<_> =
        markers.unconfirmed(10, HOUR).await.unwrap().into_iter().collect::<Result<_, _>>().unwrap();
    assert_eq!((due.len(), &due[0].message, due[0].attempts), (1, &Some(order()), 1));
    assert_eq!(markers.unconfirmed(10, HOUR).await, Ok(Vec::new()), "it is put off");
    assert_eq!(markers.standing().await.unwrap().unconfirmed, 1);
    assert_eq!(markers.confirm(&key(), Evidence::Stored).await, Ok(true));
    assert_eq!(markers.confirm(&key(), Evidence::Stored).await, Ok(false), "once");
    assert_eq!(markers.standing().await.unwrap().unconfirmed, 0);
}

#[tokio::test]
async fn nothing_is_forgotten_that_the_broker_may_still_ask_about() {
    let file = File::migrated().await;
    let markers = markers(&file).await;
    let date = |hours: u32| format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '-{hours} hours')");
    for (key, state, created, confirmed) in [
        ("confirmed-young", "COMMITTED", 95, Some(95)),
        ("confirmed-late", "COMMITTED", 97, Some(95)),
        ("confirmed-old", "COMMITTED", 97, Some(97)),
        ("rolled-back-young", "ROLLED_BACK", 95, None),
        ("rolled-back-old", "ROLLED_BACK", 97, None),
        ("unconfirmed-young", "COMMITTED", 719, None),
        ("unconfirmed-old", "COMMITTED", 721, None),
    ] {
        let (created, confirmed) = (date(created), confirmed.map_or("NULL".into(), date));
        file.run(&format!(
            "INSERT INTO consign_transaction
                 (transaction_key, state, topic, attempts, created_at, due_at, confirmed_at)
             VALUES ('{key}', '{state}', 't', 0, {created}, {created}, {confirmed})"
        ))
        .await;
    }

    let (mut ended, mut unconfirmed) = (0, 0);
    loop {
        let step = markers.forget(&Spans::default(), 1).await.unwrap();
        ended += step.ended;
        unconfirmed += step.unconfirmed;
        if !step.more {
            break;
        }
    }

    assert_eq!((ended, unconfirmed), (2, 1));
    let old = "SELECT COUNT(*) FROM consign_transaction WHERE transaction_key LIKE '%-old'";
    assert_eq!(
        (file.number(old).await, file.number("SELECT COUNT(*) FROM consign_transaction").await),
        (0, 4)
    );
}
