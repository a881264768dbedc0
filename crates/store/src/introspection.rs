//! What a table really has: which columns, of which kinds, how long, compared how.

use std::collections::{BTreeMap, BTreeSet};

/// The kind of a column, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Characters in a character set.
    Text,
    /// Raw bytes.
    Bytes,
    /// A whole number.
    Integer,
    /// An exact decimal number.
    Decimal,
    /// A floating-point number.
    Float,
    /// The server's own JSON type, which does not keep bytes.
    Json,
    /// A date with a time.
    DateTime,
    /// Anything else.
    Other,
}

/// What a column's length counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Characters, as in `VARCHAR(64)`.
    Characters,
    /// Bytes, as in `VARBINARY(64)` and in MySQL's `TEXT` types.
    Bytes,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in the database.
    pub name: String,
    /// Its kind.
    pub kind: ColumnKind,
    /// Its type as the server prints it.
    pub declared: String,
    /// The longest text, in `unit`; `None` where there is no such limit.
    pub length: Option<u64>,
    /// What `length` counts.
    pub unit: Unit,
    /// How text is encoded.
    pub character_set: Option<String>,
    /// How text is compared.
    pub collation: Option<String>,
    /// Digits after the second, for dates.
    pub fraction: Option<u32>,
    /// Whether it may be NULL.
    pub nullable: bool,
}

impl Column {
    /// How long `text` is in the column's unit, when that is more than the column holds.
    pub fn excess(&self, text: &str) -> Option<u64> {
        let length = match self.unit {
            Unit::Characters => text.chars().count(),
            Unit::Bytes => text.len(),
        } as u64;
        self.length.is_some_and(|limit| length > limit).then_some(length)
    }
}

/// One table's columns under their contract names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Columns of the contract that exist.
    pub columns: BTreeMap<String, Column>,
    /// All other columns, under their own names.
    pub others: BTreeMap<String, Column>,
}

impl TableShape {
    /// True when the contract's `column` exists.
    pub fn has(&self, column: &str) -> bool {
        self.columns.contains_key(column)
    }

    /// The contract's `column`.
    pub fn column(&self, column: &str) -> Option<&Column> {
        self.columns.get(column)
    }

    /// The contract's columns that exist, for rendering.
    pub fn present(&self) -> BTreeSet<String> {
        self.columns.keys().cloned().collect()
    }

    /// Those of `wanted` that do not exist.
    pub fn missing<'a>(&self, wanted: &[&'a str]) -> Vec<&'a str> {
        wanted.iter().copied().filter(|column| !self.has(column)).collect()
    }
}
