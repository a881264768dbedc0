//! Declared comparisons: which bindings tell a duplicate from a conflict, now and in earlier versions of a config.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::declared::binding::{BindingSource, Bindings, Fields};
use crate::declared::spelling::nearest_name;
use crate::json::Json;
use crate::operation::{Compared, Comparison};
use crate::value::Value;

/// What tells a duplicate from a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeclaredComparison {
    /// Marker columns and the bindings they hold. An empty list says that the key alone decides.
    Columns(Vec<ComparedBinding>),
    /// A SHA-256 over these bindings in canonical form, kept in the marker's `fingerprint` column.
    Fingerprint(Vec<String>),
}

/// One comparison column and the binding it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedBinding {
    /// The marker table's column.
    pub column: String,
    /// The binding's name.
    pub binding: String,
}

/// Why a comparison cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidComparison {
    /// It names no binding.
    #[error("{name:?} is not bound: {fix}")]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest known name, or how to add one.
        fix: String,
    },
    /// Copies of one event may differ in their headers.
    #[error(
        "{name:?} is read from a header and may differ between copies of one event: compare payload fields"
    )]
    Header {
        /// The name.
        name: String,
    },
    /// The same operation in a new envelope would be a conflict.
    #[error("{name:?} differs when the same fact is sent again: compare payload fields")]
    EventId {
        /// The name.
        name: String,
    },
    /// A name stands in the list twice.
    #[error("{name:?} is listed twice: remove one")]
    Repeated {
        /// The column or binding.
        name: String,
    },
    /// A digest over nothing is the same for every message.
    #[error("the fingerprint covers no field: list the bindings that must be equal")]
    EmptyFingerprint,
}

/// What an earlier version of the config compared. Markers written by it are judged by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlierDeclared {
    /// That version, below the current one.
    pub version: u32,
    /// What it compared; its bindings are still there.
    pub comparison: DeclaredComparison,
}

/// Why the versions of a comparison do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHistory {
    /// Versions count from 1.
    #[error("version 0 does not exist: count from 1")]
    Zero,
    /// An earlier version is not earlier.
    #[error(
        "version {version} is not earlier than compare_version, which is {current}: raise compare_version whenever the \
         comparison changes"
    )]
    NotEarlier {
        /// The version in the history.
        version: u32,
        /// The current version.
        current: u32,
    },
    /// Two entries have one version.
    #[error("version {0} is listed twice: keep the comparison that was deployed under it")]
    Repeated(u32),
    /// What it compared does not fit the bindings.
    #[error(transparent)]
    Comparison(#[from] InvalidComparison),
}

/// Checks the versions before `current`.
///
/// # Errors
/// The place in the list of the first version that cannot be used, and why.
pub fn check_history(
    current: u32,
    earlier: &[EarlierDeclared],
    bindings: &Bindings,
) -> Result<(), (usize, InvalidHistory)> {
    for (at, entry) in earlier.iter().enumerate() {
        let version = entry.version;
        if version == 0 {
            return Err((at, InvalidHistory::Zero));
        }
        if version >= current {
            return Err((at, InvalidHistory::NotEarlier { version, current }));
        }
        if earlier[..at].iter().any(|other| other.version == version) {
            return Err((at, InvalidHistory::Repeated(version)));
        }
        entry.comparison.check(bindings).map_err(|problem| (at, problem.into()))?;
    }
    Ok(())
}

impl DeclaredComparison {
    /// Checks the comparison against the bindings.
    ///
    /// # Errors
    /// It uses an unknown name, a header or the event id, repeats a name, or is an empty fingerprint.
    pub fn check(&self, bindings: &Bindings) -> Result<(), InvalidComparison> {
        let (columns, names): (Vec<&str>, Vec<&str>) = match self {
            Self::Columns(columns) => {
                columns.iter().map(|compared| (compared.column.as_str(), compared.binding.as_str())).unzip()
            }
            Self::Fingerprint(names) if names.is_empty() => return Err(InvalidComparison::EmptyFingerprint),
            Self::Fingerprint(names) => names.iter().map(|name| (name.as_str(), name.as_str())).unzip(),
        };
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].contains(column) {
                return Err(InvalidComparison::Repeated { name: (*column).to_owned() });
            }
        }
        for name in names {
            if name == "event_id" {
                return Err(InvalidComparison::EventId { name: name.into() });
            }
            if !bindings.known_names().any(|known| known == name) {
                let fix = nearest_name(name, bindings.known_names()).map_or_else(
                    || format!("add bind.{name} = {{ pointer = \"/…\", type = \"…\" }}"),
                    |near| format!("did you mean {near:?}?"),
                );
                return Err(InvalidComparison::UnknownName { name: name.into(), fix });
            }
            let source = bindings.get(name).map(|binding| &binding.source);
            if matches!(source, Some(BindingSource::Header(_))) {
                return Err(InvalidComparison::Header { name: name.into() });
            }
        }
        Ok(())
    }

    /// The marker columns it uses; none for a fingerprint.
    pub(super) fn columns(&self) -> &[ComparedBinding] {
        match self {
            Self::Columns(columns) => columns,
            Self::Fingerprint(_) => &[],
        }
    }

    pub(super) fn of(&self, fields: &Fields) -> Comparison {
        let value = |name: &str| fields.get(name).cloned().unwrap_or(Value::Null);
        match self {
            Self::Columns(columns) => Comparison::Columns(
                columns
                    .iter()
                    .map(|compared| Compared {
                        column: compared.column.clone(),
                        value: value(&compared.binding),
                    })
                    .collect(),
            ),
            Self::Fingerprint(names) => Comparison::Fingerprint(fingerprint(
                names.iter().map(|name| (name.as_str(), value(name))).collect(),
            )),
        }
    }
}

/// The digest of the named values: SHA-256 over one canonical JSON object with a key per binding.
pub(super) fn fingerprint(values: Vec<(&str, Value)>) -> String {
    let mut entries: Vec<(String, Json)> =
        values.into_iter().map(|(name, value)| (name.to_owned(), json(&value))).collect();
    entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    let digest = Sha256::digest(Json::Object(entries).canonical());
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn json(value: &Value) -> Json {
    let reads =
        |text: &str| Json::parse(text.as_bytes()).expect("values hold numbers and JSON in valid form");
    match value {
        Value::Null => Json::Null,
        Value::Boolean(truth) => Json::Boolean(*truth),
        Value::Text(text) => Json::Text(text.clone()),
        // One text per instant, whatever offset the message has.
        Value::Timestamp(instant) => Json::Text(instant.to_string()),
        Value::Integer(number) => reads(&number.to_string()),
        Value::Decimal(text) | Value::Json(text) => reads(text),
    }
}
