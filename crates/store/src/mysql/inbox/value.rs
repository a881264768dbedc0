//! Values bound exactly: no number passes through a float.

use consign_core::value::Value;
use sqlx::encode::{Encode, IsNull};
use sqlx::error::BoxDynError;
use sqlx::mysql::{MySqlArguments, MySqlTypeInfo};
use sqlx::query::Query;
use sqlx::types::BigDecimal;
use sqlx::{MySql, Type};

use crate::introspection::{Column, ColumnKind};

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

/// Binds one value.
pub(crate) fn bind_value<'q>(
    statement: Query<'q, MySql, MySqlArguments>,
    value: &'q Value,
) -> Query<'q, MySql, MySqlArguments> {
    match value {
        Value::Null => statement.bind(None::<&str>),
        Value::Integer(number) => match (i64::try_from(*number), u64::try_from(*number)) {
            (Ok(signed), _) => statement.bind(signed),
            (_, Ok(unsigned)) => statement.bind(unsigned),
            (Err(_), Err(_)) => statement.bind(Digits(number.to_string())),
        },
        Value::Decimal(digits) => statement.bind(Digits(digits.clone())),
        Value::Text(text) | Value::Json(text) => statement.bind(text.as_str()),
        Value::Boolean(truth) => statement.bind(*truth),
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
        Value::Null | Value::Integer(_) | Value::Decimal(_) | Value::Boolean(_) | Value::Json(_) => Ok(()),
    }
}
