//! Creating tables, and adding what existing ones lack.

use std::collections::BTreeSet;

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection, raw_sql};

use crate::mapping::{
    ComparisonColumn, Identifier, MarkerMapping, Names, OUTBOX_OPTIONAL, OUTBOX_REQUIRED, OutboxMapping,
    own_names,
};
use crate::order::index_word;
use crate::sqlite::connection::{Database, UnitError, shielded};
use crate::sqlite::introspection;
use crate::sqlite::ordered::aggregate_index;
use crate::sqlite::statement::{
    ADD_COMPARISON_COLUMN, CREATE_CONSIGN_ATTEMPT, CREATE_CONSIGN_AUDIT, CREATE_CONSIGN_CONFLICT,
    CREATE_CONSIGN_DEAD_DELIVERY, CREATE_CONSIGN_PARKED_DELIVERY, CREATE_CONSIGN_PROGRESS,
    CREATE_CONSIGN_TRANSACTION, CREATE_CONSUMED_OPERATION, CREATE_OUTBOX_EVENT, EXTEND_CONSIGN_ATTEMPT,
    EXTEND_CONSIGN_CONFLICT, EXTEND_CONSIGN_DEAD_DELIVERY, EXTEND_CONSUMED_OPERATION, EXTEND_OUTBOX_EVENT,
    MIGRATE_LOCK, MIGRATE_UNLOCK, QUOTE, SESSION_UNLIMITED, Text,
};
use crate::statement::Rendering;

/// The tables of records, which an earlier version made without ids.
const RECORDS: [(&str, &str, &str); 2] = [
    ("consign_conflict", CREATE_CONSIGN_CONFLICT, EXTEND_CONSIGN_CONFLICT),
    ("consign_dead_delivery", CREATE_CONSIGN_DEAD_DELIVERY, EXTEND_CONSIGN_DEAD_DELIVERY),
];

/// The tables consign needs in one file.
#[derive(Clone, Debug)]
pub struct Schema {
    database: Database,
    outbox: Option<OutboxMapping>,
    ordered: bool,
    markers: Option<MarkerMapping>,
    comparison: Vec<ComparisonColumn>,
    transactions: bool,
}

impl Schema {
    /// No tables yet: add the outbox, the markers, or both.
    pub fn new(database: Database) -> Self {
        Self {
            database,
            outbox: None,
            ordered: false,
            markers: None,
            comparison: Vec::new(),
            transactions: false,
        }
    }

    /// With the outbox and the record of its attempts.
    #[must_use]
    pub fn with_outbox(mut self, mapping: OutboxMapping) -> Self {
        self.outbox = Some(mapping);
        self
    }

    /// With the index by which ordered claims find the earliest events of an aggregate. Every change of a row's status
    /// has to keep it up, so an outbox without ordered relays is better off without.
    #[must_use]
    pub fn with_order(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// With the markers, the records of conflicts and dead deliveries, progress for guards and parked deliveries.
    #[must_use]
    pub fn with_markers(mut self, mapping: MarkerMapping) -> Self {
        self.markers = Some(mapping);
        self
    }

    /// With these columns in the marker table, for consumers that compare by columns.
    #[must_use]
    pub fn with_comparison(mut self, columns: Vec<ComparisonColumn>) -> Self {
        self.comparison = columns;
        self
    }

    /// With the markers of transaction messages.
    #[must_use]
    pub fn with_transactions(mut self) -> Self {
        self.transactions = true;
        self
    }

    /// The statements [`Schema::apply`] would run now, none when nothing is missing. Changes nothing.
    ///
    /// # Errors
    /// The file cannot be read, or a table lacks a column that consign cannot add.
    pub async fn plan(&self) -> Result<Vec<String>, StoreError> {
        let schema = self.clone();
        self.database.read(move |connection| async move { schema.missing(connection).await }.boxed()).await
    }

    /// Creates and extends what is missing, all or nothing and one migration at a time per file; gives the statements
    /// that ran. The tables stay usable: columns are added as nullable ones. May be repeated.
    ///
    /// # Errors
    /// As [`Schema::plan`], or a statement failed: nothing is changed.
    pub async fn apply(&self) -> Result<Vec<String>, StoreError> {
        let schema = self.clone();
        shielded(async move {
            let mut connection = schema.database.dedicated().await?;
            let result = schema.migrate(&mut connection).await;
            // Closing rolls back what a failed migration left open.
            let _ = connection.close().await;
            result.map_err(UnitError::judged)
        })
        .await
        .unwrap_or_else(|| Err(StoreError::Unavailable("the runtime ended during the migration".into())))
    }

    async fn migrate(&self, connection: &mut SqliteConnection) -> Result<Vec<String>, UnitError> {
        raw_sql(SESSION_UNLIMITED).execute(&mut *connection).await?;
        raw_sql(MIGRATE_LOCK).execute(&mut *connection).await?;
        let statements = self.missing(connection).await?;
        for statement in &statements {
            // Rendered from this crate's files with validated names.
            raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
        }
        raw_sql(MIGRATE_UNLOCK).execute(connection).await?;
        Ok(statements)
    }

    async fn missing(&self, connection: &mut SqliteConnection) -> Result<Vec<String>, UnitError> {
        let mut statements = Vec::new();
        if let Some(mapping) = &self.outbox {
            statements.extend(missing_outbox(connection, mapping, self.ordered).await?);
            statements.extend(missing_attempts(connection).await?);
        }
        if self.outbox.is_some() || self.markers.is_some() {
            statements.extend(own_table(connection, "consign_audit", CREATE_CONSIGN_AUDIT).await?);
        }
        if let Some(mapping) = &self.markers {
            statements.extend(missing_markers(connection, mapping).await?);
            statements.extend(missing_comparison(connection, mapping, &self.comparison).await?);
            for (table, create, extend) in RECORDS {
                statements.extend(record_table(connection, table, create, extend).await?);
            }
            statements.extend(own_table(connection, "consign_progress", CREATE_CONSIGN_PROGRESS).await?);
            let parked =
                own_table(connection, "consign_parked_delivery", CREATE_CONSIGN_PARKED_DELIVERY).await?;
            statements.extend(parked);
        }
        if self.transactions {
            statements
                .extend(own_table(connection, "consign_transaction", CREATE_CONSIGN_TRANSACTION).await?);
        }
        Ok(statements)
    }
}

async fn missing_outbox(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
    ordered: bool,
) -> Result<Option<String>, UnitError> {
    introspection::check_file(mapping.table())?;
    let names = with_index_name(mapping);
    let Some(shape) = introspection::shape(connection, OutboxMapping::TABLE, mapping.names()).await? else {
        let words = ordered.then(|| "ordered".to_owned());
        return Ok(Some(render(CREATE_OUTBOX_EVENT, &names, &words.into_iter().collect())));
    };
    refuse_lacking(mapping.table(), &shape.missing(&OUTBOX_REQUIRED))?;
    let mut present = shape.present();
    if has_pending_index(connection, mapping).await? {
        present.insert("idx_pending".into());
    }
    let index = match index_word(&shape) {
        Some(word) if ordered && aggregate_index(connection, mapping, &shape).await?.is_none() => Some(word),
        _ => None,
    };
    present.extend(index.map(str::to_owned));
    // Not added to a table that exists, see the file.
    present.insert("sequence".into());
    let complete = index.is_none()
        && OUTBOX_OPTIONAL.iter().chain(&["idx_pending"]).all(|&column| present.contains(column));
    Ok((!complete).then(|| render(EXTEND_OUTBOX_EVENT, &names, &present)))
}

/// Names of indexes are the whole file's in SQLite: a second outbox table needs a second one.
fn with_index_name(mapping: &OutboxMapping) -> Names {
    let mut names = mapping.names().clone();
    let table = mapping.table().local();
    for (index, suffix) in [("idx_pending", "pending"), ("idx_aggregate", "aggregate")] {
        if table != OutboxMapping::TABLE
            && let Ok(name) = Identifier::column(&format!("{table}_{suffix}"))
        {
            names.insert(index, name);
        }
    }
    names
}

/// True when an index begins with status, available_at and event_id.
pub(crate) async fn has_pending_index(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
) -> Result<bool, sqlx::Error> {
    let wanted = ["status", "available_at", "event_id"].map(|column| mapping.names()[column].as_str());
    let indexes = introspection::indexes(connection, mapping.table()).await?;
    Ok(indexes.values().any(|index| index.starts_with(&wanted)))
}

async fn missing_markers(
    connection: &mut SqliteConnection,
    mapping: &MarkerMapping,
) -> Result<Option<String>, UnitError> {
    introspection::check_file(mapping.table())?;
    let names = mapping.names();
    let Some(shape) = introspection::shape(connection, MarkerMapping::TABLE, names).await? else {
        return Ok(Some(render(CREATE_CONSUMED_OPERATION, names, &BTreeSet::new())));
    };
    refuse_lacking(mapping.table(), &shape.missing(&["consumer_name", "business_key"]))?;
    let complete = shape.missing(&crate::mapping::MARKER_OPTIONAL).is_empty();
    Ok((!complete).then(|| render(EXTEND_CONSUMED_OPERATION, names, &shape.present())))
}

async fn missing_comparison(
    connection: &mut SqliteConnection,
    mapping: &MarkerMapping,
    columns: &[ComparisonColumn],
) -> Result<Vec<String>, UnitError> {
    let shape = introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
    let exists = |name: &str| {
        shape.as_ref().is_some_and(|shape| shape.others.contains_key(&name.to_ascii_lowercase()))
    };
    let lacking = columns.iter().filter(|column| !exists(column.name.as_str()));
    let statements = lacking.map(|column| {
        let mut names = mapping.names().clone();
        names.insert("comparison_column", column.name.clone());
        render(ADD_COMPARISON_COLUMN, &names, &BTreeSet::from([column.word().to_owned()]))
    });
    Ok(statements.collect())
}

/// Creates a table of records, or moves the rows of one that lacks its ids into one that has them.
async fn record_table(
    connection: &mut SqliteConnection,
    table: &'static str,
    create: &str,
    extend: &str,
) -> Result<Option<String>, UnitError> {
    let names = Names::from([(table, Identifier::table(table).expect("a constant name"))]);
    let Some(shape) = introspection::shape(connection, table, &names).await? else {
        return Ok(Some(Text::own(create).as_str().to_owned()));
    };
    if shape.others.contains_key("id") {
        return Ok(None);
    }
    let next = Identifier::table(&format!("{table}_next")).expect("a constant name");
    let create = render(create, &Names::from([(table, next)]), &BTreeSet::new());
    let moving = render(extend, &Names::new(), &BTreeSet::new());
    Ok(Some(format!("{create};\n{moving}")))
}

async fn missing_attempts(connection: &mut SqliteConnection) -> Result<Option<String>, UnitError> {
    let names = own_names("consign_attempt", &["started_at"]);
    let Some(shape) = introspection::shape(connection, "consign_attempt", &names).await? else {
        return Ok(Some(Text::own(CREATE_CONSIGN_ATTEMPT).as_str().to_owned()));
    };
    let complete = shape.has("started_at");
    Ok((!complete).then(|| render(EXTEND_CONSIGN_ATTEMPT, &Names::new(), &shape.present())))
}

async fn own_table(
    connection: &mut SqliteConnection,
    table: &str,
    file: &str,
) -> Result<Option<String>, UnitError> {
    let table = Identifier::table(table).expect("a constant name");
    let exists = introspection::kind(connection, &table).await?.is_some();
    Ok((!exists).then(|| Text::own(file).as_str().to_owned()))
}

fn refuse_lacking(table: &Identifier, lacking: &[&str]) -> Result<(), StoreError> {
    if lacking.is_empty() {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "{table} exists and lacks {}: map them to the columns it has, or name another table in the config",
        lacking.join(", ")
    )))
}

fn render(file: &str, names: &Names, present: &BTreeSet<String>) -> String {
    Rendering::new(QUOTE).names(names).present(present).render(file)
}
