//! What SQLite adds to the inbox: affinities, statement counts, placeholders.

use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::ports::{CommitError, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use consign_store::sqlite::Inbox;

use crate::sqlite::file::File;

fn comparing(column: &str, value: Value) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key: "order:42:paid".into(),
        event_id: None,
        comparison: Comparison::Columns(vec![Compared { column: column.into(), value }]),
        ..Operation::default()
    }
}

/// Inserts the marker and reads it back; gives whether it stands for the same operation.
async fn survives(inbox: &Inbox, operation: &Operation) -> Result<bool, StoreError> {
    let mut tx = inbox.begin().await?;
    match tx.mark(operation).await {
        Ok(mark) => assert_eq!(mark, Mark::Inserted),
        Err(error) => {
            tx.rollback().await?;
            return Err(error);
        }
    }
    tx.commit().await.expect("the marker commits");
    let stored = inbox.marker(operation).await?.expect("the marker is there");
    Ok(operation.comparison.matches(&stored))
}

/// Whatever a column is declared as, a repeat finds the value it wrote, or the value is refused.
#[tokio::test]
async fn a_value_comes_back_equal_or_is_refused() {
    let values = [
        Value::Null,
        Value::Integer(i128::from(i64::MAX)),
        Value::Integer(1 << 70),
        Value::Decimal("10.5".into()),
        Value::Decimal("0.1".into()),
        Value::Decimal("12345678901234567890.12345".into()),
        Value::Text("007".into()),
        Value::Text("1e3".into()),
        Value::Text(" a ".into()),
        Value::Text("nul \0 inside".into()),
        Value::Boolean(true),
        Value::Json("{\"a\":1}".into()),
        Value::Json("1.5".into()),
    ];
    let mut refused = 0;
    for declared in ["BIGINT", "TEXT", "DECIMAL(20,5)", "REAL", "BLOB", "BOOLEAN", "JSON", "DATETIME(6)"] {
        for value in &values {
            let file = File::contract().await;
            file.run(&format!("ALTER TABLE consumed_operation ADD compared {declared}")).await;
            let inbox = file.inbox().await;

            match survives(&inbox, &comparing("compared", value.clone())).await {
                Ok(same) => assert!(same, "{value:?} in {declared}"),
                Err(StoreError::Data(_)) => refused += 1,
                Err(error) => panic!("{value:?} in {declared}: {error}"),
            }
        }
    }
    assert!(refused > 10, "numeric columns refuse text that looks like a number");
}

#[tokio::test]
async fn a_comparison_column_the_table_lacks_is_named() {
    let file = File::contract().await;
    let inbox = file.inbox().await;
    let mut tx = inbox.begin().await.unwrap();

    let error = tx.mark(&comparing("colour", Value::Null)).await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("colour")), "{error}");
    tx.rollback().await.unwrap();
}

/// Case B45 (`unkeyed/unkey#4091`): a table whose key takes two keys for one must not answer for the wrong one.
#[tokio::test]
async fn a_marker_table_that_confuses_keys_is_an_error() {
    let file = File::empty().await;
    file.run(
        "CREATE TABLE consumed_operation (consumer_name TEXT, business_key TEXT COLLATE NOCASE, event_id TEXT, \
         amount BIGINT, PRIMARY KEY (consumer_name, business_key))",
    )
    .await;
    let inbox = file.inbox().await;
    let lower = comparing("amount", Value::Integer(1));
    survives(&inbox, &lower).await.unwrap();

    let upper = Operation { key: "ORDER:42:PAID".into(), ..lower };
    let mut tx = inbox.begin().await.unwrap();
    assert_eq!(tx.mark(&upper).await, Ok(Mark::Taken));
    tx.rollback().await.unwrap();
    let error = inbox.marker(&upper).await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("BINARY")), "{error}");
}

/// SQLite goes on telling the count of the last change; a SELECT must count its own rows.
#[tokio::test]
async fn every_kind_of_statement_counts_its_own_rows() {
    let file = File::contract().await;
    file.run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)").await;
    let inbox = file.inbox().await;
    let mut tx = inbox.begin().await.unwrap();

    for (sql, rows) in [
        ("INSERT INTO item (name) VALUES ('a'), ('b'), ('c')", 3),
        ("SELECT id FROM item WHERE name = 'a'", 1),
        ("SELECT id FROM item WHERE name = 'z'", 0),
        ("UPDATE item SET name = name", 3),
        ("CREATE TABLE other (id INTEGER)", 0),
        ("DELETE FROM item WHERE id > 1 RETURNING id", 2),
        (
            "-- nothing left but one\nWITH one AS (SELECT 1 AS id) UPDATE item SET name = 'x' WHERE id IN one",
            1,
        ),
    ] {
        assert_eq!(tx.execute(sql, &[]).await, Ok(rows), "{sql}");
    }
    tx.commit().await.unwrap();
}

/// SQLite would take a missing value for NULL.
#[tokio::test]
async fn a_missing_or_superfluous_value_is_an_error() {
    let file = File::contract().await;
    file.run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)").await;
    let inbox = file.inbox().await;

    for values in [vec![], vec![Value::Integer(1)], vec![Value::Null, Value::Null, Value::Null]] {
        let mut tx = inbox.begin().await.unwrap();
        let error = tx.execute("INSERT INTO item VALUES (?, ?)", &values).await.unwrap_err();
        assert!(matches!(error, StoreError::Schema(_)), "{error}");
        let after = tx.commit().await;
        assert!(matches!(after, Err(CommitError::RolledBack(_))), "{after:?}");
    }
    assert_eq!(file.number("SELECT COUNT(*) FROM item").await, 0);
}

/// A refused value leaves the transaction as it was; the handler decides.
#[tokio::test]
async fn a_refused_value_is_told_from_a_broken_statement() {
    let file = File::contract().await;
    file.run("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL CHECK (name <> 'x'))").await;
    let inbox = file.inbox().await;
    let mut tx = inbox.begin().await.unwrap();

    for sql in ["INSERT INTO item VALUES (1, NULL)", "INSERT INTO item VALUES (1, 'x')", "SELECT json('{')"] {
        let error = tx.execute(sql, &[]).await.unwrap_err();
        assert!(matches!(error, StoreError::Data(_)), "{sql}: {error}");
    }
    let error = tx.execute("INSERT INTO items VALUES (1)", &[]).await.unwrap_err();
    assert!(matches!(error, StoreError::Schema(_)), "{error}");
    tx.rollback().await.unwrap();
}

/// A handler that ends the transaction itself costs the connection, never a later one's work.
#[tokio::test]
async fn a_statement_that_ends_the_transaction_harms_nobody_else() {
    let file = File::contract().await;
    let inbox = file.inbox().await;
    let operation = comparing("amount", Value::Integer(1));
    let mut tx = inbox.begin().await.unwrap();
    tx.execute("ROLLBACK", &[]).await.unwrap();

    let refused = tx.commit().await;
    assert!(matches!(&refused, Err(CommitError::RolledBack(StoreError::Data(_)))), "{refused:?}");

    assert!(survives(&inbox, &operation).await.unwrap());
}

#[tokio::test]
async fn status_counts_markers_and_records() {
    let file = File::migrated().await;
    let inbox = file.inbox().await;
    survives(&inbox, &comparing("amount", Value::Integer(1))).await.unwrap();

    let status = inbox.status().await.unwrap();

    assert_eq!((status.markers, status.conflicts, status.dead_deliveries), (Some(1), Some(0), Some(0)));
    let empty = File::empty().await.inbox().await.status().await.unwrap();
    assert_eq!((empty.markers, empty.conflicts, empty.dead_deliveries), (None, None, None));
}
