//! Creating and extending tables.

use consign_conformance::store::request::request;
use consign_core::ports::{OutboxStore, StoreError};
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::sqlite::{Outbox, Schema};

use crate::sqlite::file::{CONTRACT, File};

#[tokio::test]
async fn a_plan_changes_nothing_and_an_applied_one_leaves_nothing_to_do() {
    let file = File::empty().await;
    let schema = file.schema().await;

    let plan = schema.plan().await.unwrap();
    assert_eq!(plan.len(), 5);
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
    assert_eq!(applied, [0, 0, 0, 5]);
}
