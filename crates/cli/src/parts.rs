//! The parts a config names: destinations and sources, and the store. Nothing here decides anything.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use consign::adapters::{AnyDestination, AnySource};
use consign::clock::ProcessClock;
use consign_broker::embedded;
use consign_broker::rabbitmq::{self, ConnectOptions, RabbitMqDestination, RabbitMqSource, TlsOptions};
use consign_core::route::DestinationName;

use crate::config::{
    Config, ConnectionUrl, ConsumerConfig, DestinationConfig, EmbeddedConfig, RabbitMqConfig, TlsFiles,
};

mod filter;
pub mod rocketmq;
mod store;
mod topology;

pub use filter::AnyFilter;
pub use store::{MySqlStore, Partitioned, Store, missing_schema, open_store};
pub use topology::topology;

/// How long an embedded message stays leased to a consumer that says nothing.
const EMBEDDED_LEASE: Duration = Duration::from_secs(10);

/// Every destination of the config, connected or connecting.
pub struct Broker {
    destinations: BTreeMap<DestinationName, Arc<AnyDestination>>,
    files: BTreeMap<DestinationName, embedded::Queue>,
}

impl Broker {
    /// Opens queue files and starts connecting to brokers; a broker that is away is no failure.
    pub async fn open(config: &Config, clock: ProcessClock) -> anyhow::Result<Self> {
        let mut destinations = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (name, destination) in &config.destinations {
            let destination = match destination {
                DestinationConfig::RabbitMq(broker) => {
                    AnyDestination::RabbitMq(Box::new(rabbitmq_destination(name, broker, clock)?))
                }
                DestinationConfig::RocketMq(cluster) => {
                    let destination = rocketmq::destination(source_name(name), cluster, clock).await;
                    let destination = destination.with_context(|| format!("destination {name}"))?;
                    AnyDestination::RocketMq(Box::new(destination))
                }
                DestinationConfig::Embedded(file) => {
                    let queue = open_file(file).await?;
                    let destination = queue.destination(clock.origin(), source_name(name));
                    files.insert(name.clone(), queue);
                    AnyDestination::Embedded(destination)
                }
            };
            destinations.insert(name.clone(), Arc::new(destination));
        }
        Ok(Self { destinations, files })
    }

    /// The destinations by name.
    pub const fn destinations(&self) -> &BTreeMap<DestinationName, Arc<AnyDestination>> {
        &self.destinations
    }

    /// The queue or group a consumer reads.
    pub async fn source(&self, config: &Config, consumer: &ConsumerConfig) -> anyhow::Result<AnySource> {
        let place = format!("consumer {:?}", consumer.consumer.name());
        match config.destinations.get(&consumer.source) {
            Some(DestinationConfig::RabbitMq(broker)) => {
                let prefetch = NonZeroU16::new(consumer.prefetch)
                    .with_context(|| format!("{place} has prefetch 0: set it to at least 1"))?;
                let connect = connect_options(&broker.url, &broker.tls)?;
                let options = rabbitmq::SourceOptions { connect, queue: consumer.queue.clone(), prefetch };
                Ok(AnySource::RabbitMq(Box::new(RabbitMqSource::new(options))))
            }
            Some(DestinationConfig::RocketMq(cluster)) => {
                let source = rocketmq::source(cluster, consumer).await.context(place)?;
                Ok(AnySource::RocketMq(Box::new(source)))
            }
            Some(DestinationConfig::Embedded(_)) => {
                let queue = self.files.get(&consumer.source).context("every queue file is open")?;
                let options = embedded::SourceOptions {
                    queue: consumer.queue.clone(),
                    prefetch: consumer.prefetch,
                    lease: EMBEDDED_LEASE,
                };
                Ok(AnySource::Embedded(Box::new(queue.source(options))))
            }
            None => anyhow::bail!("{place} reads from unknown destination {:?}", consumer.source),
        }
    }
}

fn source_name(name: &DestinationName) -> String {
    format!("consign/{name}")
}

/// Opens a queue file with its declared queues.
pub async fn open_file(config: &EmbeddedConfig) -> anyhow::Result<embedded::Queue> {
    let queue = embedded::Queue::open(&config.path)
        .await
        .with_context(|| format!("cannot open the queue file {}", config.path.display()))?;
    for declared in &config.queues {
        let topics: Vec<&str> = declared.bindings.iter().map(String::as_str).collect();
        queue.declare(&declared.name, &topics).await?;
    }
    Ok(queue)
}

fn rabbitmq_destination(
    name: &DestinationName,
    config: &RabbitMqConfig,
    clock: ProcessClock,
) -> anyhow::Result<RabbitMqDestination> {
    let connect = connect_options(&config.url, &config.tls)?;
    let exchange = config.exchange.as_ref().map_or(String::new(), |exchange| exchange.name.clone());
    let mut options = rabbitmq::DestinationOptions::new(connect, exchange);
    options.channels = u8::try_from(config.channels).unwrap_or(u8::MAX);
    options.source = source_name(name).into();
    options.body_bytes_max = config.message_bytes_max;
    Ok(RabbitMqDestination::new(options, clock.origin()))
}

/// The client's options for a broker url.
pub fn connect_options(url: &ConnectionUrl, tls: &TlsFiles) -> anyhow::Result<ConnectOptions> {
    let encrypted = url.scheme == "amqps";
    let mut options = ConnectOptions {
        host: url.host.clone(),
        port: url.port.unwrap_or(if encrypted { 5671 } else { 5672 }),
        user: url.user.clone().unwrap_or_else(|| "guest".into()),
        password: url.password.as_ref().map_or("guest".into(), |secret| secret.expose().into()),
        virtual_host: url.path.clone().unwrap_or_else(|| "/".into()),
        ..ConnectOptions::default()
    };
    if encrypted {
        options.tls = Some(TlsOptions {
            ca_file: tls.ca.clone(),
            client_cert: tls.client_cert.clone(),
            client_key: tls.client_key.clone(),
            server_name: None,
        });
    }
    for (key, seconds) in &url.query {
        let seconds: u16 = seconds
            .parse()
            .with_context(|| format!("{key} in the broker's url is not a number of seconds"))?;
        let span = Duration::from_secs(seconds.into());
        match key.as_str() {
            "heartbeat" => options.heartbeat = span,
            "connection_timeout" => options.connection_timeout = span,
            // The config knows no others. The name is not shown: it may be the rest of a password.
            _ => anyhow::bail!("the broker's url has an unknown key: use heartbeat or connection_timeout"),
        }
    }
    Ok(options)
}
