//! A fresh exchange and queue on a real server, behind a proxy that can break connections.

use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU16;
use std::time::Duration;

use consign_amqp::{
    Channel, ConnectOptions, Connection, ExchangeDeclaration, FieldTable, Properties, Publication,
    QueueDeclaration,
};
use consign_broker::rabbitmq::{DestinationOptions, RabbitMqDestination, RabbitMqSource, SourceOptions};
use consign_conformance::proxy::Proxy;
use consign_core::event::Event;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness};
use tokio::time::Instant;

use crate::events::{PATIENCE, publish, within};

/// Queues go by themselves some time after the tests.
const EXPIRES_MILLISECONDS: i64 = 600_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    V3,
    V4,
}

impl Server {
    pub const BOTH: [Self; 2] = [Self::V3, Self::V4];

    /// How to reach it, directly.
    pub fn connect(self) -> ConnectOptions {
        let variable = match self {
            Self::V3 => "CONSIGN_TEST_RABBITMQ_URL",
            Self::V4 => "CONSIGN_TEST_RABBITMQ4_URL",
        };
        let url = std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set: run the tests with cargo xtask test"));
        url.parse().unwrap_or_else(|error| panic!("{variable}: {error}"))
    }

    pub async fn open(self) -> Connection {
        Connection::open(&self.connect()).await.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

/// A name nobody else uses.
pub fn unique(what: &str) -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).unwrap();
    format!("consign-test-{what}-{:016x}", u64::from_le_bytes(bits))
}

pub struct Fixture {
    pub server: Server,
    pub exchange: String,
    pub queue: String,
    pub proxy: Proxy,
    pub origin: Instant,
    /// Straight to the server, past the proxy.
    pub side: Channel,
}

impl Fixture {
    /// A direct exchange and a queue of this type, bound under `bound`.
    pub async fn new(server: Server, kind: &str) -> Self {
        Self::with(server, FieldTable::new().with("x-queue-type", kind)).await
    }

    pub async fn with(server: Server, mut arguments: FieldTable) -> Self {
        let connect = server.connect();
        let upstream = address(&connect);
        let side = server.open().await.open_channel().await.unwrap();
        let (exchange, queue) = (unique("exchange"), unique("queue"));
        if arguments.get("x-queue-type").and_then(|kind| kind.as_text()) == Some("stream") {
            arguments.insert("x-max-age", "10m");
        } else {
            arguments.insert("x-expires", EXPIRES_MILLISECONDS);
        }
        let declaration = ExchangeDeclaration { auto_delete: true, ..ExchangeDeclaration::durable("direct") };
        side.exchange_declare(&exchange, &declaration).await.unwrap();
        side.queue_declare(&queue, &QueueDeclaration::durable(arguments)).await.unwrap();
        let fixture = Self {
            server,
            exchange,
            queue,
            proxy: Proxy::start(upstream).await.unwrap(),
            origin: Instant::now(),
            side,
        };
        fixture.bind("bound").await;
        fixture
    }

    /// How to reach the server through the proxy.
    pub fn connect(&self) -> ConnectOptions {
        let address = self.proxy.address();
        let heartbeat = Duration::from_secs(5);
        ConnectOptions {
            host: address.ip().to_string(),
            port: address.port(),
            heartbeat,
            connection_timeout: Duration::from_secs(5),
            ..self.server.connect()
        }
    }

    pub fn destination_options(&self) -> DestinationOptions {
        DestinationOptions::new(self.connect(), self.exchange.clone())
    }

    /// A destination that is connected.
    pub async fn destination(&self) -> RabbitMqDestination {
        self.destination_with(self.destination_options()).await
    }

    pub async fn destination_with(&self, options: DestinationOptions) -> RabbitMqDestination {
        let destination = RabbitMqDestination::new(options, self.origin);
        accepting(&destination).await;
        destination
    }

    pub fn source(&self, prefetch: u16) -> RabbitMqSource {
        RabbitMqSource::new(SourceOptions {
            connect: self.connect(),
            queue: self.queue.clone(),
            prefetch: NonZeroU16::new(prefetch).unwrap(),
        })
    }

    pub async fn bind(&self, key: &str) {
        self.side.queue_bind(&self.queue, &self.exchange, key, &FieldTable::new()).await.unwrap();
    }

    pub async fn ready(&self) -> u64 {
        self.side.queue_declare_passive(&self.queue).await.unwrap().messages.into()
    }

    pub async fn publish(
        &self,
        destination: &RabbitMqDestination,
        lane: Lane,
        event: Event,
        key: &str,
    ) -> Outcome {
        let publish = publish(event, key, self.origin, Duration::from_secs(15));
        within("the outcome", destination.publish(lane, publish)).await
    }

    /// Publishes past the adapter.
    pub async fn publish_raw(&self, properties: Properties) {
        let publisher = self.server.open().await.open_publisher().await.unwrap();
        let publication = Publication {
            exchange: self.exchange.clone(),
            routing_key: "bound".to_owned(),
            properties: Properties { message_id: Some("raw".to_owned()), ..properties },
            body: "{}".into(),
        };
        let verdict = publisher.publish(publication, Instant::now() + PATIENCE).await;
        assert!(matches!(verdict, consign_amqp::Verdict::Acked { .. }), "{verdict:?}");
    }
}

/// Waits until a destination takes publishes.
pub async fn accepting(destination: &RabbitMqDestination) {
    within("the readiness", async {
        let mut known = Readiness::Unavailable("never asked".to_owned());
        while known != Readiness::Accepting {
            known = destination.readiness_after(&known).await;
        }
    })
    .await;
}

fn address(connect: &ConnectOptions) -> SocketAddr {
    (connect.host.as_str(), connect.port).to_socket_addrs().unwrap().next().expect("the host has an address")
}
