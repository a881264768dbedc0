//! Markers: the statements for one set of comparison columns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::StoreError;
use consign_core::value::Value;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::{Column, TableShape};
use crate::mapping::{Identifier, MarkerMapping};
use crate::sqlite::connection::UnitError;
use crate::sqlite::inbox::value::{bind_stored, check_value};
use crate::sqlite::introspection;
use crate::sqlite::statement::{MARKER_INSERT, MARKER_SELECT, QUOTE, Text};
use crate::statement::Rendering;

/// More sets of comparison columns than this are not kept; a config has one per consumer.
const KEPT_MAX: usize = 256;

/// The marker table as it is.
#[derive(Debug)]
pub(super) struct Prepared {
    mapping: MarkerMapping,
    shape: TableShape,
    markers: Mutex<HashMap<Vec<String>, Arc<Markers>>>,
}

/// The statements for one set of comparison columns.
#[derive(Debug)]
pub(super) struct Markers {
    insert: Text,
    select: Text,
    by_fingerprint: bool,
    columns: usize,
    has_event_id: bool,
    has_version: bool,
}

impl Prepared {
    pub(super) async fn read(
        connection: &mut SqliteConnection,
        mapping: MarkerMapping,
    ) -> Result<Self, UnitError> {
        let shape = introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
        let table = mapping.table();
        introspection::check_file(table)?;
        let missing = |what: String| {
            StoreError::Schema(format!("{what}: run `consign migrate` or map the names in the config"))
        };
        let shape = shape.ok_or_else(|| missing(format!("there is no table {table}")))?;
        let lacking = shape.missing(&["consumer_name", "business_key"]);
        if !lacking.is_empty() {
            return Err(missing(format!("{table} lacks {}", lacking.join(", "))).into());
        }
        Ok(Self { mapping, shape, markers: Mutex::default() })
    }

    /// The statements for a comparison.
    pub(super) fn markers(&self, comparison: &Comparison) -> Result<Arc<Markers>, StoreError> {
        let columns = match comparison {
            Comparison::Columns(columns) => columns.iter().map(|compared| compared.column.clone()).collect(),
            Comparison::Fingerprint(_) => vec!["fingerprint".to_owned()],
        };
        let mut kept = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(markers) = kept.get(&columns) {
            return Ok(Arc::clone(markers));
        }
        let markers = Arc::new(self.render(comparison, &columns)?);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(columns, Arc::clone(&markers));
        Ok(markers)
    }

    /// Checks that nothing of the operation would be cut or changed on its way into the table.
    pub(super) fn check(&self, operation: &Operation) -> Result<(), StoreError> {
        let event_id = operation.event_id.as_ref().map(consign_core::event::EventId::as_str);
        let texts = [
            ("consumer_name", Some(operation.consumer.as_str())),
            ("business_key", Some(operation.key.as_str())),
            ("event_id", event_id),
        ];
        for (name, text) in texts {
            let (Some(column), Some(text)) = (self.shape.column(name), text) else { continue };
            check_value(&Value::Text(text.into()), column).map_err(StoreError::Data)?;
        }
        if let Comparison::Columns(columns) = &operation.comparison {
            for compared in columns {
                if let Some(column) = self.column(&compared.column) {
                    check_value(&compared.value, column).map_err(StoreError::Data)?;
                }
            }
        }
        Ok(())
    }

    /// What the key column is called.
    pub(super) fn key_column(&self) -> &str {
        self.mapping.names()["business_key"].as_str()
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.shape.others.get(&name.to_ascii_lowercase())
    }

    fn render(&self, comparison: &Comparison, columns: &[String]) -> Result<Markers, StoreError> {
        let table = self.mapping.table();
        let by_fingerprint = matches!(comparison, Comparison::Fingerprint(_));
        let mut identifiers = Vec::with_capacity(columns.len());
        for name in columns {
            let known = if by_fingerprint { self.shape.has(name) } else { self.column(name).is_some() };
            if !known {
                return Err(StoreError::Schema(format!(
                    "{table} has no comparison column {name}: run `consign migrate` for fingerprint, add other \
                     columns yourself, and don't compare consign's own"
                )));
            }
            let name = if by_fingerprint { self.mapping.names()["fingerprint"].as_str() } else { name };
            identifiers
                .push(Identifier::column(name).map_err(|error| StoreError::Schema(error.to_string()))?);
        }
        let present = self.shape.present();
        let rendering = Rendering::new(QUOTE)
            .names(self.mapping.names())
            .present(&present)
            .list("comparison", identifiers.iter().collect());
        Ok(Markers {
            insert: Text::rendered(rendering.render(MARKER_INSERT)),
            select: Text::rendered(rendering.render(MARKER_SELECT)),
            by_fingerprint,
            columns: columns.len(),
            has_event_id: self.shape.has("event_id"),
            has_version: self.shape.has("aggregate_version"),
        })
    }
}

impl Markers {
    pub(super) async fn insert(
        &self,
        connection: &mut SqliteConnection,
        operation: &Operation,
    ) -> Result<(), sqlx::Error> {
        let mut insert = query(self.insert.sql()).bind(&operation.consumer).bind(&operation.key);
        if self.has_event_id {
            insert = insert.bind(operation.event_id.as_ref().map(consign_core::event::EventId::as_str));
        }
        if self.has_version {
            insert = insert.bind(operation.aggregate_version);
        }
        match &operation.comparison {
            Comparison::Columns(columns) => {
                for compared in columns {
                    insert = bind_stored(insert, &compared.value);
                }
            }
            Comparison::Fingerprint(digest) => insert = insert.bind(digest),
        }
        insert.execute(connection).await.map(|_| ())
    }

    pub(super) async fn select(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        key: &str,
    ) -> Result<Option<StoredMarker>, UnitError> {
        let row = query(self.select.sql()).bind(consumer).bind(key).fetch_optional(connection).await?;
        let Some(row) = row else { return Ok(None) };
        let text = |index: usize| row.try_get_unchecked::<Option<String>, _>(index);
        let stored = (text(0)?.unwrap_or_default(), text(1)?.unwrap_or_default());
        if stored.0 != consumer || stored.1 != key {
            // Going on would answer for another operation: one of the two would be lost (B45).
            return Err(StoreError::Schema(format!(
                "the marker table takes {key:?} of {consumer:?} for {:?} of {:?}: give both key columns the \
                 BINARY collation",
                stored.1, stored.0
            ))
            .into());
        }
        let first = 2 + usize::from(self.has_event_id);
        let event_id = if self.has_event_id { text(2)? } else { None };
        let mut columns =
            (0..self.columns).map(|index| text(first + index)).collect::<Result<Vec<_>, _>>()?;
        let fingerprint = if self.by_fingerprint { columns.pop().flatten() } else { None };
        Ok(Some(StoredMarker { event_id, columns, fingerprint }))
    }
}
