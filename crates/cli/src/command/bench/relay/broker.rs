//! The broker a backlog is drained to: a queue or a topic of the bench's own on the configured cluster.

use std::fmt::Write;
use std::time::Duration;

use anyhow::bail;
use consign::adapters::AnyDestination;
use consign::clock::ProcessClock;
use consign_broker::rabbitmq::{
    Binding, ConnectOptions, DestinationOptions, Exchange, ExchangeKind, Queue, QueueKind,
    RabbitMqDestination, Topology,
};
use consign_broker::rocketmq::Admin;
use consign_rocketmq::TopicKind;

use crate::command::bench::topic::{self, QUEUES};
use crate::config::{Config, DestinationConfig, MessageType, RabbitMqConfig, RocketMqConfig, TlsFiles};
use crate::parts;

use super::scratch::NAME;

/// The first broker of the config.
pub enum Broker {
    /// An exchange and a quorum queue.
    RabbitMq { config: Box<RabbitMqConfig>, connect: Box<ConnectOptions> },
    /// A topic.
    RocketMq { config: Box<RocketMqConfig>, admin: Box<Admin> },
}

impl Broker {
    /// The broker that the config names first.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        for (name, destination) in &config.destinations {
            match destination {
                DestinationConfig::RabbitMq(broker) => {
                    let connect = Box::new(parts::connect_options(&broker.url, &broker.tls)?);
                    return Ok(Self::RabbitMq { config: broker.clone(), connect });
                }
                DestinationConfig::RocketMq(cluster) => {
                    let admin = topic::admin(name, cluster, "bench relay")?;
                    let mut config = cluster.clone();
                    // Order and delays cost what they cost; this is the bench of a drain without them.
                    config.message_type = MessageType::Normal;
                    return Ok(Self::RocketMq { config, admin: Box::new(admin) });
                }
                DestinationConfig::Embedded(_) => {}
            }
        }
        bail!("no destination is of type rabbitmq or rocketmq: bench relay publishes to a broker")
    }

    /// Makes the queue or topic, and waits until it can be published to.
    pub async fn create(&self) -> anyhow::Result<()> {
        match self {
            Self::RabbitMq { connect, .. } => topology().apply(connect).await?,
            Self::RocketMq { config, admin } => {
                topic::create(admin, config, NAME, TopicKind::Normal).await?;
            }
        }
        Ok(())
    }

    /// Removes it; what is not there is no failure.
    pub async fn remove(&self) -> anyhow::Result<()> {
        match self {
            Self::RabbitMq { connect, .. } => {
                let connection = consign_amqp::Connection::open(connect).await?;
                let channel = connection.open_channel().await?;
                channel.queue_delete(NAME, false, false).await?;
                channel.exchange_delete(NAME, false).await?;
                connection.close(Duration::from_secs(5)).await;
            }
            Self::RocketMq { admin, .. } => admin.delete_topic(NAME).await?,
        }
        Ok(())
    }

    /// Relieves the broker of a round's messages, so that they do not burden the next. A topic is a log, which is as fast
    /// with messages as without.
    pub async fn renew(&self) -> anyhow::Result<()> {
        match self {
            Self::RabbitMq { .. } => {
                self.remove().await?;
                self.create().await
            }
            Self::RocketMq { .. } => Ok(()),
        }
    }

    /// The url with its secret, for the environment of a process.
    pub fn url(&self) -> String {
        match self {
            Self::RabbitMq { config, .. } => config.url.expose(),
            Self::RocketMq { config, .. } => config.url.expose(),
        }
    }

    /// `[destination]` and `[[route]]` of a relay that publishes here; the url comes by `CONSIGN_BENCH_BROKER_URL`.
    pub fn sections(&self) -> String {
        let mut text = format!("[destination.{NAME}]\nurl = \"${{CONSIGN_BENCH_BROKER_URL}}\"\n");
        let key = match self {
            Self::RabbitMq { config, .. } => {
                write_tls(&mut text, &config.tls);
                let _ = write!(
                    text,
                    "type = \"rabbitmq\"\nchannels = {}\n\
                     exchange = {{ name = \"{NAME}\", type = \"topic\", durable = true }}\n",
                    config.channels
                );
                "{event_type}"
            }
            Self::RocketMq { config, .. } => {
                write_tls(&mut text, &config.tls);
                let further: Vec<String> = config.proxies.iter().skip(1).map(ToString::to_string).collect();
                let accepted: Vec<&str> = config.accepted.iter().map(|status| status.word()).collect();
                let _ = write!(
                    text,
                    "type = \"rocketmq\"\nendpoints = {further:?}\naccept_statuses = {accepted:?}\n\
                     topic = [{{ name = \"{NAME}\", queues = {QUEUES} }}]\n"
                );
                NAME
            }
        };
        let _ = write!(text, "[[route]]\nevent_type = \"*\"\ndestination = \"{NAME}\"\nkey = \"{key}\"\n");
        text
    }

    /// The route key of an event of this type.
    pub fn key(&self, event_type: &str) -> String {
        match self {
            Self::RabbitMq { .. } => event_type.to_owned(),
            Self::RocketMq { .. } => NAME.to_owned(),
        }
    }

    /// A destination in this process.
    pub async fn destination(&self, clock: ProcessClock) -> anyhow::Result<AnyDestination> {
        Ok(match self {
            Self::RabbitMq { connect, .. } => {
                let options = DestinationOptions::new(connect.as_ref().clone(), NAME);
                AnyDestination::RabbitMq(Box::new(RabbitMqDestination::new(options, clock.origin())))
            }
            Self::RocketMq { config, .. } => {
                let destination = parts::rocketmq::destination(NAME.to_owned(), config, clock).await?;
                AnyDestination::RocketMq(Box::new(destination))
            }
        })
    }
}

fn write_tls(text: &mut String, tls: &TlsFiles) {
    for (key, path) in [
        ("tls_ca_file", &tls.ca),
        ("tls_client_cert_file", &tls.client_cert),
        ("tls_client_key_file", &tls.client_key),
    ] {
        if let Some(path) = path {
            let _ = writeln!(text, "{key} = {}", toml::Value::String(path.display().to_string()));
        }
    }
}

fn topology() -> Topology {
    let mut queue = Queue::durable(NAME, QueueKind::Quorum);
    queue.bindings = vec![Binding { exchange: NAME.into(), key: "#".into() }];
    Topology { exchanges: vec![Exchange::durable(NAME, ExchangeKind::Topic)], queues: vec![queue] }
}
