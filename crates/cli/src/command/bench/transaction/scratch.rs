//! The bench's own tables, topic and group, beside the configured ones.

use std::collections::HashSet;

use anyhow::{bail, ensure};
use consign_broker::rocketmq::Admin;
use consign_core::route::DestinationName;
use consign_rocketmq::TopicKind;
use consign_store::mysql::Database;
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;

use crate::command::bench::{site, topic};
use crate::config::{Config, DestinationConfig, RocketMqConfig, TransactionConfig};

/// Orders of transactions without a message.
const LOCAL: &str = "consign_bench_transaction_local";
/// Orders of transactions with a message.
const ANNOUNCED: &str = "consign_bench_transaction_announced";
/// The topic, and the group that reads it for the audit, are called after the database, so that benches of several databases do
/// not meet.
const TOPIC: &str = "consign_bench_transaction";
/// Where markers are.
const MARKERS: &str = "consign_transaction";
/// Connections for the answers to the broker's questions, and the database's time; the transactions have others.
const CONNECTIONS: u32 = 6;

const BENCH: &str = "bench transaction";

/// What the bench made, to be removed again.
pub struct Scratch {
    /// Where the transactions are.
    pub database: Database,
    /// The cluster of the messages.
    pub cluster: RocketMqConfig,
    /// The topic, and the group.
    pub topic: String,
    /// Who administrates it.
    pub admin: Admin,
    /// How the config has markers kept and questions answered, if it says.
    pub configured: Option<TransactionConfig>,
}

impl Scratch {
    /// Creates tables, topic and group; leftovers of an interrupted bench are replaced.
    pub async fn create(config: &Config) -> anyhow::Result<Self> {
        let (name, cluster) = cluster(config)?;
        let admin = topic::admin(name, cluster, BENCH)?;
        let database = site::open_database(config, CONNECTIONS, BENCH).await?;
        ensure!(
            site::has_table(&database, MARKERS).await?,
            "the store has no table {MARKERS}: add a section [transaction] to the config and run `consign migrate`"
        );
        let (topic, cluster) = (topic_of(&database).await?, cluster.clone());
        let scratch = Self { database, cluster, topic, admin, configured: config.transaction.clone() };
        scratch.remove().await?;
        for table in [LOCAL, ANNOUNCED] {
            let columns = "id BIGINT PRIMARY KEY, status VARCHAR(16) NOT NULL";
            scratch.sql(format!("CREATE TABLE {table} ({columns}) ENGINE = InnoDB")).await?;
        }
        scratch.admin.create_group(&scratch.topic, false, 1).await?;
        topic::create(&scratch.admin, &scratch.cluster, &scratch.topic, TopicKind::Transaction).await?;
        Ok(scratch)
    }

    /// Removes everything, the bench's markers among it.
    pub async fn remove(&self) -> anyhow::Result<()> {
        self.admin.delete_topic(&self.topic).await?;
        self.admin.delete_group(&self.topic).await?;
        self.sql(format!("DROP TABLE IF EXISTS {LOCAL}, {ANNOUNCED}")).await?;
        self.forget_markers().await
    }

    /// By their keys: no index has the topic, and a DELETE that looks for it would lock the markers of everybody else.
    async fn forget_markers(&self) -> anyhow::Result<()> {
        const CHUNK: usize = 500;
        let select =
            "SELECT transaction_key FROM consign_transaction WHERE topic = ? ORDER BY transaction_key";
        let keys: Vec<String> = sqlx::query_scalar(select).bind(&self.topic).fetch_all(self.pool()).await?;
        for keys in keys.chunks(CHUNK) {
            let places = vec!["?"; keys.len()].join(", ");
            let delete = format!("DELETE FROM consign_transaction WHERE transaction_key IN ({places})");
            // Places for values, and no value.
            let delete = sqlx::query(sqlx::AssertSqlSafe(delete));
            keys.iter().fold(delete, sqlx::query::Query::bind).execute(self.pool()).await?;
        }
        Ok(())
    }

    /// Connections as a service has them: handed out as they are, where the store's own send a ROLLBACK after every use.
    pub fn service_pool(&self, connections: u32) -> MySqlPool {
        let options = MySqlPoolOptions::new().max_connections(connections).min_connections(connections);
        options.test_before_acquire(false).connect_lazy_with((*self.pool().connect_options()).clone())
    }

    /// The connections.
    pub fn pool(&self) -> &MySqlPool {
        self.database.pool()
    }

    /// The orders that were committed with a message.
    pub async fn announced(&self) -> anyhow::Result<HashSet<u32>> {
        let sql = "SELECT id FROM consign_bench_transaction_announced";
        let ids: Vec<i64> = sqlx::query_scalar(sql).fetch_all(self.pool()).await?;
        Ok(ids.into_iter().map(u32::try_from).collect::<Result<_, _>>()?)
    }

    async fn sql(&self, sql: String) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.pool()).await?;
        Ok(())
    }
}

async fn topic_of(database: &Database) -> anyhow::Result<String> {
    let name: Option<String> = sqlx::query_scalar("SELECT DATABASE()").fetch_one(database.pool()).await?;
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    Ok(format!("{TOPIC}_{}", name.unwrap_or_default().chars().map(plain).collect::<String>()))
}

/// The cluster of `[transaction]`, or the first one.
fn cluster(config: &Config) -> anyhow::Result<(&DestinationName, &RocketMqConfig)> {
    let chosen = config.transaction.as_ref().map(|transaction| &transaction.destination);
    for (name, destination) in &config.destinations {
        match destination {
            DestinationConfig::RocketMq(cluster) if chosen.is_none_or(|chosen| chosen == name) => {
                return Ok((name, cluster));
            }
            DestinationConfig::RocketMq(_)
            | DestinationConfig::RabbitMq(_)
            | DestinationConfig::Embedded(_) => {}
        }
    }
    bail!(
        "no destination is of type rocketmq, and only RocketMQ has transaction messages: add one, as \
         examples/rocketmq/consign.toml does; bench relay measures the outbox on other brokers"
    )
}
