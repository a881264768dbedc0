//! The bench's own tables, filled inside the server.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{Outbox, PayloadColumn, Schema};
use sqlx::{MySql, MySqlPool, Transaction};

use crate::config::Config;
use crate::parts::{self, MySqlStore, Store};

/// Nothing but the rows that claims take.
pub const EMPTY: &str = "consign_bench_scale_empty";
/// Many SENT rows as well.
pub const SENT: &str = "consign_bench_scale_sent";
/// Many NEW rows.
pub const BACKLOG: &str = "consign_bench_scale_backlog";
/// Many rows before those that claims take that are locked, and as many that are not due.
pub const LOCKED: &str = "consign_bench_scale_locked";

/// Rows of one INSERT, and so of one transaction's undo.
const CHUNK: u32 = 100_000;

/// Rows to insert, all alike.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Where to.
    pub table: &'static str,
    /// What their ids begin with.
    pub prefix: &'static str,
    /// Their status.
    pub status: &'static str,
    /// How many.
    pub rows: u32,
    /// When the first of them was written and due, in seconds from now; the others follow by a microsecond each.
    pub due_seconds: i32,
}

/// What the bench made, to be removed again.
pub struct Scratch {
    store: MySqlStore,
}

impl Scratch {
    /// Creates the tables; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config) -> anyhow::Result<Self> {
        let Store::MySql(store) = parts::open_store(config).await? else {
            bail!("[store] url is not MySQL: bench scale measures a MySQL store");
        };
        let scratch = Self { store };
        scratch.remove().await?;
        for table in [EMPTY, SENT, BACKLOG, LOCKED] {
            let schema = Schema::new(scratch.store.0.clone());
            schema.with_outbox(mapping(table)?, PayloadColumn::Json).apply().await?;
        }
        Ok(scratch)
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        for table in [EMPTY, SENT, BACKLOG, LOCKED] {
            self.sql(format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        Ok(())
    }

    /// The store port on one of the tables, as a relay has it.
    pub fn outbox(&self, table: &str) -> anyhow::Result<Outbox> {
        Ok(Outbox::new(self.store.0.clone(), mapping(table)?, "bench"))
    }

    /// Connections.
    pub fn pool(&self) -> &MySqlPool {
        self.store.0.pool()
    }

    /// Runs a statement of the bench's own; nothing in it is input.
    pub async fn sql(&self, sql: String) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.pool()).await?;
        Ok(())
    }

    /// Inserts rows, and tells how long it will take.
    pub async fn fill(&self, fill: Fill) -> anyhow::Result<()> {
        const TELL_EVERY: Duration = Duration::from_secs(10);
        let Fill { table, prefix, status, rows, due_seconds } = fill;
        let (started, mut told) = (Instant::now(), Instant::now());
        for first in (0..rows).step_by(CHUNK as usize) {
            let count = CHUNK.min(rows - first);
            self.sql(format!(
                "INSERT INTO {table} (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
                 WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                 SELECT CONCAT('{prefix}-', LPAD(number, 9, '0')), number, 'OrderPaid',
                        '{{\"orderId\":1,\"userId\":7,\"amount\":100}}', '{status}',
                        NOW(6) + INTERVAL {due_seconds} SECOND + INTERVAL number MICROSECOND,
                        NOW(6) + INTERVAL {due_seconds} SECOND
                 FROM (SELECT {first} + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS number
                       FROM ten a, ten b, ten c, ten d, ten e) AS numbers
                 WHERE number < {first} + {count}
                 ORDER BY number"
            ))
            .await?;
            let filled = first + count;
            if told.elapsed() >= TELL_EVERY && filled < rows {
                let left = started.elapsed().mul_f64(f64::from(rows - filled) / f64::from(filled));
                eprintln!(
                    "bench: {filled} of {rows} {status} rows in {table}, about {} s left",
                    left.as_secs()
                );
                told = Instant::now();
            }
        }
        Ok(())
    }

    /// Fresh statistics, so that the figures do not depend on when the server last made some.
    pub async fn analyze(&self, table: &str) -> anyhow::Result<()> {
        self.sql(format!("ANALYZE TABLE {table}")).await
    }

    /// A transaction that holds all rows locked whose ids begin with `prefix`.
    pub async fn hold(
        &self,
        table: &str,
        prefix: &str,
        rows: u32,
    ) -> anyhow::Result<Transaction<'static, MySql>> {
        let mut holder = self.pool().begin().await?;
        let sql = format!(
            "SELECT COUNT(*) FROM (SELECT event_id FROM {table} WHERE event_id LIKE '{prefix}-%' FOR UPDATE) AS held"
        );
        let held: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&mut *holder)
            .await
            .context("the rows cannot be locked")?;
        anyhow::ensure!(held == i64::from(rows), "{held} of {rows} rows were locked");
        Ok(holder)
    }
}

fn mapping(table: &str) -> anyhow::Result<OutboxMapping> {
    Ok(OutboxMapping::new(Identifier::table(table)?))
}
