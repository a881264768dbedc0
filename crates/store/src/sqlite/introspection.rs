//! Reads from SQLite what a table really has.

use std::collections::BTreeMap;

use consign_core::ports::StoreError;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::{Column, ColumnKind, TableShape, Unit};
use crate::mapping::{Identifier, Names};
use crate::sqlite::statement::{INTROSPECT_COLUMNS, INTROSPECT_INDEXES, INTROSPECT_TABLE};

/// Refuses a table of an attached database: only the connection that attached it knows it.
pub(crate) fn check_file(table: &Identifier) -> Result<(), StoreError> {
    match table.schema() {
        None => Ok(()),
        Some(schema) => Err(StoreError::Schema(format!(
            "table {table} names the attached database {schema}: write {} and give the url of its own file",
            table.local()
        ))),
    }
}

/// The kind of `table`, for instance `table` or `view`; `None` when there is no such table.
pub(crate) async fn kind(
    connection: &mut SqliteConnection,
    table: &Identifier,
) -> Result<Option<String>, sqlx::Error> {
    let row = query(INTROSPECT_TABLE)
        .bind(table.schema())
        .bind(table.local())
        .persistent(false)
        .fetch_optional(connection)
        .await?;
    row.map(|row| row.try_get(0)).transpose()
}

/// The columns of the table the contract calls `contract_table`, under their contract names; `None` when there is no
/// such table.
pub(crate) async fn shape(
    connection: &mut SqliteConnection,
    contract_table: &'static str,
    names: &Names,
) -> Result<Option<TableShape>, sqlx::Error> {
    let table = &names[contract_table];
    let rows = query(INTROSPECT_COLUMNS)
        .bind(table.local())
        .bind(table.schema())
        .persistent(false)
        .fetch_all(connection)
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut shape = TableShape::default();
    for row in &rows {
        let column = column(row)?;
        // Column names are case-insensitive for ASCII letters.
        let contract = names.iter().find(|(contract, actual)| {
            **contract != contract_table && actual.as_str().eq_ignore_ascii_case(&column.name)
        });
        match contract {
            Some((contract, _)) => shape.columns.insert((*contract).into(), column),
            None => shape.others.insert(column.name.to_ascii_lowercase(), column),
        };
    }
    Ok(Some(shape))
}

/// One index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Whether it refuses repeats.
    pub unique: bool,
    /// Whether it covers only some rows.
    pub partial: bool,
    /// Its columns in order, in lower case, each with its collation. Expressions are empty.
    pub columns: Vec<(String, String)>,
}

impl Index {
    /// True when the index covers all rows and has each of these columns.
    pub fn covers(&self, columns: &[&str]) -> bool {
        let has = |wanted: &&str| self.columns.iter().any(|(column, _)| column.eq_ignore_ascii_case(wanted));
        !self.partial && columns.iter().all(has)
    }

    /// True when the index covers all rows and starts with these columns.
    pub fn starts_with(&self, columns: &[&str]) -> bool {
        let wanted = columns.iter().map(|column| column.to_ascii_lowercase());
        !self.partial
            && self.columns.len() >= columns.len()
            && self.columns.iter().zip(wanted).all(|((column, _), wanted)| *column == wanted)
    }
}

/// The indexes of `table` by name, those of its keys among them.
pub(crate) async fn indexes(
    connection: &mut SqliteConnection,
    table: &Identifier,
) -> Result<BTreeMap<String, Index>, sqlx::Error> {
    let rows = query(INTROSPECT_INDEXES)
        .bind(table.local())
        .bind(table.schema())
        .bind(table.schema())
        .persistent(false)
        .fetch_all(connection)
        .await?;
    let mut indexes = BTreeMap::<String, Index>::new();
    for row in &rows {
        let index = indexes.entry(row.try_get(0)?).or_default();
        index.unique = row.try_get(1)?;
        index.partial = row.try_get(2)?;
        let column: Option<String> = row.try_get(3)?;
        let collation: Option<String> = row.try_get(4)?;
        index.columns.push((column.unwrap_or_default().to_ascii_lowercase(), collation.unwrap_or_default()));
    }
    Ok(indexes)
}

fn column(row: &SqliteRow) -> Result<Column, sqlx::Error> {
    let declared: String = row.try_get(1)?;
    let not_null: bool = row.try_get(2)?;
    Ok(Column {
        name: row.try_get(0)?,
        kind: column_kind(&declared),
        length: declared_length(&declared),
        unit: Unit::Characters,
        declared,
        character_set: None,
        collation: None,
        fraction: None,
        nullable: !not_null,
    })
}

/// The number in `VARCHAR(64)`. SQLite does not enforce it; consign does, as every other server would.
fn declared_length(declared: &str) -> Option<u64> {
    if !matches!(column_kind(declared), ColumnKind::Text) {
        return None;
    }
    let (_, rest) = declared.split_once('(')?;
    rest.split_once(')')?.0.trim().parse().ok()
}

/// SQLite's own rules: what a declared type contains decides how values are converted, in this order.
fn column_kind(declared: &str) -> ColumnKind {
    let declared = declared.to_ascii_uppercase();
    let contains = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    if contains(&["INT"]) {
        ColumnKind::Integer
    } else if contains(&["CHAR", "CLOB", "TEXT"]) {
        ColumnKind::Text
    } else if declared.is_empty() || contains(&["BLOB"]) {
        ColumnKind::Bytes
    } else if contains(&["REAL", "FLOA", "DOUB"]) {
        ColumnKind::Float
    // The rest is NUMERIC to SQLite: text that looks like a number becomes one.
    } else if contains(&["JSON"]) {
        ColumnKind::Json
    } else if contains(&["DATE", "TIME"]) {
        ColumnKind::DateTime
    } else {
        ColumnKind::Decimal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_types_are_read_as_sqlite_reads_them() {
        for (declared, kind, length) in [
            ("VARCHAR(64)", ColumnKind::Text, Some(64)),
            ("text", ColumnKind::Text, None),
            ("BIGINT", ColumnKind::Integer, None),
            ("POINT", ColumnKind::Integer, None),
            ("", ColumnKind::Bytes, None),
            ("JSON", ColumnKind::Json, None),
            ("DATETIME(6)", ColumnKind::DateTime, None),
            ("DOUBLE PRECISION", ColumnKind::Float, None),
            ("DECIMAL(10,2)", ColumnKind::Decimal, None),
        ] {
            assert_eq!((column_kind(declared), declared_length(declared)), (kind, length), "{declared}");
        }
    }
}
