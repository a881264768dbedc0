//! Where a round takes place: a fresh database, an exchange with its queues, proxies, configs, processes, producers.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use consign_conformance::proxy::Proxy;
use sqlx::mysql::{MySqlConnectOptions, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, query, query_as};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::{Fleet, Paths};
use crate::load::Load;
use crate::random::Random;
use crate::servers::{MYSQL, Servers};

/// How long the servers may take for one answer.
const ANSWER: Duration = Duration::from_secs(20);
/// How long until everything committed has to be sent and applied, after the last fault was healed.
const RECOVERY_LIMIT: Duration = Duration::from_mins(3);
/// A recovery that takes longer tells what it waits for, as often.
const SLOW: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const RELAYS: usize = 2;
const CONSUMERS: usize = 2;

/// The tables of the story. `effect` has no unique key on its number on purpose: a doubled effect would show.
pub const TABLES: &str = "
CREATE TABLE purchase_order (number BIGINT UNSIGNED PRIMARY KEY, user_id BIGINT NOT NULL, amount BIGINT NOT NULL);
CREATE TABLE ledger (number BIGINT UNSIGNED PRIMARY KEY, event_id VARCHAR(64) NOT NULL UNIQUE);
CREATE TABLE acknowledged (number BIGINT UNSIGNED PRIMARY KEY);
CREATE TABLE effect (
    id BIGINT PRIMARY KEY AUTO_INCREMENT, number BIGINT UNSIGNED NOT NULL, user_id BIGINT NOT NULL,
    amount BIGINT NOT NULL, KEY idx_number (number));
CREATE TABLE copy (
    id BIGINT PRIMARY KEY AUTO_INCREMENT, event_id VARCHAR(64) NOT NULL, body JSON NOT NULL, KEY idx_event (event_id));";

/// Events from a number on, up to another one, that are not yet sent and applied: how many by the status of their row. SENT
/// is one that no consumer has applied.
const UNFINISHED: &str = "
SELECT COALESCE(outbox_event.status, 'missing'), COUNT(*) FROM ledger
LEFT JOIN outbox_event USING (event_id)
LEFT JOIN consumed_operation
    ON consumer_name = 'effects' AND consumed_operation.business_key = CONCAT('event:', ledger.number)
WHERE ledger.number >= ? AND ledger.number < ?
    AND (outbox_event.status IS NULL OR outbox_event.status <> 'SENT' OR consumed_operation.business_key IS NULL)
GROUP BY outbox_event.status";

/// The proxies between the processes and the servers.
pub struct Network {
    pub relays_store: Proxy,
    pub relays_broker: Proxy,
    pub consumers_store: Proxy,
    pub consumers_broker: Proxy,
}

impl Network {
    async fn start(store: SocketAddr, relays: SocketAddr, consumers: SocketAddr) -> Result<Self> {
        Ok(Self {
            relays_store: Proxy::start(store).await?,
            relays_broker: Proxy::start(relays).await?,
            consumers_store: Proxy::start(store).await?,
            consumers_broker: Proxy::start(consumers).await?,
        })
    }
}

/// The servers a round uses.
#[derive(Clone, Debug)]
pub struct Scenery {
    /// Has the database.
    pub store: Arc<Servers>,
    /// Has the broker.
    pub broker: Arc<Servers>,
    /// The broker nodes that relays and consumers connect to; the audit uses that of the consumers.
    pub nodes: [&'static str; 2],
    /// The file system of the database, when it is a small one.
    pub disk: Option<PathBuf>,
}

/// One round's world.
pub struct Stage {
    /// Database and exchange are called so.
    pub name: String,
    pub pool: MySqlPool,
    pub scenery: Scenery,
    pub broker_url: String,
    pub network: Network,
    pub fleet: Fleet,
    pub load: Load,
    pub random: Random,
    /// Servers killed by signal so far.
    pub server_kills: u64,
    /// When the queues were declared.
    declared: Instant,
    /// Events of the whole round.
    events: u64,
    folder: TempDir,
    /// Events below this number were seen finished.
    finished: u64,
}

impl Stage {
    /// Builds everything and starts the processes. `broker` is the server to use.
    pub async fn set(scenery: &Scenery, program: &Path, events: u64, mut random: Random) -> Result<Self> {
        let name = format!("torture_{:012x}", fresh_name()?);
        let store_url = scenery.store.url(MYSQL).await?;
        let [relays, consumers] = scenery.nodes;
        let relays_url = scenery.broker.url(relays).await?;
        let broker_url = scenery.broker.url(consumers).await?;
        let clustered = relays != consumers;
        let server: MySqlConnectOptions = store_url.parse()?;
        let server = server.timezone(None).disable_statement_logging();
        let mut connection = server.connect().await.context("the database server does not answer")?;
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin");
        query(AssertSqlSafe(create)).execute(&mut connection).await?;
        connection.close().await?;
        let pool = MySqlPoolOptions::new()
            .max_connections(8)
            .acquire_timeout(ANSWER)
            .connect_lazy_with(server.database(&name));
        sqlx::raw_sql(TABLES).execute(&pool).await?;

        let network =
            Network::start(address(&store_url)?, address(&relays_url)?, address(&broker_url)?).await?;
        let folder = tempfile::tempdir()?;
        let config = |file: &str, store: SocketAddr, broker: SocketAddr| {
            let path = folder.path().join(file);
            let text = config(&name, &through(&store_url, store), &through(&broker_url, broker), clustered);
            std::fs::write(&path, text).map(|()| path)
        };
        let paths = Paths {
            program: program.to_owned(),
            relay_config: config(
                "relay.toml",
                network.relays_store.address(),
                network.relays_broker.address(),
            )?,
            consumer_config: config(
                "consumer.toml",
                network.consumers_store.address(),
                network.consumers_broker.address(),
            )?,
            folder: folder.path().into(),
        };
        run(program, &["migrate"], &paths.relay_config).await?;
        run(program, &["topology", "apply"], &paths.relay_config).await?;
        let declared = Instant::now();
        let fleet = Fleet::start(paths, RELAYS, CONSUMERS)?;
        let load = Load::start(pool.clone(), &mut random);
        Ok(Self {
            name,
            pool,
            scenery: scenery.clone(),
            broker_url,
            network,
            fleet,
            load,
            random,
            server_kills: 0,
            declared,
            events,
            folder,
            finished: 1,
        })
    }

    /// Waits until everything that was committed so far is sent and applied; gives the seconds that took.
    pub async fn recovered(&mut self) -> Result<f64> {
        let started = Instant::now();
        let end = self.load.next_number();
        let mut told = started;
        loop {
            self.fleet.tend()?;
            let unfinished = query_as::<_, (String, i64)>(UNFINISHED).bind(self.finished).bind(end);
            let unfinished = timeout(ANSWER, unfinished.fetch_all(&self.pool)).await;
            if unfinished.as_ref().is_ok_and(|rows| rows.as_ref().is_ok_and(Vec::is_empty)) {
                self.finished = end;
                return Ok(started.elapsed().as_secs_f64());
            }
            if started.elapsed() > RECOVERY_LIMIT {
                bail!("not everything was sent and applied {RECOVERY_LIMIT:?} after the fault was healed");
            }
            if told.elapsed() > SLOW {
                told = Instant::now();
                eprint!(" [after {} s: {unfinished:?}]", started.elapsed().as_secs());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns when the broker has written down that it has the queues. RabbitMQ 4.0.5 that is killed in the second after it
    /// declared a quorum queue does not find the queue's member again, and the queue never answers any more.
    pub async fn declaration_is_durable(&self) {
        const SETTLED: Duration = Duration::from_secs(10);
        sleep(SETTLED.saturating_sub(self.declared.elapsed())).await;
    }

    /// How many events may still be granted.
    pub fn spare(&self) -> u64 {
        self.events - self.load.granted()
    }

    /// Keeps configs and logs beyond the end of this run, to be looked at.
    pub fn keep_folder(self) -> PathBuf {
        self.folder.keep()
    }

    /// Takes the database away again.
    pub async fn drop_database(&self) -> Result<()> {
        query(AssertSqlSafe(format!("DROP DATABASE {}", self.name))).execute(&self.pool).await?;
        Ok(())
    }
}

/// Runs a short command of the program.
async fn run(program: &Path, words: &[&str], config: &Path) -> Result<()> {
    let mut command = tokio::process::Command::new(program);
    command.args(words).arg("--config").arg(config).stdin(std::process::Stdio::null());
    let output = command.output().await.with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(
        output.status.success(),
        "consign {words:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn fresh_name() -> Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?;
    Ok(u64::from_le_bytes(bytes) >> 16)
}

/// The host and port in a url, and where they stand.
fn authority(url: &str) -> Result<(usize, usize)> {
    let scheme = url.find("://").context("a server's url has a scheme")? + 3;
    let from = url[scheme..].find('@').map_or(scheme, |at| scheme + at + 1);
    let to = url[from..].find('/').map_or(url.len(), |slash| from + slash);
    Ok((from, to))
}

fn address(url: &str) -> Result<SocketAddr> {
    let (from, to) = authority(url)?;
    url[from..to].parse().with_context(|| format!("{} is no address", &url[from..to]))
}

/// The same url by way of a proxy.
fn through(url: &str, proxy: SocketAddr) -> String {
    let (from, to) = authority(url).expect("the url was taken apart before");
    format!("{}{proxy}{}", &url[..from], &url[to..])
}

fn config(name: &str, store: &str, broker: &str, clustered: bool) -> String {
    // A classic queue is gone as long as its node is.
    let audit = if clustered { "quorum" } else { "classic" };
    let (server, _) = store.rsplit_once('/').expect("the database url ends with a database");
    format!(
        r##"[store]
url = "{server}/{name}"

[relay]
batch_rows = 200
lease_seconds = 2
publish_deadline_seconds = 1
margin_seconds = 1
sweep_seconds = 1
sweep_delay_seconds = 0
poll_max_milliseconds = 100
drain_seconds = 5

[retry]
base_seconds = 1
cap_seconds = 2
attempts_max = 1000

[destination.main]
type = "rabbitmq"
url = "{broker}"
exchange = {{ name = "{name}", type = "topic", durable = true }}

# Consumers are killed here as often as a limit would take for a poisonous message.
[[destination.main.queue]]
name = "{name}-effects"
type = "quorum"
delivery_limit = -1
bindings = ["OrderPaid"]

[[destination.main.queue]]
name = "{name}-audit"
type = "{audit}"
bindings = ["#"]

[[route]]
event_type = "*"
destination = "main"

[[consumer]]
name = "effects"
source = "main"
queue = "{name}-effects"
key = "event:{{number}}"
fingerprint = ["user_id", "amount"]
bind.number = {{ pointer = "/number", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}
bind.amount = {{ pointer = "/amount", type = "integer" }}

[[consumer.statement]]
sql = "INSERT INTO effect (number, user_id, amount) VALUES (:number, :user_id, :amount)"
"##
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_by_way_of_a_proxy_keeps_all_but_the_address() {
        let proxy = "127.0.0.1:4".parse().unwrap();

        assert_eq!(
            through("amqp://guest:guest@127.0.0.1:28074/%2f", proxy),
            "amqp://guest:guest@127.0.0.1:4/%2f"
        );
        assert_eq!(through("mysql://root@127.0.0.1:28006/mysql", proxy), "mysql://root@127.0.0.1:4/mysql");
    }
}
