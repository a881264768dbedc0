//! The bench's own tables, exchange and queue, beside the configured ones.

use anyhow::{bail, ensure};
use consign_broker::rabbitmq::{Binding, ConnectOptions, Exchange, ExchangeKind, Queue, QueueKind, Topology};
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping};
use consign_store::mysql::{Inbox, Schema};
use sqlx::MySqlPool;

use crate::command::bench::site;
use crate::config::Config;
use crate::parts::{self, MySqlStore, Store};

/// The exchange and the queue.
pub const NAME: &str = "consign_bench_consume";
const MARKERS: &str = "consign_bench_consumed";
/// Not called after consign: statements on such names run one by one.
const ACCOUNTS: &str = "bench_points_account";
/// Accounts that points are awarded to.
pub const ACCOUNT_COUNT: u32 = 10_000;
/// What the consumers run.
pub const AWARD: &str = "UPDATE bench_points_account SET points = points + :amount WHERE user_id = :user_id";

/// What the bench made, to be removed again.
pub struct Scratch {
    store: MySqlStore,
    connect: ConnectOptions,
}

/// What the tables hold after a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Markers.
    pub markers: u64,
    /// Points awarded, in awards.
    pub awards: u64,
}

impl Scratch {
    /// Creates everything; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config) -> anyhow::Result<Self> {
        let broker = site::rabbitmq(config, "bench consume")?;
        let Store::MySql(store) = parts::open_store(config).await? else {
            bail!("[store] url is not MySQL: bench consume measures a MySQL store");
        };
        let scratch = Self { store, connect: parts::connect_options(&broker.url, &broker.tls)? };
        scratch.remove().await?;
        scratch.create_tables().await?;
        topology().apply(&scratch.connect).await?;
        Ok(scratch)
    }

    async fn create_tables(&self) -> anyhow::Result<()> {
        const CHUNK: u32 = 1000;
        let comparison = ["user_id", "amount"].map(|name| {
            Identifier::column(name).map(|name| ComparisonColumn { name, kind: ValueType::Integer })
        });
        let comparison = comparison.into_iter().collect::<Result<Vec<_>, _>>()?;
        Schema::new(self.store.0.clone())
            .with_markers(mapping()?)
            .with_comparison(comparison)
            .apply()
            .await?;
        self.sql(&format!("CREATE TABLE {ACCOUNTS} (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL)"))
            .await?;
        for first in (0..ACCOUNT_COUNT).step_by(CHUNK as usize) {
            let rows: Vec<String> = (first..first + CHUNK).map(|user| format!("({user}, 0)")).collect();
            self.sql(&format!("INSERT INTO {ACCOUNTS} VALUES {}", rows.join(", "))).await?;
        }
        Ok(())
    }

    /// Removes everything.
    pub async fn remove(&self) -> anyhow::Result<()> {
        for table in [MARKERS, ACCOUNTS] {
            self.sql(&format!("DROP TABLE IF EXISTS {table}")).await?;
        }
        let connection = consign_amqp::Connection::open(&self.connect).await?;
        let channel = connection.open_channel().await?;
        channel.queue_delete(NAME, false, false).await?;
        channel.exchange_delete(NAME, false).await?;
        connection.close(std::time::Duration::from_secs(5)).await;
        Ok(())
    }

    /// Forgets what was applied, so that the next run starts as this one did.
    pub async fn reset(&self) -> anyhow::Result<()> {
        self.sql(&format!("TRUNCATE TABLE {MARKERS}")).await?;
        self.sql(&format!("UPDATE {ACCOUNTS} SET points = 0")).await
    }

    /// How to reach the broker.
    pub const fn connect(&self) -> &ConnectOptions {
        &self.connect
    }

    /// The inbox.
    pub fn inbox(&self) -> anyhow::Result<Inbox> {
        Ok(Inbox::new(self.store.0.clone(), mapping()?))
    }

    /// What was applied, as the database has it. Every award is `amount` points.
    pub async fn effects(&self, amount: i64) -> anyhow::Result<Effects> {
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM {MARKERS}), (SELECT CAST(SUM(points) AS SIGNED) FROM {ACCOUNTS})"
        );
        let (markers, points): (i64, i64) =
            sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_one(self.pool()).await?;
        ensure!(points % amount == 0, "{points} points are no whole number of awards");
        Ok(Effects { markers: u64::try_from(markers)?, awards: u64::try_from(points / amount)? })
    }

    fn pool(&self) -> &MySqlPool {
        self.store.0.pool()
    }

    /// Runs a statement of the bench's own; nothing in it is input.
    async fn sql(&self, sql: &str) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned())).execute(self.pool()).await?;
        Ok(())
    }
}

fn mapping() -> anyhow::Result<MarkerMapping> {
    Ok(MarkerMapping::new(Identifier::table(MARKERS)?))
}

fn topology() -> Topology {
    let mut queue = Queue::durable(NAME, QueueKind::Quorum);
    queue.bindings = vec![Binding { exchange: NAME.into(), key: "#".into() }];
    Topology { exchanges: vec![Exchange::durable(NAME, ExchangeKind::Topic)], queues: vec![queue] }
}
