//! Creating and extending tables.

use consign_conformance::store::request::request;
use consign_core::ports::{OutboxStore, StoreError};
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::record::{Audit, ConflictFilter};
use consign_store::sqlite::{Outbox, Schema};

use crate::sqlite::file::{CONTRACT, File};

#[tokio::test]
async fn a_plan_changes_nothing_and_an_applied_one_leaves_nothing_to_do() {
    let file = File::empty().await;
    let schema = file.schema().await;

    let plan = schema.plan().await.unwrap();
    assert_eq!(plan.len(), 9);
    assert_eq!(file.number("SELECT COUNT(*) FROM sqlite_schema").await, 0);

    assert_eq!(schema.apply().await.unwrap(), plan);
    assert!(schema.plan().await.unwrap().is_empty());
    assert!(schema.apply().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_contracts_tables_are_extended_and_keep_their_rows() {
    let file = File::empty().await;
    file.run(CONTRACT).await;
    file.run(
        "INSERT INTO outbox_event (event_id, event_type, status, available_at, created_at) \
         VALUES ('old', 't', 'NEW', '2020-01-01 00:00:00', '2020-01-01 00:00:00')",
    )
    .await;

    file.schema().await.apply().await.unwrap();

    assert!(file.schema().await.plan().await.unwrap().is_empty());
    let outbox = file.outbox().await;
    let shape = outbox.shape().await.unwrap();
    assert_eq!(shape.missing(&consign_store::mapping::OUTBOX_OPTIONAL), ["sequence"]);
    let claimed = outbox.claim(request(10)).await.unwrap();
    assert_eq!(claimed.claims[0].event().id.as_str(), "old");
}

#[tokio::test]
async fn mapped_names_are_used_and_a_missing_index_is_added() {
    let file = File::contract().await;
    file.run(
        "CREATE TABLE shop_events (id VARCHAR(64) PRIMARY KEY, aggregate_id BIGINT, event_type TEXT, payload TEXT, \
         state TEXT, attempts INT, available_at TEXT, lease_token TEXT, locked_until TEXT, created_at TEXT)",
    )
    .await;
    let mapping = OutboxMapping::new(Identifier::table("shop_events").unwrap())
        .with_column("event_id", Identifier::column("id").unwrap())
        .and_then(|mapping| mapping.with_column("status", Identifier::column("state").unwrap()))
        .unwrap();

    Schema::new(file.database().await).with_outbox(mapping.clone()).apply().await.unwrap();

    assert_eq!(file.number("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'shop_events_pending'").await, 1);
    file.run("INSERT INTO shop_events (id, event_type, state, available_at) VALUES ('a', 't', 'NEW', '2020-01-01')").await;
    let outbox = Outbox::new(file.database().await, mapping, "test");
    let claimed = outbox.claim(request(10)).await.unwrap();
    assert_eq!(claimed.claims[0].event().id.as_str(), "a");
}

#[tokio::test]
async fn comparison_columns_are_added_once() {
    let file = File::empty().await;
    let column = |name, kind| ComparisonColumn { name: Identifier::column(name).unwrap(), kind };
    let schema =
        Schema::new(file.database().await).with_markers(MarkerMapping::default()).with_comparison(vec![
            column("user_id", ValueType::Integer),
            column("amount", ValueType::Decimal),
            column("paid", ValueType::Boolean),
        ]);

    let applied = schema.apply().await.unwrap();

    assert_eq!(applied.iter().filter(|sql| sql.contains("ADD COLUMN")).count(), 3);
    assert!(schema.plan().await.unwrap().is_empty());
    file.run("INSERT INTO consumed_operation (consumer_name, business_key, user_id, amount, paid) VALUES ('c', 'k', 1, '1.10', 1)")
        .await;
    assert_eq!(file.number("SELECT COUNT(*) FROM consumed_operation WHERE amount = '1.10'").await, 1);
}

#[tokio::test]
async fn a_table_that_lacks_what_cannot_be_added_is_refused_whole() {
    let file = File::empty().await;
    file.run("CREATE TABLE outbox_event (event_id TEXT PRIMARY KEY)").await;

    let error = file.schema().await.apply().await.unwrap_err();

    assert!(matches!(&error, StoreError::Schema(text) if text.contains("available_at")), "{error}");
    assert_eq!(file.number("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table'").await, 1);
}

/// The records of a version that gave them no ids.
const WITHOUT_IDS: &str = "
CREATE TABLE consign_conflict (
    consumer_name VARCHAR(64) NOT NULL, business_key VARCHAR(128) NOT NULL, content_digest CHAR(64) NOT NULL,
    event_id VARCHAR(255) NULL, existing_event_id VARCHAR(255) NULL, comparison TEXT NOT NULL, existing TEXT NOT NULL,
    source VARCHAR(255) NOT NULL, payload BLOB NOT NULL, payload_bytes BIGINT NOT NULL, count BIGINT NOT NULL,
    first_seen_at TEXT NOT NULL, last_seen_at TEXT NOT NULL, resolved_at TEXT NULL, resolution VARCHAR(255) NULL,
    PRIMARY KEY (consumer_name, business_key, content_digest));
CREATE TABLE consign_dead_delivery (
    consumer_name VARCHAR(64) NOT NULL, content_digest CHAR(64) NOT NULL, business_key VARCHAR(255) NULL,
    message_id VARCHAR(255) NULL, message_type VARCHAR(255) NULL, source VARCHAR(255) NOT NULL,
    reason VARCHAR(1024) NOT NULL, headers TEXT NULL, payload BLOB NOT NULL, payload_bytes BIGINT NOT NULL,
    count BIGINT NOT NULL, first_seen_at TEXT NOT NULL, last_seen_at TEXT NOT NULL, resolved_at TEXT NULL,
    resolution VARCHAR(255) NULL, PRIMARY KEY (consumer_name, content_digest));
INSERT INTO consign_conflict VALUES
    ('c', 'k', 'd2', 'e2', 'e1', 'amount=2', 'amount=1', 'q', x'02', 1, 3, '2026-01-02', '2026-01-02', NULL, NULL),
    ('c', 'k', 'd1', 'e3', 'e1', 'amount=3', 'amount=1', 'q', x'03', 1, 4, '2026-01-01', '2026-01-03', '2026-01-04', 'x');
INSERT INTO consign_dead_delivery VALUES
    ('c', 'd', 'k', 'm', 't', 'q', 'no such account', '{\"a\":\"b\"}', x'ff', 100000, 2, '2026-01-01', '2026-01-02', NULL,
    NULL);";

#[tokio::test]
async fn records_without_ids_are_moved_into_tables_with_ids() {
    let file = File::empty().await;
    file.run(WITHOUT_IDS).await;
    let schema = file.schema().await;

    let plan = schema.plan().await.unwrap();
    assert!(plan.iter().any(|sql| sql.contains("INSERT INTO \"consign_conflict_next\"")), "{plan:#?}");
    assert_eq!(file.number("SELECT COUNT(*) FROM sqlite_schema WHERE name LIKE '%next%'").await, 0);
    assert_eq!(schema.apply().await.unwrap(), plan);

    assert!(schema.plan().await.unwrap().is_empty());
    let inbox = file.inbox().await;
    let [newer, older] = &inbox.conflicts(&ConflictFilter::default()).await.unwrap()[..] else { panic!() };
    assert_eq!((older.id, older.event_id.as_deref(), older.count), (1, Some("e3"), 4));
    assert_eq!((newer.id, newer.event_id.as_deref(), newer.count), (2, Some("e2"), 3));
    assert_eq!((&newer.payload[..], newer.message_id.as_deref()), (&[2_u8][..], None));
    let dead = inbox.dead_delivery(1).await.unwrap().expect("it is moved");
    assert_eq!((dead.reason.as_str(), dead.payload_bytes, dead.attempts), ("no such account", 100_000, None));
    assert_eq!(dead.headers, [("a".to_owned(), "b".to_owned())]);
    assert_eq!(file.number("SELECT COUNT(*) FROM sqlite_schema WHERE name LIKE '%next%'").await, 0);
    let audit = Audit::default();
    let cut = inbox.requeue_dead_delivery(1, &audit).await.unwrap_err();
    assert!(
        matches!(&cut, StoreError::Data(text) if text.contains("1 of the message's 100000 bytes")),
        "{cut}"
    );
}

/// Two deployments that migrate at once do the work once.
#[tokio::test(flavor = "multi_thread")]
async fn migrations_at_the_same_time_run_one_after_the_other() {
    let file = File::empty().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let schema = file.schema().await;
        tasks.spawn(async move { schema.apply().await.unwrap().len() });
    }

    let mut applied = tasks.join_all().await;

    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 9]);
}
