//! Makes and removes the places that sides run in.

mod topic;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow};
use consign::draw::SystemDraw;
use consign_amqp::Connection;
use consign_broker::embedded;
use consign_broker::rabbitmq::{Binding, Exchange, ExchangeKind, Queue, QueueKind, Topology};
use consign_core::time::Draw;
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping, OutboxMapping};
use consign_store::mysql::PayloadColumn;
use consign_store::{mysql, sqlite};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::config::ConnectionUrl;

use super::database::Database;
use super::mailbox::ROUTE;
use super::place::{Address, Backend, Broker, Cluster, Messages, Place, Store};
use super::scenario::Window;
use super::servers::Servers;

/// The business tables. Effects have no unique key: a doubled one must be able to show.
const BUSINESS: &str = "
CREATE TABLE purchase_order (id BIGINT PRIMARY KEY, user_id BIGINT NOT NULL, amount BIGINT NOT NULL,
                             version BIGINT NOT NULL, status VARCHAR(16) NOT NULL);
CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL);
CREATE TABLE points_entry (order_id BIGINT NOT NULL, user_id BIGINT NOT NULL, amount BIGINT NOT NULL);
CREATE TABLE order_copy (order_id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, version BIGINT NOT NULL);
CREATE TABLE processed_message (message_id VARCHAR(64) PRIMARY KEY);
CREATE TABLE message_to_send (id BIGINT PRIMARY KEY, body VARCHAR(200) NOT NULL, status VARCHAR(16) NOT NULL);
CREATE TABLE arrived_message (message_id VARCHAR(64) NOT NULL, order_id BIGINT NOT NULL);
CREATE TABLE acknowledged_message (message_id VARCHAR(64) NOT NULL);
INSERT INTO points_account (user_id, points) VALUES (7, 0);";

/// What all places of a run have in common.
pub struct Site {
    servers: Servers,
    folder: tempfile::TempDir,
    name: String,
    places: AtomicU32,
    /// What was made on servers and not removed yet.
    standing: Mutex<Vec<Place>>,
}

/// Whether the queue of a place is bound from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bindings {
    /// It is.
    Present,
    /// Somebody forgot it.
    Missing,
}

impl Site {
    /// A site for one run.
    pub fn new(servers: Servers) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("consign-lab-").tempdir()?;
        let own =
            SystemDraw.bits().iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        Ok(Self {
            servers,
            folder,
            name: format!("consign_lab_{own}"),
            places: AtomicU32::new(0),
            standing: Mutex::default(),
        })
    }

    /// Fails, saying which, when a server that is needed cannot be reached.
    pub async fn reach(&self, backends: &[Backend]) -> anyhow::Result<()> {
        if backends.iter().any(|backend| *backend != Backend::Embedded) {
            self.mysql().await?.close().await?;
        }
        if backends.iter().any(|backend| matches!(backend, Backend::RabbitMq | Backend::Redis)) {
            let options = needed(self.servers.rabbitmq.as_ref(), "RabbitMQ")?.rabbitmq()?;
            let connection = Connection::open(&options).await.with_context(|| {
                format!("cannot reach RabbitMQ at {}:{}: check --rabbitmq", options.host, options.port)
            })?;
            connection.close(Duration::from_secs(5)).await;
        }
        if backends.contains(&Backend::RocketMq) {
            let cluster = self.cluster()?;
            let asking = cluster.admin()?;
            asking.masters().await.with_context(|| {
                format!(
                    "cannot reach RocketMQ by {}: check --rocketmq-name-servers and --rocketmq",
                    cluster.name_servers()
                )
            })?;
        }
        if backends.contains(&Backend::Redis) {
            let address = needed(self.servers.redis.as_ref(), "Redis")?;
            super::memory::Memory::open(address, "").await.context("cannot reach Redis: check --redis")?;
        }
        Ok(())
    }

    fn cluster(&self) -> anyhow::Result<&Cluster> {
        self.servers.rocketmq.as_ref().context("there is no RocketMQ url")
    }

    async fn mysql(&self) -> anyhow::Result<MySqlConnection> {
        let address = needed(self.servers.mysql.as_ref(), "MySQL")?;
        let url = mysql_url(address)?;
        let mut options: sqlx::mysql::MySqlConnectOptions =
            url.expose().parse().map_err(|_| anyhow!("the MySQL url cannot be used: check --mysql"))?;
        if let Some(ca) = &address.ca {
            options = options.ssl_mode(sqlx::mysql::MySqlSslMode::VerifyIdentity).ssl_ca(ca);
        }
        MySqlConnection::connect_with(&options).await.with_context(|| {
            format!("cannot reach MySQL at {}:{}: check --mysql", url.host, url.port.unwrap_or(3306))
        })
    }

    /// A fresh place.
    pub async fn create(&self, backend: Backend, id: Window) -> anyhow::Result<Place> {
        let (bindings, messages) = (id.bindings(), id.messages());
        let number = self.places.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}_{number}", self.name);
        let place = match backend {
            Backend::Embedded => Place {
                store: Store::File(self.folder.path().join(format!("{name}.db"))),
                broker: Broker::File(self.folder.path().join(format!("{name}-queue.db"))),
                redis: None,
                name,
                messages,
            },
            Backend::RabbitMq | Backend::Redis | Backend::RocketMq => {
                self.on_servers(backend, name, messages)?
            }
        };
        if let Store::Server(_) = &place.store {
            self.standing.lock().unwrap_or_else(PoisonError::into_inner).push(place.clone());
            let mut connection = self.mysql().await?;
            sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {}", place.name)))
                .execute(&mut connection)
                .await
                .context(
                    "cannot create a database of the lab's own: the lab's MySQL user needs CREATE and DROP",
                )?;
            connection.close().await?;
        }
        self.furnish(&place, bindings).await?;
        Ok(place)
    }

    fn on_servers(&self, backend: Backend, name: String, messages: Messages) -> anyhow::Result<Place> {
        let address = needed(self.servers.mysql.as_ref(), "MySQL")?;
        let mut url = mysql_url(address)?;
        url.path = Some(name.clone());
        Ok(Place {
            store: Store::Server(Address { url: url.expose(), ..address.clone() }),
            broker: match backend {
                Backend::RocketMq => Broker::RocketMq(self.cluster()?.clone()),
                Backend::Embedded | Backend::RabbitMq | Backend::Redis => {
                    Broker::RabbitMq(needed(self.servers.rabbitmq.as_ref(), "RabbitMQ")?.clone())
                }
            },
            redis: self.servers.redis.clone().filter(|_| backend == Backend::Redis),
            name,
            messages,
        })
    }

    /// Removes what a run that was interrupted or failed has left on servers.
    pub async fn clear(&self) -> anyhow::Result<()> {
        let standing = std::mem::take(&mut *self.standing.lock().unwrap_or_else(PoisonError::into_inner));
        for place in &standing {
            self.remove(place).await.with_context(|| format!("cannot remove {}", place.name))?;
        }
        Ok(())
    }

    async fn furnish(&self, place: &Place, bindings: Bindings) -> anyhow::Result<()> {
        let database = Database::open(&place.store).await?;
        database.script(BUSINESS).await?;
        let columns = ["user_id", "amount"].map(|name| ComparisonColumn {
            name: Identifier::column(name).expect("a constant name"),
            kind: ValueType::Integer,
        });
        let (outbox, markers) = (OutboxMapping::default(), MarkerMapping::default());
        match &database {
            Database::Sqlite(store, _) => {
                let schema = sqlite::Schema::new(store.clone()).with_outbox(outbox).with_markers(markers);
                schema.with_comparison(columns.into()).apply().await?;
            }
            Database::MySql(store) => {
                let schema = mysql::Schema::new(store.clone()).with_outbox(outbox, PayloadColumn::Json);
                schema
                    .with_markers(markers)
                    .with_comparison(columns.into())
                    .with_transactions()
                    .apply()
                    .await?;
            }
        }
        database.close().await;
        match &place.broker {
            Broker::File(path) => {
                embedded::Queue::open(path).await?.declare(&place.name, &[]).await?;
            }
            Broker::RabbitMq(_) => topology(&place.name, Bindings::Missing).apply(&place.rabbitmq()?).await?,
            Broker::RocketMq(cluster) => topic::make(place, cluster).await?,
        }
        if bindings == Bindings::Present {
            bind(place).await?;
        }
        Ok(())
    }

    /// Removes a place and everything in it.
    pub async fn remove(&self, place: &Place) -> anyhow::Result<()> {
        if let Store::Server(_) = &place.store {
            let mut connection = self.mysql().await?;
            sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {}", place.name)))
                .execute(&mut connection)
                .await?;
            connection.close().await?;
        }
        if let Broker::RabbitMq(_) = &place.broker {
            let connection = Connection::open(&place.rabbitmq()?).await?;
            let channel = connection.open_channel().await?;
            channel.queue_delete(&place.name, false, false).await?;
            channel.exchange_delete(&place.name, false).await?;
            connection.close(Duration::from_secs(5)).await;
        }
        if let Broker::RocketMq(cluster) = &place.broker {
            topic::remove(place, cluster).await?;
        }
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.retain(|other| other.name != place.name);
        Ok(())
    }
}

/// Binds a place's queue, as an operator does it.
pub async fn bind(place: &Place) -> anyhow::Result<()> {
    match &place.broker {
        Broker::File(path) => embedded::Queue::open(path).await?.declare(&place.name, &[ROUTE]).await?,
        Broker::RabbitMq(_) => topology(&place.name, Bindings::Present).apply(&place.rabbitmq()?).await?,
        // A topic has its queues from the beginning.
        Broker::RocketMq(_) => {}
    }
    Ok(())
}

fn topology(name: &str, bindings: Bindings) -> Topology {
    let mut queue = Queue::durable(name, QueueKind::Classic);
    if bindings == Bindings::Present {
        queue.bindings = vec![Binding { exchange: name.into(), key: ROUTE.into() }];
    }
    Topology { exchanges: vec![Exchange::durable(name, ExchangeKind::Topic)], queues: vec![queue] }
}

fn needed<'a>(address: Option<&'a Address>, what: &str) -> anyhow::Result<&'a Address> {
    address.with_context(|| format!("there is no {what} url"))
}

fn mysql_url(address: &Address) -> anyhow::Result<ConnectionUrl> {
    let mut url =
        ConnectionUrl::parse(&address.url, |_| None).map_err(|invalid| anyhow!("the MySQL url {invalid}"))?;
    if url.scheme == "mariadb" {
        url.scheme = "mysql".into();
    }
    Ok(url)
}
