//! What `doctor` reports about order on any database.

use consign_core::finding::Finding;

use crate::introspection::{ColumnKind, TableShape};
use crate::mapping::{Identifier, OutboxMapping};
use crate::order::index_columns;

/// What the columns of a table promise.
pub(crate) fn columns(table: &Identifier, shape: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(if shape.has("sequence") {
        Finding::fine("outbox-order-sequence", table.as_str(), "sequence is the order within an aggregate")
    } else {
        Finding::warning(
            "outbox-order-sequence",
            table.as_str(),
            "lacks sequence, so the order is that of created_at, then event_id: events of one aggregate with the same \
             created_at come in any order, and producers whose clocks differ, or that write another time zone, \
             exchange theirs",
            "add an auto-increment column and map it to sequence, when no event is waiting",
        )
    });
    if let Some(column) = shape.column("sequence")
        && column.kind != ColumnKind::Integer
    {
        findings.push(Finding::error(
            "outbox-order-sequence",
            format!("{table}.{}", column.name),
            format!("is {}, which may sort otherwise than it counts", column.declared),
            "make it BIGINT NOT NULL AUTO_INCREMENT with a unique key",
        ));
    }
    if let Some(column) = shape.column("aggregate_id")
        && matches!(column.kind, ColumnKind::Float | ColumnKind::Json | ColumnKind::Other)
    {
        findings.push(Finding::error(
            "outbox-order-type",
            format!("{table}.{}", column.name),
            format!("is {}: aggregates may be taken for each other, or not be found again", column.declared),
            "make it BIGINT or VARCHAR(128)",
        ));
    }
    findings
}

/// The table has no index to find the earliest rows of an aggregate by.
pub(crate) fn missing_index(mapping: &OutboxMapping, shape: &TableShape, quote: char) -> Finding {
    let mut names = index_columns(shape).to_vec();
    if shape.has("aggregate_type") {
        names.push("aggregate_type");
    }
    let quoted: Vec<String> = names.iter().map(|name| mapping.names()[name].quoted(quote)).collect();
    Finding::warning(
        "outbox-order-index",
        mapping.table().as_str(),
        format!(
            "no index begins with {}: each ordered claim reads all unfinished rows",
            index_columns(shape).join(", ")
        ),
        format!(
            "run `consign migrate`, or CREATE INDEX idx_aggregate ON {} ({})",
            mapping.table().quoted(quote),
            quoted.join(", ")
        ),
    )
}
