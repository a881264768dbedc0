//! Which keys may stand where: the tree of tables, taken from the raw structs themselves.

use serde::Serialize;

use super::raw::{
    Raw, RawBinding, RawConsumer, RawDeadLetter, RawDestination, RawExchange, RawFilter, RawGroup, RawGuard,
    RawHistory, RawInbox, RawOutbox, RawQueue, RawRelay, RawRetry, RawRetryPart, RawRoute, RawSetup,
    RawStatement, RawStore, RawTopic, RawTransaction,
};

/// What may stand under a key.
pub enum Shape {
    /// A value, or a table with free keys.
    Value,
    /// A table with known keys.
    Table(Vec<(String, Shape)>),
    /// A table of tables under free names.
    Named(Box<Shape>),
    /// An array of tables.
    List(Box<Shape>),
}

impl Shape {
    /// The shape of the whole file.
    pub fn of_config() -> Self {
        let queue = || list(table::<RawQueue>([]));
        let retry = || table::<RawRetryPart>([]);
        let destination = table::<RawDestination>([
            ("exchange", table::<RawExchange>([])),
            ("group", list(table::<RawGroup>([]))),
            ("queue", queue()),
            ("topic", list(table::<RawTopic>([]))),
            ("retry", retry()),
        ]);
        let consumer = table::<RawConsumer>([
            ("bind", named(table::<RawBinding>([]))),
            ("compare_history", list(table::<RawHistory>([]))),
            ("dead_letter", table::<RawDeadLetter>([])),
            ("guard", table::<RawGuard>([])),
            ("statement", list(table::<RawStatement>([]))),
        ]);
        table::<Raw>([
            ("store", table::<RawStore>([])),
            ("outbox", list(table::<RawOutbox>([]))),
            ("inbox", table::<RawInbox>([])),
            ("relay", table::<RawRelay>([])),
            ("retry", table::<RawRetry>([])),
            ("destination", named(destination)),
            ("route", list(table::<RawRoute>([("retry", retry())]))),
            ("consumer", list(consumer)),
            ("transaction", table::<RawTransaction>([])),
            ("filter", table::<RawFilter>([])),
            ("setup", table::<RawSetup>([])),
        ])
    }

    /// What may stand under `key`; `None` when the table knows no such key.
    pub fn under(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Value => Some(self),
            Self::Named(entry) => Some(entry),
            Self::Table(keys) => keys.iter().find(|(known, _)| known == key).map(|(_, shape)| shape),
            Self::List(_) => None,
        }
    }

    /// The keys a table knows.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = match self {
            Self::Table(keys) => keys.as_slice(),
            Self::Value | Self::Named(_) | Self::List(_) => &[],
        };
        keys.iter().map(|(key, _)| key.as_str())
    }
}

fn list(entry: Shape) -> Shape {
    Shape::List(Box::new(entry))
}

fn named(entry: Shape) -> Shape {
    Shape::Named(Box::new(entry))
}

/// The keys of a raw struct are the fields of its default; `inner` says which of them are tables.
fn table<T: Default + Serialize>(inner: impl IntoIterator<Item = (&'static str, Shape)>) -> Shape {
    let mut inner: Vec<(&str, Shape)> = inner.into_iter().collect();
    let fields = defaults::<T>().into_iter().map(|(key, _)| {
        let shape = inner.iter().position(|(name, _)| *name == key).map(|index| inner.swap_remove(index).1);
        (key, shape.unwrap_or(Shape::Value))
    });
    let fields = fields.collect();
    assert!(inner.is_empty(), "every inner table is a field of its struct");
    Shape::Table(fields)
}

/// The fields of a raw struct with their defaults; null for a key without one.
pub fn defaults<T: Default + Serialize>() -> Vec<(String, serde_json::Value)> {
    match serde_json::to_value(T::default()) {
        Ok(serde_json::Value::Object(fields)) => fields.into_iter().collect(),
        other => unreachable!("a struct of plain values serialises to an object, not {other:?}"),
    }
}
