//! The points story with one consumer, on either pair of parts.

use std::path::PathBuf;

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row};
use tempfile::TempDir;
use tokio::time::{Duration, Instant};

use crate::harness::{Broker, Child, World, url};
use crate::post::{Ended, SOON, beginning, must, run, store_url};

const STORY: &str = "CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT NOT NULL);
                     INSERT INTO points_account (user_id, points) VALUES (7, 0), (8, 0), (9, 0);";

/// A database, a broker and a config that leads to both.
pub struct Site {
    pub config: PathBuf,
    database: Database,
}

enum Database {
    MySql(Box<World>),
    Sqlite { pool: SqlitePool, _folder: TempDir },
}

impl Site {
    pub async fn on_mysql_and_rabbitmq() -> Self {
        let world = World::unmigrated().await;
        let name = &world.name;
        let destination = format!(
            "[destination.main]\ntype = \"rabbitmq\"\nurl = \"{}\"\nexchange = {{ name = \"{name}\" }}\n\n",
            url(Broker::RabbitMq)
        );
        // The names are the ones that the world takes away at its end.
        let queue = |queue: &str, binding: &str| {
            format!(
                "[[destination.main.queue]]\nname = \"{name}-{queue}\"\ntype = \"quorum\"\nbindings = [\"{binding}\"]\n\n"
            )
        };
        let queues = [queue("points", "OrderPaid"), queue("dead", "dead.#"), queue("audit", "#")].concat();
        let text = [beginning(&store_url(&world)), destination, queues, consumer(&format!("{name}-points"))]
            .concat();
        let config = world.folder.path().join("consign.toml");
        std::fs::write(&config, text).unwrap();
        let site = Self { config, database: Database::MySql(Box::new(world)) };
        site.prepare();
        site
    }

    pub async fn on_sqlite_and_embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = [
            beginning("sqlite:points.db"),
            "[destination.main]\ntype = \"embedded\"\npath = \"queue.db\"\n\n\
             [[destination.main.queue]]\nname = \"points\"\nbindings = [\"OrderPaid\"]\n\n\
             [[destination.main.queue]]\nname = \"dead\"\nbindings = [\"dead.*\"]\n\n\
             [[destination.main.queue]]\nname = \"audit\"\nbindings = [\"*\"]\n\n"
                .into(),
            consumer("points"),
        ]
        .concat();
        let config = folder.path().join("consign.toml");
        std::fs::write(&config, text).unwrap();
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("points.db"))
            .create_if_missing(true)
            .busy_timeout(SOON);
        let pool = SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options);
        sqlx::raw_sql(STORY).execute(&pool).await.unwrap();
        let site = Self { config, database: Database::Sqlite { pool, _folder: folder } };
        site.prepare();
        site
    }

    fn prepare(&self) {
        must(&["migrate"], &self.config);
        must(&["topology", "apply"], &self.config);
    }

    /// Another config beside the first one, made of its text.
    pub fn config_with(&self, file: &str, change: impl FnOnce(String) -> String) -> PathBuf {
        let path = self.config.with_file_name(file);
        std::fs::write(&path, change(std::fs::read_to_string(&self.config).unwrap())).unwrap();
        path
    }

    /// Relay and consumer in one process.
    pub fn start(&self) -> Child {
        Child::start("run", &self.config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")])
    }

    /// Runs a short command, whatever comes of it.
    pub fn call(&self, arguments: &[&str]) -> Ended {
        run(arguments, &self.config)
    }

    /// The document of a command that must succeed.
    pub fn json(&self, arguments: &[&str]) -> Value {
        document(arguments, &self.call(&[arguments, &["--json"]].concat()), 0)
    }

    /// The document of a command that must fail.
    pub fn json_of_failure(&self, arguments: &[&str]) -> Value {
        document(arguments, &self.call(&[arguments, &["--json"]].concat()), 1)
    }

    /// An order that was paid, due now.
    pub async fn pay(&self, event_id: &str, order: u32, user: u32, amount: u32) {
        self.event(
            event_id,
            "OrderPaid",
            &format!("{{\"orderId\":{order},\"userId\":{user},\"amount\":{amount}}}"),
        )
        .await;
    }

    /// An event, due now.
    pub async fn event(&self, event_id: &str, event_type: &str, payload: &str) {
        self.run(&format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) \
             VALUES ('{event_id}', 1, '{event_type}', '{payload}', 'NEW', {{now}}, {{now}})"
        ))
        .await;
    }

    /// This moment in the dialect's words.
    pub fn now(&self) -> &'static str {
        match &self.database {
            Database::MySql(_) => "NOW(6)",
            Database::Sqlite { .. } => "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
        }
    }

    /// Runs statements; `{now}` and `{long_ago}` are dates in the dialect's words.
    pub async fn run(&self, statements: &str) {
        let long_ago = match &self.database {
            Database::MySql(_) => "(NOW(6) - INTERVAL 90 DAY)",
            Database::Sqlite { .. } => "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-90 days')",
        };
        let statements =
            AssertSqlSafe(statements.replace("{now}", self.now()).replace("{long_ago}", long_ago));
        match &self.database {
            Database::MySql(world) => drop(sqlx::raw_sql(statements).execute(&world.pool).await.unwrap()),
            Database::Sqlite { pool, .. } => drop(sqlx::raw_sql(statements).execute(pool).await.unwrap()),
        }
    }

    /// The one number that a query gives; NULL is 0.
    pub async fn number(&self, query: &str) -> i64 {
        match &self.database {
            Database::MySql(world) => world.number(query).await,
            Database::Sqlite { pool, .. } => {
                let query = AssertSqlSafe(format!("SELECT CAST(({query}) AS INTEGER)"));
                let number: Option<i64> =
                    sqlx::query_scalar(query).fetch_one(pool).await.expect("the query answers");
                number.unwrap_or(0)
            }
        }
    }

    /// The first column of every row, as text.
    pub async fn texts(&self, query: &str) -> Vec<String> {
        let query = AssertSqlSafe(query.to_owned());
        match &self.database {
            Database::MySql(world) => {
                let rows = sqlx::query(query).fetch_all(&world.pool).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Database::Sqlite { pool, .. } => {
                let rows = sqlx::query(query).fetch_all(pool).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
        }
    }

    pub async fn points(&self, user: u32) -> i64 {
        self.number(&format!("SELECT points FROM points_account WHERE user_id = {user}")).await
    }

    /// Actor, action and detail of every line of the audit, oldest first.
    pub async fn audit(&self) -> Vec<(String, String, String)> {
        let actors = self.texts("SELECT actor FROM consign_audit ORDER BY id").await;
        let actions = self.texts("SELECT action FROM consign_audit ORDER BY id").await;
        let details = self.texts("SELECT COALESCE(detail, '') FROM consign_audit ORDER BY id").await;
        actors
            .into_iter()
            .zip(actions)
            .zip(details)
            .map(|((actor, action), detail)| (actor, action, detail))
            .collect()
    }

    /// Returns when the query gives this number.
    pub async fn until(&self, query: &str, wanted: i64) {
        const LOOK_EVERY: Duration = Duration::from_millis(20);
        let end = Instant::now() + SOON;
        loop {
            let number = self.number(query).await;
            if number == wanted {
                return;
            }
            assert!(Instant::now() < end, "not within {SOON:?}: {query} is {number}, not {wanted}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

fn document(arguments: &[&str], ended: &Ended, code: i32) -> Value {
    assert_eq!(ended.code, code, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
    serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}{}", ended.stdout, ended.stderr))
}

/// Drains a process that must end well.
pub async fn drain(mut child: Child) {
    child.terminate();
    assert!(child.wait(SOON).await.success(), "{}", child.log());
}

fn consumer(queue: &str) -> String {
    format!(
        "[[route]]\nevent_type = \"*\"\ndestination = \"main\"\n\n\
         [[consumer]]\nname = \"points-award\"\nsource = \"main\"\nqueue = \"{queue}\"\nkey = \"order:{{order_id}}:paid\"\n\
         compare = [\"user_id\", \"amount\"]\nattempts_max = 2\nretry_delay_seconds = 0\n\
         bind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n\
         bind.user_id = {{ pointer = \"/userId\", type = \"integer\" }}\n\
         bind.amount = {{ pointer = \"/amount\", type = \"integer\" }}\n\n\
         [[consumer.statement]]\n\
         sql = \"UPDATE points_account SET points = points + :amount WHERE user_id = :user_id\"\nexpect_rows = 1\n"
    )
}
