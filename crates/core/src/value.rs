//! Values taken from a payload, typed by the config and exact: no number goes through a float.

use std::fmt;

use crate::json::Json;

mod timestamp;

pub use timestamp::{InvalidTimestamp, Timestamp};

/// A typed value bound into SQL or compared with a marker's column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Absent or JSON null.
    Null,
    /// A whole number.
    Integer(i128),
    /// A decimal number in its shortest exact form, for instance `10.5`.
    Decimal(String),
    /// Text.
    Text(String),
    /// A truth value.
    Boolean(bool),
    /// JSON text in canonical form.
    Json(String),
    /// An instant.
    Timestamp(Timestamp),
}

/// The type a config gives a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A whole number; `1.0` is one, `1.5` is not.
    Integer,
    /// Any number with a finite decimal form.
    Decimal,
    /// Text.
    String,
    /// `true` or `false`.
    Boolean,
    /// Any JSON, in canonical form.
    Json,
    /// RFC 3339 text, which stands for an instant to the microsecond.
    Timestamp,
}

/// Why a payload field does not have the configured type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is {found}, not {wanted}")]
pub struct WrongType {
    wanted: ValueType,
    found: String,
}

impl fmt::Display for ValueType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Integer => "an integer",
            Self::Decimal => "a decimal number",
            Self::String => "a string",
            Self::Boolean => "a boolean",
            Self::Json => "json",
            Self::Timestamp => "a timestamp",
        })
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Boolean(truth)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl Value {
    /// Reads a JSON value as `wanted`. JSON null is [`Value::Null`] under every type.
    ///
    /// # Errors
    /// The value has another type; it is never converted.
    pub fn read(json: &Json, wanted: ValueType) -> Result<Self, WrongType> {
        let wrong = || WrongType { wanted, found: json.kind().to_owned() };
        match (wanted, json) {
            (_, Json::Null) => Ok(Self::Null),
            (ValueType::Json, any) => Ok(Self::Json(any.canonical())),
            (ValueType::Boolean, Json::Boolean(truth)) => Ok(Self::Boolean(*truth)),
            (ValueType::String, Json::Text(text)) => Ok(Self::Text(text.clone())),
            (ValueType::Timestamp, Json::Text(text)) => Timestamp::parse(text)
                .map(Self::Timestamp)
                .map_err(|problem| WrongType { wanted, found: problem.to_string() }),
            (ValueType::Integer, Json::Number(number)) => {
                number.plain().and_then(|text| text.parse().ok()).map(Self::Integer).ok_or_else(wrong)
            }
            (ValueType::Decimal, Json::Number(number)) => number.plain().map(Self::Decimal).ok_or_else(wrong),
            (
                ValueType::Boolean
                | ValueType::String
                | ValueType::Integer
                | ValueType::Decimal
                | ValueType::Timestamp,
                Json::Boolean(_) | Json::Number(_) | Json::Text(_) | Json::Array(_) | Json::Object(_),
            ) => Err(wrong()),
        }
    }

    /// True when a column's text, as the database gives it, stands for this value: numbers by value,
    /// times by instant, text by bytes.
    pub fn same_as_stored(&self, stored: Option<&str>) -> bool {
        let Some(stored) = stored else { return *self == Self::Null };
        let number = |text: &str| Json::parse(text.as_bytes()).ok().and_then(|json| json.number_text());
        match self {
            Self::Null => false,
            Self::Integer(wanted) => number(stored) == number(&wanted.to_string()),
            Self::Decimal(wanted) => number(stored) == number(wanted),
            Self::Text(wanted) => wanted == stored,
            Self::Boolean(wanted) => stored == if *wanted { "1" } else { "0" },
            Self::Json(wanted) => {
                Json::parse(stored.as_bytes()).is_ok_and(|json| json.canonical() == *wanted)
            }
            Self::Timestamp(wanted) => Timestamp::parse_stored(stored) == Some(*wanted),
        }
    }

    /// The value as text, for keys and records; null is empty.
    pub fn text(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Integer(number) => number.to_string(),
            Self::Decimal(text) | Self::Text(text) | Self::Json(text) => text.clone(),
            Self::Boolean(truth) => truth.to_string(),
            Self::Timestamp(instant) => instant.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timestamp(text: &str) -> Result<Value, WrongType> {
        Value::read(&Json::Text(text.to_owned()), ValueType::Timestamp)
    }

    #[test]
    fn times_are_compared_by_instant_whatever_the_column_s_precision() {
        let paid_at = timestamp("2026-02-01T08:59:59.500+09:00").unwrap();

        assert_eq!(paid_at.text(), "2026-01-31 23:59:59.500000");
        assert!(paid_at.same_as_stored(Some("2026-01-31 23:59:59.5")));
        assert!(paid_at.same_as_stored(Some("2026-01-31 23:59:59.500000")));
        assert!(!paid_at.same_as_stored(Some("2026-01-31 23:59:59")));
        assert!(!paid_at.same_as_stored(Some("2026-01-31 23:59:59.500001")));
        assert!(!paid_at.same_as_stored(Some("2026-01-31")));
        assert!(!paid_at.same_as_stored(None));
    }

    #[test]
    fn a_column_holds_a_value_by_what_it_means_and_text_to_the_byte() {
        let json = Value::Json(r#"{"a":1,"b":2}"#.into());
        for (value, text, same, other) in [
            (Value::Integer(7), "7", ["7", "7.0"], ["8", "seven"]),
            (Value::Decimal("0.5".into()), "0.5", ["0.50", "5e-1"], ["0.51", ""]),
            (Value::Text("a".into()), "a", ["a", "a"], ["A", "a "]),
            (Value::Boolean(true), "true", ["1", "1"], ["0", "true"]),
            (Value::Boolean(false), "false", ["0", "0"], ["1", "false"]),
            (json, r#"{"a":1,"b":2}"#, [r#"{"b": 2.0, "a": 1}"#, r#"{"a":1,"b":2}"#], ["{}", "nothing"]),
        ] {
            assert_eq!(value.text(), text);
            assert!(same.into_iter().all(|stored| value.same_as_stored(Some(stored))), "{value:?}");
            assert!(!other.into_iter().any(|stored| value.same_as_stored(Some(stored))), "{value:?}");
            assert!(!value.same_as_stored(None), "{value:?}");
        }
        assert!(Value::Null.same_as_stored(None) && !Value::Null.same_as_stored(Some("")));
        assert_eq!(Value::Null.text(), "");
    }

    #[test]
    fn what_is_no_time_is_refused_with_what_it_is_instead() {
        for (text, refusal) in [
            ("2026-01-31T23:59:59", "is a time without an offset, not a timestamp"),
            ("2016-12-31T23:59:60Z", "is a leap second, not a timestamp"),
            (
                "yesterday",
                "is text that is not a time of the form 2026-01-31T23:59:59.123456Z, not a timestamp",
            ),
        ] {
            assert_eq!(timestamp(text).unwrap_err().to_string(), refusal);
        }
        let number = Json::parse(b"1767225600").unwrap();
        assert_eq!(
            Value::read(&number, ValueType::Timestamp).unwrap_err().to_string(),
            "is a whole number, not a timestamp"
        );
        assert_eq!(Value::read(&Json::Null, ValueType::Timestamp), Ok(Value::Null));
    }
}
