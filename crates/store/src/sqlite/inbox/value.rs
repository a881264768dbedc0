//! Values bound exactly: no number passes through a float, as long as SQLite can hold it otherwise.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use consign_core::value::Value;
use futures_util::TryStreamExt;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Either, Executor, SqlSafeStr};
use sqlx::{Sqlite, SqliteConnection, Statement as _, query};

use crate::introspection::{Column, ColumnKind};

/// A float keeps this many decimal digits.
const FLOAT_DIGITS_MAX: usize = 15;
/// A float keeps every whole number up to here.
const FLOAT_WHOLE_MAX: u128 = 1 << 53;

/// A statement on its way to its values.
pub(crate) type Bound<'q> = Query<'q, Sqlite, SqliteArguments>;

/// Binds a value that a marker column keeps: a decimal number as text, which the column's affinity may turn into a
/// number; [`check_value`] has made sure that it stays the same one.
pub(crate) fn bind_stored<'q>(statement: Bound<'q>, value: &'q Value) -> Bound<'q> {
    match value {
        Value::Decimal(digits) => statement.bind(digits.as_str()),
        Value::Null
        | Value::Integer(_)
        | Value::Text(_)
        | Value::Boolean(_)
        | Value::Json(_)
        | Value::Timestamp(_) => bind_value(statement, value),
    }
}

/// Binds a value that a statement computes with. SQLite has no decimal numbers: one of few digits goes as a float,
/// a longer one as text, which keeps it for columns of text.
pub(crate) fn bind_value<'q>(statement: Bound<'q>, value: &'q Value) -> Bound<'q> {
    match value {
        Value::Null => statement.bind(None::<&str>),
        Value::Integer(number) => match i64::try_from(*number) {
            Ok(number) => statement.bind(number),
            Err(_) => statement.bind(number.to_string()),
        },
        Value::Decimal(digits) => match (digits.parse::<i64>(), digits.parse::<f64>()) {
            (Ok(whole), _) => statement.bind(whole),
            (Err(_), Ok(float)) if significant(digits) <= FLOAT_DIGITS_MAX => statement.bind(float),
            (Err(_), _) => statement.bind(digits.as_str()),
        },
        Value::Text(text) | Value::Json(text) => statement.bind(text.as_str()),
        Value::Boolean(truth) => statement.bind(i64::from(*truth)),
        // In UTC, in the form of SQLite's own dates.
        Value::Timestamp(instant) => statement.bind(instant.to_string()),
    }
}

/// Refuses a value the column would change on its way in: the stored one must compare equal later.
///
/// # Errors
/// Says what the column would do.
pub(crate) fn check_value(value: &Value, column: &Column) -> Result<(), String> {
    let numeric = match column.kind {
        ColumnKind::Text | ColumnKind::Bytes => false,
        ColumnKind::Integer
        | ColumnKind::Decimal
        | ColumnKind::Float
        | ColumnKind::Json
        | ColumnKind::DateTime
        | ColumnKind::Other => true,
    };
    let name = &column.name;
    let too_long = |length: u64| {
        let limit = column.length.unwrap_or(length);
        format!("{name} holds {limit} and the value has {length}: widen the column")
    };
    match value {
        Value::Text(text) | Value::Json(text) => match column.excess(text) {
            Some(length) => Err(too_long(length)),
            None if numeric && text.trim().parse::<f64>().is_ok() => Err(format!(
                "{name} is {:?} and would turn text that looks like a number into one: make it a text column",
                column.declared
            )),
            None => Ok(()),
        },
        Value::Integer(number) if numeric && i64::try_from(*number).is_err() => {
            Err(format!("{name} holds whole numbers of 64 bits: make it a text column for larger ones"))
        }
        Value::Integer(number)
            if column.kind == ColumnKind::Float && number.unsigned_abs() > FLOAT_WHOLE_MAX =>
        {
            Err(format!("{name} is {:?} and would round the value: make it BIGINT", column.declared))
        }
        Value::Decimal(digits) if numeric && significant(digits) > FLOAT_DIGITS_MAX => Err(format!(
            "{name} is {:?} and would round a number of more than {FLOAT_DIGITS_MAX} digits: make it a text column",
            column.declared
        )),
        Value::Boolean(_) if column.kind == ColumnKind::Float => {
            Err(format!("{name} is {:?} and would hold 1.0 for true: make it BIGINT", column.declared))
        }
        // No affinity changes text that is no number.
        Value::Null | Value::Integer(_) | Value::Decimal(_) | Value::Boolean(_) | Value::Timestamp(_) => {
            Ok(())
        }
    }
}

fn significant(digits: &str) -> usize {
    digits.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count()
}

/// Why a statement was not run.
pub(crate) enum StatementError {
    /// It has another number of placeholders than there are values; SQLite would take the rest for NULL.
    Placeholders {
        /// Placeholders.
        wanted: usize,
        /// Values.
        given: usize,
    },
    /// SQLite refused it.
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for StatementError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// More statements than this are not kept; a config has a few per consumer.
const DESCRIBED_MAX: usize = 256;

/// What is known of handlers' statements, so that each is looked at once instead of before every run.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<HashMap<String, Description>>);

#[derive(Clone, Copy, Debug)]
struct Description {
    placeholders: usize,
    returns_rows: bool,
    changes_rows: bool,
}

impl Described {
    async fn of(
        &self,
        connection: &mut SqliteConnection,
        sql: &str,
        values: usize,
    ) -> Result<Description, sqlx::Error> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql).copied();
        if let Some(description) = known {
            return Ok(description);
        }
        // The statement comes from the config or the handler's code; payload fields are bound.
        let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
        let description = Description {
            placeholders: match prepared.parameters() {
                Some(Either::Left(types)) => types.len(),
                Some(Either::Right(count)) => count,
                None => values,
            },
            returns_rows: !prepared.columns().is_empty(),
            changes_rows: changes_rows(sql),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DESCRIBED_MAX {
            known.clear();
        }
        known.insert(sql.to_owned(), description);
        Ok(description)
    }
}

/// Runs a handler's statement and counts the rows it matched: those it returns, or those it changed.
pub(crate) async fn run(
    connection: &mut SqliteConnection,
    described: &Described,
    sql: &str,
    values: &[Value],
) -> Result<u64, StatementError> {
    let description = described.of(&mut *connection, sql, values.len()).await?;
    if description.placeholders != values.len() {
        return Err(StatementError::Placeholders { wanted: description.placeholders, given: values.len() });
    }
    let mut statement = query(AssertSqlSafe(sql));
    for value in values {
        statement = bind_value(statement, value);
    }
    if !description.returns_rows {
        let affected = statement.execute(connection).await?.rows_affected();
        // For anything else SQLite goes on telling the count of the last change.
        return Ok(if description.changes_rows { affected } else { 0 });
    }
    let mut rows = statement.fetch(connection);
    let mut count = 0;
    while rows.try_next().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

fn changes_rows(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        rest = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n').map_or("", |(_, after)| after),
            (None, Some(comment)) => comment.split_once("*/").map_or("", |(_, after)| after),
            (None, None) => break,
        }
        .trim_start();
    }
    let word = rest.split(|next: char| !next.is_ascii_alphabetic()).next().unwrap_or_default();
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_rows_are_told_from_others() {
        for sql in
            ["update t set a = 1", "-- why\n  INSERT INTO t", "/* a */ WITH x AS (SELECT 1) DELETE FROM t"]
        {
            assert!(changes_rows(sql), "{sql}");
        }
        for sql in ["SELECT 1", "PRAGMA x", "", "-- UPDATE"] {
            assert!(!changes_rows(sql), "{sql}");
        }
    }

    #[test]
    fn significant_digits_leave_out_sign_point_and_leading_zeros() {
        assert_eq!(significant("-0.0010"), 2);
        assert_eq!(significant("1234567890123456"), 16);
    }
}
