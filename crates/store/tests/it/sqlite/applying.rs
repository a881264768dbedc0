//! An operation in a transaction of the caller's own.

use consign_conformance::waiting::drop_after;
use consign_core::delivery::Message;
use consign_core::guard::{Guard, Step};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::StoreError;
use consign_core::value::Value;
use consign_store::record::ConflictFilter;
use consign_store::sqlite::Inbox;
use sqlx::{Sqlite, query};

use crate::sqlite::file::File;

fn paid(key: &str, amount: i128) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        comparison: Comparison::Columns(vec![Compared {
            column: "amount".into(),
            value: Value::Integer(amount),
        }]),
        ..Operation::default()
    }
}

fn step(key: &str, version: i64) -> Operation {
    let step = Step::Sequential { version, first: 1 };
    Operation { guard: Some(Guard { aggregate: "order:1".into(), step }), ..paid(key, 1) }
}

/// A file with one account, an inbox on it, and the caller's own way to write.
async fn points() -> (File, Inbox) {
    let file = File::migrated().await;
    file.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    file.run("INSERT INTO points_account VALUES (7, 0)").await;
    let inbox = file.inbox().await;
    (file, inbox)
}

async fn own(file: &File) -> sqlx::Transaction<'static, Sqlite> {
    file.eye.begin_with("BEGIN IMMEDIATE").await.expect("a transaction begins")
}

/// What a consumer with a loop of its own does.
async fn consume(file: &File, inbox: &Inbox, operation: &Operation) -> Result<Processed, ProcessError> {
    let mut tx = own(file).await;
    let processed = inbox.apply(&mut tx, operation, &Message::default()).await?;
    if processed == Processed::Applied {
        let award = query("UPDATE points_account SET points = points + 100 WHERE user_id = 7");
        assert_eq!(award.execute(&mut *tx).await.unwrap().rows_affected(), 1);
    }
    tx.commit().await.expect("the transaction commits");
    Ok(processed)
}

async fn points_of(file: &File) -> i64 {
    file.number("SELECT points FROM points_account").await
}

#[tokio::test]
async fn a_callers_own_transaction_applies_once() {
    let (file, inbox) = points().await;

    assert_eq!(consume(&file, &inbox, &paid("order:1", 100)).await, Ok(Processed::Applied));
    assert_eq!(consume(&file, &inbox, &paid("order:1", 100)).await, Ok(Processed::Duplicate));
    assert_eq!(consume(&file, &inbox, &paid("order:1", 250)).await, Ok(Processed::Conflict));

    assert_eq!(points_of(&file).await, 100);
    let [conflict] = &inbox.conflicts(&ConflictFilter::default()).await.unwrap()[..] else { panic!("one") };
    assert_eq!((conflict.comparison.as_str(), conflict.existing.as_str()), ("amount=250", "amount=100"));
}

#[tokio::test]
async fn what_the_caller_rolls_back_was_never_applied() {
    let (file, inbox) = points().await;
    let (first, other) = (paid("order:1", 100), paid("order:1", 250));
    let mut tx = own(&file).await;
    assert_eq!(inbox.apply(&mut tx, &first, &Message::default()).await, Ok(Processed::Applied));
    assert_eq!(inbox.apply(&mut tx, &first, &Message::default()).await, Ok(Processed::Duplicate));
    assert_eq!(inbox.apply(&mut tx, &other, &Message::default()).await, Ok(Processed::Conflict));
    tx.rollback().await.unwrap();

    assert!(inbox.conflicts(&ConflictFilter::default()).await.unwrap().is_empty());
    assert_eq!(consume(&file, &inbox, &first).await, Ok(Processed::Applied));
    assert_eq!(points_of(&file).await, 100);
}

/// The caller's writes before it survive whatever the answer is.
#[tokio::test]
async fn a_refused_operation_leaves_the_callers_transaction_as_it_was() {
    let (file, inbox) = points().await;
    assert_eq!(consume(&file, &inbox, &step("step:1", 1)).await, Ok(Processed::Applied));
    let mut tx = own(&file).await;
    query("UPDATE points_account SET points = 5").execute(&mut *tx).await.unwrap();

    let gap = inbox.apply(&mut tx, &step("step:3", 3), &Message::default()).await;
    let stale = inbox.apply(&mut tx, &step("step:1b", 1), &Message::default()).await;
    let long = inbox.apply(&mut tx, &paid(&"k".repeat(129), 1), &Message::default()).await;
    let next = inbox.apply(&mut tx, &step("step:2", 2), &Message::default()).await;
    tx.commit().await.unwrap();

    let wanted = ProcessError::Gap { aggregate: "order:1".into(), expected: 2, version: 3 };
    assert_eq!((gap, stale, next), (Err(wanted), Ok(Processed::Stale), Ok(Processed::Applied)));
    assert!(matches!(long, Err(ProcessError::Handler(_))), "{long:?}");
    assert_eq!(points_of(&file).await, 5);
    assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation").await, 2);
    assert_eq!(file.number("SELECT version FROM consign_progress").await, 2);
}

#[tokio::test]
async fn an_operation_that_is_dropped_half_way_leaves_nothing_in_the_transaction() {
    let (file, inbox) = points().await;
    let operation = step("step:1", 1);
    for polls in 0..40 {
        let mut tx = own(&file).await;
        let message = Message::default();
        drop_after(polls, inbox.apply(&mut tx, &operation, &message)).await;
        let markers = query("SELECT 1 FROM consumed_operation").fetch_all(&mut *tx).await.unwrap();
        let progress = query("SELECT 1 FROM consign_progress").fetch_all(&mut *tx).await.unwrap();
        assert_eq!(markers.len(), progress.len(), "{polls}: both or none");
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_that_cannot_get_the_lock_is_contended() {
    let (file, inbox) = points().await;
    let held = own(&file).await;
    let database = file.database().await;
    let pool = sqlx::SqlitePool::connect_with(
        sqlx::sqlite::SqliteConnectOptions::new()
            .filename(database.path())
            .busy_timeout(std::time::Duration::ZERO),
    )
    .await
    .unwrap();
    let mut deferred = pool.begin().await.unwrap();

    let refused = inbox.apply(&mut deferred, &paid("order:1", 1), &Message::default()).await;

    assert!(matches!(refused, Err(ProcessError::Store(StoreError::Contended(_)))), "{refused:?}");
    held.rollback().await.unwrap();
}
