//! Handlers' statements: what is known of them, and running them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use consign_core::value::Value;
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Either, Executor, SqlSafeStr, SqliteConnection, Statement as _, query};

use crate::sqlite::inbox::value::{Bound, bind_value};

/// More statements than this are not kept; a config has a few per consumer.
const DESCRIBED_MAX: usize = 256;
/// So many runs of one statement share a text, at most; a power of two. More would save little and keep more prepared.
const RUNS_MAX: usize = 16;

/// Why a statement was not run.
pub(crate) enum StatementError {
    /// It has another number of placeholders than there are values; SQLite would take the rest for NULL.
    Placeholders {
        /// Placeholders.
        wanted: usize,
        /// Values.
        given: usize,
    },
    /// SQLite refused it.
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for StatementError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// What is known of handlers' statements, so that each is looked at once instead of before every run.
#[derive(Debug, Default)]
pub(crate) struct Described(Mutex<HashMap<String, Description>>);

#[derive(Clone, Copy, Debug)]
struct Description {
    placeholders: usize,
    returns_rows: bool,
    changes_rows: bool,
}

impl Description {
    fn check(self, values: &[Value]) -> Result<(), StatementError> {
        if self.placeholders == values.len() {
            return Ok(());
        }
        Err(StatementError::Placeholders { wanted: self.placeholders, given: values.len() })
    }
}

impl Described {
    async fn of(
        &self,
        connection: &mut SqliteConnection,
        sql: &str,
        values: usize,
    ) -> Result<Description, sqlx::Error> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(sql).copied();
        if let Some(description) = known {
            return Ok(description);
        }
        // The statement comes from the config or the handler's code; payload fields are bound.
        let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
        let description = Description {
            placeholders: match prepared.parameters() {
                Some(Either::Left(types)) => types.len(),
                Some(Either::Right(count)) => count,
                None => values,
            },
            returns_rows: !prepared.columns().is_empty(),
            changes_rows: changes_rows(sql),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= DESCRIBED_MAX {
            known.clear();
        }
        known.insert(sql.to_owned(), description);
        Ok(description)
    }
}

/// Runs a handler's statement and counts the rows it matched: those it returns, or those it changed.
pub(crate) async fn run(
    connection: &mut SqliteConnection,
    described: &Described,
    sql: &str,
    values: &[Value],
) -> Result<u64, StatementError> {
    let description = described.of(connection, sql, values.len()).await?;
    description.check(values)?;
    let statement = values.iter().fold(query(AssertSqlSafe(sql)), bind_value);
    let mut rows = Vec::with_capacity(1);
    count(connection, statement, description, &mut rows).await?;
    Ok(rows.pop().unwrap_or(0))
}

/// Runs a statement once for each list of values, in order, several runs in one text: SQLite is a thread of its own to
/// sqlx, and going there and back takes longer than the statement. Leaves in `rows` what each run matched, up to the
/// one that failed.
///
/// The statement's placeholders are plain question marks, so that each run takes the values behind the last one's.
pub(crate) async fn run_each(
    connection: &mut SqliteConnection,
    described: &Described,
    sql: &str,
    values: &[&[Value]],
    rows: &mut Vec<u64>,
) -> Result<(), StatementError> {
    let mut rest = values;
    while let Some(first) = rest.first() {
        let description = described.of(connection, sql, first.len()).await?;
        let (runs, after) = rest.split_at(1 << rest.len().ilog2().min(RUNS_MAX.ilog2()));
        for values in runs {
            description.check(values)?;
        }
        // The statement may end in a comment.
        let text = vec![sql; runs.len()].join("\n;\n");
        let statement = runs.iter().copied().flatten().fold(query(AssertSqlSafe(text)), bind_value);
        count(connection, statement, description, rows).await?;
        rest = after;
    }
    Ok(())
}

/// Runs the statements of one text, and adds for each the rows it matched.
async fn count(
    connection: &mut SqliteConnection,
    statement: Bound<'_>,
    description: Description,
    rows: &mut Vec<u64>,
) -> Result<(), sqlx::Error> {
    let mut answers = connection.fetch_many(statement);
    let mut returned = 0;
    while let Some(answer) = answers.try_next().await? {
        match answer {
            Either::Right(_) => returned += 1,
            Either::Left(_) if description.returns_rows => rows.push(std::mem::take(&mut returned)),
            Either::Left(done) if description.changes_rows => rows.push(done.rows_affected()),
            // For anything else SQLite goes on telling the count of the last change.
            Either::Left(_) => rows.push(0),
        }
    }
    Ok(())
}

fn changes_rows(sql: &str) -> bool {
    let mut rest = sql.trim_start();
    loop {
        rest = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n').map_or("", |(_, after)| after),
            (None, Some(comment)) => comment.split_once("*/").map_or("", |(_, after)| after),
            (None, None) => break,
        }
        .trim_start();
    }
    let word = rest.split(|next: char| !next.is_ascii_alphabetic()).next().unwrap_or_default();
    ["INSERT", "UPDATE", "DELETE", "REPLACE", "WITH"].iter().any(|known| word.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_rows_are_told_from_others() {
        for sql in
            ["update t set a = 1", "-- why\n  INSERT INTO t", "/* a */ WITH x AS (SELECT 1) DELETE FROM t"]
        {
            assert!(changes_rows(sql), "{sql}");
        }
        for sql in ["SELECT 1", "PRAGMA x", "", "-- UPDATE"] {
            assert!(!changes_rows(sql), "{sql}");
        }
    }
}
