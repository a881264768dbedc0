//! Findings: what `doctor` reports about a file and the tables in it.

use consign_core::finding::Finding;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{Row, SqliteConnection, query, raw_sql};

use crate::introspection::{Column, ColumnKind, TableShape};
use crate::mapping::{
    Identifier, MARKER_OPTIONAL, MarkerMapping, Names, OUTBOX_OPTIONAL, OUTBOX_REQUIRED, OutboxMapping,
};
use crate::sqlite::connection::{Database, UnitError};
use crate::sqlite::introspection;
use crate::sqlite::outbox::count;
use crate::sqlite::schema::has_pending_index;
use crate::sqlite::statement::{CLAIM_SELECT, OUTBOX_FUTURE, SESSION_FACTS, SESSION_ISOLATION, Text};

const MIGRATE: &str = "run `consign migrate`";
/// `PRAGMA synchronous` of a session that makes each COMMIT durable.
const FULL: i64 = 2;
/// The tables an inbox needs beside its markers, and what is missing without each.
const OWN_TABLES: [(&str, &str); 5] = [
    ("consign_conflict", "conflicts cannot be recorded"),
    ("consign_dead_delivery", "dead deliveries cannot be recorded"),
    ("consign_progress", "guards cannot work"),
    ("consign_parked_delivery", "deliveries wait in hand, in front of their queue"),
    ("consign_audit", "nobody can resolve a conflict or requeue a delivery"),
];
/// Those that an earlier version made without ids.
const RECORDS: [&str; 2] = ["consign_conflict", "consign_dead_delivery"];
/// The process's clock may differ from the database's by this much before it is worth a word.
const SKEW_MICROS_MAX: i64 = 2_000_000;

impl Database {
    /// Checks the file and the sessions consign uses. `process_micros` is the process's own clock, in microseconds
    /// since the Unix epoch; both are this machine's, so they should agree.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn findings(&self, process_micros: i64) -> Result<Vec<Finding>, StoreError> {
        let file = self.path().display().to_string();
        self.read(move |connection| {
            async move { file_findings(connection, &file, process_micros).await }.boxed()
        })
        .await
    }
}

async fn file_findings(
    connection: &mut SqliteConnection,
    file: &str,
    process_micros: i64,
) -> Result<Vec<Finding>, UnitError> {
    let mode: String = raw_sql(SESSION_ISOLATION).fetch_one(&mut *connection).await?.try_get(0)?;
    let facts = query(SESSION_FACTS).persistent(false).fetch_one(connection).await?;
    let version: String = facts.try_get("version")?;
    let synchronous: i64 = facts.try_get("synchronous")?;
    let encoding: String = facts.try_get("encoding")?;
    let now: i64 = facts.try_get("now_micros")?;
    let mut findings = vec![Finding::fine("server-version", file, format!("SQLite {version}"))];
    findings.push(if mode.eq_ignore_ascii_case("wal") {
        Finding::fine("sqlite-journal", file, "the journal mode is WAL")
    } else {
        Finding::error(
            "sqlite-journal",
            file,
            format!("the journal mode is {mode}, so that readers and the writer shut each other out"),
            "keep the file on a local file system with shared memory, not on a network",
        )
    });
    if synchronous < FULL {
        findings.push(Finding::error(
            "sqlite-synchronous",
            file,
            "a power cut may take back what was committed",
            "look for another setting of PRAGMA synchronous in this process",
        ));
    }
    if encoding != "UTF-8" {
        findings.push(Finding::error(
            "sqlite-encoding",
            file,
            format!("text is stored as {encoding}, so that payloads would be passed on in it"),
            "move the data to a new file with PRAGMA encoding = 'UTF-8'",
        ));
    }
    if now.abs_diff(process_micros) > SKEW_MICROS_MAX.unsigned_abs() {
        findings.push(Finding::warning(
            "clock-skew",
            file,
            "SQLite's clock and the process's differ, although both are this machine's",
            "look for a tool that fakes the time of this process",
        ));
    }
    Ok(findings)
}

/// Checks an outbox table.
pub(crate) async fn outbox(database: &Database, mapping: &OutboxMapping) -> Result<Vec<Finding>, StoreError> {
    let mapping = mapping.clone();
    database.read(move |connection| async move { outbox_findings(connection, &mapping).await }.boxed()).await
}

/// Checks a marker table and consign's own tables beside it.
pub(crate) async fn inbox(database: &Database, mapping: &MarkerMapping) -> Result<Vec<Finding>, StoreError> {
    let mapping = mapping.clone();
    database.read(move |connection| async move { inbox_findings(connection, &mapping).await }.boxed()).await
}

async fn outbox_findings(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
) -> Result<Vec<Finding>, UnitError> {
    let table = mapping.table();
    introspection::check_file(table)?;
    let names = mapping.names();
    let Some(shape) = introspection::shape(connection, OutboxMapping::TABLE, names).await? else {
        return Ok(vec![Finding::error(
            "outbox-table-missing",
            table.as_str(),
            "there is no such table",
            MIGRATE,
        )]);
    };
    let mut findings = Vec::new();
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
    findings.push(unique_key(connection, table, "outbox-key", &[names["event_id"].as_str()]).await?);
    if has_pending_index(connection, mapping).await? {
        findings.push(Finding::fine("outbox-index", table.as_str(), "the index of pending rows is there"));
    } else {
        findings.push(Finding::error(
            "outbox-index",
            table.as_str(),
            "no index on status, available_at, event_id: every claim would sort all due rows",
            MIGRATE,
        ));
    }
    findings.push(claim_plan(connection, mapping, &shape).await?);
    findings.extend(waiting_rows(connection, mapping, &shape).await?);
    Ok(findings)
}

fn outbox_columns(table: &Identifier, shape: &TableShape) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(column) = shape.column("event_id").filter(|column| column.kind != ColumnKind::Text) {
        findings.push(Finding::error(
            "outbox-key-type",
            subject(table, column),
            format!("is {:?}, and ids are compared as text", column.declared),
            "make it a text column such as VARCHAR(64)",
        ));
    }
    for (name, least) in [("status", 9), ("lease_token", 32)] {
        let column = shape.column(name).filter(|column| column.length.is_some_and(|length| length < least));
        findings.extend(column.map(|column| {
            Finding::error(
                "outbox-column-short",
                subject(table, column),
                format!("{} holds fewer than {least} characters", column.declared),
                "widen it",
            )
        }));
    }
    for name in ["available_at", "locked_until", "created_at", "sent_at"] {
        let numeric = [ColumnKind::Integer, ColumnKind::Float];
        let column = shape.column(name).filter(|column| numeric.contains(&column.kind));
        findings.extend(column.map(|column| {
            Finding::error(
                "outbox-date-type",
                subject(table, column),
                format!("is {:?}, and dates are kept as text in UTC", column.declared),
                "make it a text column",
            )
        }));
    }
    let exact = [ColumnKind::Text, ColumnKind::Bytes];
    if let Some(column) = shape.column("payload").filter(|column| !exact.contains(&column.kind)) {
        findings.push(Finding::warning(
            "outbox-payload-json",
            subject(table, column),
            format!("{:?} turns text that looks like a number into one: 1.10 becomes 1.1", column.declared),
            "declare it BLOB or TEXT when payloads may be bare numbers",
        ));
    }
    findings
}

async fn claim_plan(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Finding, UnitError> {
    let claim = Text::new(CLAIM_SELECT, mapping.names(), shape);
    let explain = Text::rendered(format!("EXPLAIN QUERY PLAN {}", claim.as_str()));
    let rows = query(explain.sql()).bind(100_u32).persistent(false).fetch_all(connection).await?;
    let steps = rows.iter().map(|row| row.try_get::<String, _>("detail")).collect::<Result<Vec<_>, _>>()?;
    let plan = steps.join("; ");
    let table = mapping.table().as_str();
    let searches = plan.starts_with("SEARCH") && plan.contains("INDEX");
    if searches && !plan.contains("TEMP B-TREE") {
        return Ok(Finding::fine("outbox-claim-plan", table, format!("the claim reads in order: {plan}")));
    }
    Ok(Finding::error(
        "outbox-claim-plan",
        table,
        format!("the claim does not read the due rows in order: {plan}"),
        "create the index on status, available_at, event_id, then run ANALYZE",
    ))
}

/// Rows that wait for long, or for ever.
async fn waiting_rows(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Vec<Finding>, UnitError> {
    const DATES: &str = "let producers write UTC, as strftime('%Y-%m-%d %H:%M:%f000', 'now') does";
    let text = Text::new(OUTBOX_FUTURE, mapping.names(), shape);
    let row = query(text.sql()).persistent(false).fetch_one(connection).await?;
    let number = |name: &str| row.try_get(name).map(count);
    let (future, ids, dates) = (number("future")?, number("ids")?, number("dates")?);
    let table = mapping.table().as_str();
    let mut findings = vec![if future == 0 {
        Finding::fine("outbox-due-far", table, "no row is due later than a day from now")
    } else {
        let text = format!("{future} rows are due more than a day from now");
        Finding::warning("outbox-due-far", table, text, format!("if they were not meant to wait, {DATES}"))
    }];
    if ids > 0 {
        let text = format!("{ids} waiting rows have an id that is no text: no claim takes them");
        findings.push(Finding::error("outbox-key-type", table, text, "write ids as text"));
    }
    if dates > 0 {
        let text = format!("available_at of {dates} waiting rows is not of the form YYYY-MM-DD HH:MM:SS");
        findings.push(Finding::error("outbox-date-form", table, text, DATES));
    }
    Ok(findings)
}

async fn inbox_findings(
    connection: &mut SqliteConnection,
    mapping: &MarkerMapping,
) -> Result<Vec<Finding>, UnitError> {
    let table = mapping.table();
    introspection::check_file(table)?;
    let names = mapping.names();
    let mut findings = Vec::new();
    match introspection::shape(connection, MarkerMapping::TABLE, names).await? {
        None => findings.push(Finding::error(
            "marker-table-missing",
            table.as_str(),
            "there is no such table",
            MIGRATE,
        )),
        Some(shape) => {
            findings.extend(marker_columns(table, &shape));
            let optional = shape.missing(&MARKER_OPTIONAL);
            if !optional.is_empty() {
                findings.push(Finding::warning(
                    "marker-column-optional",
                    table.as_str(),
                    format!("lacks {}, so what they bring is not available", optional.join(", ")),
                    MIGRATE,
                ));
            }
            let key = ["consumer_name", "business_key"].map(|column| names[column].as_str());
            findings.push(unique_key(connection, table, "marker-key", &key).await?);
        }
    }
    for (own, use_of_it) in OWN_TABLES {
        findings.extend(own_table(connection, own, use_of_it).await?);
    }
    Ok(findings)
}

/// A table of consign's own: whether it is there, and as this version makes it.
async fn own_table(
    connection: &mut SqliteConnection,
    table: &'static str,
    use_of_it: &str,
) -> Result<Option<Finding>, UnitError> {
    let name = Identifier::table(table).expect("a constant name");
    let Some(shape) = introspection::shape(connection, table, &Names::from([(table, name)])).await? else {
        return Ok(Some(Finding::error(
            "inbox-table-missing",
            table,
            format!("there is no such table, so {use_of_it}"),
            MIGRATE,
        )));
    };
    let outdated = RECORDS.contains(&table) && !shape.others.contains_key("id");
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
            Some(column) if column.kind == ColumnKind::Text => {}
            Some(column) => findings.push(Finding::error(
                "marker-key-type",
                subject(table, column),
                format!("is {:?} and turns keys that look like numbers into ones", column.declared),
                "make it a text column such as VARCHAR(128)",
            )),
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
            format!("is {:?}: values close to each other may compare equal", column.declared),
            "make it BIGINT or a text column when consumers compare it",
        ));
    }
    findings
}

/// Checks that exactly these columns are unique together, compared byte by byte.
async fn unique_key(
    connection: &mut SqliteConnection,
    table: &Identifier,
    code: &'static str,
    columns: &[&str],
) -> Result<Finding, UnitError> {
    let indexes = introspection::indexes(connection, table).await?;
    let key = indexes
        .values()
        .find(|index| index.unique && index.columns.len() == columns.len() && index.covers(columns));
    let list = columns.join(" and ");
    let table = table.as_str();
    Ok(match key {
        None => Finding::error(
            code,
            table,
            format!("no unique key on exactly {list}: repeats would be taken twice"),
            "make it the primary key",
        ),
        Some(key) if key.columns.iter().any(|(_, collation)| collation != "BINARY") => Finding::error(
            code,
            table,
            format!("the key on {list} takes Order:42 and order:42 for the same"),
            "use the BINARY collation",
        ),
        Some(_) => Finding::fine(code, table, format!("{list} is unique, compared byte by byte")),
    })
}

fn subject(table: &Identifier, column: &Column) -> String {
    format!("{table}.{}", column.name)
}
