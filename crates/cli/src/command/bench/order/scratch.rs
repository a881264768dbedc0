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

/// A relay that was killed.
#[derive(Debug)]
pub struct Kill {
    /// Its name in the log of attempts.
    pub relay: String,
    /// Just before, by the database's clock.
    pub at: String,
}

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
            .with_order()
            .apply()
            .await?;
        Ok(scratch)
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        self.site.sql(format!("DROP TABLE IF EXISTS {TABLE}")).await?;
        for own in ["consign_partition", "consign_relay"] {
            if self.site.has_table(own).await? {
                self.site.sql(format!("DELETE FROM {own} WHERE outbox = '{TABLE}'")).await?;
            }
        }
        self.site.delete_queue(NAME).await
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

    /// The database's time.
    pub async fn now(&self) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("SELECT CAST(NOW(6) AS CHAR)").fetch_one(self.site.pool()).await?)
    }

    /// For each aggregate whose last event before the kill was sent by the killed relay, and that had more to send: how
    /// long it took until another relay had sent one.
    pub async fn takeover_ms(&self, kill: &Kill) -> anyhow::Result<Vec<f64>> {
        let sql = "WITH sent AS (
                       SELECT event.aggregate_id, attempt.relay, attempt.recorded_at,
                           attempt.recorded_at > CAST(? AS DATETIME(6)) AS later,
                           ROW_NUMBER() OVER (PARTITION BY event.aggregate_id, attempt.recorded_at > CAST(? AS DATETIME(6))
                                              ORDER BY attempt.attempt_id DESC) AS place
                       FROM consign_attempt attempt JOIN consign_bench_order event ON event.event_id = attempt.event_id
                       WHERE attempt.outcome = 'confirmed' AND attempt.relay LIKE CONCAT(SUBSTRING_INDEX(?, '-', 2), '-%'))
                   SELECT CAST(TIMESTAMPDIFF(MICROSECOND, CAST(? AS DATETIME(6)), MIN(later.recorded_at)) AS DOUBLE) / 1000
                   FROM sent last JOIN sent later ON later.aggregate_id = last.aggregate_id
                   WHERE NOT last.later AND last.place = 1 AND last.relay = ? AND later.later AND later.relay <> ?
                   GROUP BY last.aggregate_id";
        let query = sqlx::query_scalar(sql).bind(&kill.at).bind(&kill.at).bind(&kill.relay).bind(&kill.at);
        Ok(query.bind(&kill.relay).bind(&kill.relay).fetch_all(self.site.pool()).await?)
    }
}
