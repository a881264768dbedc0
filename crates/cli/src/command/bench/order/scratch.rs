//! The bench's own table, exchange and queue, beside the configured ones.

use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{PayloadColumn, Schema};

use crate::command::bench::site::Site;
use crate::config::Config;

/// The exchange and the queue.
pub const NAME: &str = "consign_bench_order";
/// The outbox.
pub const TABLE: &str = "consign_bench_order";
/// So many events of one aggregate come in a row: orders are not created one step at a time in turn.
const RUN: u32 = 4;

/// What the bench made, to be removed again.
pub struct Scratch {
    /// The servers it is on.
    pub site: Site,
}

impl Scratch {
    /// Creates table, exchange and queue; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config) -> anyhow::Result<Self> {
        let site = Site::open(config, config.store.connections, "bench order").await?;
        let scratch = Self { site };
        scratch.remove().await?;
        let mapping = OutboxMapping::new(Identifier::table(TABLE)?);
        Schema::new(scratch.site.database().clone())
            .with_outbox(mapping, PayloadColumn::Json)
            .apply()
            .await?;
        Ok(scratch)
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        self.site.sql(format!("DROP TABLE IF EXISTS {TABLE}")).await?;
        for own in ["consign_partition", "consign_relay"] {
            if self.has_table(own).await? {
                self.site.sql(format!("DELETE FROM {own} WHERE outbox = '{TABLE}'")).await?;
            }
        }
        self.site.delete_queue(NAME).await
    }

    async fn has_table(&self, name: &str) -> anyhow::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM information_schema.tables
                       WHERE table_schema = DATABASE() AND table_name = ?)";
        let found: i64 = sqlx::query_scalar(sql).bind(name).fetch_one(self.site.pool()).await?;
        Ok(found != 0)
    }

    /// Empties the queue, and replaces the table's rows by `events` NEW ones of `aggregates` aggregates, whose versions count from 1 each.
    pub async fn fill(&self, aggregates: u32, events: u32) -> anyhow::Result<()> {
        const CHUNK: u32 = 50_000;
        // Copies left by the round before are none of the next one's events.
        self.site.delete_queue(NAME).await?;
        self.site.create_queue(NAME).await?;
        self.site.sql(format!("TRUNCATE TABLE {TABLE}")).await?;
        let cycle = u64::from(aggregates) * u64::from(RUN);
        for first in (0..events).step_by(CHUNK as usize) {
            let count = CHUNK.min(events - first);
            self.site.sql(format!(
                "INSERT INTO {TABLE} (event_id, aggregate_type, aggregate_id, aggregate_version, event_type, payload,
                                      status, available_at, created_at)
                 WITH RECURSIVE ten (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM ten WHERE n < 9)
                 SELECT CONCAT('event-', number), 'order', number DIV {RUN} % {aggregates},
                        {RUN} * (number DIV {cycle}) + number % {RUN} + 1, 'OrderChanged',
                        JSON_OBJECT('aggregate', number DIV {RUN} % {aggregates},
                                    'version', {RUN} * (number DIV {cycle}) + number % {RUN} + 1,
                                    'note', REPEAT('x', 150)),
                        'NEW', NOW(6), NOW(6)
                 FROM (SELECT {first} + a.n + 10 * b.n + 100 * c.n + 1000 * d.n + 10000 * e.n AS number
                       FROM ten a, ten b, ten c, ten d, ten e) AS numbers
                 WHERE number < {first} + {count}
                 ORDER BY number"
            ))
            .await?;
        }
        Ok(())
    }

    /// True when no row waits or is under way.
    pub async fn drained(&self) -> anyhow::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM consign_bench_order WHERE status = 'NEW')
                       OR EXISTS (SELECT 1 FROM consign_bench_order WHERE status = 'SENDING')";
        let pending: i64 = sqlx::query_scalar(sql).fetch_one(self.site.pool()).await?;
        Ok(pending == 0)
    }

    /// How many rows are SENT.
    pub async fn sent(&self) -> anyhow::Result<u64> {
        let sql = "SELECT COUNT(*) FROM consign_bench_order WHERE status = 'SENT'";
        let sent: i64 = sqlx::query_scalar(sql).fetch_one(self.site.pool()).await?;
        Ok(u64::try_from(sent)?)
    }
}
