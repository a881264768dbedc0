//! Many rows in one UPDATE: the parameters come from a table that is made of JSON.
//!
//! A value reaches the same place in the same type as a bound one would: whole numbers of 64 bits anywhere, decimal
//! numbers where nothing is multiplied, other values only where they are all that is assigned to a column that takes
//! them unchanged.

use std::collections::HashMap;
use std::fmt::Write;

use consign_core::declared::{Role, UpdateShape};
use consign_core::json::Json;
use consign_core::value::Value;
use sqlx::mysql::MySqlArguments;

use crate::introspection::ColumnKind;
use crate::mysql::inbox::each::{Run, Target};
use crate::mysql::inbox::value::add;
use crate::mysql::packet;

/// The digits of `DECIMAL(65, 30)` on either side of the point.
const WHOLE_DIGITS: usize = 35;
const FRACTION_DIGITS: usize = 30;

/// How an UPDATE runs for many.
#[derive(Debug)]
pub(super) struct UpdatePlan {
    shape: UpdateShape,
    /// What each placeholder may hold.
    places: Vec<Place>,
}

/// What a placeholder may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Whole numbers.
    Whole,
    /// Numbers with or without a fraction.
    Number,
    /// Anything that a column of this kind takes unchanged.
    Assigned(ColumnKind),
}

/// How a placeholder's values travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    /// As a JSON number in a BIGINT.
    Integer,
    /// As a JSON text.
    Text,
    /// As a JSON text that becomes a DECIMAL.
    Decimal,
}

impl UpdatePlan {
    /// `None` when the table does not make sure that each operation changes its own row.
    pub(super) fn new(shape: &UpdateShape, target: &Target) -> Option<Self> {
        let exact =
            |column: &String| matches!(target.kind(column), Some(ColumnKind::Integer | ColumnKind::Decimal));
        let fits = target.is_key(&shape.key)
            && target.kind(&shape.key) == Some(ColumnKind::Integer)
            && shape.operands.iter().all(exact)
            && !shape.assigned.iter().any(|column| target.is_in_key(column));
        if !fits {
            return None;
        }
        let place = |role: &Role| match role {
            // The digits behind a product's point would be cut where a bound number's are not.
            Role::Operand if shape.multiplies => Some(Place::Whole),
            Role::Operand => Some(Place::Number),
            Role::Assigned(column) => target.kind(column).map(Place::Assigned),
        };
        let places = shape.roles.iter().map(place).collect::<Option<_>>()?;
        Some(Self { shape: shape.clone(), places })
    }

    /// The statements in their order; `None` when a value could arrive as something else.
    pub(super) fn runs(&self, values: &[&[Value]]) -> Option<Vec<Run>> {
        let carriers: Vec<Carrier> = self
            .places
            .iter()
            .enumerate()
            .map(|(index, place)| {
                let mut column = values.iter().map(|values| values.get(index));
                let first = carrier(*place, column.next()??)?;
                column
                    .all(|value| value.and_then(|value| carrier(*place, value)) == Some(first))
                    .then_some(first)
            })
            .collect::<Option<_>>()?;
        let sql = self.sql(&carriers);
        let runs = self.waves(values)?.into_iter().flat_map(|wave| {
            let rows: Vec<(usize, String)> = wave.into_iter().map(|at| (at, json_row(values[at]))).collect();
            let pieces = packet::pieces(&rows, fitting).map(|piece| {
                let array: Vec<&str> = piece.iter().map(|(_, row)| row.as_str()).collect();
                let mut arguments = MySqlArguments::default();
                add(&mut arguments, format!("[{}]", array.join(",")));
                Run { members: piece.iter().map(|(at, _)| *at).collect(), sql: sql.clone(), arguments }
            });
            pieces.collect::<Vec<_>>()
        });
        Some(runs.collect())
    }

    /// The operations by how often their row was changed before: each row is changed once by one statement, by the
    /// first operation on it, then by the second. The first wave locks all rows, in the order of their keys, as every
    /// other transaction of the same consumer does: two of them cannot wait for each other.
    fn waves(&self, values: &[&[Value]]) -> Option<Vec<Vec<usize>>> {
        let mut waves: Vec<Vec<(i64, usize)>> = Vec::new();
        let mut seen: HashMap<i64, usize> = HashMap::with_capacity(values.len());
        for (at, values) in values.iter().enumerate() {
            let key = whole(values.get(self.shape.key_parameter)?)?;
            let wave = seen.entry(key).and_modify(|wave| *wave += 1).or_insert(0);
            if *wave == waves.len() {
                waves.push(Vec::new());
            }
            waves[*wave].push((key, at));
        }
        let in_order = |mut wave: Vec<(i64, usize)>| {
            wave.sort_unstable();
            wave.into_iter().map(|(_, at)| at).collect()
        };
        Some(waves.into_iter().map(in_order).collect())
    }

    fn sql(&self, carriers: &[Carrier]) -> String {
        let mut columns = String::new();
        for (index, carrier) in carriers.iter().enumerate() {
            let kind = match carrier {
                Carrier::Integer => "BIGINT",
                Carrier::Text | Carrier::Decimal => "LONGTEXT CHARACTER SET utf8mb4",
            };
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(
                columns,
                "{comma}consign_p{index} {kind} PATH '$[{index}]' ERROR ON EMPTY ERROR ON ERROR"
            );
        }
        let mut sql = format!(
            "UPDATE JSON_TABLE(?, '$[*]' COLUMNS ({columns})) AS consign_each STRAIGHT_JOIN {} ",
            self.shape.quoted_table
        );
        for (index, part) in self.shape.parts.iter().enumerate() {
            sql.push_str(part);
            let _ = match carriers.get(index) {
                Some(Carrier::Integer | Carrier::Text) => write!(sql, "consign_each.consign_p{index}"),
                Some(Carrier::Decimal) => write!(
                    sql,
                    "CAST(consign_each.consign_p{index} AS DECIMAL({}, {FRACTION_DIGITS}))",
                    WHOLE_DIGITS + FRACTION_DIGITS
                ),
                None => Ok(()),
            };
        }
        sql
    }
}

/// How many rows of JSON the next statement takes.
fn fitting(rows: &[(usize, String)]) -> usize {
    let mut bytes = 0;
    rows.iter()
        .take_while(|(_, row)| {
            bytes += row.len() + 1;
            bytes <= packet::BYTES_MAX
        })
        .count()
}

/// How a value travels to its place; `None` when it might arrive as something else.
fn carrier(place: Place, value: &Value) -> Option<Carrier> {
    let takes_numbers = match place {
        Place::Whole | Place::Number => true,
        Place::Assigned(kind) => matches!(kind, ColumnKind::Integer | ColumnKind::Decimal | ColumnKind::Text),
    };
    match (place, value) {
        (_, Value::Integer(_) | Value::Boolean(_)) if takes_numbers => whole(value).map(|_| Carrier::Integer),
        (Place::Assigned(ColumnKind::Text | ColumnKind::DateTime), Value::Text(_) | Value::Timestamp(_))
        | (Place::Assigned(ColumnKind::Text | ColumnKind::Json), Value::Json(_)) => Some(Carrier::Text),
        (Place::Number | Place::Assigned(ColumnKind::Decimal), Value::Decimal(digits)) => {
            fits_decimal(digits).then_some(Carrier::Decimal)
        }
        (Place::Whole | Place::Number | Place::Assigned(_), _) => None,
    }
}

/// A value as a whole number of 64 bits.
fn whole(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => i64::try_from(*number).ok(),
        Value::Boolean(truth) => Some(i64::from(*truth)),
        Value::Null | Value::Decimal(_) | Value::Text(_) | Value::Json(_) | Value::Timestamp(_) => None,
    }
}

fn fits_decimal(digits: &str) -> bool {
    let unsigned = digits.strip_prefix('-').unwrap_or(digits);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    plain(whole) && plain(fraction) && whole.len() <= WHOLE_DIGITS && fraction.len() <= FRACTION_DIGITS
}

/// One operation's values as a JSON array.
fn json_row(values: &[Value]) -> String {
    let cells: Vec<String> = values
        .iter()
        .map(|value| match whole(value) {
            Some(number) => number.to_string(),
            None => Json::Text(value.text()).canonical(),
        })
        .collect();
    format!("[{}]", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_arrives_unchanged_travels() {
        let number = Value::Integer(i64::MAX.into());
        let (text, decimal) = (Value::Text("1".into()), Value::Decimal("1.5".into()));

        assert_eq!(carrier(Place::Whole, &number), Some(Carrier::Integer));
        assert_eq!(carrier(Place::Number, &number), Some(Carrier::Integer));
        assert_eq!(carrier(Place::Whole, &Value::Integer(i128::from(i64::MAX) + 1)), None);
        assert_eq!(carrier(Place::Number, &text), None);
        assert_eq!(carrier(Place::Whole, &decimal), None);
        assert_eq!(carrier(Place::Number, &decimal), Some(Carrier::Decimal));
        assert_eq!(carrier(Place::Number, &Value::Null), None);
        assert_eq!(carrier(Place::Assigned(ColumnKind::Text), &text), Some(Carrier::Text));
        assert_eq!(carrier(Place::Assigned(ColumnKind::Integer), &text), None);
        assert_eq!(carrier(Place::Assigned(ColumnKind::Decimal), &decimal), Some(Carrier::Decimal));
        assert_eq!(carrier(Place::Assigned(ColumnKind::Float), &decimal), None);
        let long = Value::Decimal("1".repeat(36));
        assert_eq!(carrier(Place::Assigned(ColumnKind::Decimal), &long), None);
        assert_eq!(carrier(Place::Assigned(ColumnKind::Text), &Value::Null), None);
    }
}
