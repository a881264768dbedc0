//! What `doctor` reports about a table whose events are to be published in order.

use consign_core::finding::Finding;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::MySqlConnection;

use super::{OrderedOutbox, aggregate_index};
use crate::introspection::TableShape;
use crate::mapping::{Identifier, OutboxMapping};
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::findings::key_column;
use crate::mysql::introspection;
use crate::order::findings::{columns, missing_index};

impl OrderedOutbox {
    /// Checks what the order of this outbox rests on. Looks at the table afresh; what [`Outbox::findings`] reports is
    /// not repeated.
    ///
    /// [`Outbox::findings`]: crate::mysql::Outbox::findings
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn ordered_findings(&self) -> Result<Vec<Finding>, StoreError> {
        let (mapping, partitions) = (self.outbox.mapping().clone(), self.settings().partitions);
        let reading = self.outbox.database().read(Lane::General, move |connection| {
            async move { findings(connection, &mapping, partitions).await }.boxed()
        });
        reading.await
    }
}

async fn findings(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
    partitions: u16,
) -> Result<Vec<Finding>, UnitError> {
    let (table, names) = (mapping.table(), mapping.names());
    let Some(shape) = introspection::shape(connection, OutboxMapping::TABLE, names).await? else {
        return Ok(Vec::new());
    };
    let mut findings = columns(table, &shape);
    findings.extend(same_aggregates(table, &shape));
    if let Some(column) = shape.column("sequence").filter(|column| column.nullable) {
        findings.push(Finding::error(
            "outbox-order-sequence",
            format!("{table}.{}", column.name),
            "may be NULL: rows without a number come before all others",
            "make it BIGINT NOT NULL AUTO_INCREMENT with a unique key",
        ));
    }
    if aggregate_index(connection, mapping, &shape).await?.is_some() {
        findings.push(Finding::fine(
            "outbox-order-index",
            table.as_str(),
            "the index of aggregates is there",
        ));
    } else {
        findings.push(missing_index(mapping, &shape, '`'));
    }
    if partitions > 0 {
        for own in ["consign_partition", "consign_relay"] {
            let name = Identifier::table(own).expect("a constant name");
            if introspection::engine(connection, &name).await?.is_none() {
                findings.push(Finding::error(
                    "outbox-order-table-missing",
                    own,
                    "there is no such table, so relays cannot share partitions",
                    "run `consign migrate`, or set relay.partitions to 0",
                ));
            }
        }
    }
    Ok(findings)
}

/// Keys that a collation takes for the same are one aggregate.
fn same_aggregates(table: &Identifier, shape: &TableShape) -> Vec<Finding> {
    let columns = ["aggregate_type", "aggregate_id"].into_iter().filter_map(|name| shape.column(name));
    columns
        .filter_map(|column| key_column("outbox-order-collation", table, column, Finding::warning))
        .collect()
}
