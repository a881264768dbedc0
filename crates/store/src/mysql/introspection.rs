//! Reads from the server what a table really has.

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::{Column, ColumnKind, TableShape, Unit};
use crate::mapping::{Identifier, Names};
use crate::mysql::statement::{
    INTROSPECT_COLUMNS, INTROSPECT_INDEXES, INTROSPECT_TABLE, INTROSPECT_TRIGGERS,
};

/// The engine of `table`; `None` when there is no such table.
pub(crate) async fn engine(
    connection: &mut MySqlConnection,
    table: &Identifier,
) -> Result<Option<String>, sqlx::Error> {
    let row = query(INTROSPECT_TABLE)
        .bind(table.schema())
        .bind(table.local())
        .persistent(false)
        .fetch_optional(connection)
        .await?;
    row.map(|row| Ok(text(&row, 0)?.unwrap_or_default())).transpose()
}

/// The columns of the table the contract calls `contract_table`, under their contract names; `None` when there is no
/// such table.
pub(crate) async fn shape(
    connection: &mut MySqlConnection,
    contract_table: &'static str,
    names: &Names,
) -> Result<Option<TableShape>, sqlx::Error> {
    let table = &names[contract_table];
    let rows = query(INTROSPECT_COLUMNS)
        .bind(table.schema())
        .bind(table.local())
        .persistent(false)
        .fetch_all(connection)
        .await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let mut shape = TableShape::default();
    for row in &rows {
        let column = column(row)?;
        // Column names are case-insensitive in both servers.
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

/// The columns of each index of `table`, in lower case.
pub(crate) async fn indexes(
    connection: &mut MySqlConnection,
    table: &Identifier,
) -> Result<Vec<Vec<String>>, sqlx::Error> {
    Ok(all_indexes(connection, table).await?.into_iter().map(|index| index.columns).collect())
}

/// The columns of each unique index of `table`, in lower case.
pub(crate) async fn unique_indexes(
    connection: &mut MySqlConnection,
    table: &Identifier,
) -> Result<Vec<Vec<String>>, sqlx::Error> {
    let indexes = all_indexes(connection, table).await?;
    Ok(indexes.into_iter().filter(|index| index.unique).map(|index| index.columns).collect())
}

/// The name of an index of `table` that begins with these columns, given in lower case. InnoDB appends the primary key to
/// every index, so the last column may be left out when it is `id`.
pub(crate) async fn index_on(
    connection: &mut MySqlConnection,
    table: &Identifier,
    wanted: &[String],
    id: &str,
) -> Result<Option<String>, sqlx::Error> {
    let least = match wanted.split_last() {
        Some((last, before)) if last == id => before,
        _ => wanted,
    };
    let fits = |columns: &[String]| columns.starts_with(wanted) || columns == least;
    let indexes = all_indexes(connection, table).await?;
    Ok(indexes.into_iter().find(|index| fits(&index.columns)).map(|index| index.name))
}

/// How many triggers `table` has, as far as the user may see them.
pub(crate) async fn triggers(
    connection: &mut MySqlConnection,
    table: &Identifier,
) -> Result<u64, sqlx::Error> {
    let row = query(INTROSPECT_TRIGGERS)
        .bind(table.schema())
        .bind(table.local())
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(text(&row, 0)?.and_then(|count| count.parse().ok()).unwrap_or_default())
}

struct Index {
    name: String,
    columns: Vec<String>,
    unique: bool,
}

async fn all_indexes(
    connection: &mut MySqlConnection,
    table: &Identifier,
) -> Result<Vec<Index>, sqlx::Error> {
    let rows = query(INTROSPECT_INDEXES)
        .bind(table.schema())
        .bind(table.local())
        .persistent(false)
        .fetch_all(connection)
        .await?;
    rows.iter()
        .map(|row| {
            let columns = text(row, 1)?.unwrap_or_default().to_ascii_lowercase();
            Ok(Index {
                name: text(row, 0)?.unwrap_or_default(),
                columns: columns.split(',').map(str::to_owned).collect(),
                unique: text(row, 2)?.as_deref() == Some("0"),
            })
        })
        .collect()
}

/// Reads a text column by position.
pub(crate) fn text(row: &MySqlRow, index: usize) -> Result<Option<String>, sqlx::Error> {
    row.try_get_unchecked(index)
}

fn column(row: &MySqlRow) -> Result<Column, sqlx::Error> {
    let number = |index| Ok::<_, sqlx::Error>(text(row, index)?.and_then(|text| text.parse().ok()));
    let kind = text(row, 1)?.unwrap_or_default().to_ascii_lowercase();
    let declared = text(row, 2)?.unwrap_or_default();
    Ok(Column {
        name: text(row, 0)?.unwrap_or_default(),
        kind: column_kind(&kind, text(row, 5)?.as_deref()),
        length: number(3)?,
        unit: if kind.ends_with("char") { Unit::Characters } else { Unit::Bytes },
        declared,
        character_set: text(row, 4)?,
        collation: text(row, 5)?,
        fraction: number(6)?.and_then(|digits: u64| u32::try_from(digits).ok()),
        nullable: text(row, 7)?.as_deref() == Some("YES"),
    })
}

fn column_kind(data_type: &str, collation: Option<&str>) -> ColumnKind {
    match data_type {
        "json" => ColumnKind::Json,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" | "enum" | "set" => {
            if collation == Some("binary") { ColumnKind::Bytes } else { ColumnKind::Text }
        }
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => ColumnKind::Bytes,
        "tinyint" | "smallint" | "mediumint" | "int" | "integer" | "bigint" => ColumnKind::Integer,
        "decimal" | "numeric" => ColumnKind::Decimal,
        "float" | "double" => ColumnKind::Float,
        "datetime" | "timestamp" => ColumnKind::DateTime,
        _ => ColumnKind::Other,
    }
}
