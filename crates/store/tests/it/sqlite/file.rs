//! A fresh file and a way to look into it behind the stores.

use std::path::PathBuf;
use std::time::Duration;

use consign_store::mapping::{MarkerMapping, OutboxMapping};
use consign_store::retention::Keeping;
use consign_store::sqlite::{Creation, Database, Inbox, Options, Outbox, Schema};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The tables people have, word for word as MySQL knows them.
pub const CONTRACT: &str = "
CREATE TABLE outbox_event (
    event_id VARCHAR(64) PRIMARY KEY, aggregate_id BIGINT, event_type VARCHAR(64), payload JSON,
    status VARCHAR(16), attempts INT DEFAULT 0, available_at DATETIME(6), lease_token VARCHAR(64) NULL,
    locked_until DATETIME(6) NULL, created_at DATETIME(6));
CREATE INDEX idx_pending ON outbox_event (status, available_at, event_id);
CREATE TABLE consumed_operation (
    consumer_name VARCHAR(64), business_key VARCHAR(128), event_id VARCHAR(64), user_id BIGINT, amount BIGINT,
    PRIMARY KEY (consumer_name, business_key));";

/// A fresh file.
pub struct File {
    directory: tempfile::TempDir,
    /// What the tests look with.
    pub eye: SqlitePool,
}

impl File {
    /// A file without tables.
    pub async fn empty() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("store.db");
        Database::open(&path, Creation::IfMissing).await.expect("the file is created").close().await;
        let options = SqliteConnectOptions::new().filename(&path).busy_timeout(PATIENCE).foreign_keys(false);
        let eye = SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options);
        Self { directory, eye }
    }

    /// A file with all of consign's tables, compared by `user_id` and `amount`.
    pub async fn migrated() -> Self {
        let file = Self::empty().await;
        file.schema().await.apply().await.expect("the tables are created");
        file.run("ALTER TABLE consumed_operation ADD user_id BIGINT; ALTER TABLE consumed_operation ADD amount BIGINT")
            .await;
        file
    }

    /// As [`File::migrated`], with what ordered relays need.
    pub async fn migrated_for_order() -> Self {
        let file = Self::migrated().await;
        file.schema().await.with_order().apply().await.expect("the index is created");
        file
    }

    /// A file with the contract's tables, and consign's own for records.
    pub async fn contract() -> Self {
        let file = Self::empty().await;
        file.run(CONTRACT).await;
        for statement in file.schema().await.plan().await.expect("a plan") {
            if statement.starts_with("CREATE TABLE IF NOT EXISTS") {
                file.run(&statement).await;
            }
        }
        file
    }

    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Connections of their own, as another process has them; they do not wait for long.
    pub async fn database(&self) -> Database {
        self.database_with(Duration::from_millis(500)).await
    }

    /// The same with another wait for the write lock.
    pub async fn database_with(&self, busy_timeout: Duration) -> Database {
        let options = Options { busy_timeout, ..Options::default() };
        Database::open_with(self.path(), options).await.expect("the file opens")
    }

    /// An outbox with connections of its own.
    pub async fn outbox(&self) -> Outbox {
        Outbox::new(self.database().await, OutboxMapping::default(), "test")
    }

    /// An outbox that keeps what `keeping` says.
    pub async fn outbox_keeping(&self, keeping: Keeping) -> Outbox {
        Outbox::with_keeping(self.database().await, OutboxMapping::default(), "test", keeping)
    }

    /// An inbox with connections of its own.
    pub async fn inbox(&self) -> Inbox {
        Inbox::new(self.database().await, MarkerMapping::default())
    }

    /// All of consign's tables under their contract names.
    pub async fn schema(&self) -> Schema {
        Schema::new(self.database().await)
            .with_outbox(OutboxMapping::default())
            .with_markers(MarkerMapping::default())
            .with_transactions()
    }

    /// Runs statements.
    pub async fn run(&self, sql: &str) {
        let result = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.eye).await;
        result.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The number a query gives.
    pub async fn number(&self, sql: &str) -> i64 {
        let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.eye).await;
        row.unwrap_or_else(|error| panic!("{sql}: {error}")).get(0)
    }

    /// Whether some connection holds the write lock at this moment.
    pub async fn is_locked(&self) -> bool {
        let options = SqliteConnectOptions::new().filename(self.path()).busy_timeout(Duration::ZERO);
        let mut connection = sqlx::ConnectOptions::connect(&options).await.expect("the file opens");
        let begun = sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await;
        sqlx::Connection::close(connection).await.expect("the connection closes");
        begun.is_err()
    }
}
