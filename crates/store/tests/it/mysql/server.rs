//! The servers, and a database of its own for each test.

use std::time::Duration;

use consign_conformance::proxy::Proxy;
use consign_core::lease::{Claim, ClaimRequest};
use consign_core::ports::{Claimed, OutboxStore};
use consign_core::settle::{SettleBatch, Settled, Settlement};
use consign_core::time::Monotonic;
use consign_store::mapping::{MarkerMapping, OutboxMapping};
use consign_store::mysql::{Database, Inbox, Options, Outbox, PayloadColumn, Schema};
use consign_store::retention::Keeping;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySql, MySqlConnection, raw_sql};

/// The outbox exactly as in the contract.
pub const CONTRACT_OUTBOX: &str = "CREATE TABLE outbox_event (
    event_id VARCHAR(64) PRIMARY KEY, aggregate_id BIGINT, event_type VARCHAR(64), payload JSON,
    status VARCHAR(16), attempts INT DEFAULT 0, available_at DATETIME(6), lease_token VARCHAR(64) NULL,
    locked_until DATETIME(6) NULL, created_at DATETIME(6),
    KEY idx_pending (status, available_at, event_id)) ENGINE = InnoDB";

/// The markers exactly as in the contract.
pub const CONTRACT_MARKERS: &str = "CREATE TABLE consumed_operation (
    consumer_name VARCHAR(64), business_key VARCHAR(128), event_id VARCHAR(64), user_id BIGINT, amount INT,
    PRIMARY KEY (consumer_name, business_key)) ENGINE = InnoDB";

/// A server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    MySql,
    MariaDb,
}

impl Server {
    pub fn url(self) -> String {
        let name = match self {
            Self::MySql => "CONSIGN_TEST_MYSQL_URL",
            Self::MariaDb => "CONSIGN_TEST_MARIADB_URL",
        };
        std::env::var(name).unwrap_or_else(|_| {
            panic!(
                "{name} is not set: start the servers with `cargo xtask services up` and export their urls"
            )
        })
    }

    /// The collation that tells every two keys apart.
    pub fn exact_collation(self) -> &'static str {
        match self {
            Self::MySql => "utf8mb4_0900_bin",
            Self::MariaDb => "utf8mb4_nopad_bin",
        }
    }
}

/// A database of its own; dropped with the test.
pub struct Bench {
    pub server: Server,
    pub name: String,
    /// For looking behind the store; sessions as a producer has them, in the server's time zone.
    pub pool: MySqlPool,
}

impl Bench {
    pub async fn new(server: Server) -> Self {
        Self::with_collation(server, None).await
    }

    pub async fn with_collation(server: Server, collation: Option<&str>) -> Self {
        let name = format!("consign_{}", hex(random()));
        let collate = collation.map(|name| format!(" COLLATE {name}")).unwrap_or_default();
        let mut connection = options(server).connect().await.expect("the server answers");
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4{collate}");
        connection.execute(AssertSqlSafe(create)).await.expect("the user may create databases");
        let pool = MySqlPoolOptions::new()
            .max_connections(4)
            .connect_lazy_with(options(server).database(&name).pipes_as_concat(false).timezone(None));
        Self { server, name, pool }
    }

    /// With the contract's two tables.
    pub async fn contract(server: Server) -> Self {
        let bench = Self::new(server).await;
        bench.run(CONTRACT_OUTBOX).await;
        bench.run(CONTRACT_MARKERS).await;
        bench
    }

    /// With all of consign's tables as it creates them.
    pub async fn migrated(server: Server, payload: PayloadColumn) -> Self {
        let bench = Self::new(server).await;
        bench.migrate(payload).await;
        bench
    }

    /// As [`Bench::migrated`], with what ordered relays need.
    pub async fn migrated_for_order(server: Server, payload: PayloadColumn) -> Self {
        let bench = Self::new(server).await;
        bench.migrate_for_order(payload).await;
        bench
    }

    pub async fn migrate(&self, payload: PayloadColumn) -> Vec<String> {
        self.schema(payload).apply().await.expect("the migration succeeds")
    }

    /// As [`Bench::migrate`], with what ordered relays need.
    pub async fn migrate_for_order(&self, payload: PayloadColumn) -> Vec<String> {
        self.schema(payload).with_order().apply().await.expect("the migration succeeds")
    }

    fn schema(&self, payload: PayloadColumn) -> Schema {
        Schema::new(self.database())
            .with_outbox(OutboxMapping::default(), payload)
            .with_markers(MarkerMapping::default())
            .with_transactions()
    }

    pub fn options(&self) -> Options {
        let url = self.server.url();
        let (server, _) = url.rsplit_once('/').expect("the url names a database");
        Options::new(format!("{server}/{}", self.name))
    }

    pub fn database(&self) -> Database {
        Database::open(&self.options()).expect("valid options")
    }

    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.database(), OutboxMapping::default(), "relay-test")
    }

    pub fn outbox_keeping(&self, keeping: Keeping) -> Outbox {
        Outbox::with_keeping(self.database(), OutboxMapping::default(), "relay-test", keeping)
    }

    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.database(), MarkerMapping::default())
    }

    /// The outbox through a proxy, without encryption so that bytes can be counted.
    pub async fn behind_proxy(&self, unit_timeout: Duration) -> (Proxy, Outbox) {
        let (proxy, options) = self.proxied().await;
        let options = Options { unit_timeout, connect_timeout: Duration::from_secs(2), ..options };
        let database = Database::open(&options).expect("valid options");
        (proxy, Outbox::new(database, OutboxMapping::default(), "relay-proxied"))
    }

    /// A proxy before the server, and how to connect through it.
    pub async fn proxied(&self) -> (Proxy, Options) {
        let options = self.options();
        let (user, rest) = options.url.split_once('@').expect("a user in the url");
        let (address, name) = rest.split_once('/').expect("a database in the url");
        let upstream = address.parse().expect("the servers are named by address");
        let proxy = Proxy::start(upstream).await.expect("a port is free");
        let url = format!("{user}@{}/{name}?ssl-mode=disabled", proxy.address());
        (proxy, Options::new(url))
    }

    /// Runs SQL behind the store's back.
    pub async fn run(&self, sql: &str) -> u64 {
        let result = raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await;
        result.unwrap_or_else(|error| panic!("{sql}: {error}")).rows_affected()
    }

    /// A session outside the pool.
    pub async fn another_session(&self) -> MySqlConnection {
        options(self.server).database(&self.name).connect().await.expect("the server answers")
    }

    /// Held by tests that change or rely on the server's packet limit; ends with the connection.
    pub async fn packet_limit_lock(&self) -> MySqlConnection {
        let mut connection = self.another_session().await;
        let lock = raw_sql("SELECT CAST(GET_LOCK('consign-test-packet-limit', 100) AS CHAR)");
        lock.execute(&mut connection).await.expect("the other test ends");
        connection
    }

    /// The first column of the first row, as text.
    pub async fn text(&self, sql: &str) -> Option<String> {
        let sql = format!("SELECT CAST(({sql}) AS CHAR)");
        let row = raw_sql(AssertSqlSafe(sql.clone())).fetch_one(&self.pool).await;
        let row = row.unwrap_or_else(|error| panic!("{sql}: {error}"));
        sqlx::Row::try_get_unchecked(&row, 0).expect("text")
    }

    pub async fn number(&self, sql: &str) -> i64 {
        self.text(sql).await.expect("not NULL").parse().expect("a number")
    }

    /// Inserts a row that is due since a second.
    pub async fn insert(&self, id: &str) {
        sqlx::query(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, attempts, available_at, \
             created_at) VALUES (?, 42, 'OrderPaid', '{\"orderId\":42}', 'NEW', 0, NOW(6) - INTERVAL 1 SECOND, NOW(6))",
        )
        .bind(id)
        .execute(&self.pool)
        .await
        .expect("the row is inserted");
    }

    pub async fn status_of(&self, id: &str) -> String {
        let status = format!("SELECT status FROM outbox_event WHERE event_id = '{id}'");
        self.text(&status).await.expect("a status")
    }

    /// A transaction that holds locks.
    pub async fn begin(&self) -> sqlx::Transaction<'static, MySql> {
        self.pool.begin().await.expect("a connection")
    }

    /// Whether some other session has a transaction open that touched the tables: 1 or 0.
    ///
    /// It then holds their metadata locks. `INNODB_TRX` would not tell: it shows what it showed before for as long as
    /// anybody reads it more often than every 100 ms.
    pub async fn open_transactions(&self) -> i64 {
        const LOCK_WAIT_TIMEOUT: u16 = 1205;
        let mut connection =
            options(self.server).database(&self.name).connect().await.expect("the server answers");
        let lock =
            "SET SESSION lock_wait_timeout = 1; LOCK TABLES outbox_event WRITE, consumed_operation WRITE";
        let locked = raw_sql(lock).execute(&mut connection).await;
        // Closing unlocks.
        sqlx::Connection::close(connection).await.expect("the connection closes");
        match locked {
            Ok(_) => 0,
            Err(error) => {
                let number = error
                    .as_database_error()
                    .and_then(|error| error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>())
                    .map(sqlx::mysql::MySqlDatabaseError::number);
                assert_eq!(number, Some(LOCK_WAIT_TIMEOUT), "{error}");
                1
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let (server, name) = (self.server, self.name.clone());
        let cleanup = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut connection = options(server).connect().await.map_err(std::io::Error::other)?;
                // A test that failed may hold locks; its database then stays.
                let drop = format!("SET SESSION lock_wait_timeout = 1; DROP DATABASE {name}");
                let _ = raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await;
                Ok::<_, std::io::Error>(())
            })
        });
        let _ = cleanup.join();
    }
}

fn options(server: Server) -> MySqlConnectOptions {
    server.url().parse::<MySqlConnectOptions>().expect("a valid url")
}

/// A request for `limit` rows under a fresh token.
pub fn request(limit: u32) -> ClaimRequest {
    request_bytes(limit, 64 << 20)
}

/// The same with a byte limit.
pub fn request_bytes(limit: u32, bytes_max: usize) -> ClaimRequest {
    ClaimRequest::new(limit, bytes_max, Duration::from_secs(30), random(), Monotonic::default())
}

pub async fn claim(outbox: &Outbox, limit: u32) -> Claimed {
    outbox.claim(request(limit)).await.expect("the claim succeeds")
}

pub fn ids(claimed: &Claimed) -> Vec<&str> {
    claimed.claims.iter().map(|claim| claim.event().id.as_str()).collect()
}

pub fn released(claims: Vec<Claim>) -> Vec<Settlement> {
    claims.into_iter().map(|claim| claim.release(Duration::ZERO, "test")).collect()
}

pub async fn settle(outbox: &Outbox, settlements: Vec<Settlement>) -> Vec<Settled> {
    outbox.settle(&SettleBatch { settlements, repeat: false }).await.expect("the settle succeeds")
}

pub fn random() -> [u8; 16] {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).expect("the operating system has randomness");
    bits
}

fn hex(bits: [u8; 16]) -> String {
    use std::fmt::Write;
    bits.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
