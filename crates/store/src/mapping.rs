//! Names: the contract's tables and columns, and what they are called in the database at hand.
//!
//! SQL cannot bind identifiers, so a configured name is validated once, here, and quoted wherever it is used.

use std::collections::BTreeMap;
use std::fmt;

use consign_core::value::ValueType;

/// The longest part of a name, in characters: MySQL's limit.
const PART_MAX: usize = 64;

/// A table or column name from a config, safe to put into SQL: letters, digits, `_` and `$`, not starting with a
/// digit, at most 64 characters, and for tables optionally `schema.table`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identifier(String);

/// Why a configured name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The text is not an identifier.
    #[error(
        "{name:?} is not a name: use letters, digits, _ and $, at most {PART_MAX} characters, not starting with a digit"
    )]
    Malformed {
        /// The text.
        name: String,
    },
    /// A column's name holds a dot.
    #[error("{name:?} is not a column name: only tables may be written as schema.table")]
    DottedColumn {
        /// The text.
        name: String,
    },
    /// The contract has no such column.
    #[error("the contract's {table} has no column {column:?}: it may rename {known}")]
    UnknownColumn {
        /// The contract's table.
        table: &'static str,
        /// The column that was named.
        column: String,
        /// The columns there are.
        known: String,
    },
}

impl Identifier {
    /// Validates a table's name, with or without its schema.
    ///
    /// # Errors
    /// The text is not an identifier, or two of them around one dot.
    pub fn table(text: &str) -> Result<Self, InvalidName> {
        let parts = text.split('.').collect::<Vec<_>>();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            return Err(InvalidName::Malformed { name: text.into() });
        }
        Ok(Self(text.into()))
    }

    /// Validates a column's name.
    ///
    /// # Errors
    /// The text is not an identifier.
    pub fn column(text: &str) -> Result<Self, InvalidName> {
        let name = Self::table(text)?;
        if name.0.contains('.') {
            return Err(InvalidName::DottedColumn { name: name.0 });
        }
        Ok(name)
    }

    /// The name as configured, unquoted.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The schema in front of the dot, if there is one.
    pub fn schema(&self) -> Option<&str> {
        self.0.split_once('.').map(|(schema, _)| schema)
    }

    /// The name without its schema.
    pub fn local(&self) -> &str {
        self.0.split_once('.').map_or(self.0.as_str(), |(_, name)| name)
    }

    /// The name in `quote` characters, each part on its own. A validated name holds no quote character.
    pub fn quoted(&self, quote: char) -> String {
        self.0.split('.').map(|part| format!("{quote}{part}{quote}")).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

fn is_name(part: &str) -> bool {
    let mut characters = part.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|next| next.is_ascii_alphanumeric() || next == '_' || next == '$')
        && part.len() <= PART_MAX
}

/// Contract names and what stands for them in the database.
pub type Names = BTreeMap<&'static str, Identifier>;

/// The outbox table's name and its columns' names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxMapping {
    names: Names,
}

/// The marker table's name and its columns' names. Comparison columns are not mapped: consumers name them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkerMapping {
    names: Names,
}

/// A column that consumers compare by, as the config types it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparisonColumn {
    /// Its name.
    pub name: Identifier,
    /// The values it holds.
    pub kind: ValueType,
}

impl ComparisonColumn {
    /// The word for its type in `add_comparison_column.sql`.
    pub(crate) const fn word(&self) -> &'static str {
        match self.kind {
            ValueType::Integer => "integer",
            ValueType::Decimal => "decimal",
            ValueType::String => "string",
            ValueType::Boolean => "boolean",
            ValueType::Json => "json",
            ValueType::Timestamp => "timestamp",
        }
    }
}

/// The columns every outbox table has.
pub const OUTBOX_REQUIRED: [&str; 10] = [
    "event_id",
    "aggregate_id",
    "event_type",
    "payload",
    "status",
    "attempts",
    "available_at",
    "lease_token",
    "locked_until",
    "created_at",
];

/// The columns an outbox table may have, each bringing its feature.
pub const OUTBOX_OPTIONAL: [&str; 10] = [
    "aggregate_type",
    "sequence",
    "aggregate_version",
    "destination",
    "route_key",
    "headers",
    "business_key",
    "last_error",
    "last_outcome",
    "sent_at",
];

/// The columns every marker table has.
pub const MARKER_REQUIRED: [&str; 3] = ["consumer_name", "business_key", "event_id"];

/// The columns a marker table may have.
pub const MARKER_OPTIONAL: [&str; 4] =
    ["fingerprint", "applied_at", "aggregate_version", "comparison_version"];

impl OutboxMapping {
    /// The contract's name of the table.
    pub const TABLE: &'static str = "outbox_event";

    /// The contract's columns in a table called `table`.
    pub fn new(table: Identifier) -> Self {
        Self { names: contract_names(Self::TABLE, table, OUTBOX_REQUIRED.iter().chain(&OUTBOX_OPTIONAL)) }
    }

    /// The same with the contract's `column` called `actual`.
    ///
    /// # Errors
    /// The contract has no such column.
    pub fn with_column(mut self, column: &str, actual: Identifier) -> Result<Self, InvalidName> {
        rename(&mut self.names, Self::TABLE, column, actual)?;
        Ok(self)
    }

    /// The table.
    pub fn table(&self) -> &Identifier {
        &self.names[Self::TABLE]
    }

    /// All names, for rendering.
    pub fn names(&self) -> &Names {
        &self.names
    }
}

impl MarkerMapping {
    /// The contract's name of the table.
    pub const TABLE: &'static str = "consumed_operation";

    /// The contract's columns in a table called `table`.
    pub fn new(table: Identifier) -> Self {
        Self { names: contract_names(Self::TABLE, table, MARKER_REQUIRED.iter().chain(&MARKER_OPTIONAL)) }
    }

    /// The same with the contract's `column` called `actual`.
    ///
    /// # Errors
    /// The contract has no such column.
    pub fn with_column(mut self, column: &str, actual: Identifier) -> Result<Self, InvalidName> {
        rename(&mut self.names, Self::TABLE, column, actual)?;
        Ok(self)
    }

    /// The table.
    pub fn table(&self) -> &Identifier {
        &self.names[Self::TABLE]
    }

    /// All names, for rendering.
    pub fn names(&self) -> &Names {
        &self.names
    }
}

impl Default for OutboxMapping {
    fn default() -> Self {
        Self::new(Identifier(Self::TABLE.into()))
    }
}

impl Default for MarkerMapping {
    fn default() -> Self {
        Self::new(Identifier(Self::TABLE.into()))
    }
}

/// The names of a table of consign's own, none of which the config changes.
///
/// # Panics
/// One of them is no name.
pub(crate) fn own_names(table: &'static str, columns: &[&'static str]) -> Names {
    let identifier = Identifier::table(table).expect("a constant name");
    contract_names(table, identifier, columns.iter())
}

fn contract_names<'a>(
    contract: &'static str,
    table: Identifier,
    columns: impl Iterator<Item = &'a &'static str>,
) -> Names {
    let mut names: Names = columns.map(|&column| (column, Identifier(column.into()))).collect();
    names.insert(contract, table);
    names
}

fn rename(
    names: &mut Names,
    table: &'static str,
    column: &str,
    actual: Identifier,
) -> Result<(), InvalidName> {
    if actual.0.contains('.') {
        return Err(InvalidName::DottedColumn { name: actual.0 });
    }
    match names.get_mut(column) {
        Some(name) if column != table => {
            *name = actual;
            Ok(())
        }
        _ => {
            let known = names.keys().filter(|&&name| name != table).copied().collect::<Vec<_>>().join(", ");
            Err(InvalidName::UnknownColumn { table, column: column.into(), known })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B87, `iamsauravsharma/sqlx_migrator#17`: configurable names invite injection.
    #[test]
    fn names_that_could_end_a_quotation_are_refused() {
        let long = "a".repeat(65);
        for text in ["", "outbox`; DROP TABLE x; -- ", "a b", "1a", "a.b.c", ".a", "a.", "a\"b", "é", &long]
        {
            assert!(Identifier::table(text).is_err(), "{text:?} was accepted");
        }
        for text in ["outbox", "Outbox", "consign_outbox_body", "shop.outbox", "_a$1", &long[..64]] {
            assert_eq!(Identifier::table(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn a_column_has_no_schema() {
        assert!(Identifier::column("a.b").is_err());
        assert!(OutboxMapping::default().with_column("status", Identifier::table("a.b").unwrap()).is_err());
    }

    #[test]
    fn both_parts_of_a_table_name_are_quoted() {
        assert_eq!(Identifier::table("shop.outbox").unwrap().quoted('`'), "`shop`.`outbox`");
    }

    #[test]
    fn renaming_a_column_the_contract_does_not_have_names_those_it_has() {
        let actual = Identifier::column("state").unwrap();

        let error = MarkerMapping::default().with_column("state", actual).unwrap_err();

        assert!(error.to_string().contains("business_key"), "{error}");
    }
}
