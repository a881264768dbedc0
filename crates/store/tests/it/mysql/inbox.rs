//! Markers and records beyond the suites.

use bytes::Bytes;
use consign_core::delivery::Message;
use consign_core::event::EventId;
use consign_core::operation::{Compared, Comparison, Operation, StoredMarker};
use consign_core::ports::{CommitError, DeadDelivery, InboxStore, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;
use consign_store::mysql::PayloadColumn;

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    a_loose_collation_never_passes_one_key_for_another,
    a_taken_marker_can_not_be_committed,
    values_are_bound_exactly,
    values_a_column_would_change_are_refused,
    a_fingerprint_without_its_column_names_the_fix,
    unknown_comparison_columns_are_named,
    the_marker_keeps_event_version_and_date,
    payloads_of_conflicts_are_bounded_and_their_length_is_kept,
    records_without_their_tables_name_the_fix,
    a_repeated_conflict_is_counted_and_reopened,
    long_and_odd_texts_are_recorded,
    status_counts_markers_and_records,
    a_refused_value_leaves_the_transaction_usable,
);

fn operation(key: &str, columns: &[(&str, Value)]) -> Operation {
    let columns =
        columns.iter().map(|(column, value)| Compared { column: (*column).into(), value: value.clone() });
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        event_id: Some(EventId::stored("event-1")),
        comparison: Comparison::Columns(columns.collect()),
        aggregate_version: Some(3),
        ..Operation::default()
    }
}

fn award(key: &str) -> Operation {
    operation(key, &[("user_id", Value::Integer(7)), ("amount", Value::Integer(100))])
}

async fn apply(bench: &Bench, operation: &Operation) -> Result<Mark, StoreError> {
    let mut tx = bench.inbox().begin().await?;
    let mark = tx.mark(operation).await?;
    match mark {
        Mark::Inserted => tx.commit().await.expect("the commit succeeds"),
        Mark::Taken => tx.rollback().await?,
    }
    Ok(mark)
}

/// B45, `unkeyed/unkey#4091`: under the default collation two operations are one, and the second is lost in silence.
async fn a_loose_collation_never_passes_one_key_for_another(server: Server) {
    let bench = Bench::contract(server).await;
    assert_eq!(apply(&bench, &award("order:42:paid")).await, Ok(Mark::Inserted));

    let other = award("Order:42:paid");
    assert_eq!(apply(&bench, &other).await, Ok(Mark::Taken));
    let marker = bench.inbox().marker(&other).await;

    let Err(StoreError::Schema(text)) = marker else { panic!("{marker:?}") };
    assert!(text.contains("collation"), "{text}");
}

async fn a_taken_marker_can_not_be_committed(server: Server) {
    let bench = Bench::contract(server).await;
    assert_eq!(apply(&bench, &award("k")).await, Ok(Mark::Inserted));
    let mut tx = bench.inbox().begin().await.expect("a transaction");
    assert_eq!(tx.mark(&award("k")).await, Ok(Mark::Taken));

    assert!(tx.execute("DELETE FROM consumed_operation", &[]).await.is_err());
    let committed = tx.commit().await;

    assert!(matches!(committed, Err(CommitError::RolledBack(_))), "{committed:?}");
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
}

/// B48, `serde-rs/json#1170`: numbers must not pass through a float, in comparisons and in arithmetic.
async fn values_are_bound_exactly(server: Server) {
    let bench = Bench::contract(server).await;
    bench
        .run("ALTER TABLE consumed_operation ADD huge DECIMAL(40, 0), ADD price DECIMAL(20, 4), ADD note VARCHAR(100), ADD flag TINYINT, ADD rest JSON")
        .await;
    bench.run("CREATE TABLE sums (id INT PRIMARY KEY, whole BIGINT, exact DECIMAL(40, 4))").await;
    bench.run("INSERT INTO sums VALUES (1, 9007199254740992, 0)").await;
    let huge = 170_141_183_460_469_231_731_687_303_715_884_105_727_i128;
    let columns = [
        ("user_id", Value::Integer(9_007_199_254_740_993)),
        ("huge", Value::Integer(huge)),
        ("price", Value::Decimal("1234567890123456.7891".into())),
        ("note", Value::Text("Zo\u{eb} \u{1f600}\0'\"\\".into())),
        ("flag", Value::Boolean(true)),
        ("rest", Value::Json(r#"{"a":1}"#.into())),
        ("amount", Value::Null),
    ];
    let operation = operation("k", &columns);
    let mut tx = bench.inbox().begin().await.expect("a transaction");
    assert_eq!(tx.mark(&operation).await, Ok(Mark::Inserted));
    let add = "UPDATE sums SET whole = whole + ?, exact = exact + ? + ? WHERE id = ?";
    let values = [
        Value::Integer(1),
        Value::Decimal("9007199254740993.0001".into()),
        Value::Integer(huge / 1_000_000),
        Value::Integer(1),
    ];
    assert_eq!(tx.execute(add, &values).await, Ok(1));
    tx.commit().await.expect("the commit succeeds");

    let stored = bench.inbox().marker(&operation).await.expect("it can be read").expect("a marker");

    assert!(operation.comparison.matches(&stored), "{stored:?}");
    let column = |name: &str| stored.columns[name].as_deref();
    assert_eq!(column("user_id"), Some("9007199254740993"));
    assert_eq!(column("huge"), Some(huge.to_string().as_str()));
    assert_eq!(column("price"), Some("1234567890123456.7891"));
    assert_eq!(bench.text("SELECT whole FROM sums").await.as_deref(), Some("9007199254740993"));
    let sum = format!("{}.0001", 9_007_199_254_740_993 + huge / 1_000_000);
    assert_eq!(bench.text("SELECT exact FROM sums").await.as_deref(), Some(sum.as_str()));
}

async fn values_a_column_would_change_are_refused(server: Server) {
    let bench = Bench::contract(server).await;
    bench.run("ALTER TABLE consumed_operation ADD note VARCHAR(3)").await;
    for (column, value) in [
        ("amount", Value::Decimal("10.5".into())),
        ("amount", Value::Integer(1 << 40)),
        ("note", Value::Text("four".into())),
        ("amount", Value::Text("12 pieces".into())),
    ] {
        let refused = apply(&bench, &operation("k", &[(column, value.clone())])).await;

        assert!(matches!(refused, Err(StoreError::Data(_))), "{value:?}: {refused:?}");
    }
    assert_eq!(bench.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
}

async fn a_fingerprint_without_its_column_names_the_fix(server: Server) {
    let bench = Bench::contract(server).await;
    let operation = Operation { comparison: Comparison::Fingerprint("f".repeat(64)), ..award("k") };

    let refused = apply(&bench, &operation).await;

    let Err(StoreError::Schema(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("consign migrate"), "{text}");
}

async fn unknown_comparison_columns_are_named(server: Server) {
    let bench = Bench::contract(server).await;
    for column in ["missing", "event_id", "x`; DROP TABLE consumed_operation; -- "] {
        let refused = apply(&bench, &operation("k", &[(column, Value::Integer(1))])).await;

        let Err(StoreError::Schema(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains(column), "{text}");
    }
}

async fn the_marker_keeps_event_version_and_date(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let fingerprint = Operation { comparison: Comparison::Fingerprint("f".repeat(64)), ..award("k") };
    assert_eq!(apply(&bench, &fingerprint).await, Ok(Mark::Inserted));

    let row = "SELECT CONCAT_WS('|', event_id, aggregate_version, fingerprint, \
               ABS(TIMESTAMPDIFF(SECOND, applied_at, NOW(6))) < 60) FROM consumed_operation";

    assert_eq!(bench.text(row).await, Some(format!("event-1|3|{}|1", "f".repeat(64))));
}

fn message(body: Vec<u8>) -> Message {
    Message {
        id: Some("message-1".into()),
        body: Bytes::from(body),
        source: "queue".into(),
        ..Message::default()
    }
}

async fn payloads_of_conflicts_are_bounded_and_their_length_is_kept(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let message = message(vec![0xff; 300_000]);
    let dead = DeadDelivery { consumer: "c", business_key: None, message: &message, reason: "too large" };

    inbox.record_dead(&dead).await.expect("it is recorded");
    inbox.record_conflict(&award("k"), &message, &StoredMarker::default()).await.expect("it is recorded");

    for (table, wanted) in [("consign_dead_delivery", "300000|300000"), ("consign_conflict", "65536|300000")]
    {
        let kept = format!("SELECT CONCAT_WS('|', OCTET_LENGTH(payload), payload_bytes) FROM {table}");
        assert_eq!(bench.text(&kept).await.as_deref(), Some(wanted));
    }
}

async fn records_without_their_tables_name_the_fix(server: Server) {
    let bench = Bench::contract(server).await;
    let inbox = bench.inbox();
    let message = message(Vec::new());
    let dead = DeadDelivery { consumer: "c", business_key: None, message: &message, reason: "r" };

    let refused = [
        inbox.record_dead(&dead).await,
        inbox.record_conflict(&award("k"), &message, &StoredMarker::default()).await,
    ];

    for refused in refused {
        let Err(StoreError::Schema(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains("consign migrate"), "{text}");
    }
    assert_eq!(inbox.status().await.expect("a status").conflicts, None);
}

async fn a_repeated_conflict_is_counted_and_reopened(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let columns = [("user_id", "7"), ("amount", "50")];
    let columns = columns.map(|(column, text)| (column.to_owned(), Some(text.to_owned())));
    let existing = StoredMarker { columns: columns.into(), ..StoredMarker::default() };
    let (operation, message) = (award("k"), message(Vec::new()));
    let record = || inbox.record_conflict(&operation, &message, &existing);
    record().await.expect("it is recorded");
    bench.run("UPDATE consign_conflict SET resolved_at = NOW(6), resolution = 'mine'").await;
    assert_eq!(inbox.status().await.expect("a status").conflicts, Some(0));

    record().await.expect("it is recorded");

    assert_eq!(inbox.status().await.expect("a status").conflicts, Some(1));
    let row = "SELECT CONCAT_WS('|', `count`, comparison, existing, event_id) FROM consign_conflict";
    let wanted = "2|user_id=7, amount=100|user_id=7, amount=50|event-1";
    assert_eq!(bench.text(row).await.as_deref(), Some(wanted));
}

/// B51, `xibosignage/xibo#2702`: a record must not fail for its own text.
async fn long_and_odd_texts_are_recorded(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let inbox = bench.inbox();
    let long = "\u{1f600}".repeat(100_000);
    let message = Message {
        id: Some(long.clone()),
        message_type: Some(long.clone()),
        headers: vec![("a".into(), long.clone()), ("a".into(), "\0".into())],
        source: long.clone(),
        ..message(Vec::new())
    };
    let dead = DeadDelivery { consumer: "c", business_key: Some(&long), message: &message, reason: &long };

    inbox.record_dead(&dead).await.expect("it is recorded");
    inbox.record_conflict(&award("k"), &message, &StoredMarker::default()).await.expect("it is recorded");
    let endless = DeadDelivery { consumer: &long, ..dead };
    let refused = inbox.record_dead(&endless).await;

    assert!(matches!(refused, Err(StoreError::Data(_))), "a cut consumer would be another one: {refused:?}");
}

async fn status_counts_markers_and_records(server: Server) {
    let bench = Bench::migrated(server, PayloadColumn::Json).await;
    let fingerprint = Operation { comparison: Comparison::Fingerprint("f".repeat(64)), ..award("k") };
    apply(&bench, &fingerprint).await.expect("it is applied");

    let status = bench.inbox().status().await.expect("a status");

    assert_eq!((status.markers, status.conflicts, status.dead_deliveries), (Some(1), Some(0), Some(0)));
}

async fn a_refused_value_leaves_the_transaction_usable(server: Server) {
    let bench = Bench::contract(server).await;
    let mut tx = bench.inbox().begin().await.expect("a transaction");
    assert_eq!(tx.mark(&award("k")).await, Ok(Mark::Inserted));

    let refused = tx.execute("UPDATE consumed_operation SET amount = ?", &[Value::Integer(1 << 40)]).await;

    assert!(matches!(refused, Err(StoreError::Data(_))), "{refused:?}");
    assert_eq!(tx.execute("UPDATE consumed_operation SET amount = ?", &[Value::Integer(5)]).await, Ok(1));
    tx.commit().await.expect("the commit succeeds");
}
