//! What benches build on: the configured MySQL and RabbitMQ, with a queue of the bench's own.

use std::time::Duration;

use anyhow::{Context, bail};
use consign_amqp::Connection;
use consign_broker::rabbitmq::{Binding, ConnectOptions, Exchange, ExchangeKind, Queue, QueueKind, Topology};
use consign_store::mysql::Database;
use sqlx::MySqlPool;

use crate::config::{Config, DestinationConfig, RabbitMqConfig};
use crate::parts::{self, Store};

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
        let mut config = config.clone();
        config.store.connections = connections;
        let Store::MySql(store) = parts::open_store(&config).await? else {
            bail!("[store] url is not MySQL: {bench} measures a MySQL store");
        };
        let broker = config.destinations.values().find_map(|destination| match destination {
            DestinationConfig::RabbitMq(broker) => Some(broker.as_ref().clone()),
            DestinationConfig::RocketMq(_) | DestinationConfig::Embedded(_) => None,
        });
        let broker =
            broker.with_context(|| format!("no destination is of type rabbitmq: {bench} needs RabbitMQ"))?;
        let connect = parts::connect_options(&broker.url, &broker.tls)?;
        Ok(Self { database: store.0, broker, connect })
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
