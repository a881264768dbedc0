//! What benches build on: the configured MySQL and RabbitMQ, with a queue of the bench's own.

use std::time::Duration;

use anyhow::bail;
use consign_amqp::Connection;
use consign_broker::rabbitmq::{Binding, ConnectOptions, Exchange, ExchangeKind, Queue, QueueKind, Topology};
use consign_store::mysql::Database;
use sqlx::MySqlPool;

use crate::config::{Config, DestinationConfig, RabbitMqConfig};
use crate::parts::{self, Store};

/// The configured MySQL with so many connections at most; `bench` is its name for people.
pub async fn open_database(config: &Config, connections: u32, bench: &str) -> anyhow::Result<Database> {
    let mut config = config.clone();
    config.store.connections = connections;
    let Store::MySql(store) = parts::open_store(&config).await? else {
        bail!("[store] url is not MySQL: {bench} measures a MySQL store");
    };
    Ok(store.0)
}

/// Whether the database has a table of this name.
pub async fn has_table(database: &Database, name: &str) -> anyhow::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM information_schema.tables
                   WHERE table_schema = DATABASE() AND table_name = ?)";
    let found: i64 = sqlx::query_scalar(sql).bind(name).fetch_one(database.pool()).await?;
    Ok(found != 0)
}

/// The first RabbitMQ of the config; `bench` is its name for people.
pub fn rabbitmq(config: &Config, bench: &str) -> anyhow::Result<RabbitMqConfig> {
    let mut other = None;
    for (name, destination) in &config.destinations {
        match destination {
            DestinationConfig::RabbitMq(broker) => return Ok(broker.as_ref().clone()),
            DestinationConfig::RocketMq(_) => other = other.or(Some(name)),
            DestinationConfig::Embedded(_) => {}
        }
    }
    match other {
        Some(name) => bail!(
            "destination {name} is of type rocketmq, and {bench} measures RabbitMQ only: give it a config with a \
             destination of type rabbitmq; bench relay and bench transaction measure RocketMQ"
        ),
        None => bail!("no destination is of type rabbitmq: {bench} needs RabbitMQ"),
    }
}

/// The servers a bench runs on.
pub struct Site {
    database: Database,
    /// The broker as configured.
    pub broker: RabbitMqConfig,
    /// How to reach it.
    pub connect: ConnectOptions,
}

impl Site {
    /// Connects to the store with so many connections at most; `bench` is its name for people.
    pub async fn open(config: &Config, connections: u32, bench: &str) -> anyhow::Result<Self> {
        let broker = rabbitmq(config, bench)?;
        let connect = parts::connect_options(&broker.url, &broker.tls)?;
        let database = open_database(config, connections, bench).await?;
        Ok(Self { database, broker, connect })
    }

    /// The database.
    pub const fn database(&self) -> &Database {
        &self.database
    }

    /// Its connections.
    pub fn pool(&self) -> &MySqlPool {
        self.database.pool()
    }

    /// Runs a statement of the bench's own; nothing in it is input.
    pub async fn sql(&self, sql: String) -> anyhow::Result<()> {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(self.pool()).await?;
        Ok(())
    }

    /// Whether the database has a table of this name.
    pub async fn has_table(&self, name: &str) -> anyhow::Result<bool> {
        has_table(&self.database, name).await
    }

    /// A topic exchange and a quorum queue of one name; the queue gets everything.
    pub async fn create_queue(&self, name: &str) -> anyhow::Result<()> {
        let mut queue = Queue::durable(name, QueueKind::Quorum);
        queue.bindings = vec![Binding { exchange: name.into(), key: "#".into() }];
        let exchanges = vec![Exchange::durable(name, ExchangeKind::Topic)];
        Topology { exchanges, queues: vec![queue] }.apply(&self.connect).await?;
        Ok(())
    }

    /// Removes both; what is not there is no failure.
    pub async fn delete_queue(&self, name: &str) -> anyhow::Result<()> {
        let connection = Connection::open(&self.connect).await?;
        let channel = connection.open_channel().await?;
        channel.queue_delete(name, false, false).await?;
        channel.exchange_delete(name, false).await?;
        connection.close(Duration::from_secs(5)).await;
        Ok(())
    }
}
