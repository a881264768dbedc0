//! What the end-to-end tests are made of: a world of its own for each test, configs, and processes of the program.
//!
//! - [`World`]: a fresh database, the names on the broker, and the audit queue that gets a copy of everything
//! - [`config`]: consign.toml; [`child`]: running, stopping and killing the program; [`audit`]: the final audit
//! - [`rocketmq`]: the same over RocketMQ
//!
//! MySQL and RabbitMQ are found by `CONSIGN_TEST_MYSQL_URL`, `CONSIGN_TEST_RABBITMQ_URL` and
//! `CONSIGN_TEST_RABBITMQ4_URL`. The servers are shared, so tests break proxies and processes of their own only.

#![allow(dead_code, reason = "two test binaries share this, and each uses its part")]

#[path = "harness/audit.rs"]
pub mod audit;
#[path = "harness/child.rs"]
pub mod child;
#[path = "harness/config.rs"]
pub mod config;
#[path = "harness/rocketmq.rs"]
pub mod rocketmq;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use consign_amqp::{ConnectOptions, Connection, ConsumeOptions, Properties, Publication, Verdict};
use consign_conformance::proxy::Proxy;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor, Row};
use tempfile::TempDir;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub use child::{Child, consign};
pub use config::Config;

/// How long a server may take for one answer.
const ANSWER: Duration = Duration::from_secs(20);
/// What one order of the tests is worth.
pub const AMOUNT: i64 = 10;

/// Contract tables, as people have them already.
const CONTRACT: &str = "
CREATE TABLE outbox_event (
    event_id VARCHAR(64) PRIMARY KEY, aggregate_id BIGINT, event_type VARCHAR(64), payload JSON,
    status VARCHAR(16), attempts INT DEFAULT 0, available_at DATETIME(6), lease_token VARCHAR(64) NULL,
    locked_until DATETIME(6) NULL, created_at DATETIME(6),
    KEY idx_pending (status, available_at, event_id)) ENGINE = InnoDB;
CREATE TABLE consumed_operation (
    consumer_name VARCHAR(64), business_key VARCHAR(128), event_id VARCHAR(64), user_id BIGINT, amount INT,
    PRIMARY KEY (consumer_name, business_key)) ENGINE = InnoDB;";

/// The points story's own tables. `sms_message` has no unique key on purpose: a doubled effect would show.
const STORY: &str = "
CREATE TABLE purchase_order (id BIGINT PRIMARY KEY, status VARCHAR(16) NOT NULL) ENGINE = InnoDB;
CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL) ENGINE = InnoDB;
CREATE TABLE sms_message (
    id BIGINT PRIMARY KEY AUTO_INCREMENT, order_id BIGINT NOT NULL, user_id BIGINT NOT NULL,
    event_type VARCHAR(64) NOT NULL) ENGINE = InnoDB;
INSERT INTO points_account (user_id, points) VALUES (7, 0), (8, 0), (9, 0);";

/// A RabbitMQ under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broker {
    /// The 3.x server.
    RabbitMq,
    /// The 4.x server.
    RabbitMq4,
}

/// Where the server is; the test fails when the environment does not say.
pub fn url(broker: Broker) -> String {
    environment(match broker {
        Broker::RabbitMq => "CONSIGN_TEST_RABBITMQ_URL",
        Broker::RabbitMq4 => "CONSIGN_TEST_RABBITMQ4_URL",
    })
}

/// What the environment says; the test fails when it says nothing.
pub fn environment(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{name} is not set: start the servers with `cargo xtask services up` and export their urls")
    })
}

/// Ends the test unless the program under test has its crash points.
pub fn require_failpoints() {
    #[cfg(not(feature = "failpoints"))]
    panic!("this test crashes the program at named points: run it with `--features consign-cli/failpoints`");
}

/// One message as the audit queue got it.
#[derive(Clone, Debug, PartialEq)]
pub struct Copy {
    /// The message id, which is the event id.
    pub event_id: String,
    /// The body.
    pub payload: String,
    /// The routing key.
    pub routing_key: String,
    /// All properties, headers included.
    pub properties: Properties,
}

/// What one test has for itself.
pub struct World {
    /// Unique; database, exchange and queues are called after it.
    pub name: String,
    /// For configs and logs.
    pub folder: TempDir,
    /// Into the fresh database, in the server's time zone as a producer has it.
    pub pool: MySqlPool,
    /// The server that configs lead to and that the audit queue is on.
    pub broker: Broker,
    audited: Mutex<Vec<Copy>>,
}

impl World {
    /// The contract's tables exactly, and those of the points story.
    pub async fn unmigrated() -> Self {
        let world = Self::new().await;
        world.run(CONTRACT).await;
        world
    }

    /// The tables that `consign migrate` makes, and those of the points story.
    pub async fn migrated() -> Self {
        Self::migrated_on(Broker::RabbitMq).await
    }

    /// The same, with another broker.
    pub async fn migrated_on(broker: Broker) -> Self {
        let world = Self::new().await.on(broker);
        let config = world.config().write("migrate.toml");
        succeed(&["migrate", "--config", text(&config)]);
        world
    }

    /// On another broker than the 3.x one.
    #[must_use]
    pub fn on(mut self, broker: Broker) -> Self {
        self.broker = broker;
        self
    }

    async fn new() -> Self {
        let name = format!("chain_{}", random_name());
        let mut connection = server().connect().await.expect("the database server answers");
        let version: String =
            sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connection).await.unwrap();
        let collation = if version.contains("MariaDB") { "utf8mb4_nopad_bin" } else { "utf8mb4_0900_bin" };
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE {collation}");
        connection.execute(AssertSqlSafe(create)).await.expect("the user may create databases");
        connection.close().await.unwrap();
        let pool = MySqlPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(ANSWER)
            .connect_lazy_with(server().database(&name));
        let folder = tempfile::tempdir().unwrap();
        let world = Self { name, folder, pool, broker: Broker::RabbitMq, audited: Mutex::default() };
        world.run(STORY).await;
        world
    }

    /// The url of its database.
    pub fn store_url(&self) -> String {
        let server = environment("CONSIGN_TEST_MYSQL_URL");
        let (server, _) = server.rsplit_once('/').expect("the database url ends with a database");
        format!("{server}/{}", self.name)
    }

    /// A config with this world's names and with times that suit tests.
    pub fn config(&self) -> Config {
        Config::new(self, &url(self.broker))
    }

    /// Writes the config, creates its exchange and queues, and gives its path.
    #[expect(
        clippy::unused_self,
        reason = "a config belongs to its world, also when the world is not looked at"
    )]
    pub fn prepare(&self, config: Config) -> PathBuf {
        const TRIES: usize = 3;
        let path = config.write("consign.toml");
        let apply = ["topology", "apply", "--config", text(&path)];
        // A broker on a machine that many tests keep busy may miss the deadline of a first handshake.
        let missed =
            |output: &Output| String::from_utf8_lossy(&output.stderr).contains("was not usable within");
        let mut output = consign(&apply);
        for _ in 1..TRIES {
            if missed(&output) {
                output = consign(&apply);
            }
        }
        check(&apply, output);
        path
    }

    /// A proxy in front of the broker, and the url through it.
    pub async fn proxy(&self) -> (Proxy, String) {
        proxied(&url(self.broker)).await
    }

    /// Every message that reached the audit queue so far, oldest first, those of earlier calls included.
    ///
    /// An end mark is published behind them, so what the broker had taken before the call is in the answer.
    pub async fn audit(&self) -> Vec<Copy> {
        let mut audited = self.audited.lock().await;
        let work = self.drain_audit(&mut audited);
        tokio::time::timeout(3 * ANSWER, work).await.expect("the audit queue can be read in time");
        audited.clone()
    }

    async fn drain_audit(&self, audited: &mut Vec<Copy>) {
        const PREFETCH: NonZeroU16 = NonZeroU16::new(2000).unwrap();
        let queue = format!("{}-audit", self.name);
        let connection = connect(self.broker).await;
        let mark = format!("audit-end-{}", random_name());
        let publisher = connection.open_publisher().await.unwrap();
        let properties =
            Properties { message_id: Some(mark.clone()), delivery_mode: Some(2), ..Properties::default() };
        let publication = Publication {
            exchange: String::new(),
            routing_key: queue.clone(),
            properties,
            body: String::new().into(),
        };
        let verdict = publisher.publish(publication, Instant::now() + ANSWER).await;
        assert!(matches!(verdict, Verdict::Acked { .. }), "the end mark was not taken: {verdict:?}");
        let mut consumer = connection.open_consumer(&queue, ConsumeOptions::new(PREFETCH)).await.unwrap();
        loop {
            let delivery = consumer.next().await.expect("the audit queue delivers up to the end mark");
            let properties = delivery.properties.expect("properties can be decoded");
            let event_id = properties.message_id.clone().unwrap_or_default();
            delivery.handle.ack().unwrap();
            if event_id == mark {
                break;
            }
            let payload = String::from_utf8_lossy(&delivery.body).into_owned();
            audited.push(Copy { event_id, payload, routing_key: delivery.routing_key, properties });
        }
        connection.close(ANSWER).await;
    }

    /// One row, NEW and due now.
    pub async fn insert(&self, id: &str, event_type: &str, payload: &str) {
        sqlx::query(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             VALUES (?, 1, ?, ?, 'NEW', NOW(6), NOW(6))",
        )
        .bind(id)
        .bind(event_type)
        .bind(payload)
        .execute(&self.pool)
        .await
        .unwrap();
    }

    /// As many paid orders, numbered from 1, as rows that are NEW and due now; see [`World::purchase`].
    pub async fn insert_many(&self, rows: u32) {
        let mut connection = self.pool.acquire().await.unwrap();
        let version: String =
            sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut *connection).await.unwrap();
        let limit =
            if version.contains("MariaDB") { "max_recursive_iterations" } else { "cte_max_recursion_depth" };
        connection.execute(AssertSqlSafe(format!("SET SESSION {limit} = 1000000"))).await.unwrap();
        let insert = format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {rows})
             SELECT CONCAT('e-', LPAD(n, 6, '0')), n, 'OrderPaid',
                    JSON_OBJECT('orderId', n, 'userId', 7 + n % 3, 'amount', {AMOUNT}), 'NEW', NOW(6), NOW(6)
             FROM number"
        );
        connection.execute(AssertSqlSafe(insert)).await.unwrap();
    }

    /// A paid order and its event `e-<order>`, in one transaction; worth [`AMOUNT`] points to user 7, 8 or 9.
    ///
    /// # Errors
    /// The database refused, or nobody knows whether it committed.
    pub async fn purchase(&self, order: u32) -> sqlx::Result<()> {
        let mut tx = self.pool.begin().await?;
        sqlx::query("INSERT INTO purchase_order (id, status) VALUES (?, 'PAID')")
            .bind(order)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
             VALUES (?, ?, 'OrderPaid', JSON_OBJECT('orderId', ?, 'userId', ?, 'amount', ?), 'NEW', NOW(6), NOW(6))",
        )
        .bind(format!("e-{order:06}"))
        .bind(order)
        .bind(order)
        .bind(7 + order % 3)
        .bind(AMOUNT)
        .execute(&mut *tx)
        .await?;
        tx.commit().await
    }

    /// How many rows of the outbox have this status.
    pub async fn count(&self, status: &str) -> i64 {
        self.number(&format!("SELECT COUNT(*) FROM outbox_event WHERE status = '{status}'")).await
    }

    /// The one number that a query gives; NULL is 0.
    pub async fn number(&self, query: &str) -> i64 {
        let query = format!("SELECT CAST(({query}) AS SIGNED)");
        let number: Option<i64> =
            sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&self.pool).await.expect("the query answers");
        number.unwrap_or(0)
    }

    /// The payloads of all events, as the database prints them.
    pub async fn payloads(&self) -> BTreeMap<String, String> {
        let rows = sqlx::query("SELECT event_id, CAST(payload AS CHAR) FROM outbox_event")
            .fetch_all(&self.pool)
            .await
            .unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Returns when the condition gives true; ends the test when it does not before the deadline.
    pub async fn eventually(&self, deadline: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let end = Instant::now() + deadline;
        while !condition().await {
            assert!(Instant::now() < end, "not within {deadline:?}: {what}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Runs statements.
    pub async fn run(&self, statements: &str) {
        sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(&self.pool).await.unwrap();
    }
}

impl Drop for World {
    /// Takes the database, the exchange and the queues away again, as far as the servers answer.
    fn drop(&mut self) {
        let (name, broker) = (self.name.clone(), self.broker);
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(async { tokio::time::timeout(ANSWER, clean(&name, broker)).await });
        });
        let _ = cleaner.join();
    }
}

async fn clean(name: &str, broker: Broker) {
    if let Ok(mut connection) = server().connect().await {
        let _ = connection.execute(AssertSqlSafe(format!("DROP DATABASE {name}"))).await;
    }
    let connection = connect(broker).await;
    for queue in ["points", "sms", "dead", "audit"] {
        if let Ok(channel) = connection.open_channel().await {
            let _ = channel.queue_delete(&format!("{name}-{queue}"), false, false).await;
        }
    }
    if let Ok(channel) = connection.open_channel().await {
        let _ = channel.exchange_delete(name, false).await;
    }
    connection.close(ANSWER).await;
}

/// A connection to the broker, as soon as it takes one.
pub async fn connect(broker: Broker) -> Connection {
    const PAUSE: Duration = Duration::from_millis(100);
    let options: ConnectOptions = url(broker).parse().unwrap();
    let end = Instant::now() + ANSWER;
    loop {
        match Connection::open(&options).await {
            Ok(connection) => return connection,
            Err(error) => assert!(Instant::now() < end, "the broker takes no connection: {error}"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn server() -> MySqlConnectOptions {
    let options: MySqlConnectOptions = environment("CONSIGN_TEST_MYSQL_URL").parse().unwrap();
    options.timezone(None).disable_statement_logging()
}

/// Runs a short command that must exit with 0, and gives its stdout.
pub fn succeed(arguments: &[&str]) -> String {
    check(arguments, consign(arguments))
}

fn check(arguments: &[&str], output: Output) -> String {
    assert!(
        output.status.success(),
        "consign {arguments:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A proxy in front of a server, and the server's url through it.
pub async fn proxied(url: &str) -> (Proxy, String) {
    let (upstream, (before, behind)) = split(url);
    let proxy = Proxy::start(upstream).await.unwrap();
    let through = format!("{before}{}{behind}", proxy.address());
    (proxy, through)
}

/// The address inside a server's url, and what stands before and behind it.
fn split(url: &str) -> (SocketAddr, (&str, &str)) {
    let from = url.rfind('@').map_or_else(|| url.find("//").unwrap() + 2, |at| at + 1);
    let to = url[from..].find('/').map_or(url.len(), |slash| from + slash);
    let address = url[from..to].to_socket_addrs().unwrap().next().unwrap();
    (address, (&url[..from], &url[to..]))
}

/// Twelve random hexadecimal digits.
pub fn random_name() -> String {
    let mut bytes = [0; 6];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().fold(String::new(), |mut name, byte| {
        write!(name, "{byte:02x}").unwrap();
        name
    })
}
