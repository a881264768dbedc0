//! One statement for many operations, where the result is provably that of one statement after another.
//!
//! ```text
//! INSERT INTO t (…) VALUES (…), (…), (…)
//! UPDATE JSON_TABLE(?, '$[*]' COLUMNS (…)) AS consign_each STRAIGHT_JOIN t SET … WHERE key = consign_each.consign_p1 …
//! ```
//!
//! A round trip costs ten times what the change of a row costs. Whatever is in doubt runs one after another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use consign_core::declared::{ExpectRows, InsertShape, SetShape, Statement, UpdateShape};
use consign_core::ports::{EachError, InboxTransaction, StoreError};
use consign_core::value::Value;
use futures_util::FutureExt;
use sqlx::MySqlConnection;
use sqlx::mysql::MySqlArguments;

use crate::introspection::{ColumnKind, TableShape};
use crate::mapping::{Identifier, Names};
use crate::mysql::failure;
use crate::mysql::inbox::each::insert::InsertPlan;
use crate::mysql::inbox::each::update::UpdatePlan;
use crate::mysql::inbox::transaction::{StepError, Transaction};
use crate::mysql::introspection;

mod insert;
mod update;

/// More statements than this are not kept; a config has a few per consumer.
const KEPT_MAX: usize = 256;

/// How statements run for many, by their text.
#[derive(Debug, Default)]
pub(super) struct SetPlans(Mutex<HashMap<String, Arc<SetPlan>>>);

/// How one statement runs for many.
#[derive(Debug)]
enum SetPlan {
    Insert(InsertPlan),
    Update(UpdatePlan),
    OneByOne,
}

/// A statement for some of the operations.
struct Run {
    /// The operations, by their places.
    members: Vec<usize>,
    sql: String,
    arguments: MySqlArguments,
}

/// A table as it is.
struct Target {
    shape: TableShape,
    /// The columns of each unique index, in lower case.
    unique: Vec<Vec<String>>,
}

impl SetPlans {
    fn known(&self, sql: &str) -> Option<Arc<SetPlan>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned()
    }

    fn keep(&self, sql: &str, plan: SetPlan) -> Arc<SetPlan> {
        let plan = Arc::new(plan);
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= KEPT_MAX {
            plans.clear();
        }
        plans.insert(sql.to_owned(), Arc::clone(&plan));
        plan
    }
}

impl SetPlan {
    fn new(shape: &SetShape, target: &Target) -> Self {
        match shape {
            SetShape::Insert(insert) => Self::Insert(InsertPlan::new(insert)),
            SetShape::Update(update) => UpdatePlan::new(update, target).map_or(Self::OneByOne, Self::Update),
        }
    }

    /// The statements in their order; `None` when the values call for one after another.
    fn runs(&self, values: &[&[Value]]) -> Option<Vec<Run>> {
        match self {
            Self::Insert(insert) => Some(insert.runs(values)),
            Self::Update(update) => update.runs(values),
            Self::OneByOne => None,
        }
    }
}

impl Target {
    /// What is known of a table whose rows change alone: an InnoDB table without triggers. `None` for others.
    async fn read(connection: &mut MySqlConnection, table: &Identifier) -> Result<Option<Self>, sqlx::Error> {
        let engine = introspection::engine(connection, table).await?;
        if !engine.is_some_and(|engine| engine.eq_ignore_ascii_case("innodb"))
            || introspection::triggers(connection, table).await? != 0
        {
            return Ok(None);
        }
        let names = Names::from([("target", table.clone())]);
        let shape = introspection::shape(connection, "target", &names).await?;
        let unique = introspection::unique_indexes(connection, table).await?;
        Ok(shape.map(|shape| Self { shape, unique }))
    }

    fn kind(&self, column: &str) -> Option<ColumnKind> {
        self.shape.others.get(&column.to_ascii_lowercase()).map(|column| column.kind)
    }

    /// True when no two rows have the same value in this column.
    fn is_key(&self, column: &str) -> bool {
        self.unique.iter().any(|columns| matches!(&columns[..], [only] if only.eq_ignore_ascii_case(column)))
    }

    /// True when some unique index holds the column.
    fn is_in_key(&self, column: &str) -> bool {
        self.unique.iter().flatten().any(|known| known.eq_ignore_ascii_case(column))
    }
}

impl Transaction {
    /// Runs the statement once for each list of values, in as few statements as are provably the same.
    pub(super) async fn each(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
    ) -> Result<Vec<u64>, EachError> {
        let all: Vec<usize> = (0..values.len()).collect();
        let mut rows = vec![0; values.len()];
        let plan = match values.len() {
            0 | 1 => None,
            _ => self.set_plan(statement).await.map_err(|error| EachError { at: None, error })?,
        };
        let Some(runs) = plan.and_then(|plan| plan.runs(values)) else {
            self.one_by_one(statement, values, &all, &mut rows).await?;
            return Ok(rows);
        };
        for Run { members, sql, arguments } in runs {
            if members.len() == 1 {
                self.one_by_one(statement, values, &members, &mut rows).await?;
                continue;
            }
            match self.bound(&sql, arguments).await {
                // No operation matches more than one row, so that this many rows are one for each.
                Ok(total) if total == members.len() as u64 => members.iter().for_each(|&at| rows[at] = 1),
                Ok(total) => {
                    let error = self.fail(StoreError::Mismatch(format!(
                        "{} operations matched {total} rows together",
                        members.len()
                    )));
                    return Err(EachError { at: None, error });
                }
                // The server undid the statement and nothing else. One after another tells whose fault it was.
                Err(StepError::Sql(error)) if self.may_go_on_after(&error, statement) => {
                    self.one_by_one(statement, values, &members, &mut rows).await?;
                }
                Err(error) => return Err(EachError { at: None, error: self.judge(error) }),
            }
        }
        Ok(rows)
    }

    /// True for errors of the statement alone. One that the server does not understand is not tried again.
    fn may_go_on_after(&self, error: &sqlx::Error, statement: &Statement) -> bool {
        match failure::store_error(error) {
            StoreError::Data(_) => true,
            StoreError::Schema(reason) => {
                tracing::debug!(%reason, "the server does not take a statement for many operations at once");
                let _ = self.prepared().sets.keep(statement.sql(), SetPlan::OneByOne);
                true
            }
            StoreError::Unavailable(_)
            | StoreError::Contended(_)
            | StoreError::CommitUnknown(_)
            | StoreError::Mismatch(_) => false,
        }
    }

    async fn one_by_one(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
        members: &[usize],
        rows: &mut [u64],
    ) -> Result<(), EachError> {
        for &at in members {
            let matched = self.execute(statement.sql(), values[at]).await;
            rows[at] = matched.map_err(|error| EachError { at: Some(at), error })?;
        }
        Ok(())
    }

    /// How the statement runs for many, from its text and its table, looked at once.
    async fn set_plan(&mut self, statement: &Statement) -> Result<Option<Arc<SetPlan>>, StoreError> {
        let Some(shape) = statement.shape().filter(|shape| serves(shape, statement.expect_rows)) else {
            return Ok(None);
        };
        if let Some(known) = self.prepared().sets.known(statement.sql()) {
            return Ok(Some(known));
        }
        let (SetShape::Insert(InsertShape { table, .. }) | SetShape::Update(UpdateShape { table, .. })) =
            shape;
        let target = match Identifier::table(table) {
            Ok(table) => {
                let reading = self
                    .step(move |connection| async move { Target::read(connection, &table).await }.boxed());
                reading.await.map_err(|error| self.judge(error))?
            }
            Err(_) => None,
        };
        let plan = target.map_or(SetPlan::OneByOne, |target| SetPlan::new(shape, &target));
        Ok(Some(self.prepared().sets.keep(statement.sql(), plan)))
    }
}

/// True when one row for each is what is expected. Where no row is fine, too, the total would not tell who had one.
fn serves(shape: &SetShape, expected: ExpectRows) -> bool {
    match shape {
        SetShape::Insert(_) => expected.accepts(1),
        SetShape::Update(_) => expected.accepts(1) && !expected.accepts(0),
    }
}
