//! The bench's own table, exchange and queue, beside the configured ones.

use anyhow::{Context, bail};
use consign_amqp::Connection;
use consign_broker::rabbitmq::{Binding, ConnectOptions, Exchange, ExchangeKind, Queue, QueueKind, Topology};
use consign_store::mapping::{Identifier, OutboxMapping};
use consign_store::mysql::{PayloadColumn, Schema};

use crate::config::{Config, DestinationConfig, RabbitMqConfig};
use crate::parts::{self, MySqlStore, Store};

/// The exchange and the queue.
pub const NAME: &str = "consign_bench_order";
/// The outbox.
pub const TABLE: &str = "consign_bench_order";
/// So many events of one aggregate come in a row: orders are not created one step at a time in turn.
const RUN: u32 = 4;

/// What the bench made, to be removed again.
pub struct Scratch {
    store: MySqlStore,
    /// The broker as configured.
    pub broker: RabbitMqConfig,
    /// How to reach it.
    pub connect: ConnectOptions,
}

impl Scratch {
    /// Creates the table, the exchange and the queue; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config) -> anyhow::Result<Self> {
        let Store::MySql(store) = parts::open_store(config).await? else {
            bail!("[store] url is not MySQL: bench order measures a MySQL store");
        };
        let broker = config.destinations.values().find_map(|destination| match destination {
            DestinationConfig::RabbitMq(broker) => Some(broker.as_ref().clone()),
            DestinationConfig::Embedded(_) => None,
        });
        let broker =
            broker.context("no destination is of type rabbitmq: bench order publishes to RabbitMQ")?;
        let connect = parts::connect_options(&broker.url, &broker.tls)?;
        let scratch = Self { store, broker, connect };
        scratch.remove().await?;
        let mapping = OutboxMapping::new(Identifier::table(TABLE)?);
        Schema::new(scratch.store.0.clone()).with_outbox(mapping, PayloadColumn::Json).apply().await?;
        Ok(scratch)
    }

    /// An exchange and an empty queue: copies left by the round before are none of the next one's events.
    async fn renew_queue(&self) -> anyhow::Result<()> {
        self.delete_queue().await?;
        let mut queue = Queue::durable(NAME, QueueKind::Quorum);
        queue.bindings = vec![Binding { exchange: NAME.into(), key: "#".into() }];
        let exchanges = vec![Exchange::durable(NAME, ExchangeKind::Topic)];
        Topology { exchanges, queues: vec![queue] }.apply(&self.connect).await?;
        Ok(())
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        self.sql(format!("DROP TABLE IF EXISTS {TABLE}")).await?;
        for own in ["consign_partition", "consign_relay"] {
            if self.has_table(own).await? {
                self.sql(format!("DELETE FROM {own} WHERE outbox = '{NAME}'")).await?;
            }
        }
        self.delete_queue().await
    }

    async fn delete_queue(&self) -> anyhow::Result<()> {
        let connection = Connection::open(&self.connect).await?;
        let channel = connection.open_channel().await?;
        channel.queue_delete(NAME, false, false).await?;
        channel.exchange_delete(NAME, false).await?;
        connection.close(std::time::Duration::from_secs(5)).await;
        Ok(())
    }

    async fn has_table(&self, name: &str) -> anyhow::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM information_schema.tables
                       WHERE table_schema = DATABASE() AND table_name = ?)";
        let found: i64 = sqlx::query_scalar(sql).bind(name).fetch_one(self.store.0.pool()).await?;
        Ok(found != 0)
    }

    /// Runs a statement of the bench's own; nothing in it is input.
    async fn sql(&self, sql: String) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.store.0.pool()).await?;
        Ok(())
    }

    /// Empties the queue, and replaces the table's rows by `events` NEW ones of `aggregates` aggregates, whose versions count from 1 each.
    pub async fn fill(&self, aggregates: u32, events: u32) -> anyhow::Result<()> {
        const CHUNK: u32 = 50_000;
        self.renew_queue().await?;
        self.sql(format!("TRUNCATE TABLE {TABLE}")).await?;
        let cycle = u64::from(aggregates) * u64::from(RUN);
        for first in (0..events).step_by(CHUNK as usize) {
            let count = CHUNK.min(events - first);
            self.sql(format!(
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
        let pending: i64 = sqlx::query_scalar(sql).fetch_one(self.store.0.pool()).await?;
        Ok(pending == 0)
    }

    /// How many rows are SENT.
    pub async fn sent(&self) -> anyhow::Result<u64> {
        let sql = "SELECT COUNT(*) FROM consign_bench_order WHERE status = 'SENT'";
        let sent: i64 = sqlx::query_scalar(sql).fetch_one(self.store.0.pool()).await?;
        Ok(u64::try_from(sent)?)
    }
}
