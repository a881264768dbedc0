//! The filter of repeats: a memory outside the database that spares write transactions for operations applied before.
//! Whatever it says is a hint. The database decides: before a delivery counts as a repeat, its marker is read there.

use std::fmt::Write;
use std::future::Future;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::json::Json;
use crate::operation::{Compared, Comparison, Operation};
use crate::value::Value;

/// What a filter says of one operation. Any of the three may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing known.
    Unknown,
    /// The key was seen with the same comparison: reading the marker will probably be enough.
    Repeat,
    /// The key was seen with another comparison.
    Contradiction,
}

/// Remembers applied operations outside the database, to spare write transactions for repeats.
pub trait RepeatFilter: Send + Sync {
    /// One hint per operation, in order. Never fails and never waits long: trouble is [`Hint::Unknown`].
    fn hints(&self, operations: &[&Operation]) -> impl Future<Output = Vec<Hint>> + Send;

    /// Remembers operations whose markers are committed. Call it only after the commit, or a crash in between makes
    /// a repeat of what never happened. Never fails: what is not remembered costs a transaction, no more.
    fn remember(&self, operations: &[&Operation]) -> impl Future<Output = ()> + Send;
}

/// No filter: nothing is ever known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFilter;

impl RepeatFilter for NoFilter {
    async fn hints(&self, operations: &[&Operation]) -> Vec<Hint> {
        vec![Hint::Unknown; operations.len()]
    }

    async fn remember(&self, _: &[&Operation]) {}
}

/// A filter forgets before the last copy of a message can come.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the filter's ttl of {} s is shorter than the longest retry plus replay horizon, {} s: set it to {} s or more",
    ttl.as_secs_f64(), horizon.as_secs_f64(), whole_seconds(*horizon)
)]
pub struct TtlTooShort {
    ttl: Duration,
    horizon: Duration,
}

/// Checks how long a filter remembers against `horizon`, the longest retry plus the replay horizon: the time after
/// which no copy of a message comes any more.
///
/// A memory that is longer than the markers are kept does no harm, because a hint is checked against the marker.
pub fn check_ttl(ttl: Duration, horizon: Duration) -> Result<(), TtlTooShort> {
    if ttl < horizon { Err(TtlTooShort { ttl, horizon }) } else { Ok(()) }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// Names the canonical form below, so that digests of another form are never taken for equal. Raise it with every
/// change of the form.
const FORM: &[u8] = b"consign comparison 1";

/// A digest of a comparison and its version: 64 lower-case hexadecimal digits.
///
/// It is the same for comparisons that a marker cannot tell apart: numbers by value, JSON by its canonical form, text by
/// its bytes, columns in any order. Others differ.
pub fn digest(version: u32, comparison: &Comparison) -> String {
    let mut hasher = Sha256::new();
    hasher.update(FORM);
    hasher.update(version.to_be_bytes());
    match comparison {
        Comparison::Columns(columns) => {
            let mut columns: Vec<&Compared> = columns.iter().collect();
            columns.sort_by(|one, other| one.column.cmp(&other.column));
            for compared in columns {
                part(&mut hasher, b'c', &compared.column);
                value(&mut hasher, &compared.value);
            }
        }
        Comparison::Fingerprint(fingerprint) => part(&mut hasher, b'f', fingerprint),
    }
    hasher.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn value(hasher: &mut Sha256, value: &Value) {
    let json = |text: &str| Json::parse(text.as_bytes()).ok();
    match value {
        Value::Null => part(hasher, b'n', ""),
        Value::Integer(number) => part(hasher, b'd', &number.to_string()),
        Value::Decimal(text) => {
            let exact = json(text).and_then(|json| json.number_text());
            part(hasher, b'd', exact.as_deref().unwrap_or(text));
        }
        Value::Text(text) => part(hasher, b't', text),
        Value::Boolean(truth) => part(hasher, b'b', if *truth { "1" } else { "0" }),
        Value::Timestamp(instant) => part(hasher, b'i', &instant.to_string()),
        Value::Json(text) => {
            let canonical = json(text).map(|json| json.canonical());
            part(hasher, b'j', canonical.as_deref().unwrap_or(text));
        }
    }
}

/// A part says what it is and how long it is, so that no two sequences of parts have the same bytes.
fn part(hasher: &mut Sha256, kind: u8, text: &str) {
    hasher.update([kind]);
    hasher.update((text.len() as u64).to_be_bytes());
    hasher.update(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(columns: &[(&str, Value)]) -> Comparison {
        let compared =
            columns.iter().map(|(name, value)| Compared { column: (*name).into(), value: value.clone() });
        Comparison::Columns(compared.collect())
    }

    fn of(value: Value) -> String {
        digest(1, &columns(&[("amount", value)]))
    }

    fn decimal(text: &str) -> Value {
        Value::Decimal(text.into())
    }

    fn text(text: &str) -> Value {
        Value::Text(text.into())
    }

    fn json(text: &str) -> Value {
        Value::Json(text.into())
    }

    #[test]
    fn form_of_the_digest_is_the_one_that_servers_hold() {
        let comparison = columns(&[("amount", decimal("10.5")), ("user_id", text("u-7"))]);

        assert_eq!(
            digest(1, &comparison),
            "5826cf3bc6bb1486414655d1f00fccbc084f34b5748b5b4c1f5e04cdc6019eef"
        );
        assert_eq!(
            digest(2, &Comparison::Fingerprint("ab".repeat(32))),
            "dbd0a8e2afa12be9addeec3fe8597d292a5f894d1811f779f015dcfa68d3918f"
        );
    }

    #[test]
    fn versions_of_a_comparison_are_told_apart() {
        assert_ne!(digest(1, &columns(&[])), digest(2, &columns(&[])));
    }

    #[test]
    fn numbers_are_the_same_by_value() {
        let digests = ["10.5", "10.50", "1.05e1", "105E-1"].map(|number| of(decimal(number)));

        assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
        assert_eq!(of(Value::Integer(100)), of(decimal("100.00")));
        assert_eq!(of(Value::Integer(0)), of(decimal("-0.0")));
        assert_ne!(of(decimal("10.5")), of(decimal("10.51")));
        assert_ne!(of(Value::Integer(1)), of(Value::Integer(-1)));
    }

    #[test]
    fn integers_above_two_to_the_53_never_collide() {
        assert_ne!(of(Value::Integer(9_007_199_254_740_993)), of(Value::Integer(9_007_199_254_740_992)));
    }

    #[test]
    fn text_is_the_same_by_bytes_only() {
        let texts = ["a", "A", "a ", "á", "a\u{301}", "", "null", "1", "true"];
        for (index, one) in texts.iter().enumerate() {
            for other in &texts[index + 1..] {
                assert_ne!(of(text(one)), of(text(other)), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn kinds_of_values_are_told_apart() {
        let values = [
            Value::Null,
            Value::Integer(1),
            text("1"),
            Value::Boolean(true),
            json("1"),
            text(""),
            text("null"),
        ];
        for (index, one) in values.iter().enumerate() {
            for other in &values[index + 1..] {
                assert_ne!(of(one.clone()), of(other.clone()), "{one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn json_is_the_same_in_any_spelling() {
        assert_eq!(of(json(r#"{"b": 1.0, "a": "x"}"#)), of(json(r#"{"a":"x","b":1}"#)));
        assert_ne!(of(json(r#"{"a":1}"#)), of(json(r#"{"a":2}"#)));
    }

    #[test]
    fn order_of_columns_does_not_matter_but_their_names_do() {
        let one = columns(&[("a", Value::Integer(1)), ("b", Value::Integer(2))]);
        let other = columns(&[("b", Value::Integer(2)), ("a", Value::Integer(1))]);
        let swapped = columns(&[("a", Value::Integer(2)), ("b", Value::Integer(1))]);

        assert_eq!(digest(1, &one), digest(1, &other));
        assert_ne!(digest(1, &one), digest(1, &swapped));
        assert_ne!(digest(1, &columns(&[])), digest(1, &columns(&[("a", Value::Null)])));
    }

    #[test]
    fn bytes_that_move_from_one_part_to_the_next_make_a_difference() {
        let one = columns(&[("a", text("bc")), ("d", text(""))]);
        let other = columns(&[("a", text("b")), ("cd", text(""))]);

        assert_ne!(digest(1, &one), digest(1, &other));
        assert_ne!(
            digest(1, &Comparison::Fingerprint("a".into())),
            digest(1, &columns(&[("a", Value::Null)]))
        );
    }

    #[test]
    fn ttl_shorter_than_the_horizon_is_refused_with_both_and_the_fix() {
        let error = check_ttl(Duration::from_mins(1), Duration::from_millis(86_400_500)).unwrap_err();

        assert_eq!(
            error.to_string(),
            "the filter's ttl of 60 s is shorter than the longest retry plus replay horizon, 86400.5 s: \
             set it to 86401 s or more"
        );
    }

    #[test]
    fn ttl_that_reaches_the_horizon_is_taken() {
        assert_eq!(check_ttl(Duration::from_hours(24), Duration::from_hours(24)), Ok(()));
        assert_eq!(check_ttl(Duration::from_hours(25), Duration::from_hours(24)), Ok(()));
    }
}
