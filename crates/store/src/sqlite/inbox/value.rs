//! Values bound exactly: no number passes through a float, as long as SQLite can hold it otherwise.

use consign_core::value::Value;
use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn significant_digits_leave_out_sign_point_and_leading_zeros() {
        assert_eq!(significant("-0.0010"), 2);
        assert_eq!(significant("1234567890123456"), 16);
    }
}
