//! The bench's own tables and what it publishes to, beside the configured ones.

use anyhow::bail;
use consign_core::event::NewEvent;
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{Outbox, PayloadColumn, Schema};
use consign_store::retention::{AttemptLog, Keeping};
use sqlx::MySqlPool;

use super::broker::Broker;
use crate::config::Config;
use crate::parts::{self, MySqlStore, Store};

/// The exchange and the queue, or the topic.
pub const NAME: &str = "consign_bench";
/// The table that is drained.
pub const OUTBOX: &str = "consign_bench_outbox";
/// A table of the same kind with many SENT rows.
pub const HISTORY: &str = "consign_bench_history";
/// A table of the same kind without any.
pub const FRESH: &str = "consign_bench_fresh";

/// What the bench made, to be removed again.
pub struct Scratch {
    store: MySqlStore,
    broker: Broker,
    payload_bytes: u32,
}

impl Scratch {
    /// Creates the tables and what is published to; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config, payload_bytes: u32) -> anyhow::Result<Self> {
        let Store::MySql(store) = parts::open_store(config).await? else {
            bail!("[store] url is not MySQL: bench relay measures a MySQL store");
        };
        let scratch = Self { store, broker: Broker::of(config)?, payload_bytes };
        scratch.remove().await?;
        scratch.create_tables().await?;
        scratch.broker.create().await?;
        Ok(scratch)
    }

    async fn create_tables(&self) -> anyhow::Result<()> {
        for table in [OUTBOX, HISTORY, FRESH] {
            let schema = Schema::new(self.store.0.clone());
            schema.with_outbox(mapping(table)?, PayloadColumn::Json).apply().await?;
        }
        Ok(())
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        for table in [OUTBOX, HISTORY, FRESH] {
            self.sql(format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        self.broker.remove().await
    }

    /// What is published to.
    pub const fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The store port on one of the tables.
    pub fn outbox(&self, table: &str) -> anyhow::Result<Outbox> {
        self.outbox_with_log(table, AttemptLog::default())
    }

    /// The same, with another log of attempts.
    pub fn outbox_with_log(&self, table: &str, attempts: AttemptLog) -> anyhow::Result<Outbox> {
        let keeping = Keeping { attempts, ..Keeping::default() };
        Ok(Outbox::with_keeping(self.store.0.clone(), mapping(table)?, "bench", keeping))
    }

    fn pool(&self) -> &MySqlPool {
        self.store.0.pool()
    }

    /// Runs a statement of the bench's own; nothing in it is input.
    pub async fn sql(&self, sql: String) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.pool()).await?;
        Ok(())
    }

    /// Appends `rows` NEW events with the library a service would use.
    pub async fn fill(&self, table: &str, rows: u32) -> anyhow::Result<()> {
        const CHUNK: u32 = 1000;
        let outbox = self.outbox(table)?;
        let padding = "x".repeat(self.payload_bytes.saturating_sub(50) as usize);
        let mut filled = 0;
        while filled < rows {
            let upper = (filled + CHUNK).min(rows);
            let events = (filled..upper).map(|number| {
                let payload = format!(r#"{{"orderId":{number},"userId":7,"amount":100,"note":"{padding}"}}"#);
                NewEvent::new("OrderPaid", number, payload)
            });
            let mut tx = self.pool().begin().await?;
            outbox.append_all(&mut tx, events.collect()).await?;
            tx.commit().await?;
            filled = upper;
        }
        Ok(())
    }

    /// Gives [`HISTORY`] so many SENT rows.
    pub async fn fill_sent(&self, rows: u32) -> anyhow::Result<()> {
        const CHUNK: u32 = 50_000;
        let mut filled = 0;
        while filled < rows {
            let count = CHUNK.min(rows - filled);
            self.sql(format!(
                "INSERT INTO {HISTORY} (event_id, aggregate_id, event_type, payload, status, attempts, available_at, created_at)
                 WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                 SELECT CONCAT('sent-', {filled} + number), number, 'OrderPaid',
                        '{{\"orderId\":1,\"userId\":7,\"amount\":100}}', 'SENT', 1,
                        NOW(6) - INTERVAL 1 HOUR, NOW(6) - INTERVAL 1 HOUR
                 FROM (SELECT a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS number
                       FROM ten a, ten b, ten c, ten d, ten e) AS numbers
                 WHERE number < {count}"
            ))
            .await?;
            filled += count;
        }
        Ok(())
    }

    /// True when no row waits or is under way.
    pub async fn drained(&self) -> anyhow::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM consign_bench_outbox WHERE status = 'NEW')
                       OR EXISTS (SELECT 1 FROM consign_bench_outbox WHERE status = 'SENDING')";
        let pending: i64 = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(pending == 0)
    }

    /// How many rows are SENT.
    pub async fn sent(&self) -> anyhow::Result<i64> {
        let sql = "SELECT COUNT(*) FROM consign_bench_outbox WHERE status = 'SENT'";
        Ok(sqlx::query_scalar(sql).fetch_one(self.pool()).await?)
    }
}

fn mapping(table: &str) -> anyhow::Result<OutboxMapping> {
    Ok(OutboxMapping::new(Identifier::table(table)?))
}
