//! Markers: the statements for each set of comparison columns.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use consign_core::event::EventId;
use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::StoreError;
use consign_core::value::Value;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{MySqlConnection, Row, query_with};

use crate::introspection::{Column, TableShape};
use crate::mapping::{Identifier, MarkerMapping};
use crate::mysql::connection::UnitError;
use crate::mysql::inbox::each::SetPlans;
use crate::mysql::inbox::progress::ProgressTexts;
use crate::mysql::inbox::value::{add, add_value, check_value, weight_of};
use crate::mysql::introspection;
use crate::mysql::packet;
use crate::mysql::statement::{ListText, MARKER_INSERT, MARKER_SELECT, QUOTE, RowsText, Text};
use crate::statement::{Rendering, padded};

/// More sets of comparison columns than this are not kept; a config has one per consumer.
const KEPT_MAX: usize = 256;

/// The columns of the contract in front of the comparison columns, at most.
const CONTRACT_VALUES: usize = 5;

/// The marker table as it is.
#[derive(Debug)]
pub(super) struct Prepared {
    mapping: MarkerMapping,
    shape: TableShape,
    inserts: Kept<Insert>,
    selects: Kept<Select>,
    pub(super) progress: ProgressTexts,
    pub(super) sets: SetPlans,
}

/// Statements by the columns they are about.
type Kept<T> = Mutex<HashMap<Vec<String>, Arc<T>>>;

/// Inserting markers that compare by one set of columns.
#[derive(Debug)]
struct Insert {
    text: RowsText,
    has_event_id: bool,
    has_version: bool,
    has_comparison_version: bool,
}

/// Reading markers with one set of columns.
#[derive(Debug)]
struct Select {
    text: ListText,
    locked: ListText,
    columns: Vec<String>,
}

/// An INSERT ready to run.
pub(super) type Ready = (Text, MySqlArguments);

/// A read of one consumer's markers, ready to run.
pub(super) struct Reading {
    select: Arc<Select>,
    consumer: String,
    keys: Vec<String>,
}

impl Prepared {
    pub(super) async fn read(
        connection: &mut MySqlConnection,
        mapping: MarkerMapping,
    ) -> Result<Self, UnitError> {
        let shape = introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
        let table = mapping.table();
        let missing = |what: String| {
            StoreError::Schema(format!("{what}: run `consign migrate` or map the names in the config"))
        };
        let shape = shape.ok_or_else(|| missing(format!("there is no table {table}")))?;
        let lacking = shape.missing(&["consumer_name", "business_key"]);
        if !lacking.is_empty() {
            return Err(missing(format!("{table} lacks {}", lacking.join(", "))).into());
        }
        Ok(Self {
            mapping,
            shape,
            inserts: Mutex::default(),
            selects: Mutex::default(),
            progress: ProgressTexts::new(),
            sets: SetPlans::default(),
        })
    }

    /// The statements that insert these markers, in order, in as few packets as hold them.
    ///
    /// # Errors
    /// Something of an operation would be cut or changed on its way into the table.
    pub(super) fn inserts(&self, operations: &[&Operation]) -> Result<Vec<Ready>, StoreError> {
        let mut ready = Vec::new();
        for alike in operations.chunk_by(|left, right| same_columns(&left.comparison, &right.comparison)) {
            let Some(first) = alike.first() else { continue };
            let insert = self.insert(&first.comparison)?;
            for operation in alike {
                self.check(operation)?;
            }
            for rows in packet::pieces(alike, |rest| packet::rows(rest, |operation| weigh(operation))) {
                let mut arguments = MySqlArguments::default();
                for operation in rows {
                    insert.bind(&mut arguments, operation);
                }
                ready.push((insert.text.sized(rows.len()).clone(), arguments));
            }
        }
        Ok(ready)
    }

    /// The read of these operations' markers. All of them are of one consumer.
    pub(super) fn reading(&self, operations: &[&Operation]) -> Result<Reading, StoreError> {
        let mut columns: Vec<&str> = Vec::new();
        for operation in operations {
            for column in operation.marker_columns() {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
            if operation.uses_fingerprint() && !self.shape.has("fingerprint") {
                return Err(self.lacking("fingerprint"));
            }
        }
        Ok(Reading {
            select: self.select(&columns)?,
            consumer: operations.first().map(|operation| operation.consumer.clone()).unwrap_or_default(),
            keys: operations.iter().map(|operation| operation.key.clone()).collect(),
        })
    }

    fn insert(&self, comparison: &Comparison) -> Result<Arc<Insert>, StoreError> {
        let columns = match comparison {
            Comparison::Columns(columns) => columns.iter().map(|compared| compared.column.clone()).collect(),
            Comparison::Fingerprint(_) => vec!["fingerprint".to_owned()],
        };
        let by_fingerprint = matches!(comparison, Comparison::Fingerprint(_));
        kept(&self.inserts, columns, |columns| {
            let identifiers = if by_fingerprint {
                if !self.shape.has("fingerprint") {
                    return Err(self.lacking("fingerprint"));
                }
                vec![self.mapping.names()["fingerprint"].clone()]
            } else {
                self.identifiers(columns)?
            };
            let present = self.shape.present();
            let rendering = Rendering::new(QUOTE)
                .names(self.mapping.names())
                .present(&present)
                .list("comparison", identifiers.iter().collect());
            Ok(Insert {
                text: RowsText::rendered(&rendering, MARKER_INSERT),
                has_event_id: self.shape.has("event_id"),
                has_version: self.shape.has("aggregate_version"),
                has_comparison_version: self.shape.has("comparison_version"),
            })
        })
    }

    fn select(&self, columns: &[&str]) -> Result<Arc<Select>, StoreError> {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        kept(&self.selects, columns, |columns| {
            let identifiers = self.identifiers(columns)?;
            let present = self.shape.present();
            let rendering = Rendering::new(QUOTE)
                .names(self.mapping.names())
                .list("comparison", identifiers.iter().collect());
            let mut locked = present.clone();
            locked.insert("locked".into());
            Ok(Select {
                text: ListText::rendered(&rendering.clone().present(&present), MARKER_SELECT),
                locked: ListText::rendered(&rendering.present(&locked), MARKER_SELECT),
                columns: columns.to_vec(),
            })
        })
    }

    fn identifiers(&self, columns: &[String]) -> Result<Vec<Identifier>, StoreError> {
        let identifier = |name: &String| {
            if self.column(name).is_none() {
                return Err(self.lacking(name));
            }
            Identifier::column(name).map_err(|error| StoreError::Schema(error.to_string()))
        };
        columns.iter().map(identifier).collect()
    }

    fn lacking(&self, column: &str) -> StoreError {
        StoreError::Schema(format!(
            "{} has no comparison column {column}: run `consign migrate` for fingerprint, add other columns \
             yourself, and don't compare consign's own",
            self.mapping.table()
        ))
    }

    /// Checks that nothing of the operation would be cut or changed on its way into the table.
    fn check(&self, operation: &Operation) -> Result<(), StoreError> {
        if operation.comparison_version > 1 && !self.shape.has("comparison_version") {
            return Err(StoreError::Schema(format!(
                "{} has no column for comparison_version, which is {}: run `consign migrate`",
                self.mapping.table(),
                operation.comparison_version
            )));
        }
        let event_id = operation.event_id.as_ref().map(EventId::as_str);
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

    fn column(&self, name: &str) -> Option<&Column> {
        self.shape.others.get(&name.to_ascii_lowercase())
    }
}

impl Insert {
    fn bind(&self, arguments: &mut MySqlArguments, operation: &Operation) {
        add(arguments, operation.consumer.as_str());
        add(arguments, operation.key.as_str());
        if self.has_event_id {
            add(arguments, operation.event_id.as_ref().map(EventId::as_str));
        }
        if self.has_version {
            add(arguments, operation.aggregate_version);
        }
        if self.has_comparison_version {
            add(arguments, operation.comparison_version);
        }
        match &operation.comparison {
            Comparison::Columns(columns) => {
                for compared in columns {
                    add_value(arguments, &compared.value);
                }
            }
            Comparison::Fingerprint(digest) => add(arguments, digest.as_str()),
        }
    }
}

impl Reading {
    /// Reads the markers, in the order of the operations.
    pub(super) async fn run(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<Vec<Option<StoredMarker>>, UnitError> {
        self.select(connection, &self.select.text).await
    }

    /// Reads and locks the markers, in the order of the operations.
    pub(super) async fn run_locked(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<Vec<Option<StoredMarker>>, UnitError> {
        self.select(connection, &self.select.locked).await
    }

    async fn select(
        &self,
        connection: &mut MySqlConnection,
        text: &ListText,
    ) -> Result<Vec<Option<StoredMarker>>, UnitError> {
        let mut found: HashMap<String, StoredMarker> = HashMap::with_capacity(self.keys.len());
        let weigh = |key: &String| packet::weight(1, key.len());
        for keys in packet::pieces(&self.keys, |rest| packet::list(rest, weigh)) {
            let mut arguments = MySqlArguments::default();
            add(&mut arguments, self.consumer.as_str());
            for key in padded(keys) {
                add(&mut arguments, key.as_str());
            }
            let select = query_with(text.sized(keys.len()).sql(), arguments);
            for row in select.fetch_all(&mut *connection).await? {
                let (consumer, key, marker) = self.select.marker(&row)?;
                if consumer != self.consumer || !keys.contains(&key) {
                    return Err(self.loose(&consumer, &key));
                }
                found.insert(key, marker);
            }
        }
        Ok(self.keys.iter().map(|key| found.get(key).cloned()).collect())
    }

    /// Going on would answer for another operation: one of the two would be lost (B45).
    fn loose(&self, consumer: &str, key: &str) -> UnitError {
        StoreError::Schema(format!(
            "the marker table takes {key:?} of {consumer:?} for a key of {:?} that it is not: give both key columns \
             a binary collation without padding",
            self.consumer
        ))
        .into()
    }
}

impl Select {
    fn marker(&self, row: &MySqlRow) -> Result<(String, String, StoredMarker), sqlx::Error> {
        let text = |index: usize| row.try_get_unchecked::<Option<String>, _>(index);
        let named = |name: &str| match row.try_get_unchecked::<Option<String>, _>(name) {
            Err(sqlx::Error::ColumnNotFound(_)) => Ok(None),
            found => found,
        };
        let version = match row.try_get_unchecked::<Option<i64>, _>("comparison_version") {
            Err(sqlx::Error::ColumnNotFound(_)) => Ok(None),
            found => found,
        };
        let first = row.len() - self.columns.len();
        let columns: BTreeMap<String, Option<String>> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| Ok((column.clone(), text(first + index)?)))
            .collect::<Result<_, sqlx::Error>>()?;
        let marker = StoredMarker {
            event_id: named("event_id")?,
            columns,
            fingerprint: named("fingerprint")?,
            // A version no config can have is one that no config knows.
            comparison_version: version?.map(|version| u32::try_from(version).unwrap_or(u32::MAX)),
        };
        Ok((text(0)?.unwrap_or_default(), text(1)?.unwrap_or_default(), marker))
    }
}

fn kept<T>(
    kept: &Kept<T>,
    columns: Vec<String>,
    make: impl FnOnce(&[String]) -> Result<T, StoreError>,
) -> Result<Arc<T>, StoreError> {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(&columns) {
        return Ok(Arc::clone(known));
    }
    let made = Arc::new(make(&columns)?);
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(columns, Arc::clone(&made));
    Ok(made)
}

fn same_columns(left: &Comparison, right: &Comparison) -> bool {
    match (left, right) {
        (Comparison::Fingerprint(_), Comparison::Fingerprint(_)) => true,
        (Comparison::Columns(left), Comparison::Columns(right)) => {
            left.iter().map(|compared| &compared.column).eq(right.iter().map(|compared| &compared.column))
        }
        (Comparison::Fingerprint(_), Comparison::Columns(_))
        | (Comparison::Columns(_), Comparison::Fingerprint(_)) => false,
    }
}

fn weigh(operation: &Operation) -> usize {
    let (values, compared) = match &operation.comparison {
        Comparison::Columns(columns) => {
            (columns.len(), columns.iter().map(|compared| weight_of(&compared.value)).sum())
        }
        Comparison::Fingerprint(digest) => (1, digest.len()),
    };
    let event_id = operation.event_id.as_ref().map_or(0, |id| id.as_str().len());
    // The two versions have eight and four bytes.
    let content = operation.consumer.len() + operation.key.len() + event_id + 12 + compared;
    packet::weight(CONTRACT_VALUES + values, content)
}
