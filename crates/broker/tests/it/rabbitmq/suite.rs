//! The broker suite on RabbitMQ, by version and queue type.

use std::marker::PhantomData;

use consign_broker::rabbitmq::{RabbitMqDestination, RabbitMqSource};
use consign_conformance::broker::{BrokerCapabilities, BrokerFixture};
use consign_conformance::proxy::{Cut, Direction, Flow, Proxy};
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;

use super::fixture::{Fixture, Server, accepting};
use crate::events::eventually;

type Quorum3 = RabbitMq<On3, Quorum>;
type Classic3 = RabbitMq<On3, Classic>;
type Quorum4 = RabbitMq<On4, Quorum>;
type Classic4 = RabbitMq<On4, Classic>;

consign_conformance::broker_suite!(quorum_on_3, Quorum3);
consign_conformance::broker_suite!(classic_on_3, Classic3);
consign_conformance::broker_suite!(quorum_on_4, Quorum4);
consign_conformance::broker_suite!(classic_on_4, Classic4);

trait Version: Send + Sync + 'static {
    const SERVER: Server;
}
trait Kind: Send + Sync + 'static {
    const NAME: &'static str;
}
struct On3;
struct On4;
struct Quorum;
struct Classic;
impl Version for On3 {
    const SERVER: Server = Server::V3;
}
impl Version for On4 {
    const SERVER: Server = Server::V4;
}
impl Kind for Quorum {
    const NAME: &'static str = "quorum";
}
impl Kind for Classic {
    const NAME: &'static str = "classic";
}

struct RabbitMq<V, K> {
    fixture: Fixture,
    destination: RabbitMqDestination,
    _of: PhantomData<(V, K)>,
}

impl<V: Version, K: Kind> BrokerFixture for RabbitMq<V, K> {
    type Destination = RabbitMqDestination;
    type Source = RabbitMqSource;

    async fn fresh() -> Self {
        let fixture = Fixture::new(V::SERVER, K::NAME).await;
        let destination = fixture.destination().await;
        Self { fixture, destination, _of: PhantomData }
    }

    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities {
            mandatory_return: true,
            delivery_count: K::NAME == "quorum",
            keeps_order: true,
            empty_body: true,
            receipts_outlive_connections: false,
        }
    }

    fn destination(&self) -> &RabbitMqDestination {
        &self.destination
    }

    async fn source(&self) -> RabbitMqSource {
        self.fixture.source(10)
    }

    fn now(&self) -> Monotonic {
        Monotonic::new(self.fixture.origin.elapsed())
    }

    fn bound_route(&self) -> Route {
        Route { destination: DestinationName::new("suite"), key: "bound".to_owned() }
    }

    fn unbound_route(&self) -> Route {
        Route { destination: DestinationName::new("suite"), key: "unbound".to_owned() }
    }

    async fn bind(&self) {
        self.fixture.bind("unbound").await;
    }

    async fn ready(&self) -> u64 {
        self.fixture.ready().await
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
