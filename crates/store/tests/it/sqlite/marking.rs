//! What SQLite adds to marking: many rows in one statement, versions of a comparison, the end of the transaction.

use consign_core::declared::{ExpectRows, Statement};
use consign_core::guard::Progress;
use consign_core::operation::{Compared, Comparison, EarlierComparison, Operation};
use consign_core::ports::{Advance, CommitError, EachError, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use consign_store::sqlite::Inbox;

use crate::sqlite::file::File;

fn comparing(key: &str, columns: &[(&str, i128)]) -> Operation {
    let columns = columns
        .iter()
        .map(|(column, number)| Compared { column: (*column).into(), value: Value::Integer(*number) })
        .collect();
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        comparison: Comparison::Columns(columns),
        ..Operation::default()
    }
}

async fn apply(inbox: &Inbox, operations: &[&Operation]) {
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.mark_all(operations).await, Ok(Mark::Inserted));
    tx.commit().await.expect("the markers commit");
}

#[tokio::test]
async fn any_number_of_markers_is_inserted_and_read_in_order() {
    for number in [1_usize, 2, 63, 64, 65, 200] {
        let file = File::migrated().await;
        let inbox = file.inbox().await;
        let operations: Vec<_> = (0..number)
            .map(|at| comparing(&format!("key-{at:03}"), &[("amount", i128::try_from(at).unwrap())]))
            .collect();
        apply(&inbox, &operations.iter().collect::<Vec<_>>()).await;

        let other = comparing("other", &[("amount", 0)]);
        let mut asked: Vec<_> = operations.iter().rev().collect();
        asked.insert(0, &other);
        asked.push(&operations[0]);
        let markers = inbox.markers(&asked).await.unwrap();

        assert_eq!(markers[0], None, "nobody wrote that one");
        for (operation, marker) in asked.iter().zip(&markers).skip(1) {
            assert_eq!(operation.same_as(marker.as_ref().unwrap()), Ok(true), "{}", operation.key);
        }
    }
}

#[tokio::test]
async fn one_taken_key_among_many_takes_back_all() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let operations: Vec<_> =
        (0..100).map(|at| comparing(&format!("key-{at:03}"), &[("amount", 1)])).collect();
    let all: Vec<_> = operations.iter().collect();
    apply(&inbox, &[all[70]]).await;

    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.mark_all(&all).await, Ok(Mark::Taken));
    let after = tx.commit().await;

    assert!(matches!(after, Err(CommitError::RolledBack(_))), "{after:?}");
    assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
}

#[tokio::test]
async fn operations_that_compare_differently_share_a_transaction() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let print = Operation { comparison: Comparison::Fingerprint("a".repeat(64)), ..comparing("b", &[]) };
    let (amount, both) = (comparing("a", &[("amount", 1)]), comparing("c", &[("amount", 1), ("user_id", 2)]));
    let operations = [&amount, &print, &both];

    apply(&inbox, &operations).await;

    for (operation, marker) in operations.into_iter().zip(inbox.markers(&operations).await.unwrap()) {
        assert_eq!(operation.same_as(&marker.unwrap()), Ok(true), "{}", operation.key);
    }
}

/// A field that is compared from now on does not turn the markers written before into conflicts.
#[tokio::test]
async fn a_marker_remembers_the_version_that_compared_it() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let first = comparing("order:1", &[("amount", 100)]);
    apply(&inbox, &[&first]).await;
    let second = |key: &str, amount: i128| Operation {
        comparison_version: 2,
        earlier: vec![EarlierComparison {
            version: 1,
            comparison: comparing(key, &[("amount", amount)]).comparison,
        }],
        ..comparing(key, &[("amount", amount), ("user_id", 7)])
    };
    let (same, other, new) = (second("order:1", 100), second("order:1", 101), second("order:2", 5));
    apply(&inbox, &[&new]).await;

    let marker = inbox.marker(&same).await.unwrap().unwrap();
    assert_eq!(marker.comparison_version, Some(1));
    assert_eq!((same.same_as(&marker), other.same_as(&marker)), (Ok(true), Ok(false)));
    let marker = inbox.marker(&new).await.unwrap().unwrap();
    assert_eq!((marker.comparison_version, new.same_as(&marker)), (Some(2), Ok(true)));
}

/// Without the column a second version would be taken for the first.
#[tokio::test]
async fn a_second_version_needs_its_column_and_finds_it_once_it_is_there() {
    let file = File::contract().await;
    let inbox = file.inbox().await;
    let first = comparing("order:1", &[("amount", 100)]);
    apply(&inbox, &[&first]).await;
    assert_eq!(inbox.marker(&first).await.unwrap().unwrap().comparison_version, None);
    let second = Operation { comparison_version: 2, ..comparing("order:2", &[("amount", 1)]) };

    let mut tx = inbox.begin().await.unwrap();
    let error = tx.mark(&second).await.unwrap_err();
    tx.rollback().await.unwrap();
    assert!(matches!(&error, StoreError::Schema(text) if text.contains("consign migrate")), "{error}");

    file.schema().await.apply().await.unwrap();
    apply(&inbox, &[&second]).await;
}

#[tokio::test]
async fn progress_is_kept_per_consumer_and_aggregate() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let at = |version| Progress { version: Some(version), state: None };
    let paid = Progress { version: None, state: Some("PAID".into()) };
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.lock_progress("a", &["order:1", "order:2"]).await, Ok(vec![None, None]));
    let advances = [
        Advance { aggregate: "order:1", progress: at(1), first: true },
        Advance { aggregate: "order:2", progress: paid.clone(), first: true },
    ];
    tx.save_progress("a", &advances).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = inbox.begin().await.unwrap();
    tx.save_progress("a", &[Advance { aggregate: "order:1", progress: at(2), first: false }]).await.unwrap();
    let found = tx.lock_progress("a", &["order:1", "Order:1", "order:2"]).await.unwrap();
    assert_eq!(found, [Some(at(2)), None, Some(paid)]);
    assert_eq!(tx.lock_progress("b", &["order:1"]).await, Ok(vec![None]));
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_step_that_somebody_else_took_is_contended() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    let first = |first| Advance { aggregate: "order:1", progress: Progress::default(), first };
    for advances in [vec![first(false)], vec![first(true), first(true)]] {
        let mut tx = inbox.begin().await.unwrap();
        let error = tx.save_progress("a", &advances).await.unwrap_err();
        assert!(matches!(error, StoreError::Contended(_)), "{error}");
        assert!(tx.commit().await.is_err());
    }
    assert_eq!(file.number("SELECT COUNT(*) FROM consign_progress").await, 0);
}

#[tokio::test]
async fn an_aggregate_that_its_column_would_cut_is_refused() {
    let file = File::migrated().await;
    let mut tx = file.inbox().await.begin().await.unwrap();

    let error = tx.lock_progress("a", &[&"x".repeat(256)]).await.unwrap_err();

    assert!(matches!(&error, StoreError::Data(text) if text.starts_with("aggregate has 256")), "{error}");
    tx.rollback().await.unwrap();
}

/// What comes after the end would commit by itself, the marker apart from its effect.
#[tokio::test]
async fn a_handler_that_ends_the_transaction_is_found_out() {
    let endings: [&[&str]; 5] = [
        &["COMMIT"],
        &["ROLLBACK"],
        &["COMMIT", "BEGIN"],
        &["INSERT OR ROLLBACK INTO item VALUES (1)", "INSERT INTO item VALUES (2)"],
        &["INSERT INTO strict_item VALUES (1)", "INSERT INTO item VALUES (2)"],
    ];
    for ending in endings {
        let file = File::migrated().await;
        file.run(
            "CREATE TABLE item (id INTEGER PRIMARY KEY); INSERT INTO item VALUES (1);
             CREATE TABLE strict_item (id INTEGER);
             CREATE TRIGGER strict BEFORE INSERT ON strict_item BEGIN SELECT RAISE(ROLLBACK, 'no'); END;",
        )
        .await;
        let inbox = file.inbox().await;
        let operation = comparing("order:1", &[("amount", 1)]);
        let mut tx = inbox.begin().await.unwrap();
        tx.mark(&operation).await.unwrap();
        let mut refused = false;
        for sql in ending {
            refused |= tx.execute(sql, &[]).await.is_err();
        }

        let ended = tx.commit().await;

        let told =
            matches!(&ended, Err(CommitError::RolledBack(StoreError::Data(text))) if text.contains("itself"));
        assert!(told, "{ending:?}: {ended:?}");
        assert_eq!(refused, ending[0].starts_with("INSERT"), "{ending:?}");
        assert!(!file.is_locked().await, "{ending:?}");
        assert_eq!(
            file.number("SELECT COUNT(*) FROM item").await,
            1,
            "{ending:?}: nothing commits by itself"
        );
        let next = comparing("order:2", &[("amount", 1)]);
        apply(&inbox, &[&next]).await;
    }
}

#[tokio::test]
async fn a_handler_ends_its_own_transaction_inside_and_is_none_the_wiser() {
    let file = File::migrated().await;
    file.run("CREATE TABLE item (id INTEGER PRIMARY KEY)").await;
    let inbox = file.inbox().await;
    let mut tx = inbox.begin().await.unwrap();
    tx.mark(&comparing("order:1", &[("amount", 1)])).await.unwrap();
    let mut nested = sqlx::Connection::begin(&mut **tx.inner().await.unwrap()).await.unwrap();
    sqlx::query("INSERT INTO item VALUES (1)").execute(&mut *nested).await.unwrap();
    nested.commit().await.unwrap();

    tx.commit().await.unwrap();

    assert_eq!(file.number("SELECT COUNT(*) FROM item JOIN consumed_operation").await, 1);
}

fn declared(sql: &str) -> Statement {
    Statement::parse(sql, ["id", "amount"], ExpectRows::Any).unwrap()
}

/// Each run is the statement it would have been alone, in order.
#[tokio::test]
async fn a_statement_runs_once_for_each_operation() {
    let file = File::migrated().await;
    file.run("CREATE TABLE account (id INTEGER PRIMARY KEY, points BIGINT NOT NULL, seen TEXT DEFAULT '')")
        .await;
    file.run("INSERT INTO account (id, points) VALUES (1, 0), (2, 0), (3, 0)").await;
    let inbox = file.inbox().await;
    let statements = [
        "UPDATE account SET points = points + :amount, seen = seen || :amount || ';' WHERE id >= :id",
        "UPDATE account SET points = points + :amount, seen = seen || :amount || ';' WHERE id >= :id -- why not",
        "UPDATE account SET points = points + :amount, seen = seen || :amount || ';' WHERE id >= :id RETURNING id",
    ];
    for (number, sql) in [1_usize, 2, 15, 16, 17, 100].into_iter().zip(statements.into_iter().cycle()) {
        file.run("UPDATE account SET points = 0, seen = ''").await;
        let values: Vec<_> = (0..number)
            .map(|at| {
                // The concatenation shows the order, and takes the amount a second time.
                let amount = Value::Integer(i128::try_from(at).unwrap());
                [amount.clone(), amount, Value::Integer(i128::try_from(at % 5).unwrap())]
            })
            .collect();
        let values: Vec<&[Value]> = values.iter().map(|values| &values[..]).collect();

        let mut tx = inbox.begin().await.unwrap();
        let rows = tx.execute_each(&declared(sql), &values).await.unwrap();
        tx.commit().await.unwrap();

        let wanted: Vec<u64> = (0..number).map(|at| [3, 3, 2, 1, 0][at % 5]).collect();
        assert_eq!(rows, wanted, "{sql}");
        let seen: Vec<_> = (0..number).filter(|at| at % 5 < 4).map(|at| at.to_string()).collect();
        let seen = seen.join(";");
        let third = format!("SELECT COUNT(*) FROM account WHERE id = 3 AND seen = '{seen};'");
        assert_eq!(file.number(&third).await, 1, "{number}: in order");
    }
}

#[tokio::test]
async fn a_run_that_fails_is_named() {
    let file = File::migrated().await;
    file.run("CREATE TABLE item (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL)").await;
    let inbox = file.inbox().await;
    for culprit in [0, 1, 15, 16, 20] {
        let mut values: Vec<_> = (0..21).map(|id| [Value::Integer(id), Value::Integer(1)]).collect();
        values[culprit][1] = Value::Null;
        let values: Vec<&[Value]> = values.iter().map(|values| &values[..]).collect();

        let mut tx = inbox.begin().await.unwrap();
        let failed = tx.execute_each(&declared("INSERT INTO item VALUES (:id, :amount)"), &values).await;
        tx.rollback().await.unwrap();

        let Err(EachError { at, error: StoreError::Data(_) }) = failed else { panic!("{failed:?}") };
        assert_eq!(at, Some(culprit));
    }
}
