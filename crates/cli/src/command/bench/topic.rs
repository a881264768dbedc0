//! A RocketMQ topic of a bench's own, on the configured cluster.

use std::time::Duration;

use anyhow::{Context, ensure};
use consign_broker::rocketmq::Admin;
use consign_core::route::DestinationName;
use consign_rocketmq::{Producer, TopicKind};
use tokio::time::Instant;

use crate::config::RocketMqConfig;
use crate::parts;

/// How many queues it has, as many as a declared one by default.
pub const QUEUES: u32 = 8;
/// A new topic is known to every proxy within this.
const ROUTE_DEADLINE: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Who makes topics on the cluster; `bench` is its name for people.
pub fn admin(destination: &DestinationName, cluster: &RocketMqConfig, bench: &str) -> anyhow::Result<Admin> {
    parts::rocketmq::admin(cluster)?.with_context(|| {
        format!(
            "destination {destination} has no name_servers: add them, {bench} makes a topic of its own through them"
        )
    })
}

/// Makes the topic on every master, and waits until a proxy knows where it is.
pub async fn create(
    admin: &Admin,
    cluster: &RocketMqConfig,
    name: &str,
    kind: TopicKind,
) -> anyhow::Result<()> {
    admin.create_topic(name, kind, QUEUES).await?;
    let options = parts::rocketmq::connect_options(cluster)?;
    let producer = Producer::start(&options, [name.to_owned()]).await?;
    let end = Instant::now() + ROUTE_DEADLINE;
    while let Err(error) = producer.route(name, Instant::now() + options.request_timeout).await {
        ensure!(Instant::now() < end, "topic {name} did not come up within {ROUTE_DEADLINE:?}: {error}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    producer.close().await;
    Ok(())
}
