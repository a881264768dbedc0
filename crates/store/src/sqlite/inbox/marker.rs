//! Markers: the statements for one way of comparing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::StoreError;
use consign_core::value::Value;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::{Column, TableShape};
use crate::mapping::{Identifier, MarkerMapping};
use crate::sqlite::connection::UnitError;
use crate::sqlite::inbox::execute::Described;
use crate::sqlite::inbox::value::{Bound, bind_stored, check_value};
use crate::sqlite::introspection;
use crate::sqlite::statement::{MARKER_INSERT, MARKER_SELECT, QUOTE, Text};
use crate::statement::{LIST_MAX, Rendering, bucket, lists, padded};

/// More ways of comparing than this are not kept; a config has one per consumer.
const KEPT_MAX: usize = 256;
/// So many markers one statement inserts, at most; a power of two.
const ROWS_MAX: usize = 64;
/// SQLite binds 32766 values; a marker has this many beside those compared, at most.
const VALUES_MAX: usize = 32_000;
const FIXED_VALUES: usize = 6;

/// The marker table as it is.
#[derive(Debug)]
pub(super) struct Prepared {
    mapping: MarkerMapping,
    shape: TableShape,
    markers: Mutex<Vec<Arc<Markers>>>,
    described: Described,
}

/// The statements for one way of comparing.
#[derive(Debug)]
pub(super) struct Markers {
    /// One text for each number of rows that is a power of two.
    inserts: Vec<Text>,
    /// One text for each number of keys that is a power of two.
    selects: Vec<Text>,
    /// The columns that a new marker holds; `None` for the fingerprint.
    compared: Option<Vec<String>>,
    /// The columns that a marker of any version may hold.
    columns: Vec<String>,
    by_fingerprint: bool,
    /// What else a new marker holds, in the order of marker_insert.sql.
    fields: Vec<Field>,
}

/// An optional column of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    EventId,
    AggregateVersion,
    ComparisonVersion,
}

/// Operations that share their statements.
pub(super) type Run<'a, 'o> = (Arc<Markers>, &'a [&'o Operation]);

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
        Ok(Self { mapping, shape, markers: Mutex::default(), described: Described::default() })
    }

    /// What is known of handlers' statements.
    pub(super) fn described(&self) -> &Described {
        &self.described
    }

    /// The statements for an operation.
    pub(super) fn markers(&self, operation: &Operation) -> Result<Arc<Markers>, StoreError> {
        let mut kept = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = kept.iter().find(|markers| markers.fit(operation)).cloned();
        let markers = if let Some(markers) = fitting {
            markers
        } else {
            let markers = Arc::new(self.render(operation)?);
            if kept.len() >= KEPT_MAX {
                kept.clear();
            }
            kept.push(Arc::clone(&markers));
            markers
        };
        if operation.comparison_version > 1 && !markers.tells_versions() {
            return Err(StoreError::Schema(format!(
                "{} has no column comparison_version, so that version {} could not be told from version 1: run \
                 `consign migrate`",
                self.mapping.table(),
                operation.comparison_version
            )));
        }
        Ok(markers)
    }

    /// The operations in runs that share their statements, in order.
    pub(super) fn runs<'a, 'o>(
        &self,
        operations: &'a [&'o Operation],
    ) -> Result<Vec<Run<'a, 'o>>, StoreError> {
        let mut runs = Vec::with_capacity(1);
        let mut rest = operations;
        while let Some(first) = rest.first() {
            let markers = self.markers(first)?;
            let version = first.comparison_version;
            let fitting = |operation: &&Operation| {
                markers.fit(operation)
                    && (operation.comparison_version == version || markers.tells_versions())
            };
            let (run, after) = rest.split_at(rest.iter().take_while(|&operation| fitting(operation)).count());
            runs.push((Arc::clone(&markers), run));
            rest = after;
        }
        Ok(runs)
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

    /// A comparison column that the table has and that is not consign's own.
    fn compared_column(&self, name: &str) -> Result<Identifier, StoreError> {
        if self.column(name).is_none() {
            return Err(self.lacking(name));
        }
        Identifier::column(name).map_err(|error| StoreError::Schema(error.to_string()))
    }

    fn lacking(&self, name: &str) -> StoreError {
        StoreError::Schema(format!(
            "{} has no comparison column {name}: run `consign migrate` for fingerprint, add other columns yourself, \
             and don't compare consign's own",
            self.mapping.table()
        ))
    }

    fn render(&self, operation: &Operation) -> Result<Markers, StoreError> {
        let names = |columns: &[&str]| {
            columns.iter().map(|name| self.compared_column(name)).collect::<Result<Vec<_>, _>>()
        };
        let by_fingerprint = operation.uses_fingerprint();
        if by_fingerprint && !self.shape.has("fingerprint") {
            return Err(self.lacking("fingerprint"));
        }
        let compared = match &operation.comparison {
            Comparison::Columns(columns) => {
                Some(columns.iter().map(|compared| compared.column.as_str()).collect::<Vec<_>>())
            }
            Comparison::Fingerprint(_) => None,
        };
        let inserted = match &compared {
            Some(columns) => names(columns)?,
            None => vec![self.mapping.names()["fingerprint"].clone()],
        };
        let columns = operation.marker_columns();
        let selected = names(&columns)?;
        let present = self.shape.present();
        let rendering = Rendering::new(QUOTE).names(self.mapping.names()).present(&present);
        let insert = rendering.clone().list("comparison", inserted.iter().collect());
        let select = rendering.list("comparison", selected.iter().collect());
        let rows_max = ROWS_MAX.min(VALUES_MAX / (FIXED_VALUES + inserted.len())).max(1);
        let powers = |most: usize| (0..=most.ilog2()).map(|power| 1_usize << power);
        Ok(Markers {
            inserts: powers(rows_max)
                .map(|rows| Text::rendered(insert.clone().rows(rows).render(MARKER_INSERT)))
                .collect(),
            selects: powers(LIST_MAX)
                .map(|keys| Text::rendered(select.clone().placeholders(keys).render(MARKER_SELECT)))
                .collect(),
            compared: compared.map(|columns| columns.into_iter().map(str::to_owned).collect()),
            columns: columns.into_iter().map(str::to_owned).collect(),
            by_fingerprint,
            fields: [
                ("event_id", Field::EventId),
                ("aggregate_version", Field::AggregateVersion),
                ("comparison_version", Field::ComparisonVersion),
            ]
            .into_iter()
            .filter_map(|(column, field)| self.shape.has(column).then_some(field))
            .collect(),
        })
    }
}

impl Markers {
    /// True when a marker says which version of the comparison wrote it.
    fn tells_versions(&self) -> bool {
        self.fields.contains(&Field::ComparisonVersion)
    }

    /// True when these are the statements for the operation.
    fn fit(&self, operation: &Operation) -> bool {
        let compares = match (&operation.comparison, &self.compared) {
            (Comparison::Columns(columns), Some(compared)) => {
                columns.iter().map(|column| &column.column).eq(compared)
            }
            (Comparison::Fingerprint(_), None) => true,
            (Comparison::Columns(_), None) | (Comparison::Fingerprint(_), Some(_)) => false,
        };
        compares
            && operation.uses_fingerprint() == self.by_fingerprint
            // Without a history the columns are those compared.
            && (operation.earlier.is_empty() && self.compared.as_ref().is_none_or(|names| *names == self.columns)
                || operation.marker_columns() == self.columns)
    }

    /// Inserts the markers, in order, in as many statements as their number has binary digits, or more.
    pub(super) async fn insert(
        &self,
        connection: &mut SqliteConnection,
        operations: &[&Operation],
    ) -> Result<(), sqlx::Error> {
        let mut rest = operations;
        while !rest.is_empty() {
            // A padded row would be a repeat, so the rows are cut into sizes that are prepared.
            let power = (rest.len().ilog2() as usize).min(self.inserts.len() - 1);
            let (rows, after) = rest.split_at(1 << power);
            let mut insert = query(self.inserts[power].sql());
            for operation in rows {
                insert = self.bind(insert, operation);
            }
            insert.execute(&mut *connection).await?;
            rest = after;
        }
        Ok(())
    }

    fn bind<'q>(&self, mut insert: Bound<'q>, operation: &'q Operation) -> Bound<'q> {
        insert = insert.bind(&operation.consumer).bind(&operation.key);
        for field in &self.fields {
            insert = match field {
                Field::EventId => {
                    insert.bind(operation.event_id.as_ref().map(consign_core::event::EventId::as_str))
                }
                Field::AggregateVersion => insert.bind(operation.aggregate_version),
                Field::ComparisonVersion => insert.bind(i64::from(operation.comparison_version)),
            };
        }
        match &operation.comparison {
            Comparison::Columns(columns) => {
                columns.iter().fold(insert, |insert, compared| bind_stored(insert, &compared.value))
            }
            Comparison::Fingerprint(digest) => insert.bind(digest),
        }
    }

    /// Reads the markers of some of a consumer's keys, which come sorted; those that are there, by key.
    pub(super) async fn select(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        keys: &[String],
    ) -> Result<BTreeMap<String, StoredMarker>, UnitError> {
        let mut found = BTreeMap::new();
        for list in lists(keys) {
            let mut select = query(self.selects[bucket(list.len()).ilog2() as usize].sql()).bind(consumer);
            for key in padded(list) {
                select = select.bind(key);
            }
            for row in select.fetch_all(&mut *connection).await? {
                let (key, marker) = self.read(&row, consumer, list)?;
                found.insert(key, marker);
            }
        }
        Ok(found)
    }

    fn read(
        &self,
        row: &SqliteRow,
        consumer: &str,
        keys: &[String],
    ) -> Result<(String, StoredMarker), UnitError> {
        let text = |index: usize| row.try_get_unchecked::<Option<String>, _>(index);
        let (stored, key) = (text(0)?.unwrap_or_default(), text(1)?.unwrap_or_default());
        if stored != consumer || keys.binary_search(&key).is_err() {
            // Going on would answer for another operation: one of the two would be lost (B45).
            return Err(StoreError::Schema(format!(
                "the marker table takes {key:?} of {stored:?} for another key, asked for by {consumer:?}: give both \
                 key columns the BINARY collation"
            ))
            .into());
        }
        let has = |column: &str| row.try_column(column).is_ok();
        let event_id = if has("event_id") { row.try_get_unchecked("event_id")? } else { None };
        let fingerprint = if has("fingerprint") { row.try_get_unchecked("fingerprint")? } else { None };
        let version: Option<i64> =
            if has("comparison_version") { row.try_get_unchecked("comparison_version")? } else { None };
        // The compared ones come last; their names are the table's own.
        let first = row.len() - self.columns.len();
        let mut columns = BTreeMap::new();
        for (index, name) in self.columns.iter().enumerate() {
            columns.insert(name.clone(), text(first + index)?);
        }
        let comparison_version = version.map(|version| u32::try_from(version).unwrap_or(0));
        Ok((key, StoredMarker { event_id, columns, fingerprint, comparison_version }))
    }
}
