//! Creating and extending tables.

use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::mysql::{PayloadColumn, Schema};

use crate::mysql::server::{Bench, Server};

on_both_servers!(
    what_was_applied_is_not_planned_again,
    the_contracts_tables_are_extended_and_keep_their_rows,
    migrations_at_the_same_time_do_not_fail,
);

fn schema(bench: &Bench) -> Schema {
    let kinds = [
        ("user_id", ValueType::Integer),
        ("price", ValueType::Decimal),
        ("currency", ValueType::String),
        ("gift", ValueType::Boolean),
        ("basket", ValueType::Json),
    ];
    let columns =
        kinds.map(|(name, kind)| ComparisonColumn { name: Identifier::column(name).unwrap(), kind });
    Schema::new(bench.database())
        .with_outbox(OutboxMapping::default(), PayloadColumn::Json)
        .with_markers(MarkerMapping::default())
        .with_comparison(columns.to_vec())
}

async fn what_was_applied_is_not_planned_again(server: Server) {
    let bench = Bench::new(server).await;
    let planned = schema(&bench).plan().await.unwrap();

    let applied = schema(&bench).apply().await.unwrap();

    assert_eq!(applied.len(), planned.len());
    assert!(applied.len() >= 10, "five tables and five comparison columns: {applied:?}");
    assert_eq!(schema(&bench).plan().await.unwrap(), Vec::<String>::new());
}

async fn the_contracts_tables_are_extended_and_keep_their_rows(server: Server) {
    let bench = Bench::contract(server).await;
    bench.insert("kept").await;

    schema(&bench).apply().await.unwrap();

    assert_eq!(bench.status_of("kept").await, "NEW");
    assert_eq!(bench.number("SELECT COUNT(*) FROM outbox_event WHERE last_outcome IS NULL").await, 1);
    assert_eq!(bench.number("SELECT COUNT(price) FROM consumed_operation").await, 0);
}

async fn migrations_at_the_same_time_do_not_fail(server: Server) {
    let bench = Bench::new(server).await;

    let (first, second) = (schema(&bench), schema(&bench));
    let (first, second) = tokio::join!(first.apply(), second.apply());

    first.unwrap();
    second.unwrap();
    assert_eq!(schema(&bench).plan().await.unwrap(), Vec::<String>::new());
}
