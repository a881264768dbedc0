//! `[[consumer]]` as written.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor, value};
use serde::{Deserialize, Serialize};

/// `[[consumer]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawConsumer {
    pub name: Option<String>,
    pub source: Option<String>,
    pub queue: Option<String>,
    pub group: Option<String>,
    pub prefetch: u64,
    pub workers: u64,
    pub batch: u64,
    pub batch_linger_milliseconds: u64,
    pub schema: Option<String>,
    pub key: Option<String>,
    pub compare: Option<RawCompare>,
    pub fingerprint: Option<Vec<String>>,
    pub compare_version: u64,
    pub compare_history: Vec<RawHistory>,
    pub guard: Option<RawGuard>,
    pub attempts_max: u64,
    pub retry_delay_seconds: u64,
    pub on_conflict: String,
    pub dead_letter: Option<RawDeadLetter>,
    pub bind: BTreeMap<String, RawBinding>,
    pub statement: Vec<RawStatement>,
    pub statements: Option<String>,
}

/// `[[consumer.compare_history]]`
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RawHistory {
    pub version: Option<u64>,
    pub compare: Option<RawCompare>,
    pub fingerprint: Option<Vec<String>>,
}

/// `[consumer.guard]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawGuard {
    pub rule: Option<String>,
    pub aggregate: Option<String>,
    pub version: Option<String>,
    pub first: i64,
    pub gap_seconds: u64,
    pub state: Option<String>,
    pub allowed: Vec<String>,
}

/// `dead_letter = { … }` of a consumer.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RawDeadLetter {
    pub destination: Option<String>,
    pub key: Option<String>,
}

/// `bind.NAME = { … }` of a consumer.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawBinding {
    pub pointer: Option<String>,
    pub header: Option<String>,
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub required: bool,
}

/// `[[consumer.statement]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawStatement {
    pub sql: Option<String>,
    pub expect_rows: RawRows,
}

/// `compare`: binding names, or marker columns and the bindings they hold.
#[derive(Serialize)]
#[serde(untagged)]
pub enum RawCompare {
    Names(Vec<String>),
    Columns(BTreeMap<String, String>),
}

/// `expect_rows`: a number, `">=n"` or `"any"`.
#[derive(Serialize)]
pub struct RawRows(pub String);

impl Default for RawConsumer {
    fn default() -> Self {
        Self {
            name: None,
            source: None,
            queue: None,
            group: None,
            prefetch: 200,
            workers: 4,
            batch: 100,
            batch_linger_milliseconds: 5,
            schema: None,
            key: None,
            compare: None,
            fingerprint: None,
            compare_version: 1,
            compare_history: Vec::new(),
            guard: None,
            attempts_max: 5,
            retry_delay_seconds: 1,
            on_conflict: "record_and_ack".into(),
            dead_letter: None,
            bind: BTreeMap::new(),
            statement: Vec::new(),
            statements: None,
        }
    }
}

impl Default for RawGuard {
    fn default() -> Self {
        Self {
            rule: None,
            aggregate: None,
            version: None,
            first: 1,
            gap_seconds: 300,
            state: None,
            allowed: Vec::new(),
        }
    }
}

impl Default for RawBinding {
    fn default() -> Self {
        Self { pointer: None, header: None, kind: None, required: true }
    }
}

impl Default for RawStatement {
    fn default() -> Self {
        Self { sql: None, expect_rows: RawRows("1".into()) }
    }
}

impl<'de> Deserialize<'de> for RawCompare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Compare;

        impl<'de> Visitor<'de> for Compare {
            type Value = RawCompare;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of binding names, or a table of column = \"binding\"")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, names: A) -> Result<RawCompare, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(names)).map(RawCompare::Names)
            }

            fn visit_map<A: MapAccess<'de>>(self, columns: A) -> Result<RawCompare, A::Error> {
                BTreeMap::deserialize(value::MapAccessDeserializer::new(columns)).map(RawCompare::Columns)
            }
        }

        deserializer.deserialize_any(Compare)
    }
}

impl<'de> Deserialize<'de> for RawRows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;

        impl Visitor<'_> for Rows {
            type Value = RawRows;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number, \">=n\" or \"any\"")
            }

            fn visit_i64<E: Error>(self, rows: i64) -> Result<RawRows, E> {
                Ok(RawRows(rows.to_string()))
            }

            fn visit_u64<E: Error>(self, rows: u64) -> Result<RawRows, E> {
                Ok(RawRows(rows.to_string()))
            }

            fn visit_str<E: Error>(self, rows: &str) -> Result<RawRows, E> {
                Ok(RawRows(rows.to_owned()))
            }
        }

        deserializer.deserialize_any(Rows)
    }
}
