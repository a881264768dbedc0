//! An operation in a transaction of the caller's own, under either isolation level.

use std::time::Duration;

use consign_conformance::waiting::eventually;
use consign_core::delivery::Message;
use consign_core::guard::{Guard, Step};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::StoreError;
use consign_core::value::Value;
use consign_store::mysql::Inbox;
use sqlx::{AssertSqlSafe, MySql, query, raw_sql};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    a_callers_own_transaction_applies_once,
    what_the_caller_rolls_back_was_never_applied,
    a_refused_operation_leaves_the_callers_transaction_as_it_was,
    a_snapshot_older_than_the_marker_hides_nothing,
    the_second_of_two_waits_and_is_applied_when_the_first_rolls_back,
    a_session_that_cuts_values_is_refused,
    two_first_steps_are_never_both_applied,
);

const LEVELS: [&str; 2] = ["READ COMMITTED", "REPEATABLE READ"];

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

/// One account, and a marker table whose keys are told apart.
async fn points(server: Server) -> Bench {
    let bench = Bench::migrated(server, consign_store::mysql::PayloadColumn::Json).await;
    bench.run("ALTER TABLE consumed_operation ADD amount INT").await;
    bench.run("CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)").await;
    bench.run("INSERT INTO points_account VALUES (7, 0)").await;
    bench
}

/// A transaction as the caller's own pool gives it.
async fn own(bench: &Bench, level: &str) -> sqlx::Transaction<'static, MySql> {
    let mut connection = bench.pool.acquire().await.expect("a connection");
    let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
    raw_sql(AssertSqlSafe(set)).execute(&mut *connection).await.expect("the level is set");
    sqlx::Transaction::begin(connection, None).await.expect("it begins")
}

/// What a consumer with a loop of its own does.
async fn consume(
    bench: &Bench,
    level: &str,
    inbox: &Inbox,
    operation: &Operation,
) -> Result<Processed, ProcessError> {
    let mut tx = own(bench, level).await;
    let processed = inbox.apply(&mut tx, operation, &Message::default()).await?;
    if processed == Processed::Applied {
        let award = query("UPDATE points_account SET points = points + 100 WHERE user_id = 7");
        assert_eq!(award.execute(&mut *tx).await.expect("it runs").rows_affected(), 1);
    }
    tx.commit().await.expect("it commits");
    Ok(processed)
}

async fn points_of(bench: &Bench) -> i64 {
    bench.number("SELECT points FROM points_account").await
}

async fn a_callers_own_transaction_applies_once(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let inbox = bench.inbox();

        assert_eq!(consume(&bench, level, &inbox, &paid("order:1", 100)).await, Ok(Processed::Applied));
        assert_eq!(consume(&bench, level, &inbox, &paid("order:1", 100)).await, Ok(Processed::Duplicate));
        assert_eq!(consume(&bench, level, &inbox, &paid("order:1", 250)).await, Ok(Processed::Conflict));

        assert_eq!(points_of(&bench).await, 100);
        let conflict = "SELECT GROUP_CONCAT(comparison, '|', existing) FROM consign_conflict";
        assert_eq!(bench.text(conflict).await.as_deref(), Some("amount=250|amount=100"));
    }
}

async fn what_the_caller_rolls_back_was_never_applied(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let (inbox, message) = (bench.inbox(), Message::default());
        let (first, other) = (paid("order:1", 100), paid("order:1", 250));
        let mut tx = own(&bench, level).await;
        assert_eq!(inbox.apply(&mut tx, &first, &message).await, Ok(Processed::Applied));
        assert_eq!(inbox.apply(&mut tx, &first, &message).await, Ok(Processed::Duplicate));
        assert_eq!(inbox.apply(&mut tx, &other, &message).await, Ok(Processed::Conflict));
        tx.rollback().await.expect("it rolls back");

        assert_eq!(bench.number("SELECT COUNT(*) FROM consign_conflict").await, 0);
        assert_eq!(consume(&bench, level, &inbox, &first).await, Ok(Processed::Applied));
        assert_eq!(points_of(&bench).await, 100);
    }
}

/// The caller's writes before it survive whatever the answer is.
async fn a_refused_operation_leaves_the_callers_transaction_as_it_was(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let (inbox, message) = (bench.inbox(), Message::default());
        assert_eq!(consume(&bench, level, &inbox, &step("step:1", 1)).await, Ok(Processed::Applied));
        let mut tx = own(&bench, level).await;
        query("UPDATE points_account SET points = 5").execute(&mut *tx).await.expect("it runs");

        let gap = inbox.apply(&mut tx, &step("step:3", 3), &message).await;
        let stale = inbox.apply(&mut tx, &step("step:1b", 1), &message).await;
        let long = inbox.apply(&mut tx, &paid(&"k".repeat(129), 1), &message).await;
        let huge = inbox.apply(&mut tx, &paid("order:9", 1 << 40), &message).await;
        let next = inbox.apply(&mut tx, &step("step:2", 2), &message).await;
        tx.commit().await.expect("it commits");

        let wanted = ProcessError::Gap { aggregate: "order:1".into(), expected: 2, version: 3 };
        assert_eq!((gap, stale, next), (Err(wanted), Ok(Processed::Stale), Ok(Processed::Applied)));
        for refused in [long, huge] {
            assert!(matches!(refused, Err(ProcessError::Handler(_))), "{refused:?}");
        }
        assert_eq!(points_of(&bench).await, 5);
        assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 2);
        assert_eq!(bench.number("SELECT version FROM consign_progress").await, 2);
    }
}

/// Under REPEATABLE READ a plain read would find no marker, although the key is taken.
async fn a_snapshot_older_than_the_marker_hides_nothing(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let (inbox, message) = (bench.inbox(), Message::default());
        let mut tx = own(&bench, level).await;
        let snapshot = query("SELECT points FROM points_account").fetch_all(&mut *tx).await;
        assert_eq!(snapshot.expect("it reads").len(), 1);
        for order in ["order:1", "order:2"] {
            assert_eq!(consume(&bench, level, &inbox, &paid(order, 100)).await, Ok(Processed::Applied));
        }
        assert_eq!(consume(&bench, level, &inbox, &step("step:1", 1)).await, Ok(Processed::Applied));

        let results = [
            inbox.apply(&mut tx, &paid("order:1", 100), &message).await,
            inbox.apply(&mut tx, &paid("order:2", 250), &message).await,
            inbox.apply(&mut tx, &step("step:2", 2), &message).await,
        ];
        tx.commit().await.expect("it commits");

        assert_eq!(
            results,
            [Ok(Processed::Duplicate), Ok(Processed::Conflict), Ok(Processed::Applied)],
            "{level}"
        );
    }
}

async fn the_second_of_two_waits_and_is_applied_when_the_first_rolls_back(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let (inbox, message) = (bench.inbox(), Message::default());
        let mut first = own(&bench, level).await;
        assert_eq!(inbox.apply(&mut first, &paid("order:1", 100), &message).await, Ok(Processed::Applied));
        let second = {
            let (inbox, mut tx) = (inbox.clone(), own(&bench, level).await);
            tokio::spawn(async move {
                let processed = inbox.apply(&mut tx, &paid("order:1", 100), &Message::default()).await;
                tx.commit().await.expect("it commits");
                processed
            })
        };
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist
                       WHERE db = DATABASE() AND info LIKE 'INSERT INTO `consumed_operation`%'";
        eventually(Duration::from_secs(20), || async { bench.number(waiting).await > 0 }).await;

        first.rollback().await.expect("it rolls back");

        let second = second.await.expect("no panic");
        assert_eq!(second, Ok(Processed::Applied), "{level}");
        assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    }
}

/// B49, `woocommerce/woocommerce#68778`: in such a session a compared value is cut in silence.
async fn a_session_that_cuts_values_is_refused(server: Server) {
    let bench = points(server).await;
    let inbox = bench.inbox();
    let mut tx = bench.begin().await;
    raw_sql("SET SESSION sql_mode = ''").execute(&mut *tx).await.expect("the mode is set");

    let refused = inbox.apply(&mut tx, &paid("order:1", 1 << 40), &Message::default()).await;

    let Err(ProcessError::Store(StoreError::Schema(text))) = refused else { panic!("{refused:?}") };
    assert!(text.contains("STRICT_TRANS_TABLES"), "{text}");
    tx.commit().await.expect("it commits");
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
}

/// Both find no progress; the unique key, or a deadlock, decides.
async fn two_first_steps_are_never_both_applied(server: Server) {
    for level in LEVELS {
        let bench = points(server).await;
        let inbox = bench.inbox();
        let consumers = ["a", "b", "c", "d"].map(|key| {
            let (inbox, operation) = (inbox.clone(), step(key, 1));
            let pool = bench.pool.clone();
            let level = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            tokio::spawn(async move {
                loop {
                    let mut connection = pool.acquire().await.expect("a connection");
                    raw_sql(AssertSqlSafe(level.clone())).execute(&mut *connection).await.expect("set");
                    let mut tx = sqlx::Transaction::begin(connection, None).await.expect("it begins");
                    match inbox.apply(&mut tx, &operation, &Message::default()).await {
                        Ok(processed) => {
                            tx.commit().await.expect("it commits");
                            return processed;
                        }
                        Err(ProcessError::Store(StoreError::Contended(_))) => {
                            // After a deadlock there may be nothing left to roll back.
                            let _ = tx.rollback().await;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        });
        let mut results = Vec::new();
        for consumer in consumers {
            results.push(consumer.await.expect("no panic"));
        }
        results.sort_unstable();

        let stale = Processed::Stale;
        assert_eq!(results, [Processed::Applied, stale, stale, stale], "{level}");
        assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    }
}
