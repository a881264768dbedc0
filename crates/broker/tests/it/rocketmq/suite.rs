//! The broker suite on a real cluster. The queue is a topic and a consumer group of it.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use consign_broker::rocketmq::{RocketMqDestination, RocketMqSource, SourceOptions, TopicKind};
use consign_conformance::broker::{BrokerCapabilities, BrokerFixture};
use consign_conformance::proxy::{Cut, Direction, Flow, Proxy};
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;
use consign_rocketmq::Filter;

use super::fixture::{Fixture, accepting};
use super::unique;
use crate::events::eventually;

consign_conformance::broker_suite!(on_5, RocketMq);

struct RocketMq {
    fixture: Fixture,
    destination: RocketMqDestination,
    unbound: String,
    group: String,
    bound: AtomicBool,
}

impl RocketMq {
    /// What sources read: the topic, and the other one once it is there.
    fn topic(&self) -> &str {
        if self.bound.load(Ordering::Relaxed) { &self.unbound } else { &self.fixture.topic }
    }

    fn route(key: &str) -> Route {
        Route { destination: DestinationName::new("suite"), key: key.to_owned() }
    }
}

impl BrokerFixture for RocketMq {
    type Destination = RocketMqDestination;
    type Source = RocketMqSource;

    async fn fresh() -> Self {
        let fixture = Fixture::new(TopicKind::Normal).await;
        let group = unique("group");
        fixture.admin.create_group(&group, false, 16).await.unwrap();
        fixture.begin_at_the_start(&group, &fixture.topic).await;
        let destination = fixture.destination().await;
        Self { fixture, destination, unbound: unique("unbound"), group, bound: AtomicBool::new(false) }
    }

    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities {
            mandatory_return: true,
            delivery_count: true,
            keeps_order: false,
            empty_body: false,
            receipts_outlive_connections: true,
        }
    }

    fn destination(&self) -> &RocketMqDestination {
        &self.destination
    }

    async fn source(&self) -> RocketMqSource {
        let options = SourceOptions {
            connect: self.fixture.connect(),
            group: self.group.clone(),
            topic: self.topic().to_owned(),
            filter: Filter::All,
            prefetch: NonZeroU16::new(10).unwrap(),
            // Some seconds longer than a poll: a message counts as held from the moment it was asked for.
            invisible: Duration::from_secs(8),
            ordered: false,
            broker_retries: false,
            dead_letter_topic: false,
        };
        RocketMqSource::start(options).await.unwrap()
    }

    fn now(&self) -> Monotonic {
        Monotonic::new(self.fixture.origin.elapsed())
    }

    fn bound_route(&self) -> Route {
        Self::route(&self.fixture.topic)
    }

    fn unbound_route(&self) -> Route {
        Self::route(&self.unbound)
    }

    async fn bind(&self) {
        self.fixture.create_topic(&self.unbound, TopicKind::Normal).await;
        self.fixture.begin_at_the_start(&self.group, &self.unbound).await;
        self.bound.store(true, Ordering::Relaxed);
    }

    async fn ready(&self) -> u64 {
        self.fixture.behind(&self.group, self.topic()).await
    }

    /// What a client sees of an orderly restart: what was under way arrives, then connections end and are refused
    /// for a while. The server is shared with other tests and lives on.
    async fn restart(&self) {
        let proxy = &self.fixture.proxy;
        let (mut seen, mut silent) = (0, 0);
        eventually("silence on the wire", || {
            let now = proxy.bytes(Direction::ToServer);
            silent = if now == seen { silent + 1 } else { 0 };
            seen = now;
            let over = silent == 10;
            async move { over }
        })
        .await;
        proxy.refuse();
        proxy.cut(Cut::Close);
        eventually("a refused reconnect", || async { proxy.refused() > 0 }).await;
        proxy.heal();
        accepting(&self.destination).await;
    }

    async fn freeze(&self) {
        self.fixture.proxy.set(Direction::ToClient, Flow::Swallow);
        self.fixture.proxy.set(Direction::ToServer, Flow::Swallow);
    }

    async fn thaw(&self) {
        self.fixture.proxy.cut(Cut::Reset);
        self.fixture.proxy.heal();
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.fixture.proxy)
    }
}
