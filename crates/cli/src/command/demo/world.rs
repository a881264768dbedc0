//! The demo's folder: three SQLite files, two configs, one log.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};

use crate::config::{Config, DestinationConfig, Environment};
use crate::parts;

/// Accounts that collect points.
pub const USERS: u64 = 50;

/// What a look at the databases showed.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// Outbox rows that are SENT.
    pub sent: u64,
    /// Outbox rows that are DEAD.
    pub dead: u64,
    /// Messages that no consumer has acknowledged yet.
    pub undelivered: u64,
    /// Markers of the points consumer.
    pub applied: u64,
}

/// The folder and open connections for looking at it.
pub struct World {
    folder: PathBuf,
    temporary: Option<tempfile::TempDir>,
    eye: SqlitePool,
}

/// The queue that no consumer reads: it keeps a copy of everything the broker took, for the audit.
pub const TAP: &str = "tap";

const RELAY_CONFIG: &str = r#"# The order service's side: its database is the store, the queue file is the broker.
[store]
url = "sqlite:orders.db"

[relay]
lease_seconds = 3
publish_deadline_seconds = 1
margin_seconds = 1
sweep_seconds = 1
sweep_delay_seconds = 1
batch_rows = 100

[destination.broker]
type = "embedded"
path = "queue.db"
queue = [
  { name = "points-award", bindings = ["OrderPaid"] },
  { name = "sms", bindings = ["OrderPaid"] },
  { name = "tap", bindings = ["*"] },
]

[[route]]
event_type = "*"
destination = "broker"
key = "{event_type}"
"#;

const CONSUMER_CONFIG: &str = r#"# The consumers' side: markers and effects in one database.
[store]
url = "sqlite:points.db"

[destination.broker]
type = "embedded"
path = "queue.db"
queue = [
  { name = "points-award", bindings = ["OrderPaid"] },
  { name = "sms", bindings = ["OrderPaid"] },
  { name = "tap", bindings = ["*"] },
]

[[consumer]]
name = "points-award"
source = "broker"
queue = "points-award"
key = "order:{order_id}:paid"
compare = ["user_id", "amount"]
bind.order_id = { pointer = "/orderId", type = "integer" }
bind.user_id = { pointer = "/userId", type = "integer" }
bind.amount = { pointer = "/amount", type = "integer" }

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id"
expect_rows = 1

[[consumer.statement]]
sql = "INSERT INTO points_entry (order_id, user_id, amount) VALUES (:order_id, :user_id, :amount)"
expect_rows = 1

[[consumer]]
name = "sms"
source = "broker"
queue = "sms"
key = "order:{order_id}:paid"
compare = ["user_id", "amount"]
bind.order_id = { pointer = "/orderId", type = "integer" }
bind.user_id = { pointer = "/userId", type = "integer" }
bind.amount = { pointer = "/amount", type = "integer" }

[[consumer.statement]]
sql = "INSERT INTO sms_message (order_id, user_id) VALUES (:order_id, :user_id)"
expect_rows = 1
"#;

const ORDERS_SCHEMA: &str = "
CREATE TABLE purchase_order (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, amount INTEGER NOT NULL,
                             status TEXT NOT NULL);";

/// Effect tables have no unique key on the order: a doubled effect must be able to show.
const POINTS_SCHEMA: &str = "
CREATE TABLE points_account (user_id INTEGER PRIMARY KEY, points INTEGER NOT NULL);
CREATE TABLE points_entry (order_id INTEGER NOT NULL, user_id INTEGER NOT NULL, amount INTEGER NOT NULL);
CREATE INDEX points_entry_order ON points_entry (order_id);
CREATE TABLE sms_message (order_id INTEGER NOT NULL, user_id INTEGER NOT NULL);
CREATE INDEX sms_message_order ON sms_message (order_id);";

impl World {
    /// Makes the folder with its configs and databases.
    pub async fn create(folder: Option<&Path>, keep: bool) -> anyhow::Result<Self> {
        let (folder, temporary) = if let Some(folder) = folder {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            anyhow::ensure!(
                std::fs::read_dir(folder)?.next().is_none(),
                "--dir {} is not empty: choose a new folder",
                folder.display()
            );
            (folder.canonicalize()?, None)
        } else {
            let temporary = tempfile::Builder::new().prefix("consign-demo-").tempdir()?;
            (temporary.path().to_path_buf(), Some(temporary))
        };
        std::fs::write(folder.join("relay.toml"), RELAY_CONFIG)?;
        std::fs::write(folder.join("consumer.toml"), CONSUMER_CONFIG)?;
        create_schema(&folder).await?;
        let eye = open_eye(&folder).await?;
        let mut world = Self { folder, temporary, eye };
        if keep {
            world.detach();
        }
        Ok(world)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The relays' config.
    pub fn relay_config(&self) -> PathBuf {
        self.folder.join("relay.toml")
    }

    /// The consumers' config.
    pub fn consumer_config(&self) -> PathBuf {
        self.folder.join("consumer.toml")
    }

    /// Where the children log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("processes.log")
    }

    /// The last lines of the children's log.
    pub fn log_tail(&self) -> String {
        const LINES: usize = 15;
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Keeps a temporary folder from being removed and names it.
    pub fn keep_for_inspection(mut self) -> PathBuf {
        self.detach();
        self.folder
    }

    fn detach(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = temporary.keep();
        }
    }

    /// The consumers' database.
    pub async fn points_pool(&self) -> anyhow::Result<SqlitePool> {
        pool(&self.folder.join("points.db")).await
    }

    /// A connection that sees all three databases: `main` is the orders', `queue` and `points` are attached.
    pub const fn eye(&self) -> &SqlitePool {
        &self.eye
    }

    /// Where the chain stands.
    pub async fn glance(&self) -> anyhow::Result<Glance> {
        let sql = "SELECT (SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'),
                          (SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'),
                          (SELECT COUNT(*) FROM queue.consign_queue_message WHERE queue <> 'tap'),
                          (SELECT COUNT(*) FROM points.consumed_operation WHERE consumer_name = 'points-award')";
        let (sent, dead, undelivered, applied): (i64, i64, i64, i64) =
            sqlx::query_as(sql).fetch_one(&self.eye).await?;
        let count = |number: i64| u64::try_from(number).unwrap_or_default();
        Ok(Glance {
            sent: count(sent),
            dead: count(dead),
            undelivered: count(undelivered),
            applied: count(applied),
        })
    }
}

async fn create_schema(folder: &Path) -> anyhow::Result<()> {
    let orders = pool(&folder.join("orders.db")).await?;
    sqlx::raw_sql(ORDERS_SCHEMA).execute(&orders).await?;
    let points = pool(&folder.join("points.db")).await?;
    sqlx::raw_sql(POINTS_SCHEMA).execute(&points).await?;
    for user in 1..=i64::try_from(USERS)? {
        sqlx::query("INSERT INTO points_account (user_id, points) VALUES (?, 0)")
            .bind(user)
            .execute(&points)
            .await?;
    }
    for config in ["relay.toml", "consumer.toml"] {
        crate::command::migrate::apply(&folder.join(config))
            .await
            .with_context(|| format!("cannot create the tables of {config}"))?;
    }
    // The processes create the queue file too, but on a busy machine not before the first look at it.
    let config = Config::load(&folder.join("relay.toml"), &Environment::of_process())?;
    for destination in config.destinations.values() {
        if let DestinationConfig::Embedded(file) = destination {
            parts::open_file(file).await?;
        }
    }
    Ok(())
}

async fn pool(path: &Path) -> anyhow::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(std::time::Duration::from_secs(10));
    SqlitePoolOptions::new()
        .max_connections(1)
        .connect_with(options)
        .await
        .with_context(|| format!("cannot open {}", path.display()))
}

async fn open_eye(folder: &Path) -> anyhow::Result<SqlitePool> {
    let eye = pool(&folder.join("orders.db")).await?;
    for (file, name) in [("queue.db", "queue"), ("points.db", "points")] {
        let path = folder.join(file);
        let path = path.to_str().context("the demo's folder must have a UTF-8 path")?;
        sqlx::query("ATTACH DATABASE ? AS ?").bind(path).bind(name).execute(&eye).await?;
    }
    Ok(eye)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_world_can_be_looked_at_before_any_process_runs() {
        let world = World::create(None, false).await.unwrap();

        let seen = world.glance().await.unwrap();

        assert_eq!((seen.sent, seen.dead, seen.undelivered, seen.applied), (0, 0, 0, 0));
    }
}
