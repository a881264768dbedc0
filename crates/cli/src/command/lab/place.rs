//! Where one side of a scenario runs: a database, a queue, and for some a Redis, all its own and gone afterwards.

mod cluster;
mod dead_end;

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use consign::adapters::{AnyDestination, AnySource};
use consign::clock::ProcessClock;
use consign_broker::{embedded, rabbitmq, rocketmq};
use consign_filter::{FilterOptions, RedisFilter};
use serde::{Deserialize, Serialize};

use crate::config::{ConnectionUrl, TlsFiles};
use crate::parts::{self, AnyFilter};

pub use cluster::Cluster;
pub use dead_end::DeadEnd;

use super::mailbox::ROUTE;

/// What a scenario runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Backend {
    /// SQLite and the embedded queue.
    Embedded,
    /// MySQL and RabbitMQ.
    RabbitMq,
    /// MySQL, RabbitMQ and Redis.
    Redis,
    /// MySQL and RocketMQ.
    RocketMq,
}

impl Backend {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Embedded, Self::RabbitMq, Self::Redis, Self::RocketMq];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::RabbitMq => "rabbitmq",
            Self::Redis => "redis",
            Self::RocketMq => "rocketmq",
        }
    }
}

/// A connection, and the files its encryption needs. Holds secrets: it is never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Address {
    /// The url.
    pub url: String,
    /// The certificate authorities to trust.
    pub ca: Option<PathBuf>,
    /// The client's certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Where a side's business tables are.
#[derive(Clone, Serialize, Deserialize)]
pub enum Store {
    /// In a SQLite file.
    File(PathBuf),
    /// In a database of a MySQL server.
    Server(Address),
}

/// Where a side's queue is.
#[derive(Clone, Serialize, Deserialize)]
pub enum Broker {
    /// In a SQLite file.
    File(PathBuf),
    /// On a RabbitMQ server.
    RabbitMq(Address),
    /// A topic and a consumer group of RocketMQ.
    RocketMq(Cluster),
}

/// What is sent to a side's topic on RocketMQ: a topic has one type, and a group consumes in order or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Messages {
    /// Messages without an order.
    Normal,
    /// Messages of message groups, consumed in their order.
    Fifo,
    /// Half messages, and their ends.
    Transaction,
}

/// Everything a process of a side must know. Holds secrets: it goes by the environment and is never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct Place {
    /// The database.
    pub store: Store,
    /// The queue's server or file.
    pub broker: Broker,
    /// Redis, where the scenario has one.
    pub redis: Option<Address>,
    /// What the queue, the exchange, the topic, the group and keys in Redis are called.
    pub name: String,
    /// What is sent to its topic, on RocketMQ.
    pub messages: Messages,
}

/// How long a delivery of the embedded queue stays with a consumer that died.
pub const DELIVERY_LEASE: Duration = Duration::from_millis(1200);
/// How long a message received from RocketMQ is invisible to others: the least that a proxy grants by its defaults.
pub const INVISIBLE: Duration = Duration::from_secs(10);

impl Place {
    /// How to reach RabbitMQ.
    pub fn rabbitmq(&self) -> anyhow::Result<rabbitmq::ConnectOptions> {
        let Broker::RabbitMq(address) = &self.broker else {
            return Err(anyhow!("this side has no RabbitMQ"));
        };
        address.rabbitmq()
    }

    /// The cluster.
    pub fn cluster(&self) -> anyhow::Result<&Cluster> {
        let Broker::RocketMq(cluster) = &self.broker else {
            return Err(anyhow!("this side has no RocketMQ"));
        };
        Ok(cluster)
    }

    /// What events are routed by: on RocketMQ a topic, elsewhere a key.
    pub fn route(&self) -> &str {
        match &self.broker {
            Broker::File(_) | Broker::RabbitMq(_) => ROUTE,
            Broker::RocketMq(_) => &self.name,
        }
    }

    /// The same place, seen by somebody for whom the database is at this port of this machine.
    fn store_at(&self, port: u16) -> anyhow::Result<Store> {
        let Store::Server(address) = &self.store else { return Err(anyhow!("this side has no MySQL")) };
        let mut url = ConnectionUrl::parse(&address.url, |_| None)
            .map_err(|invalid| anyhow!("the MySQL url {invalid}"))?;
        "127.0.0.1".clone_into(&mut url.host);
        url.port = Some(port);
        Ok(Store::Server(Address { url: url.expose(), ..address.clone() }))
    }

    /// Where consign publishes to; `through` is a way to the broker other than the straight one.
    pub async fn destination(
        &self,
        clock: ProcessClock,
        through: Option<u16>,
    ) -> anyhow::Result<AnyDestination> {
        Ok(match &self.broker {
            Broker::File(file) => {
                let queue = embedded::Queue::open(file).await?;
                AnyDestination::Embedded(queue.destination(clock.origin(), "consign/lab"))
            }
            Broker::RabbitMq(address) => {
                let mut connect = address.rabbitmq()?;
                if let Some(port) = through {
                    redirect(&mut connect, port);
                }
                let options = rabbitmq::DestinationOptions::new(connect, self.name.clone());
                AnyDestination::RabbitMq(Box::new(rabbitmq::RabbitMqDestination::new(
                    options,
                    clock.origin(),
                )))
            }
            Broker::RocketMq(cluster) => {
                let mut options = rocketmq::DestinationOptions::new(cluster.options_through(through));
                options.topics = vec![self.name.clone()];
                let destination = rocketmq::RocketMqDestination::start(options, clock.origin()).await?;
                AnyDestination::RocketMq(Box::new(destination))
            }
        })
    }

    /// Where consign consumes from, so many deliveries at a time.
    pub async fn source(&self, prefetch: NonZeroU16) -> anyhow::Result<AnySource> {
        Ok(match &self.broker {
            Broker::File(file) => {
                let queue = embedded::Queue::open(file).await?;
                let options = embedded::SourceOptions {
                    queue: self.name.clone(),
                    prefetch: prefetch.get(),
                    lease: DELIVERY_LEASE,
                };
                AnySource::Embedded(Box::new(queue.source(options)))
            }
            Broker::RabbitMq(address) => {
                let connect = address.rabbitmq()?;
                let options = rabbitmq::SourceOptions { connect, queue: self.name.clone(), prefetch };
                AnySource::RabbitMq(Box::new(rabbitmq::RabbitMqSource::new(options)))
            }
            Broker::RocketMq(cluster) => {
                let options = rocketmq::SourceOptions {
                    connect: cluster.options(),
                    group: self.name.clone(),
                    topic: self.name.clone(),
                    filter: rocketmq::Filter::All,
                    prefetch,
                    invisible: INVISIBLE,
                    ordered: self.messages == Messages::Fifo,
                    broker_retries: false,
                    dead_letter_topic: true,
                };
                AnySource::RocketMq(Box::new(rocketmq::RocketMqSource::start(options).await?))
            }
        })
    }

    /// The filter of repeats.
    pub fn filter(&self) -> anyhow::Result<Arc<AnyFilter>> {
        let Some(address) = &self.redis else {
            return Ok(Arc::new(AnyFilter::None(consign_core::filter::NoFilter)));
        };
        let mut options = FilterOptions::new(address.url.as_str(), Duration::from_hours(1));
        options.prefix.clone_from(&self.name);
        options.ca_file.clone_from(&address.ca);
        Ok(Arc::new(AnyFilter::Redis(Box::new(RedisFilter::new(options)?))))
    }
}

impl Address {
    /// The address of an unencrypted server, or of one whose certificate the system trusts.
    pub const fn plain(url: String) -> Self {
        Self { url, ca: None, client: None }
    }

    /// The AMQP client's options.
    pub fn rabbitmq(&self) -> anyhow::Result<rabbitmq::ConnectOptions> {
        let url = ConnectionUrl::parse(&self.url, |_| None)
            .map_err(|invalid| anyhow!("the RabbitMQ url {invalid}"))?;
        let (client_cert, client_key) = self.client.clone().unzip();
        let tls = TlsFiles { ca: self.ca.clone(), client_cert, client_key };
        parts::connect_options(&url, &tls).context("the RabbitMQ url")
    }
}

/// Leads a connection to a port of this machine, and still asks for the same name's certificate.
pub fn redirect(connect: &mut rabbitmq::ConnectOptions, port: u16) {
    let host = std::mem::replace(&mut connect.host, "127.0.0.1".into());
    connect.port = port;
    if let Some(tls) = &mut connect.tls {
        tls.server_name.get_or_insert(host);
    }
}
