//! Values bound exactly: no number passes through a float.

use consign_core::value::Value;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlTypeInfo};
use sqlx::types::BigDecimal;
use sqlx::{Arguments, MySql, Type};

use crate::introspection::{Column, ColumnKind};

/// `YYYY-MM-DD HH:MM:SS.ffffff`.
const TIMESTAMP_BYTES: usize = 26;

/// A decimal number as its digits. As plain text the server would compute with it in floating point.
struct Digits(String);

impl Type<MySql> for Digits {
    fn type_info() -> MySqlTypeInfo {
        <BigDecimal as Type<MySql>>::type_info()
    }
}

impl Encode<'_, MySql> for Digits {
    fn encode_by_ref(&self, buffer: &mut Vec<u8>) -> Result<IsNull, BoxDynError> {
        <&str as Encode<MySql>>::encode_by_ref(&self.0.as_str(), buffer)
    }
}

/// Adds a value of a type that always encodes.
pub(crate) fn add<'t, T: Encode<'t, MySql> + Type<MySql>>(arguments: &mut MySqlArguments, value: T) {
    arguments.add(value).expect("numbers and text encode in every case");
}

/// Adds one value.
pub(crate) fn add_value(arguments: &mut MySqlArguments, value: &Value) {
    match value {
        Value::Null => add(arguments, None::<&str>),
        Value::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(signed), _) => add(arguments, signed),
            (_, Ok(unsigned)) => add(arguments, unsigned),
            (Err(_), Err(_)) => add(arguments, Digits(number.to_string())),
        },
        Value::Decimal(digits) => add(arguments, Digits(digits.clone())),
        Value::Text(text) | Value::Json(text) => add(arguments, text.as_str()),
        // sqlx takes a bool for an unsigned number, and what is computed with it could then not be negative.
        Value::Boolean(truth) => add(arguments, i8::from(*truth)),
        Value::Timestamp(instant) => add(arguments, instant.to_string()),
    }
}

/// The bytes of a value's content in a packet, at most.
pub(crate) fn weight_of(value: &Value) -> usize {
    match value {
        Value::Null => 0,
        // Beyond 64 bits it travels as digits.
        Value::Integer(number) => i64::try_from(*number).map_or(40, |_| 8),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => text.len(),
        Value::Boolean(_) => 1,
        Value::Timestamp(_) => TIMESTAMP_BYTES,
    }
}

/// Refuses a value the column would change on its way in: the stored one must compare equal later.
///
/// # Errors
/// Says what the column would do.
pub(crate) fn check_value(value: &Value, column: &Column) -> Result<(), String> {
    match value {
        Value::Text(text) => match column.excess(text) {
            Some(length) => {
                let limit = column.length.unwrap_or(length);
                Err(format!("{} holds {limit} and the value has {length}: widen the column", column.name))
            }
            None => Ok(()),
        },
        Value::Decimal(digits) if digits.contains('.') && column.kind == ColumnKind::Integer => {
            Err(format!("{} holds whole numbers and would round {digits}", column.name))
        }
        Value::Timestamp(instant) => match column.kind {
            ColumnKind::DateTime if instant.fits(column.fraction.unwrap_or(0)) => Ok(()),
            ColumnKind::Text if column.excess(&instant.to_string()).is_none() => Ok(()),
            _ => Err(format!(
                "{} is {} and would not keep {instant} to the microsecond: make it DATETIME(6)",
                column.name, column.declared
            )),
        },
        Value::Null | Value::Integer(_) | Value::Decimal(_) | Value::Boolean(_) | Value::Json(_) => Ok(()),
    }
}
