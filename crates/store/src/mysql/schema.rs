//! Creating tables, and adding what existing ones lack.

use std::collections::BTreeSet;

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, raw_sql};

use crate::mapping::{
    ComparisonColumn, Identifier, MarkerMapping, Names, OUTBOX_OPTIONAL, OUTBOX_REQUIRED, OutboxMapping,
    own_names,
};
use crate::mysql::connection::{Database, Lane, UnitError, shielded};
use crate::mysql::introspection;
use crate::mysql::ordered::aggregate_index;
use crate::mysql::statement::{
    ADD_COMPARISON_COLUMN, CREATE_CONSIGN_ATTEMPT, CREATE_CONSIGN_AUDIT, CREATE_CONSIGN_CONFLICT,
    CREATE_CONSIGN_DEAD_DELIVERY, CREATE_CONSIGN_PARKED_DELIVERY, CREATE_CONSIGN_PARTITION,
    CREATE_CONSIGN_PROGRESS, CREATE_CONSIGN_RELAY, CREATE_CONSIGN_TRANSACTION, CREATE_CONSUMED_OPERATION,
    CREATE_OUTBOX_EVENT, EXTEND_CONSIGN_ATTEMPT, EXTEND_CONSIGN_CONFLICT, EXTEND_CONSIGN_DEAD_DELIVERY,
    EXTEND_CONSUMED_OPERATION, EXTEND_OUTBOX_EVENT, MIGRATE_LOCK, MIGRATE_UNLOCK, QUOTE, SESSION_UNLIMITED,
    Text,
};
use crate::order::index_word;
use crate::statement::Rendering;

/// consign's own tables beside an outbox and its attempts.
const OUTBOX_TABLES: [(&str, &str); 2] =
    [("consign_partition", CREATE_CONSIGN_PARTITION), ("consign_relay", CREATE_CONSIGN_RELAY)];

/// The type of the payload column in a new outbox. A table that exists keeps its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PayloadColumn {
    /// JSON: readable in SQL. MySQL stores it by value: key order and spacing change, and numbers beyond a double's
    /// precision are rounded. MariaDB keeps the text.
    #[default]
    Json,
    /// LONGBLOB: any bytes, kept exactly.
    LongBlob,
}

/// The tables consign needs in one database.
#[derive(Clone, Debug)]
pub struct Schema {
    database: Database,
    outbox: Option<OutboxMapping>,
    ordered: bool,
    markers: Option<MarkerMapping>,
    comparison: Vec<ComparisonColumn>,
    payload: PayloadColumn,
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
            payload: PayloadColumn::default(),
            transactions: false,
        }
    }

    /// With the outbox and the record of its attempts.
    #[must_use]
    pub fn with_outbox(mut self, mapping: OutboxMapping, payload: PayloadColumn) -> Self {
        self.outbox = Some(mapping);
        self.payload = payload;
        self
    }

    /// With the index by which ordered claims find the earliest events of an aggregate. Every change of a row's status
    /// has to keep it up, so an outbox without ordered relays is better off without.
    #[must_use]
    pub fn with_order(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// With the markers and the records of conflicts and dead deliveries.
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
    /// The server cannot be reached, or a table lacks a column that consign cannot add.
    pub async fn plan(&self) -> Result<Vec<String>, StoreError> {
        let schema = self.clone();
        self.database
            .read(Lane::General, move |connection| async move { schema.missing(connection).await }.boxed())
            .await
    }

    /// Creates and extends what is missing, one migration at a time per database; gives the statements that ran.
    /// The tables stay usable: columns are added as nullable ones. May be repeated.
    ///
    /// # Errors
    /// As [`Schema::plan`], or a statement failed: those before it stay.
    pub async fn apply(&self) -> Result<Vec<String>, StoreError> {
        let schema = self.clone();
        shielded(async move {
            let mut connection = schema.database.dedicated().await?;
            let result = schema.migrate(&mut connection).await;
            // Closing releases the lock as well.
            let _ = connection.close().await;
            result.map_err(|error| match error {
                UnitError::Sql(error) => schema.database.judge(&error),
                UnitError::Store(error) => error,
            })
        })
        .await
        .unwrap_or_else(|| Err(StoreError::Unavailable("the runtime ended during the migration".into())))
    }

    async fn migrate(&self, connection: &mut MySqlConnection) -> Result<Vec<String>, UnitError> {
        raw_sql(Text::own(SESSION_UNLIMITED).sql()).execute(&mut *connection).await?;
        let row = raw_sql(Text::own(MIGRATE_LOCK).sql()).fetch_one(&mut *connection).await?;
        if introspection::text(&row, 0)?.as_deref() != Some("1") {
            return Err(StoreError::Contended("another migration is running".into()).into());
        }
        let statements = self.missing(connection).await?;
        for statement in &statements {
            // Rendered from this crate's files with validated names.
            raw_sql(AssertSqlSafe(statement.clone())).execute(&mut *connection).await?;
        }
        raw_sql(Text::own(MIGRATE_UNLOCK).sql()).fetch_one(connection).await?;
        Ok(statements)
    }

    async fn missing(&self, connection: &mut MySqlConnection) -> Result<Vec<String>, UnitError> {
        let mut statements = Vec::new();
        if let Some(mapping) = &self.outbox {
            statements.extend(self.missing_outbox(connection, mapping).await?);
            statements.extend(missing_attempts(connection).await?);
            for (table, file) in OUTBOX_TABLES {
                statements.extend(own_table(connection, table, file).await?);
            }
        }
        if let Some(mapping) = &self.markers {
            statements.extend(missing_markers(connection, mapping).await?);
            statements.extend(missing_comparison(connection, mapping, &self.comparison).await?);
            statements.extend(missing_records(connection).await?);
            statements.extend(own_table(connection, "consign_progress", CREATE_CONSIGN_PROGRESS).await?);
            let parked =
                own_table(connection, "consign_parked_delivery", CREATE_CONSIGN_PARKED_DELIVERY).await?;
            statements.extend(parked);
        }
        if self.outbox.is_some() || self.markers.is_some() {
            statements.extend(own_table(connection, "consign_audit", CREATE_CONSIGN_AUDIT).await?);
        }
        if self.transactions {
            statements
                .extend(own_table(connection, "consign_transaction", CREATE_CONSIGN_TRANSACTION).await?);
        }
        Ok(statements)
    }

    async fn missing_outbox(
        &self,
        connection: &mut MySqlConnection,
        mapping: &OutboxMapping,
    ) -> Result<Option<String>, UnitError> {
        let names = mapping.names();
        let Some(shape) = introspection::shape(connection, OutboxMapping::TABLE, names).await? else {
            let words = [("longblob", self.payload == PayloadColumn::LongBlob), ("ordered", self.ordered)];
            let words = words.into_iter().filter(|(_, taken)| *taken).map(|(word, _)| word.to_owned());
            return Ok(Some(render(CREATE_OUTBOX_EVENT, names, &words.collect())));
        };
        refuse_lacking(mapping.table(), &shape.missing(&OUTBOX_REQUIRED))?;
        let mut present = shape.present();
        if has_pending_index(connection, mapping).await? {
            present.insert("idx_pending".into());
        }
        let index = match index_word(&shape) {
            Some(word) if self.ordered && aggregate_index(connection, mapping, &shape).await?.is_none() => {
                Some(word)
            }
            _ => None,
        };
        present.extend(index.map(str::to_owned));
        // Not added to a table with rows, see the file.
        present.insert("sequence".into());
        let complete = index.is_none()
            && OUTBOX_OPTIONAL.iter().chain(&["idx_pending"]).all(|&column| present.contains(column));
        Ok((!complete).then(|| render(EXTEND_OUTBOX_EVENT, names, &present)))
    }
}

/// True when an index begins with status, available_at and event_id.
pub(crate) async fn has_pending_index(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
) -> Result<bool, sqlx::Error> {
    let wanted = ["status", "available_at", "event_id"]
        .map(|column| mapping.names()[column].as_str().to_ascii_lowercase());
    let indexes = introspection::indexes(connection, mapping.table()).await?;
    // InnoDB appends the primary key to every index, so the id may be left out.
    Ok(indexes.iter().any(|columns| columns.starts_with(&wanted) || columns[..] == wanted[..2]))
}

async fn missing_markers(
    connection: &mut MySqlConnection,
    mapping: &MarkerMapping,
) -> Result<Option<String>, UnitError> {
    let names = mapping.names();
    let Some(shape) = introspection::shape(connection, MarkerMapping::TABLE, names).await? else {
        return Ok(Some(render(CREATE_CONSUMED_OPERATION, names, &BTreeSet::new())));
    };
    refuse_lacking(mapping.table(), &shape.missing(&["consumer_name", "business_key"]))?;
    let complete = shape.missing(&crate::mapping::MARKER_OPTIONAL).is_empty();
    Ok((!complete).then(|| render(EXTEND_CONSUMED_OPERATION, names, &shape.present())))
}

async fn missing_comparison(
    connection: &mut MySqlConnection,
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

/// What `consign_attempt` gained since its first version.
const ATTEMPT_ADDED: [&str; 1] = ["started_at"];

/// What `consign_conflict` gained since its first version.
pub(crate) const CONFLICT_ADDED: [&str; 6] =
    ["id", "message_id", "message_type", "headers", "existing_payload", "existing_payload_bytes"];

/// What `consign_dead_delivery` gained since its first version.
pub(crate) const DEAD_DELIVERY_ADDED: [&str; 2] = ["id", "attempts"];

/// The columns of a table of consign's own among those named, or `None` when there is no such table. A payload column
/// that takes everything is named `longblob`.
pub(crate) async fn own_columns(
    connection: &mut MySqlConnection,
    table: &'static str,
    columns: &[&'static str],
) -> Result<Option<BTreeSet<String>>, sqlx::Error> {
    let shape = introspection::shape(connection, table, &own_names(table, columns)).await?;
    Ok(shape.map(|shape| {
        let mut present = shape.present();
        let payload = shape.others.get("payload");
        if payload.is_some_and(|column| column.declared.eq_ignore_ascii_case("longblob")) {
            present.insert("longblob".into());
        }
        present
    }))
}

async fn missing_attempts(connection: &mut MySqlConnection) -> Result<Option<String>, UnitError> {
    let present = own_columns(connection, "consign_attempt", &ATTEMPT_ADDED).await?;
    Ok(missing_record(present, &ATTEMPT_ADDED, CREATE_CONSIGN_ATTEMPT, EXTEND_CONSIGN_ATTEMPT))
}

async fn missing_records(connection: &mut MySqlConnection) -> Result<Vec<String>, UnitError> {
    let mut statements = Vec::new();
    let conflict = own_columns(connection, "consign_conflict", &CONFLICT_ADDED).await?;
    let all = CONFLICT_ADDED.to_vec();
    statements.extend(missing_record(conflict, &all, CREATE_CONSIGN_CONFLICT, EXTEND_CONSIGN_CONFLICT));
    let dead = own_columns(connection, "consign_dead_delivery", &DEAD_DELIVERY_ADDED).await?;
    let all = [&DEAD_DELIVERY_ADDED[..], &["longblob"]].concat();
    statements.extend(missing_record(dead, &all, CREATE_CONSIGN_DEAD_DELIVERY, EXTEND_CONSIGN_DEAD_DELIVERY));
    Ok(statements)
}

fn missing_record(
    present: Option<BTreeSet<String>>,
    all: &[&str],
    create: &str,
    extend: &str,
) -> Option<String> {
    let Some(present) = present else { return Some(Text::own(create).as_str().to_owned()) };
    let complete = all.iter().all(|&column| present.contains(column));
    (!complete).then(|| Rendering::new(QUOTE).present(&present).render(extend))
}

async fn own_table(
    connection: &mut MySqlConnection,
    table: &str,
    file: &str,
) -> Result<Option<String>, UnitError> {
    let table = Identifier::table(table).expect("a constant name");
    let exists = introspection::engine(connection, &table).await?.is_some();
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
