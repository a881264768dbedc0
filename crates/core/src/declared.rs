//! Consumers declared in a config: a key template, bindings, a comparison and SQL statements, without any code.
//!
//! ```text
//! Message ─ bindings ─► fields ─┬─ key template ─► business key ┐
//!                               ├─ comparison ──► columns|print ├─► Operation
//!                               └─ statements ──► bound values  ─► DeclaredChange, run inside the marker's transaction
//! ```
//!
//! Identity comes from the payload alone: headers, trace ids and timestamps differ between copies of one event, so
//! neither the key nor the comparison may use them.

use std::fmt::Write;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::delivery::Message;
use crate::event::{EventId, InvalidEvent};
use crate::inbox::{EachFailed, Handler, HandlerError, Work};
use crate::json::Json;
use crate::operation::{Compared, Comparison, Operation};
use crate::ports::{EachError, InboxTransaction};
use crate::value::Value;

mod binding;
mod key;
mod spelling;
mod statement;

pub use binding::{BUILT_IN_NAMES, Binding, BindingSource, Bindings, FieldRefusal, Fields, InvalidBinding};
pub use key::{InvalidKey, KeyRefusal, KeyTemplate};
pub use spelling::nearest_name;
pub use statement::{ExpectRows, InvalidRowCount, InvalidStatement, Statement};

/// The header that carries the aggregate's version.
pub const AGGREGATE_VERSION_HEADER: &str = "consign-aggregate-version";

/// How many characters a business key may have: the contract's `business_key VARCHAR(128)`.
pub const KEY_CHARACTERS_MAX: usize = 128;

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

/// Why the parts of a declared consumer do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConsumer {
    /// The key does not fit the bindings.
    #[error(transparent)]
    Key(#[from] InvalidKey),
    /// The comparison does not fit the bindings.
    #[error(transparent)]
    Comparison(#[from] InvalidComparison),
}

/// Why a message cannot become an operation of this consumer. It will not get better by waiting: the delivery is
/// put aside. Payload content is never part of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Properties or headers could not be decoded.
    #[error("the message could not be decoded: {0}")]
    Undecodable(String),
    /// A value is missing or has the wrong type.
    #[error(transparent)]
    Field(#[from] FieldRefusal),
    /// The values give no key.
    #[error("the business key cannot be formed: {0}")]
    Key(#[from] KeyRefusal),
    /// The message id cannot be an event id.
    #[error("the message id is no event id: {0}")]
    EventId(InvalidEvent),
    /// The version header is not a number.
    #[error("header {AGGREGATE_VERSION_HEADER} is not a whole number of 64 bits")]
    AggregateVersion,
}

/// A consumer declared in a config.
#[derive(Clone, Debug)]
pub struct DeclaredConsumer {
    name: Arc<str>,
    key: KeyTemplate,
    bindings: Bindings,
    comparison: DeclaredComparison,
    statements: Arc<[Statement]>,
}

/// The business change of one operation: the consumer's statements with this message's values.
#[derive(Clone, Debug)]
pub struct DeclaredChange {
    consumer: Arc<str>,
    statements: Arc<[Statement]>,
    values: Vec<Vec<Value>>,
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

    fn of(&self, fields: &Fields) -> Comparison {
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

impl DeclaredConsumer {
    /// Puts a consumer together; every part was parsed before.
    ///
    /// # Errors
    /// Every way in which the key and the comparison do not fit the bindings.
    pub fn new(
        name: impl Into<Arc<str>>,
        key: KeyTemplate,
        bindings: Bindings,
        comparison: DeclaredComparison,
        statements: Vec<Statement>,
    ) -> Result<Self, Vec<InvalidConsumer>> {
        let mut problems = Vec::new();
        problems.extend(key.check(&bindings).err().map(InvalidConsumer::from));
        problems.extend(comparison.check(&bindings).err().map(InvalidConsumer::from));
        if problems.is_empty() {
            Ok(Self { name: name.into(), key, bindings, comparison, statements: statements.into() })
        } else {
            Err(problems)
        }
    }

    /// The consumer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The template of its business keys.
    pub fn key(&self) -> &KeyTemplate {
        &self.key
    }

    /// What it reads from a message.
    pub fn bindings(&self) -> &Bindings {
        &self.bindings
    }

    /// What it compares.
    pub fn comparison(&self) -> &DeclaredComparison {
        &self.comparison
    }

    /// What it runs.
    pub fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Reads a message into the operation it asks for and the change that carries it out.
    ///
    /// # Errors
    /// The message is undecodable, lacks a value, has a value of the wrong type, or gives no key.
    pub fn operation(&self, message: &Message) -> Result<(Operation, DeclaredChange), Refusal> {
        if let Some(problem) = &message.undecodable {
            return Err(Refusal::Undecodable(problem.clone()));
        }
        let fields = self.bindings.read(message)?;
        let event_id = message.id.as_deref().filter(|id| !id.is_empty()).map(EventId::new).transpose();
        let operation = Operation {
            consumer: self.name.to_string(),
            key: self.key.render(&fields, KEY_CHARACTERS_MAX)?,
            event_id: event_id.map_err(Refusal::EventId)?,
            comparison: self.comparison.of(&fields),
            aggregate_version: binding::header(message, AGGREGATE_VERSION_HEADER)
                .map(|text| text.parse().map_err(|_| Refusal::AggregateVersion))
                .transpose()?,
            ..Operation::default()
        };
        let change = DeclaredChange {
            consumer: Arc::clone(&self.name),
            statements: Arc::clone(&self.statements),
            values: self.statements.iter().map(|statement| statement.values(&fields)).collect(),
        };
        Ok((operation, change))
    }
}

impl<Tx: InboxTransaction> Handler<Tx> for DeclaredChange {
    async fn apply(&self, tx: &mut Tx, _: &Operation, _: &Message) -> Result<(), HandlerError> {
        for (index, (statement, values)) in self.statements.iter().zip(&self.values).enumerate() {
            let rows = tx.execute(statement.sql(), values).await?;
            self.expect(index, rows)?;
        }
        Ok(())
    }

    /// All operations of a consumer have the same statements. A lone statement may be run for all of them at once.
    async fn apply_each<'a>(tx: &'a mut Tx, work: &'a [Work<'a, Self>]) -> Result<(), EachFailed> {
        let [statement] = &*work.first().map(|work| Arc::clone(&work.handler.statements)).unwrap_or_default()
        else {
            for (at, work) in work.iter().enumerate() {
                let applied = work.handler.apply(tx, work.operation, work.message).await;
                applied.map_err(|error| EachFailed { at: Some(at), error })?;
            }
            return Ok(());
        };
        let values: Vec<&[Value]> = work.iter().map(|work| work.handler.values[0].as_slice()).collect();
        let rows = tx.execute_each(statement, &values).await;
        let rows = rows.map_err(|EachError { at, error }| EachFailed { at, error: error.into() })?;
        for (at, (work, rows)) in work.iter().zip(rows).enumerate() {
            work.handler.expect(0, rows).map_err(|error| EachFailed { at: Some(at), error })?;
        }
        Ok(())
    }
}

impl DeclaredChange {
    fn expect(&self, index: usize, rows: u64) -> Result<(), HandlerError> {
        let expected = self.statements[index].expect_rows;
        if expected.accepts(rows) {
            return Ok(());
        }
        Err(HandlerError::Refused(format!(
            "statement {} of {} changed {rows} {}, expected {expected}",
            index + 1,
            self.consumer,
            if rows == 1 { "row" } else { "rows" },
        )))
    }
}

/// The digest of the named values: SHA-256 over one canonical JSON object with a key per binding.
fn fingerprint(values: Vec<(&str, Value)>) -> String {
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
        Value::Integer(number) => reads(&number.to_string()),
        Value::Decimal(text) | Value::Json(text) => reads(text),
    }
}

#[cfg(test)]
mod tests;
