//! The config's RocketMQ clusters in the adapters' terms.

use std::num::NonZeroU16;
use std::time::Duration;

use anyhow::Context;
use consign::clock::ProcessClock;
use consign_broker::rocketmq::{
    self, Admin, AdminOptions, DestinationOptions, Group, RocketMqDestination, RocketMqHalves,
    RocketMqSource, SourceOptions, Subscription, Topic, Topology, Transactions,
};
use consign_core::finding::Finding;
use consign_core::route::DestinationName;
use consign_rocketmq::{Address, Credentials, Filter, Options, TlsOptions, TopicKind};

use crate::config::{
    self, Config, ConsumerConfig, EmptyBody, GroupConfig, MessageType, RocketMqConfig, StoredStatus,
    TopicConfig, TransactionConfig,
};

/// The client's options for a cluster.
pub fn connect_options(config: &RocketMqConfig) -> anyhow::Result<Options> {
    let addresses = config.proxies.iter().map(|proxy| Address::new(proxy.host.as_str(), proxy.port));
    let mut options = Options { addresses: addresses.collect(), ..Options::default() };
    options.credentials = credentials(config);
    if config.url.scheme == "rocketmqs" {
        options.tls = Some(TlsOptions {
            ca_file: config.tls.ca.clone(),
            client_cert: config.tls.client_cert.clone(),
            client_key: config.tls.client_key.clone(),
            server_name: None,
        });
    }
    for (key, value) in &config.url.query {
        let seconds = || {
            let seconds: u16 = value.parse().with_context(|| format!("{key} is not a number of seconds"))?;
            anyhow::Ok(Duration::from_secs(seconds.into()))
        };
        match key.as_str() {
            "access_points_only" => options.access_points_only = value == "true",
            "namespace" => options.namespace.clone_from(value),
            "connection_timeout" => options.connection_timeout = seconds()?,
            "request_timeout" => options.request_timeout = seconds()?,
            // The config knows no others. The name is not shown: it may be the rest of a secret.
            _ => anyhow::bail!("the cluster's url has an unknown key"),
        }
    }
    Ok(options)
}

fn credentials(config: &RocketMqConfig) -> Option<Credentials> {
    let (Some(user), Some(secret)) = (&config.url.user, &config.url.password) else { return None };
    Some(Credentials { access_key: user.clone(), secret_key: secret.expose().to_owned() })
}

/// Starts a producer for the relay; a proxy that is away is no failure.
pub async fn destination(
    source: String,
    config: &RocketMqConfig,
    clock: ProcessClock,
) -> anyhow::Result<RocketMqDestination> {
    let mut options = DestinationOptions::new(connect_options(config)?);
    options.topics = relayed_topics(config);
    options.message_type = match config.message_type {
        MessageType::Normal => rocketmq::MessageType::Normal,
        MessageType::Fifo => rocketmq::MessageType::Fifo,
        MessageType::Delay(delay) => rocketmq::MessageType::Delay(delay),
    };
    options.accepted = config.accepted.iter().map(|status| status_of(*status)).collect();
    options.empty_body = match config.empty_body {
        EmptyBody::Reject => rocketmq::EmptyBody::Reject,
        EmptyBody::Placeholder => rocketmq::EmptyBody::Placeholder,
    };
    if let Some(bytes) = config.message_bytes_max {
        options.body_bytes_max = bytes;
    }
    options.source = source.into();
    Ok(RocketMqDestination::start(options, clock.origin()).await?)
}

const fn status_of(status: StoredStatus) -> rocketmq::StoredStatus {
    match status {
        StoredStatus::MasterPersistenceTimeout => rocketmq::StoredStatus::MasterPersistenceTimeout,
        StoredStatus::SlavePersistenceTimeout => rocketmq::StoredStatus::SlavePersistenceTimeout,
        StoredStatus::HaNotAvailable => rocketmq::StoredStatus::HaNotAvailable,
    }
}

/// The declared topics that the relay may send to.
fn relayed_topics(config: &RocketMqConfig) -> Vec<String> {
    let relayed = |topic: &&TopicConfig| topic.kind.takes(config.message_type);
    config.topics.iter().filter(relayed).map(|topic| topic.name.clone()).collect()
}

/// Joins a consumer's group, unless members with another subscription are in it.
pub async fn source(config: &RocketMqConfig, consumer: &ConsumerConfig) -> anyhow::Result<RocketMqSource> {
    let place = || format!("consumer {:?}", consumer.consumer.name());
    let group = config
        .group(&consumer.queue)
        .with_context(|| format!("{} reads unknown group {:?}", place(), consumer.queue))?;
    if let Some(admin) = admin(config)? {
        check_members(&admin, &place(), group).await?;
    }
    let prefetch = NonZeroU16::new(consumer.prefetch)
        .with_context(|| format!("{} has prefetch 0: set it to at least 1", place()))?;
    let options = SourceOptions {
        connect: connect_options(config)?,
        group: group.name.clone(),
        topic: group.topic.clone(),
        filter: filter(group),
        prefetch,
        invisible: group.invisible,
        ordered: group.ordered,
        broker_retries: group.broker_retries,
        dead_letter_topic: group.dead_letter_topic,
    };
    Ok(RocketMqSource::start(options).await?)
}

/// A cluster that cannot be asked keeps nobody from consuming.
async fn check_members(admin: &Admin, place: &str, group: &GroupConfig) -> anyhow::Result<()> {
    match group_of(group).check_members(admin).await {
        Ok(findings) => match findings.first() {
            Some(Finding { subject, text, fix, .. }) => {
                anyhow::bail!("{place} does not join {subject}: {text}; {fix}")
            }
            None => Ok(()),
        },
        Err(error) => {
            tracing::warn!(group = group.name, %error, "whether the group has members with another subscription is not known");
            Ok(())
        }
    }
}

fn filter(group: &GroupConfig) -> Filter {
    if group.tags.is_empty() { Filter::All } else { Filter::Tag(group.tags.join(" || ")) }
}

fn group_of(group: &GroupConfig) -> Group {
    Group {
        name: group.name.clone(),
        ordered: group.ordered,
        retries: group.retries,
        subscriptions: vec![Subscription { topic: group.topic.clone(), filter: filter(group) }],
    }
}

/// Declares the topics of transaction messages that this process answers for.
pub async fn halves(
    config: &RocketMqConfig,
    transaction: &TransactionConfig,
) -> anyhow::Result<RocketMqHalves> {
    let topics = transaction.topics.iter().cloned();
    Ok(RocketMqHalves::start(&connect_options(config)?, topics, transaction.first_check).await?)
}

/// Who administrates the cluster; `None` when no name server is configured.
pub fn admin(config: &RocketMqConfig) -> anyhow::Result<Option<Admin>> {
    if config.name_servers.is_empty() {
        return Ok(None);
    }
    let addresses: Vec<String> = config.name_servers.iter().map(ToString::to_string).collect();
    let mut options = AdminOptions::new(&addresses.join(";"))?;
    options.credentials = credentials(config);
    Ok(Some(Admin::new(options)))
}

/// What a cluster must look like.
pub fn topology(config: &Config, name: &DestinationName, cluster: &RocketMqConfig) -> Topology {
    let topics = cluster.topics.iter().map(|topic| Topic {
        name: topic.name.clone(),
        kind: match topic.kind {
            config::TopicKind::Normal => TopicKind::Normal,
            config::TopicKind::Fifo => TopicKind::Fifo,
            config::TopicKind::Delay => TopicKind::Delay,
            config::TopicKind::Transaction => TopicKind::Transaction,
            config::TopicKind::Mixed => TopicKind::Mixed,
        },
        queues: topic.queues,
    });
    let groups = cluster.groups.iter().map(group_of);
    let transactions = config
        .transaction
        .as_ref()
        .filter(|it| it.destination == *name)
        .map(|it| Transactions { longest: it.spans.longest(), first_check_after: it.first_check });
    Topology { topics: topics.collect(), groups: groups.collect(), transactions }
}
