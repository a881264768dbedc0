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

use std::sync::Arc;

use crate::delivery::Message;
use crate::event::{EventId, InvalidEvent};
use crate::inbox::{EachFailed, Handler, HandlerError, Work};
use crate::operation::{EarlierComparison, Operation};
use crate::ports::{EachError, InboxTransaction};
use crate::value::{Value, ValueType};

mod binding;
mod comparison;
mod guard;
mod key;
mod spelling;
mod statement;

pub use binding::{BUILT_IN_NAMES, Binding, BindingSource, Bindings, FieldRefusal, Fields, InvalidBinding};
pub use comparison::{
    ComparedBinding, DeclaredComparison, EarlierDeclared, InvalidComparison, InvalidHistory, check_history,
};
pub use guard::{DeclaredGuard, DeclaredRule, GuardRefusal, InvalidGuard, VersionSource};
pub use key::{InvalidKey, KeyRefusal, KeyTemplate};
pub use spelling::nearest_name;
pub use statement::{
    ExpectRows, InsertShape, InvalidRowCount, InvalidStatement, Role, SetShape, Statement, UpdateShape,
};

/// The header that carries the aggregate's version.
pub const AGGREGATE_VERSION_HEADER: &str = "consign-aggregate-version";

/// How many characters a business key may have: the contract's `business_key VARCHAR(128)`.
pub const KEY_CHARACTERS_MAX: usize = 128;

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
    /// The values give the guard no aggregate or no step.
    #[error(transparent)]
    Guard(#[from] GuardRefusal),
}

/// A consumer declared in a config.
#[derive(Clone, Debug)]
pub struct DeclaredConsumer {
    name: Arc<str>,
    key: KeyTemplate,
    bindings: Bindings,
    comparison: DeclaredComparison,
    comparison_version: u32,
    earlier: Vec<EarlierDeclared>,
    guard: Option<DeclaredGuard>,
    statements: Arc<[Statement]>,
}

/// The business change of one operation: the consumer's statements with this message's values.
#[derive(Clone, Debug)]
pub struct DeclaredChange {
    consumer: Arc<str>,
    statements: Arc<[Statement]>,
    values: Vec<Vec<Value>>,
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
            Ok(Self {
                name: name.into(),
                key,
                bindings,
                comparison,
                comparison_version: 1,
                earlier: Vec::new(),
                guard: None,
                statements: statements.into(),
            })
        } else {
            Err(problems)
        }
    }

    /// The same consumer with a version of its comparison, from 1, and what earlier versions compared.
    ///
    /// # Errors
    /// The place in the list of the first version that cannot be used, and why; see [`check_history`].
    pub fn with_history(
        self,
        version: u32,
        earlier: Vec<EarlierDeclared>,
    ) -> Result<Self, (usize, InvalidHistory)> {
        check_history(version, &earlier, &self.bindings)?;
        Ok(Self { comparison_version: version, earlier, ..self })
    }

    /// The same consumer with a guard.
    ///
    /// # Errors
    /// The guard does not fit the bindings.
    pub fn with_guard(self, guard: DeclaredGuard) -> Result<Self, InvalidGuard> {
        guard.check(&self.bindings)?;
        Ok(Self { guard: Some(guard), ..self })
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

    /// The version of what it compares.
    pub fn comparison_version(&self) -> u32 {
        self.comparison_version
    }

    /// What earlier versions compared.
    pub fn earlier(&self) -> &[EarlierDeclared] {
        &self.earlier
    }

    /// Every marker column that it compares, or did in an earlier version, each once with the type of its values.
    pub fn compared_columns(&self) -> Vec<(&str, ValueType)> {
        let mut columns: Vec<(&str, ValueType)> = Vec::new();
        for compared in self.comparisons().flat_map(DeclaredComparison::columns) {
            if columns.iter().all(|(known, _)| *known != compared.column) {
                // Built-in names have no binding and hold text.
                let binding = self.bindings.get(&compared.binding);
                let value_type = binding.map_or(ValueType::String, |binding| binding.value_type);
                columns.push((&compared.column, value_type));
            }
        }
        columns
    }

    /// True when it compares by fingerprint, or did in an earlier version.
    pub fn uses_fingerprint(&self) -> bool {
        self.comparisons().any(|comparison| matches!(comparison, DeclaredComparison::Fingerprint(_)))
    }

    fn comparisons(&self) -> impl Iterator<Item = &DeclaredComparison> {
        std::iter::once(&self.comparison).chain(self.earlier.iter().map(|earlier| &earlier.comparison))
    }

    /// What keeps an old version from overwriting a new one.
    pub fn guard(&self) -> Option<&DeclaredGuard> {
        self.guard.as_ref()
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
        let header_version = binding::header(message, AGGREGATE_VERSION_HEADER)
            .map(|text| text.parse().map_err(|_| Refusal::AggregateVersion))
            .transpose()?;
        let guard = self.guard.as_ref().map(|guard| guard.of(&fields, header_version)).transpose()?;
        let earlier = self.earlier.iter().map(|earlier| EarlierComparison {
            version: earlier.version,
            comparison: earlier.comparison.of(&fields),
        });
        let operation = Operation {
            consumer: self.name.to_string(),
            key: self.key.render(&fields, KEY_CHARACTERS_MAX)?,
            event_id: event_id.map_err(Refusal::EventId)?,
            comparison: self.comparison.of(&fields),
            comparison_version: self.comparison_version,
            earlier: earlier.collect(),
            aggregate_version: header_version,
            guard,
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
        for (index, (statement, values)) in self.steps().enumerate() {
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
    /// The statements in order, each with this message's values.
    pub fn steps(&self) -> impl Iterator<Item = (&Statement, &[Value])> {
        self.statements.iter().zip(self.values.iter().map(Vec::as_slice))
    }

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

#[cfg(test)]
mod tests;
