//! The broker suite on the embedded queue.

use std::time::Duration;

use consign_broker::embedded::{EmbeddedDestination, EmbeddedSource, Queue, SourceOptions};
use consign_conformance::broker::{BrokerCapabilities, BrokerFixture};
use consign_conformance::proxy::Proxy;
use consign_core::ports::{Destination, Lane, Readiness};
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::events::{PATIENCE, event, publish, within};

consign_conformance::broker_suite!(embedded, EmbeddedFixture);

const QUEUE: &str = "points";

struct EmbeddedFixture {
    _directory: tempfile::TempDir,
    queue: Queue,
    destination: EmbeddedDestination,
    origin: Instant,
    rival: Mutex<SqliteConnection>,
}

impl EmbeddedFixture {
    /// Runs a statement as another program would.
    async fn rival(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut *self.rival.lock().await).await.unwrap();
    }
}

impl BrokerFixture for EmbeddedFixture {
    type Destination = EmbeddedDestination;
    type Source = EmbeddedSource;

    async fn fresh() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let queue = Queue::open(directory.path().join("queue.db")).await.unwrap();
        queue.declare(QUEUE, &["bound"]).await.unwrap();
        let origin = Instant::now();
        let destination = queue.destination(origin, "suite");
        let options = SqliteConnectOptions::new().filename(queue.path()).busy_timeout(PATIENCE);
        let rival = Mutex::new(options.connect().await.unwrap());
        Self { _directory: directory, queue, destination, origin, rival }
    }

    fn capabilities(&self) -> BrokerCapabilities {
        BrokerCapabilities {
            mandatory_return: true,
            delivery_count: true,
            keeps_order: true,
            empty_body: true,
            receipts_outlive_connections: false,
        }
    }

    fn destination(&self) -> &EmbeddedDestination {
        &self.destination
    }

    async fn source(&self) -> EmbeddedSource {
        let lease = Duration::from_secs(3);
        self.queue.source(SourceOptions { queue: QUEUE.to_owned(), prefetch: 10, lease })
    }

    fn now(&self) -> Monotonic {
        Monotonic::new(self.origin.elapsed())
    }

    fn bound_route(&self) -> Route {
        Route { destination: DestinationName::new("suite"), key: "bound".to_owned() }
    }

    fn unbound_route(&self) -> Route {
        Route { destination: DestinationName::new("suite"), key: "unbound".to_owned() }
    }

    async fn bind(&self) {
        self.queue.declare(QUEUE, &["unbound"]).await.unwrap();
    }

    async fn ready(&self) -> u64 {
        self.queue.counts().await.unwrap()[0].ready
    }

    /// The writer loses its connection over a failing statement, and opens another one by itself.
    async fn restart(&self) {
        self.rival("ALTER TABLE consign_queue_message RENAME TO hidden").await;
        let failing = publish(event("restart", "{}"), "bound", self.origin, PATIENCE);
        let _ = self.destination.publish(Lane::Window, failing).await;
        let down = within("the failure", self.destination.readiness_after(&Readiness::Accepting)).await;
        self.rival("DROP TABLE IF EXISTS consign_queue_message").await;
        self.rival("ALTER TABLE hidden RENAME TO consign_queue_message").await;
        let up = within("the restart", self.destination.readiness_after(&down)).await;
        assert_eq!(up, Readiness::Accepting);
    }

    async fn freeze(&self) {
        self.rival("BEGIN IMMEDIATE").await;
    }

    async fn thaw(&self) {
        self.rival("ROLLBACK").await;
    }

    fn proxy(&self) -> Option<&Proxy> {
        None
    }
}
