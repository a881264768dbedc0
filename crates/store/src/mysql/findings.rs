//! Findings: what `doctor` reports about a server and the tables on it.

use consign_core::finding::Finding;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query, raw_sql};

use crate::introspection::{Column, ColumnKind, TableShape, Unit};
use crate::mapping::{
    Identifier, MARKER_OPTIONAL, MarkerMapping, OUTBOX_OPTIONAL, OUTBOX_REQUIRED, OutboxMapping,
};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::introspection;
use crate::mysql::outbox::count;
use crate::mysql::schema::{CONFLICT_ADDED, DEAD_DELIVERY_ADDED, has_pending_index, own_columns};
use crate::mysql::statement::{CLAIM_SELECT, OUTBOX_FUTURE, SESSION_FACTS, Text};

mod server;

const MIGRATE: &str = "run `consign migrate`";

/// consign's own tables beside the markers, and what goes wrong without each.
const OWN_TABLES: [(&str, &str); 5] = [
    ("consign_conflict", "conflicts cannot be recorded"),
    ("consign_dead_delivery", "dead deliveries cannot be recorded"),
    ("consign_progress", "guards cannot work"),
    ("consign_parked_delivery", "deliveries wait in hand, in front of their queue"),
    ("consign_audit", "nobody can resolve a conflict or requeue a delivery"),
];

impl Database {
    /// Checks the server and the sessions consign uses. `process_micros` is the process's own clock, in microseconds
    /// since the Unix epoch: consign never relies on it, but people compare its logs with the database's dates.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn findings(&self, process_micros: i64) -> Result<Vec<Finding>, StoreError> {
        let time_zone = self.time_zone().map(str::to_owned);
        self.read(Lane::General, move |connection| {
            async move {
                let row = raw_sql(Text::own(SESSION_FACTS).sql()).fetch_one(connection).await?;
                Ok(server::findings(&row, time_zone.as_deref(), process_micros)?)
            }
            .boxed()
        })
        .await
    }
}

/// Checks an outbox table.
pub(crate) async fn outbox(database: &Database, mapping: &OutboxMapping) -> Result<Vec<Finding>, StoreError> {
    let mapping = mapping.clone();
    database
        .read(Lane::General, move |connection| {
            async move { outbox_findings(connection, &mapping).await }.boxed()
        })
        .await
}

/// Checks a marker table and consign's own tables beside it.
pub(crate) async fn inbox(database: &Database, mapping: &MarkerMapping) -> Result<Vec<Finding>, StoreError> {
    let mapping = mapping.clone();
    database
        .read(Lane::General, move |connection| {
            async move { inbox_findings(connection, &mapping).await }.boxed()
        })
        .await
}

async fn outbox_findings(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
) -> Result<Vec<Finding>, UnitError> {
    let table = mapping.table();
    let names = mapping.names();
    let Some(shape) = introspection::shape(connection, OutboxMapping::TABLE, names).await? else {
        return Ok(vec![Finding::error(
            "outbox-table-missing",
            table.as_str(),
            "there is no such table",
            MIGRATE,
        )]);
    };
    let mut findings = engine(connection, table).await?;
    let lacking = shape.missing(&OUTBOX_REQUIRED);
    if !lacking.is_empty() {
        findings.push(Finding::error(
            "outbox-column-missing",
            table.as_str(),
            format!("lacks {}", lacking.join(", ")),
            "map them to the columns the table has, in the config",
        ));
        return Ok(findings);
    }
    // Ordered publishing is what `sequence` is for, and a migration does not add it to a table with rows.
    let optional: Vec<&str> =
        shape.missing(&OUTBOX_OPTIONAL).into_iter().filter(|column| *column != "sequence").collect();
    if !optional.is_empty() {
        findings.push(Finding::warning(
            "outbox-column-optional",
            table.as_str(),
            format!("lacks {}, so what they bring is not available", optional.join(", ")),
            MIGRATE,
        ));
    }
    findings.extend(outbox_columns(table, &shape));
    if has_pending_index(connection, mapping).await? {
        findings.push(Finding::fine("outbox-index", table.as_str(), "the index of pending rows is there"));
    } else {
        findings.push(Finding::error(
            "outbox-index",
            table.as_str(),
            "no index on status, available_at, event_id: every claim would sort and lock all due rows",
            MIGRATE,
        ));
    }
    findings.push(claim_plan(connection, mapping, &shape).await?);
    findings.push(future_rows(connection, mapping, &shape).await?);
    Ok(findings)
}

fn outbox_columns(table: &Identifier, shape: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in ["available_at", "locked_until", "created_at", "sent_at"] {
        findings.extend(shape.column(name).and_then(|column| date(table, column)));
    }
    for (name, least) in [("status", 9), ("lease_token", 32)] {
        findings.extend(shape.column(name).and_then(|column| short(table, column, least)));
    }
    if let Some(column) = shape.column("event_id") {
        findings.extend(key_column("outbox-key-collation", table, column, Finding::warning));
        if column.kind != ColumnKind::Text {
            findings.push(Finding::error(
                "outbox-key-type",
                subject(table, column),
                format!("is {}, and ids are compared as text", column.declared),
                "make it a text column such as VARCHAR(64)",
            ));
        }
    }
    if let Some(column) = shape.column("attempts")
        && (column.kind != ColumnKind::Integer || column.declared.starts_with("tinyint"))
    {
        findings.push(Finding::warning(
            "outbox-attempts-type",
            subject(table, column),
            format!("is {} and overflows early", column.declared),
            "make it INT",
        ));
    }
    findings.extend(shape.column("payload").and_then(|column| payload(table, column)));
    findings
}

fn payload(table: &Identifier, column: &Column) -> Option<Finding> {
    const SMALL_BYTES: u64 = 1 << 20;
    if column.kind == ColumnKind::Json {
        return Some(Finding::warning(
            "outbox-payload-json",
            subject(table, column),
            "not byte-exact: the JSON type changes key order and spacing and rounds numbers beyond a double's \
             precision; rows already rounded cannot be told from others",
            "use LONGBLOB when consumers verify signatures or carry numbers beyond 2^53",
        ));
    }
    if column.length.is_some_and(|length| length < SMALL_BYTES) {
        return Some(Finding::warning(
            "outbox-payload-small",
            subject(table, column),
            format!("{} holds little", column.declared),
            "make it LONGBLOB",
        ));
    }
    None
}

fn date(table: &Identifier, column: &Column) -> Option<Finding> {
    if column.kind != ColumnKind::DateTime {
        return Some(Finding::error(
            "outbox-date-type",
            subject(table, column),
            format!("is {}, not a date", column.declared),
            "make it DATETIME(6)",
        ));
    }
    (column.fraction != Some(6)).then(|| {
        Finding::error(
            "outbox-date-precision",
            subject(table, column),
            format!(
                "{} rounds or cuts to whole seconds, so delays and leases are off by up to one",
                column.declared
            ),
            "make it DATETIME(6)",
        )
    })
}

fn short(table: &Identifier, column: &Column, least: u64) -> Option<Finding> {
    column.length.is_some_and(|length| length < least).then(|| {
        Finding::error(
            "outbox-column-short",
            subject(table, column),
            format!("{} holds fewer than {least} characters", column.declared),
            "widen it",
        )
    })
}

async fn claim_plan(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Finding, UnitError> {
    let claim = Text::new(CLAIM_SELECT, mapping.names(), shape);
    let explain = Text::rendered(format!("EXPLAIN FORMAT=TRADITIONAL {}", claim.as_str()));
    let row = query(explain.sql()).bind(100_u32).persistent(false).fetch_one(connection).await?;
    let cell = |name: &str| row.try_get_unchecked::<Option<String>, _>(name).map(Option::unwrap_or_default);
    let (access, key, extra) = (cell("type")?, cell("key")?, cell("Extra")?);
    let table = mapping.table().as_str();
    if access == "ALL" || extra.contains("filesort") {
        return Ok(Finding::error(
            "outbox-claim-plan",
            table,
            format!(
                "the claim reads the table with access {access}, index {key:?}, {extra:?}: it would lock rows it does not take"
            ),
            "create the index on status, available_at, event_id, then run ANALYZE TABLE",
        ));
    }
    Ok(Finding::fine("outbox-claim-plan", table, format!("the claim reads index {key} in order")))
}

async fn future_rows(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Finding, UnitError> {
    let text = Text::new(OUTBOX_FUTURE, mapping.names(), shape);
    let rows = count(query(text.sql()).persistent(false).fetch_one(connection).await?.try_get_unchecked(0)?);
    let table = mapping.table().as_str();
    if rows == 0 {
        return Ok(Finding::fine("outbox-due-far", table, "no row is due later than a day from now"));
    }
    Ok(Finding::warning(
        "outbox-due-far",
        table,
        format!("{rows} rows are due more than a day from now"),
        "if they were not meant to wait, producers write dates in another time zone: set store.time_zone to theirs",
    ))
}

async fn inbox_findings(
    connection: &mut MySqlConnection,
    mapping: &MarkerMapping,
) -> Result<Vec<Finding>, UnitError> {
    let table = mapping.table();
    let mut findings = Vec::new();
    match introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await? {
        None => findings.push(Finding::error(
            "marker-table-missing",
            table.as_str(),
            "there is no such table",
            MIGRATE,
        )),
        Some(shape) => {
            findings.extend(engine(connection, table).await?);
            findings.extend(marker_columns(table, &shape));
            let optional = shape.missing(&MARKER_OPTIONAL);
            if !optional.is_empty() {
                findings.push(Finding::warning(
                    "marker-column-optional",
                    table.as_str(),
                    format!("lacks {}: {}", optional.join(", "), without(&optional)),
                    MIGRATE,
                ));
            }
            findings.push(marker_key(connection, mapping).await?);
        }
    }
    for (own, use_of_it) in OWN_TABLES {
        findings.extend(own_table(connection, own, use_of_it).await?);
    }
    Ok(findings)
}

/// What is not available without these optional columns of the marker table.
fn without(columns: &[&str]) -> String {
    let effect = |column: &&str| match *column {
        "fingerprint" => "consumers cannot compare by fingerprint",
        "applied_at" => "no marker is known to be old, so none can be purged",
        "aggregate_version" => "markers do not show versions",
        "comparison_version" => "a comparison cannot change without turning history into conflicts",
        _ => "it is not used",
    };
    columns.iter().map(effect).collect::<Vec<_>>().join("; ")
}

/// A table of consign's own: whether it is there, and as this version makes it.
async fn own_table(
    connection: &mut MySqlConnection,
    table: &'static str,
    use_of_it: &str,
) -> Result<Option<Finding>, UnitError> {
    let added: &[&'static str] = match table {
        "consign_conflict" => &CONFLICT_ADDED,
        "consign_dead_delivery" => &DEAD_DELIVERY_ADDED,
        _ => &[],
    };
    let Some(present) = own_columns(connection, table, added).await? else {
        return Ok(Some(Finding::error(
            "inbox-table-missing",
            table,
            format!("there is no such table, so {use_of_it}"),
            MIGRATE,
        )));
    };
    let outdated = added.iter().any(|column| !present.contains(*column));
    Ok(outdated.then(|| {
        Finding::error(
            "inbox-table-outdated",
            table,
            format!("an earlier version of consign made it, so {use_of_it}"),
            MIGRATE,
        )
    }))
}

fn marker_columns(table: &Identifier, shape: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in ["consumer_name", "business_key"] {
        match shape.column(name) {
            Some(column) => {
                findings.extend(key_column("marker-key-collation", table, column, Finding::error));
            }
            None => findings.push(Finding::error(
                "marker-column-missing",
                table.as_str(),
                format!("lacks {name}"),
                "map it to the column the table has, in the config",
            )),
        }
    }
    for column in shape.others.values().filter(|column| column.kind == ColumnKind::Float) {
        findings.push(Finding::warning(
            "marker-comparison-float",
            subject(table, column),
            format!("is {}: values close to each other may compare equal", column.declared),
            "make it DECIMAL when consumers compare it",
        ));
    }
    findings
}

async fn marker_key(connection: &mut MySqlConnection, mapping: &MarkerMapping) -> Result<Finding, UnitError> {
    let names = mapping.names();
    let mut wanted =
        ["consumer_name", "business_key"].map(|column| names[column].as_str().to_ascii_lowercase());
    wanted.sort();
    let unique = introspection::unique_indexes(connection, mapping.table()).await?;
    let found = unique.into_iter().any(|mut columns| {
        columns.sort();
        columns == wanted
    });
    let table = mapping.table().as_str();
    Ok(if found {
        Finding::fine("marker-key", table, "consumer_name and business_key are unique together")
    } else {
        Finding::error(
            "marker-key",
            table,
            "no unique key on exactly consumer_name and business_key: repeats would be applied again",
            "make them the primary key",
        )
    })
}

async fn engine(connection: &mut MySqlConnection, table: &Identifier) -> Result<Vec<Finding>, UnitError> {
    let engine = introspection::engine(connection, table).await?.unwrap_or_default();
    if engine.eq_ignore_ascii_case("innodb") {
        return Ok(Vec::new());
    }
    Ok(vec![Finding::error(
        "table-engine",
        table.as_str(),
        format!("the engine is {engine:?}, which has no transactions"),
        "use ENGINE = InnoDB",
    )])
}

/// Reports a collation that takes different keys for the same: as `loud` says for case, as a warning for padding.
pub(crate) fn key_column(
    code: &'static str,
    table: &Identifier,
    column: &Column,
    loud: fn(&'static str, String, String, String) -> Finding,
) -> Option<Finding> {
    let collation = column.collation.as_deref()?;
    let exact = collation.ends_with("_bin") || collation.contains("_cs") || collation == "binary";
    let unpadded = collation.contains("_0900_") || collation.contains("nopad") || collation == "binary";
    let fix = "use utf8mb4_0900_bin (MySQL) or utf8mb4_nopad_bin (MariaDB)".to_owned();
    if !exact {
        let text = format!("{collation} takes Order:42 and order:42 for the same key");
        return Some(loud(code, subject(table, column), text, fix));
    }
    if !unpadded && column.unit == Unit::Characters {
        let text = format!("{collation} ignores spaces at the end of a key");
        return Some(Finding::warning(code, subject(table, column), text, fix));
    }
    None
}

fn subject(table: &Identifier, column: &Column) -> String {
    format!("{table}.{}", column.name)
}

/// A text cell of the facts.
fn cell(row: &MySqlRow, name: &str) -> Result<String, sqlx::Error> {
    Ok(row.try_get_unchecked::<Option<String>, _>(name)?.unwrap_or_default())
}
