//! Field tables: the typed key-value maps of headers and declaration arguments.

use bytes::Bytes;

/// One value of a [`FieldTable`].
///
/// Integers of every width are read into [`FieldValue::Int`] and written as 64-bit integers, which
/// `RabbitMQ` compares by value. Floats are widened in the same way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldValue {
    /// No value.
    Void,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A decimal number: `value / 10^scale`.
    Decimal {
        /// Number of decimal places.
        scale: u8,
        /// The unscaled value.
        value: i32,
    },
    /// UTF-8 text.
    Text(String),
    /// Raw bytes; also used for text on the wire that is not UTF-8.
    Bytes(Bytes),
    /// Seconds since the Unix epoch.
    Timestamp(u64),
    /// A list of values.
    Array(Vec<FieldValue>),
    /// A nested table.
    Table(FieldTable),
}

impl FieldValue {
    /// The text, when this is a text value.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, when this is an integer value.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The boolean, when this is a boolean value.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The nested table, when this is a table value.
    pub fn as_table(&self) -> Option<&FieldTable> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl From<&str> for FieldValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for FieldValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for FieldValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for FieldValue {
    fn from(value: i32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<u32> for FieldValue {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<i64> for FieldValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for FieldValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<Bytes> for FieldValue {
    fn from(value: Bytes) -> Self {
        Self::Bytes(value)
    }
}

impl From<FieldTable> for FieldValue {
    fn from(table: FieldTable) -> Self {
        Self::Table(table)
    }
}

impl From<Vec<FieldValue>> for FieldValue {
    fn from(values: Vec<FieldValue>) -> Self {
        Self::Array(values)
    }
}

/// An ordered map from keys (at most 255 bytes each) to [`FieldValue`]s.
///
/// The order of the wire is kept. Keys are unique when the table is built with
/// [`insert`](Self::insert); a table that came from a broker may repeat a key, and then the first wins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldTable {
    entries: Vec<(String, FieldValue)>,
}

impl FieldTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&FieldValue> {
        self.entries.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Sets `key`, replacing an earlier value.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<FieldValue>) {
        let (key, value) = (key.into(), value.into());
        match self.entries.iter_mut().find(|(name, _)| *name == key) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
    }

    /// The table with `key` set; for building in one expression.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<FieldValue>) -> Self {
        self.insert(key, value);
        self
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<FieldValue> {
        let index = self.entries.iter().position(|(name, _)| name == key)?;
        Some(self.entries.remove(index).1)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &FieldValue)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// Appends an entry as it came from the wire.
    pub(crate) fn push(&mut self, key: String, value: FieldValue) {
        self.entries.push((key, value));
    }
}

impl<K: Into<String>, V: Into<FieldValue>> FromIterator<(K, V)> for FieldTable {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut table = Self::new();
        for (key, value) in entries {
            table.insert(key, value);
        }
        table
    }
}
