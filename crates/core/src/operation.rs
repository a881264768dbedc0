//! Operations: what a delivery asks a consumer to do, and how a repeat is told from a conflict.

use crate::event::EventId;
use crate::value::Value;

/// One business operation of one consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The consumer's name.
    pub consumer: String,
    /// The business key: the same for every copy and every re-wrapping of the fact.
    pub key: String,
    /// The id of the event that carried it.
    pub event_id: Option<EventId>,
    /// What must be equal for a repeat to be a duplicate.
    pub comparison: Comparison,
    /// The aggregate's version, when the message carries one.
    pub aggregate_version: Option<i64>,
}

/// What tells a duplicate from a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Named columns of the marker table.
    Columns(Vec<Compared>),
    /// A digest of selected payload fields in canonical form: 64 lower-case hexadecimal digits.
    Fingerprint(String),
}

/// One comparison column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The column's name.
    pub column: String,
    /// The value this operation carries.
    pub value: Value,
}

/// A marker as the database holds it; columns in the order of the operation's comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMarker {
    /// The event that was applied.
    pub event_id: Option<String>,
    /// The comparison columns as text.
    pub columns: Vec<Option<String>>,
    /// The fingerprint column.
    pub fingerprint: Option<String>,
}

impl Comparison {
    /// True when the stored marker stands for the same operation.
    pub fn matches(&self, stored: &StoredMarker) -> bool {
        match self {
            Self::Columns(columns) => {
                columns.len() == stored.columns.len()
                    && columns
                        .iter()
                        .zip(&stored.columns)
                        .all(|(compared, text)| compared.value.same_as_stored(text.as_deref()))
            }
            Self::Fingerprint(wanted) => stored.fingerprint.as_deref() == Some(wanted),
        }
    }

    /// The comparison as readable text, for conflict records.
    pub fn text(&self) -> String {
        match self {
            Self::Columns(columns) => columns
                .iter()
                .map(|compared| format!("{}={}", compared.column, compared.value.text()))
                .collect::<Vec<_>>()
                .join(", "),
            Self::Fingerprint(digest) => format!("fingerprint={digest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(value: Value) -> Comparison {
        Comparison::Columns(vec![Compared { column: "amount".into(), value }])
    }

    fn stored(text: &str) -> StoredMarker {
        StoredMarker { columns: vec![Some(text.into())], ..StoredMarker::default() }
    }

    #[test]
    fn numbers_are_the_same_by_value_and_text_by_bytes() {
        assert!(amount(Value::Integer(100)).matches(&stored("100")));
        assert!(amount(Value::Decimal("10.5".into())).matches(&stored("10.500")));
        assert!(!amount(Value::Integer(100)).matches(&stored("101")));
        assert!(!amount(Value::Text("a".into())).matches(&stored("A")));
        assert!(!amount(Value::Text("a".into())).matches(&stored("a ")));
    }

    #[test]
    fn integers_above_two_to_the_53_never_collide() {
        assert!(!amount(Value::Integer(9_007_199_254_740_993)).matches(&stored("9007199254740992")));
    }

    #[test]
    fn a_marker_without_the_column_is_not_the_same() {
        assert!(!amount(Value::Integer(1)).matches(&StoredMarker::default()));
    }
}
