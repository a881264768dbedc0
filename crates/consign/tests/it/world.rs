//! One consumer's world: a SQLite database, a queue file, and a runtime to start and stop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use consign::adapters::AnyDestination;
use consign::clock::ProcessClock;
use consign::consumer::{
    ConflictPolicy, ConsumerEnd, ConsumerRuntime, ConsumerSettings, DeadLetters, Interpret, NoObserver,
};
use consign::inbox::{BuildConsumer, HandledConsumer, column};
use consign::shutdown::{ShutdownTrigger, shutdown};
use consign_broker::embedded::{EmbeddedSource, Queue, QueueCounts, SourceOptions};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::filter::NoFilter;
use consign_core::guard::{Guard, Step};
use consign_core::inbox::{HandlerError, Inbox};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, InboxTransaction, Lane, Source};
use consign_core::route::{DestinationName, Route};
use consign_core::value::ValueType;
use consign_store::mapping::{ComparisonColumn, Identifier, MarkerMapping};
use consign_store::sqlite::{self, Creation, Database, Schema};
use serde::Deserialize;
use sqlx::sqlite::SqlitePool;
use tokio::task::JoinHandle;

pub const QUEUE: &str = "points";

/// What an order's payment carries.
#[derive(Clone, Debug, Deserialize)]
pub struct Paid {
    pub order: i64,
    pub user: i64,
    pub amount: i64,
    #[serde(default)]
    pub version: i64,
}

/// What the handler does besides its award, by amount.
pub const PANICS: i64 = 666;
pub const HANGS: i64 = 777;

pub type Consumer = HandledConsumer<sqlite::Transaction, Paid>;

pub struct World {
    folder: tempfile::TempDir,
    queue: Queue,
    eye: SqlitePool,
    published: std::sync::atomic::AtomicU64,
}

/// A runtime that can be asked to drain.
pub struct Started {
    trigger: ShutdownTrigger,
    running: JoinHandle<ConsumerEnd>,
}

impl Started {
    pub async fn drain(self) -> ConsumerEnd {
        self.trigger.request();
        self.running.await.expect("the consumer breaks no invariant")
    }

    /// Waits until the consumer stops by itself.
    pub async fn ended(self) -> ConsumerEnd {
        within(async { self.running.await.expect("the consumer breaks no invariant") }).await
    }
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("it happens within half a minute")
}

impl World {
    /// A world with the account of user 7.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let queue = Queue::open(folder.path().join("queue.db")).await.unwrap();
        queue.declare(QUEUE, &["*"]).await.unwrap();
        let path = folder.path().join("store.db");
        let database = Database::open(&path, Creation::IfMissing).await.unwrap();
        let columns = ["user", "amount"].map(|name| ComparisonColumn {
            name: Identifier::column(name).unwrap(),
            kind: ValueType::Integer,
        });
        let schema = Schema::new(database).with_markers(mapping()).with_comparison(columns.into());
        schema.apply().await.unwrap();
        let eye = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        sqlx::raw_sql(
            "CREATE TABLE account (user INTEGER PRIMARY KEY, points INTEGER NOT NULL);
             CREATE TABLE award (id INTEGER PRIMARY KEY AUTOINCREMENT, \"order\" INTEGER, version INTEGER);",
        )
        .execute(&eye)
        .await
        .unwrap();
        let world = Self { folder, queue, eye, published: 0.into() };
        world.open_account(7).await;
        world
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    pub async fn drop_parked(&self) {
        sqlx::query("DROP TABLE consign_parked_delivery").execute(&self.eye).await.unwrap();
    }

    pub async fn open_account(&self, user: i64) {
        sqlx::query("INSERT INTO account VALUES (?, 0)").bind(user).execute(&self.eye).await.unwrap();
    }

    /// Puts a payment into the queue; every message has an id of its own.
    pub async fn publish(&self, paid: &Paid) {
        let Paid { order, user, amount, version } = paid;
        let payload = format!(r#"{{"order":{order},"user":{user},"amount":{amount},"version":{version}}}"#);
        self.publish_raw(&payload).await;
    }

    pub async fn publish_raw(&self, payload: &str) {
        let number = self.published.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let clock = ProcessClock::start();
        let destination = self.queue.destination(clock.origin(), "test");
        let event = Event {
            id: EventId::stored(format!("event-{number}")),
            aggregate: Aggregate::default(),
            event_type: "OrderPaid".into(),
            business_key: None,
            payload: Some(payload.to_owned().into()),
            headers: Vec::new(),
            destination: None,
            route_key: None,
            created_at_micros: None,
        };
        let route = Route { destination: DestinationName::new("points"), key: "OrderPaid".into() };
        let deadline = clock.now().plus(Duration::from_secs(10));
        let outcome =
            destination.publish(Lane::Window, Publish { event: Arc::new(event), route, deadline }).await;
        assert!(matches!(outcome, Outcome::Confirmed(_)), "{outcome:?}");
    }

    pub async fn inbox(&self) -> Inbox<sqlite::Inbox> {
        let database = Database::open(self.path(), Creation::Never).await.unwrap();
        Inbox::new(sqlite::Inbox::new(database, mapping()))
    }

    /// The points consumer, guarded when `sequential`.
    pub async fn consumer(&self, sequential: bool) -> Consumer {
        let keyed = self
            .inbox()
            .await
            .consumer::<Paid>("points-award")
            .key(move |event| {
                let Paid { order, version, .. } = event.payload;
                if sequential { format!("order:{order}:{version}") } else { format!("order:{order}:paid") }
            })
            .compare(|event| vec![column("user", event.payload.user), column("amount", event.payload.amount)])
            .timeout(Duration::from_millis(300));
        let keyed = if sequential {
            keyed.guard(|event| Guard {
                aggregate: format!("order:{}", event.payload.order),
                step: Step::Sequential { version: event.payload.version, first: 1 },
            })
        } else {
            keyed
        };
        keyed.handle(|tx, event| {
            Box::pin(async move {
                let Paid { order, user, amount, version } = event.payload.clone();
                let values = [amount.into(), user.into()];
                let rows =
                    tx.execute("UPDATE account SET points = points + ? WHERE user = ?", &values).await?;
                assert_ne!(amount, PANICS, "this handler panics");
                if amount == HANGS {
                    std::future::pending::<()>().await;
                }
                let values = [order.into(), version.into()];
                tx.execute("INSERT INTO award (\"order\", version) VALUES (?, ?)", &values).await?;
                if rows == 1 { Ok(()) } else { Err(HandlerError::Refused(format!("{rows} accounts, not 1"))) }
            })
        })
    }

    /// Starts a consumer.
    pub async fn start<C>(&self, consumer: C, adjust: impl FnOnce(&mut ConsumerSettings)) -> Started
    where
        C: Interpret<sqlite::Transaction> + 'static,
    {
        self.start_on(self.source(), consumer, adjust).await
    }

    /// The queue, as a consumer takes it.
    pub fn source(&self) -> EmbeddedSource {
        self.queue.source(SourceOptions {
            queue: QUEUE.into(),
            prefetch: 200,
            lease: Duration::from_secs(30),
        })
    }

    /// Starts a consumer of this source.
    pub async fn start_on<Q, C>(
        &self,
        source: Q,
        consumer: C,
        adjust: impl FnOnce(&mut ConsumerSettings),
    ) -> Started
    where
        Q: Source + 'static,
        C: Interpret<sqlite::Transaction> + 'static,
    {
        let mut settings = ConsumerSettings {
            workers: 2,
            batch: 50,
            batch_bytes: 1 << 20,
            linger: Duration::from_millis(5),
            attempts_max: 3,
            retry_delay: Duration::from_millis(50),
            gap_wait: Duration::from_mins(1),
            on_conflict: ConflictPolicy::RecordAndAck,
            publish_deadline: Duration::from_secs(5),
        };
        adjust(&mut settings);
        let runtime: ConsumerRuntime<_, _, AnyDestination, _> = ConsumerRuntime {
            inbox: Arc::new(self.inbox().await),
            consumer: Arc::new(consumer),
            dead_letters: Arc::new(DeadLetters::Table),
            filter: Arc::new(NoFilter),
            observer: Arc::new(NoObserver),
            settings,
            clock: ProcessClock::start(),
        };
        let (trigger, asked) = shutdown();
        Started { trigger, running: tokio::spawn(runtime.run(source, asked)) }
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.eye).await.unwrap()
    }

    pub async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&self.eye).await.unwrap()
    }

    /// Waits until a query gives the wanted number.
    pub async fn until(&self, sql: &'static str, wanted: i64) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        let mut found = self.number(sql).await;
        while found != wanted {
            assert!(tokio::time::Instant::now() < deadline, "{sql}: {found}, not {wanted}");
            tokio::time::sleep(Duration::from_millis(10)).await;
            found = self.number(sql).await;
        }
    }

    /// Messages in the queue, whatever their state.
    pub async fn queued(&self) -> u64 {
        let counts: Vec<QueueCounts> = self.queue.counts().await.unwrap();
        counts.iter().map(|counts| counts.ready + counts.delayed + counts.leased).sum()
    }

    pub async fn until_queued(&self, wanted: u64) {
        within(async {
            while self.queued().await != wanted {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
}

fn mapping() -> MarkerMapping {
    MarkerMapping::new(Identifier::table("consumed_operation").unwrap())
}

pub fn paid(order: i64, amount: i64) -> Paid {
    Paid { order, user: 7, amount, version: 0 }
}

pub fn step(order: i64, version: i64) -> Paid {
    Paid { order, user: 7, amount: 1, version }
}

pub const AWARDS: &str = "SELECT COUNT(*) FROM award";
pub const PARKED: &str = "SELECT COUNT(*) FROM consign_parked_delivery";
pub const DEAD: &str = "SELECT COUNT(*) FROM consign_dead_delivery";
pub const CONFLICTS: &str = "SELECT COUNT(*) FROM consign_conflict";
pub const MARKERS: &str = "SELECT COUNT(*) FROM consumed_operation";
