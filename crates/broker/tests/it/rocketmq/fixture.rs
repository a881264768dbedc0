//! A fresh topic on a real cluster, behind a proxy that can break connections.

use std::net::ToSocketAddrs;
use std::time::Duration;

use consign_broker::rocketmq::{
    Admin, DestinationOptions, Options, RocketMqDestination, StoredMessage, TopicKind,
};
use consign_conformance::proxy::Proxy;
use consign_core::event::Event;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness};
use tokio::time::Instant;

use super::{admin, unique};
use crate::events::{eventually, publish, within};

pub const QUEUES: u32 = 4;

pub struct Fixture {
    pub topic: String,
    pub proxy: Proxy,
    pub origin: Instant,
    pub admin: Admin,
    /// The group that reads what is stored.
    pub reader: String,
    pub master: String,
}

impl Fixture {
    pub async fn new(kind: TopicKind) -> Self {
        let admin = admin();
        let (topic, reader) = (unique("topic"), unique("reader"));
        admin.create_topic(&topic, kind, QUEUES).await.unwrap();
        admin.create_group(&reader, false, 16).await.unwrap();
        let master = admin.masters().await.unwrap()[0].address.clone();
        let Options { addresses, .. } = straight();
        let upstream =
            (addresses[0].host.as_str(), addresses[0].port).to_socket_addrs().unwrap().next().unwrap();
        let proxy = Proxy::start(upstream).await.unwrap();
        Self { topic, proxy, origin: Instant::now(), admin, reader, master }
    }

    /// Makes another topic, and waits until the proxy has heard of it: it remembers for a while what was missing.
    pub async fn create_topic(&self, name: &str, kind: TopicKind) {
        self.admin.create_topic(name, kind, QUEUES).await.unwrap();
        let producer = consign_rocketmq::Producer::start(&straight(), [name.to_owned()]).await.unwrap();
        eventually("the topic in a route", || async {
            let asked = Box::pin(producer.route(name, Instant::now() + Duration::from_secs(5)));
            asked.await.is_ok_and(|route| {
                !route.writable.is_empty() && !route.accepts.contains(&TopicKind::Unspecified)
            })
        })
        .await;
        producer.close().await;
    }

    /// Lets a new group read from the start, where by itself it would begin at the end.
    pub async fn begin_at_the_start(&self, group: &str, topic: &str) {
        for queue in 0..QUEUES {
            self.admin.put_group_offset(&self.master, group, topic, queue, 0).await.unwrap();
        }
    }

    /// How many messages of the topic a group has not settled, those that wait for their next attempt included.
    pub async fn behind(&self, group: &str, topic: &str) -> u64 {
        let retries = [format!("%RETRY%{group}_{topic}"), format!("%RETRY%{group}+{topic}")];
        let queues = (0..QUEUES).map(|queue| (topic, queue)).chain(retries.iter().map(|retry| (&**retry, 0)));
        let mut behind = 0;
        for (topic, queue) in queues {
            let end = self.admin.end_offset(&self.master, topic, queue).await.unwrap_or(0);
            let at = self.admin.group_offset(&self.master, group, topic, queue).await.unwrap();
            behind += end.saturating_sub(at.unwrap_or(0));
        }
        behind
    }

    /// How to reach the cluster through the proxy.
    pub fn connect(&self) -> Options {
        let address = self.proxy.address();
        let mut options = straight();
        options.addresses.truncate(1);
        options.addresses[0].host = address.ip().to_string();
        options.addresses[0].port = address.port();
        // The proxy names its own address in every route.
        options.access_points_only = true;
        options
    }

    pub fn options(&self) -> DestinationOptions {
        DestinationOptions { topics: vec![self.topic.clone()], ..DestinationOptions::new(self.connect()) }
    }

    /// A destination that is connected.
    pub async fn destination(&self) -> RocketMqDestination {
        self.destination_with(self.options()).await
    }

    pub async fn destination_with(&self, options: DestinationOptions) -> RocketMqDestination {
        let destination = RocketMqDestination::start(options, self.origin).await.unwrap();
        accepting(&destination).await;
        destination
    }

    pub async fn publish(&self, destination: &RocketMqDestination, lane: Lane, event: Event) -> Outcome {
        self.publish_to(destination, lane, event, &self.topic).await
    }

    pub async fn publish_to(
        &self,
        destination: &RocketMqDestination,
        lane: Lane,
        event: Event,
        topic: &str,
    ) -> Outcome {
        let publish = publish(event, topic, self.origin, Duration::from_secs(15));
        within("the outcome", destination.publish(lane, publish)).await
    }

    /// What the topic holds, queue by queue and in their order; waits until there are `count`.
    pub async fn stored(&self, count: usize) -> Vec<StoredMessage> {
        eventually("the messages in the topic", || async { self.pulled().await.len() >= count }).await;
        // Once more: what is too much would come late.
        let stored = self.pulled().await;
        assert_eq!(stored.len(), count, "messages in the topic");
        stored
    }

    async fn pulled(&self) -> Vec<StoredMessage> {
        let mut stored = Vec::new();
        for queue in 0..QUEUES {
            let mut offset = 0;
            loop {
                let pull = self.admin.pull(&self.master, &self.reader, &self.topic, queue, offset, 32);
                let pulled = pull.await.unwrap();
                offset = pulled.next_offset;
                let more = pulled.more;
                stored.extend(pulled.messages);
                if !more {
                    break;
                }
            }
        }
        stored
    }
}

/// How to reach the cluster, past the proxy.
fn straight() -> Options {
    const VARIABLE: &str = "CONSIGN_TEST_ROCKETMQ_URL";
    let url = std::env::var(VARIABLE)
        .unwrap_or_else(|_| panic!("{VARIABLE} is not set: run the tests with cargo xtask test"));
    url.parse().unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
}

/// Waits until a destination takes publishes.
pub async fn accepting(destination: &RocketMqDestination) {
    within("the readiness", async {
        let mut known = Readiness::Unavailable("never asked".to_owned());
        while known != Readiness::Accepting {
            known = destination.readiness_after(&known).await;
        }
    })
    .await;
}
