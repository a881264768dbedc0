//! Operations: what a delivery asks a consumer to do, and how a repeat is told from a conflict.

use std::collections::BTreeMap;
use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::event::EventId;
use crate::guard::Guard;
use crate::json::Json;
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
    /// The version of the comparison, from 1, stored with the marker: raised whenever its fields change.
    pub comparison_version: u32,
    /// The same operation as earlier versions compared it, so that a field added later does not turn the markers
    /// written before into conflicts.
    pub earlier: Vec<EarlierComparison>,
    /// The aggregate's version, when the message carries one.
    pub aggregate_version: Option<i64>,
    /// The rule that keeps an old version from overwriting a new one.
    pub guard: Option<Guard>,
}

/// What an earlier version of the consumer would have compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierComparison {
    /// That version.
    pub version: u32,
    /// What it compared, with this message's values.
    pub comparison: Comparison,
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

/// A marker as the database holds it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMarker {
    /// The event that was applied.
    pub event_id: Option<String>,
    /// The comparison columns as text, by name.
    pub columns: BTreeMap<String, Option<String>>,
    /// The fingerprint column.
    pub fingerprint: Option<String>,
    /// The version of the comparison that wrote it; `None` was written before versions were kept, and means 1.
    pub comparison_version: Option<u32>,
}

/// The marker was written by a version of the comparison that this consumer does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the marker was compared by version {0}, which this consumer does not know: deploy the config that wrote it, or \
     add that version to compare_history"
)]
pub struct UnknownComparison(pub u32);

fn hexadecimal(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Default for Operation {
    /// An operation that compares nothing, for tests and as a base to fill in.
    fn default() -> Self {
        Self {
            consumer: String::new(),
            key: String::new(),
            event_id: None,
            comparison: Comparison::Columns(Vec::new()),
            comparison_version: 1,
            earlier: Vec::new(),
            aggregate_version: None,
            guard: None,
        }
    }
}

impl Operation {
    /// True when the stored marker stands for the same operation, judged as the version that wrote it compared.
    ///
    /// # Errors
    /// The marker's version is neither the current one nor among the earlier ones.
    pub fn same_as(&self, stored: &StoredMarker) -> Result<bool, UnknownComparison> {
        let version = stored.comparison_version.unwrap_or(1);
        if version == self.comparison_version {
            return Ok(self.comparison.matches(stored));
        }
        let earlier = self.earlier.iter().find(|earlier| earlier.version == version);
        earlier.map(|earlier| earlier.comparison.matches(stored)).ok_or(UnknownComparison(version))
    }

    /// Every comparison column that a marker of this operation may hold, over all versions, each once.
    pub fn marker_columns(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for comparison in self.comparisons() {
            let Comparison::Columns(columns) = comparison else { continue };
            for compared in columns {
                if !names.contains(&compared.column.as_str()) {
                    names.push(&compared.column);
                }
            }
        }
        names
    }

    /// True when any version compares by fingerprint.
    pub fn uses_fingerprint(&self) -> bool {
        self.comparisons().any(|comparison| matches!(comparison, Comparison::Fingerprint(_)))
    }

    fn comparisons(&self) -> impl Iterator<Item = &Comparison> {
        std::iter::once(&self.comparison).chain(self.earlier.iter().map(|earlier| &earlier.comparison))
    }
}

impl Comparison {
    /// A fingerprint of a whole payload in canonical form: key order, spacing and the spelling of numbers do not count.
    pub fn fingerprint_of(payload: &Json) -> Self {
        Self::Fingerprint(hexadecimal(&Sha256::digest(payload.canonical())))
    }

    /// True when the stored marker stands for the same operation.
    pub fn matches(&self, stored: &StoredMarker) -> bool {
        match self {
            Self::Columns(columns) => columns.iter().all(|compared| {
                stored
                    .columns
                    .get(&compared.column)
                    .is_some_and(|text| compared.value.same_as_stored(text.as_deref()))
            }),
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
        let columns = BTreeMap::from([("amount".to_owned(), Some(text.to_owned()))]);
        StoredMarker { columns, ..StoredMarker::default() }
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

    #[test]
    fn a_fingerprint_of_any_version_needs_its_column() {
        let fingerprint = || Comparison::fingerprint_of(&Json::parse(b"{}").unwrap());
        let by = |comparison, earlier: Vec<Comparison>| {
            let earlier = earlier.into_iter().zip(1..);
            let earlier = earlier.map(|(comparison, version)| EarlierComparison { version, comparison });
            Operation { comparison, earlier: earlier.collect(), ..Operation::default() }
        };
        let columns = || amount(Value::Integer(1));

        assert!(by(fingerprint(), vec![]).uses_fingerprint());
        assert!(by(columns(), vec![columns(), fingerprint()]).uses_fingerprint());
        assert!(!by(columns(), vec![columns()]).uses_fingerprint());
    }

    #[test]
    fn a_fingerprint_matches_itself_alone() {
        let one = Comparison::fingerprint_of(&Json::parse(br#"{"a":1.0,"b":2}"#).unwrap());
        let Comparison::Fingerprint(digest) = &one else { panic!("{one:?}") };
        let other = Comparison::fingerprint_of(&Json::parse(br#"{"a":1,"b":3}"#).unwrap());
        let marker = StoredMarker { fingerprint: Some(digest.clone()), ..StoredMarker::default() };

        // printf '{"a":1,"b":2}' | sha256sum
        assert_eq!(digest, "43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777");
        assert_eq!(one.text(), format!("fingerprint={digest}"));
        assert!(one.matches(&marker) && !other.matches(&marker));
        assert!(!one.matches(&StoredMarker::default()));
    }

    /// A field that is added later must not turn history into conflicts.
    #[test]
    fn a_marker_is_judged_by_the_version_that_wrote_it() {
        let both = Comparison::Columns(vec![
            Compared { column: "amount".into(), value: Value::Integer(100) },
            Compared { column: "currency".into(), value: Value::Text("EUR".into()) },
        ]);
        let operation = Operation {
            comparison: both,
            comparison_version: 2,
            earlier: vec![EarlierComparison { version: 1, comparison: amount(Value::Integer(100)) }],
            ..Operation::default()
        };
        let mut marker = stored("100");
        marker.columns.insert("currency".into(), None);

        assert_eq!(operation.marker_columns(), ["amount", "currency"]);
        assert_eq!(operation.same_as(&marker), Ok(true), "written before versions were kept");
        marker.comparison_version = Some(2);
        assert_eq!(operation.same_as(&marker), Ok(false), "version 2 would have stored the currency");
        marker.comparison_version = Some(3);
        assert_eq!(operation.same_as(&marker), Err(UnknownComparison(3)));
    }
}
