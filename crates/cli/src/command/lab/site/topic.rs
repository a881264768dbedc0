//! Topics and consumer groups of RocketMQ for one side.

use std::time::Duration;

use anyhow::ensure;
use consign_broker::rocketmq::{Filter, Group, Subscription, Topic, Topology};
use consign_rocketmq::{Producer, TopicKind};
use tokio::time::Instant;

use crate::command::lab::mailbox::reader;
use crate::command::lab::place::{Cluster, Messages, Place};

/// How often a message is delivered again before it goes to the dead-letter topic: the default, and for an ordered group
/// the default of its classic clients, which give nothing up.
const RETRIES: u32 = 16;
const RETRIES_ORDERED: u32 = 100_000;
/// A proxy remembers for a while that a topic was missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes the topic and its groups as consign does, which also records where the groups begin, and waits until the proxy has
/// heard of the topic.
pub async fn make(place: &Place, cluster: &Cluster) -> anyhow::Result<()> {
    let name = &place.name;
    let (kind, ordered) = match place.messages {
        Messages::Normal => (TopicKind::Normal, false),
        Messages::Fifo => (TopicKind::Fifo, true),
        Messages::Transaction => (TopicKind::Transaction, false),
    };
    let retries = if ordered { RETRIES_ORDERED } else { RETRIES };
    let subscriptions = vec![Subscription { topic: name.clone(), filter: Filter::All }];
    let topology = Topology {
        topics: vec![Topic { name: name.clone(), kind: kind.clone(), queues: 1 }],
        groups: vec![
            Group { name: name.clone(), ordered, retries, subscriptions },
            Group { name: reader(name), ordered: false, retries: RETRIES, subscriptions: Vec::new() },
        ],
        transactions: None,
    };
    topology.apply(&cluster.admin()?).await?;
    let producer = Producer::start(&cluster.options(), [name.clone()]).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = Instant::now() + Duration::from_secs(5);
        let route = Box::pin(producer.route(name, asked)).await;
        if route.is_ok_and(|route| !route.writable.is_empty() && route.accepts.contains(&kind)) {
            break;
        }
        ensure!(Instant::now() < deadline, "the proxy has not heard of topic {name} within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    producer.close().await;
    Ok(())
}

/// Deletes all of it, and what the broker made for the group.
pub async fn remove(place: &Place, cluster: &Cluster) -> anyhow::Result<()> {
    let (admin, name) = (cluster.admin()?, &place.name);
    for group in [name, &reader(name)] {
        admin.delete_group(group).await?;
    }
    let retries = [format!("%RETRY%{name}_{name}"), format!("%RETRY%{name}+{name}"), format!("%DLQ%{name}")];
    for topic in std::iter::once(name).chain(&retries) {
        admin.delete_topic(topic).await?;
    }
    Ok(())
}
