//! The measurements: rounds in which each side drains the same number of rows, one right after the other.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use consign::clock::ProcessClock;
use consign::draw::SystemDraw;
use consign::relay::RelayRuntime;
use consign::reload::Reload;
use consign::shutdown::shutdown;
use consign::wakeup::Wakeup;
use consign_core::lease::{Claim, ClaimRequest, Pending, Publish};
use consign_core::outcome::{Outcome, Proof};
use consign_core::ports::{Destination, Lane, OutboxStore, Readiness};
use consign_core::relay::RelaySettings;
use consign_core::route::{DestinationName, Route, RouteTable, Rule, Template};
use consign_core::settle::{SettleBatch, Settled};
use consign_core::time::Draw;
use consign_store::mysql::Outbox;
use consign_store::retention::AttemptLog;

use crate::config::{Config, Database};

use super::scratch::{FRESH, HISTORY, NAME, OUTBOX, Scratch};

const ROUNDS: u32 = 3;
/// Rows of one round that a row-by-row relay drains: enough to measure, few enough to wait for.
const ONE_BY_ONE_ROWS: u32 = 300;
/// Connecting to the broker takes at most this long.
const CONNECT_DEADLINE: Duration = Duration::from_mins(1);
/// Nothing in the bench takes longer.
const DEADLINE: Duration = Duration::from_mins(10);

/// What was measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// Rows per second through a relay process to the broker, per round.
    pub drain_per_second: Vec<f64>,
    /// Rows per second of the same claims and settles without a broker, per round.
    pub store_limit_per_second: Vec<f64>,
    /// Rows per second of the same claims and settles in turn, without engine and broker, per round.
    pub bare_per_second: Vec<f64>,
    /// The store limit with the log of attempts, per round, measured beside the next figure.
    pub logged_per_second: Vec<f64>,
    /// The store limit without the log of attempts, per round.
    pub unlogged_per_second: Vec<f64>,
    /// Rows per second of a relay that claims, publishes, awaits and settles row by row, per round.
    pub one_by_one_per_second: Vec<f64>,
    /// The median cost of a claim among many SENT rows, in claims without any.
    pub claim_ratio: f64,
    /// The most memory the relay process ever held.
    pub relay_peak_rss_mib: f64,
}

/// Runs all rounds.
pub async fn relay(config: &Config, scratch: &Scratch, rows: u32, sent_rows: u32) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let per_round = rows / ROUNDS;
    for round in 1..=ROUNDS {
        eprintln!(
            "bench: round {round} of {ROUNDS}: {per_round} rows through the store alone, one after the other and pipelined"
        );
        scratch.fill(OUTBOX, per_round).await?;
        figures.bare_per_second.push(bare_rate(config, scratch).await?);
        scratch.fill(OUTBOX, per_round).await?;
        figures.store_limit_per_second.push(store_limit(config, scratch, AttemptLog::All, per_round).await?);
        eprintln!("bench: round {round} of {ROUNDS}: {per_round} rows through a relay process to the broker");
        scratch.fill(OUTBOX, per_round).await?;
        let drain = drain(config, scratch, per_round).await?;
        figures.drain_per_second.push(drain.per_second);
        figures.relay_peak_rss_mib = figures.relay_peak_rss_mib.max(drain.peak_rss_mib);
        eprintln!("bench: round {round} of {ROUNDS}: {ONE_BY_ONE_ROWS} rows one by one");
        scratch.fill(OUTBOX, ONE_BY_ONE_ROWS).await?;
        figures.one_by_one_per_second.push(one_by_one(scratch).await?);
        scratch.broker().renew().await?;
        eprintln!("bench: round {round} of {ROUNDS}: {per_round} rows with the log of attempts and without");
        // The second of two runs finds a machine that the first one has warmed: they take turns.
        let logs = [AttemptLog::All, AttemptLog::Off];
        for log in if round % 2 == 1 { logs } else { [logs[1], logs[0]] } {
            scratch.sql(format!("TRUNCATE TABLE {OUTBOX}")).await?;
            scratch.fill(OUTBOX, per_round).await?;
            let rate = store_limit(config, scratch, log, per_round).await?;
            match log {
                AttemptLog::All => figures.logged_per_second.push(rate),
                AttemptLog::Failures | AttemptLog::Off => figures.unlogged_per_second.push(rate),
            }
        }
        scratch.sql(format!("TRUNCATE TABLE {OUTBOX}")).await?;
    }
    eprintln!("bench: claims beside {sent_rows} SENT rows and beside none");
    figures.claim_ratio = claim_ratio(scratch, sent_rows).await?;
    Ok(figures)
}

/// A destination that is not there: every publish is confirmed at once.
struct Nowhere;

impl Destination for Nowhere {
    async fn publish(&self, _lane: Lane, _publish: Publish) -> Outcome {
        Outcome::Confirmed(Proof::Appended { partition: 0, offset: 0 })
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        if *known == Readiness::Accepting {
            std::future::pending::<()>().await;
        }
        Readiness::Accepting
    }
}

fn routes() -> anyhow::Result<RouteTable> {
    let destination = DestinationName::new(NAME);
    let rule = Rule {
        event_type: "*".into(),
        destination: destination.clone(),
        key: Template::parse("{event_type}")?,
        retry: None,
    };
    Ok(RouteTable::new(vec![rule], vec![destination]))
}

fn settings(config: &Config) -> RelaySettings {
    config.relay.settings.clone()
}

/// The bare claim-and-settle rate: a claim as large as the relay's, then its settle, one after the other.
async fn bare_rate(config: &Config, scratch: &Scratch) -> anyhow::Result<f64> {
    let clock = ProcessClock::start();
    let store = scratch.outbox(OUTBOX)?;
    store.shape().await?;
    let RelaySettings { batch_rows, batch_bytes, lease, publish, .. } = settings(config);
    let started = Instant::now();
    let mut rows = 0_u32;
    loop {
        let request = ClaimRequest::new(batch_rows, batch_bytes, lease, SystemDraw.bits(), clock.now());
        let claims = store.claim(request).await?.claims;
        if claims.is_empty() {
            return Ok(f64::from(rows) / started.elapsed().as_secs_f64());
        }
        let mut settlements = Vec::with_capacity(claims.len());
        for claim in claims {
            let route = Route { destination: DestinationName::new(NAME), key: String::new() };
            let Ok((_, pending)) = claim.start(clock.now(), publish, route) else {
                bail!("the lease ran out between a claim and its settle")
            };
            settlements.push(pending.confirmed(Proof::Appended { partition: 0, offset: 0 }));
            rows += 1;
        }
        let settled = store.settle(&SettleBatch { settlements, repeat: false }).await?;
        ensure!(settled.iter().all(|one| *one == Settled::Applied), "a settle of the bench was fenced");
    }
}

/// The relay's own engine, claims and settles, pipelined as they are, with no broker at all.
async fn store_limit(config: &Config, scratch: &Scratch, log: AttemptLog, rows: u32) -> anyhow::Result<f64> {
    let (trigger, asked) = shutdown();
    let runtime = RelayRuntime {
        name: "bench".into(),
        store: Arc::new(scratch.outbox_with_log(OUTBOX, log)?),
        destinations: BTreeMap::from([(DestinationName::new(NAME), Arc::new(Nowhere))]),
        routes: routes()?,
        settings: settings(config),
        clock: ProcessClock::start(),
        wakeup: Wakeup::default(),
        reload: Reload::default(),
    };
    let started = Instant::now();
    let running = tokio::spawn(runtime.run(asked));
    let elapsed = until_drained(scratch, started).await?;
    trigger.request();
    running.await.context("the engine broke an invariant")?;
    Ok(f64::from(rows) / elapsed.as_secs_f64())
}

async fn until_drained(scratch: &Scratch, started: Instant) -> anyhow::Result<Duration> {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if scratch.drained().await? {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < DEADLINE, "the backlog was not drained within {DEADLINE:?}");
    }
}

struct Drain {
    per_second: f64,
    peak_rss_mib: f64,
}

/// A relay process of its own, as it is run in production, so that its memory can be read from the system.
async fn drain(config: &Config, scratch: &Scratch, rows: u32) -> anyhow::Result<Drain> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("consign.toml");
    std::fs::write(&file, relay_config(config, scratch))?;
    let Database::MySql { url, .. } = &config.store.database else { bail!("the store is MySQL") };
    let before = scratch.sent().await?;
    let started = Instant::now();
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    // Overrides of the bench's own config are no keys of the relay's.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONSIGN__")) {
        command.env_remove(name);
    }
    let mut child = command
        .args(["relay", "--config"])
        .arg(&file)
        .env("CONSIGN_BENCH_STORE_URL", url.expose())
        .env("CONSIGN_BENCH_BROKER_URL", scratch.broker().url())
        .env("CONSIGN_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start the relay process")?;
    let elapsed = tokio::select! {
        elapsed = until_drained(scratch, started) => elapsed?,
        status = child.wait() => bail!("the relay process ended by itself: {}", status?),
    };
    let id = child.id().context("the relay process is running")?;
    let peak_rss_mib = peak_rss_mib(id)?;
    tokio::process::Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
    ensure!(child.wait().await?.success(), "the relay process did not drain");
    let sent = scratch.sent().await? - before;
    ensure!(sent == i64::from(rows), "the relay sent {sent} of {rows} rows");
    Ok(Drain { per_second: f64::from(rows) / elapsed.as_secs_f64(), peak_rss_mib })
}

/// `VmHWM` of Linux's process status: the most memory the process ever held.
fn peak_rss_mib(id: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))
        .context("the peak memory is read from /proc")?;
    let line =
        status.lines().find(|line| line.starts_with("VmHWM:")).context("the system reports no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).context("VmHWM has a number")?.parse()?;
    Ok(kib / 1024.0)
}

/// The configured relay on the bench's table and queue. Urls come by the environment: they may hold secrets.
fn relay_config(config: &Config, scratch: &Scratch) -> String {
    let relay = settings(config);
    let mut text = String::from("[store]\nurl = \"${CONSIGN_BENCH_STORE_URL}\"\n");
    if let Database::MySql { time_zone, tls_ca_file, .. } = &config.store.database {
        for (key, value) in [
            ("time_zone", time_zone.clone()),
            ("tls_ca_file", tls_ca_file.as_ref().map(|path| path.display().to_string())),
        ] {
            if let Some(value) = value {
                let _ = writeln!(text, "{key} = {}", toml::Value::String(value));
            }
        }
    }
    let _ = write!(text, "[[outbox]]\ntable = \"{OUTBOX}\"\n[relay]\n");
    for (key, value) in [
        ("batch_rows", u64::from(relay.batch_rows)),
        ("batch_bytes", relay.batch_bytes as u64),
        ("window", relay.window as u64),
        ("window_bytes", relay.window_bytes as u64),
        ("held_bytes", relay.held_bytes as u64),
        ("lease_seconds", relay.lease.as_secs()),
        ("publish_deadline_seconds", relay.publish.deadline.as_secs()),
        ("margin_seconds", relay.publish.margin.as_secs()),
    ] {
        let _ = writeln!(text, "{key} = {value}");
    }
    text.push_str(&scratch.broker().sections());
    text
}

/// A relay as people write it first: claim one row, publish it, await its confirm, settle it.
async fn one_by_one(scratch: &Scratch) -> anyhow::Result<f64> {
    let clock = ProcessClock::start();
    let store = scratch.outbox(OUTBOX)?;
    let destination = scratch.broker().destination(clock).await?;
    let mut readiness = Readiness::Unavailable(String::new());
    while readiness != Readiness::Accepting {
        readiness = tokio::time::timeout(CONNECT_DEADLINE, destination.readiness_after(&readiness))
            .await
            .context("the broker was not reached")?;
    }
    let limits = RelaySettings::default();
    let started = Instant::now();
    let mut rows = 0_u32;
    while let Some(claim) = claim_one(&store, &clock).await? {
        let key = scratch.broker().key(&claim.event().event_type);
        let route = Route { destination: DestinationName::new(NAME), key };
        let Ok((publish, pending)) = claim.start(clock.now(), limits.publish, route) else {
            bail!("the lease ran out while one row was published")
        };
        let outcome = destination.publish(Lane::Window, publish).await;
        settle_one(&store, pending, outcome).await?;
        rows += 1;
    }
    Ok(f64::from(rows) / started.elapsed().as_secs_f64())
}

async fn claim_one(store: &Outbox, clock: &ProcessClock) -> anyhow::Result<Option<Claim>> {
    let lease = Duration::from_secs(30);
    let request = ClaimRequest::new(1, usize::MAX, lease, SystemDraw.bits(), clock.now());
    Ok(store.claim(request).await?.claims.pop())
}

async fn settle_one(store: &Outbox, pending: Pending, outcome: Outcome) -> anyhow::Result<()> {
    let Outcome::Confirmed(proof) = outcome else { bail!("a publish of the bench came to {outcome:?}") };
    let batch = SettleBatch { settlements: vec![pending.confirmed(proof)], repeat: false };
    let settled = store.settle(&batch).await?;
    ensure!(settled == [Settled::Applied], "a settle of the bench came to {settled:?}");
    Ok(())
}

/// Claims on both tables in turn, so that whatever else the machine does hits both.
async fn claim_ratio(scratch: &Scratch, sent_rows: u32) -> anyhow::Result<f64> {
    const CLAIMS: u32 = 30;
    const BATCH: u32 = 200;
    scratch.fill_sent(sent_rows).await?;
    for table in [HISTORY, FRESH] {
        scratch.fill(table, CLAIMS * BATCH).await?;
        scratch.sql(format!("ANALYZE TABLE {table}")).await?;
    }
    let clock = ProcessClock::start();
    let mut costs = BTreeMap::from([(HISTORY, Vec::new()), (FRESH, Vec::new())]);
    for _ in 0..CLAIMS {
        for (table, costs) in &mut costs {
            let store = scratch.outbox(table)?;
            store.shape().await?;
            let lease = Duration::from_mins(5);
            let request = ClaimRequest::new(BATCH, usize::MAX, lease, SystemDraw.bits(), clock.now());
            let started = Instant::now();
            let claimed = store.claim(request).await?;
            costs.push(started.elapsed().as_secs_f64());
            ensure!(claimed.claims.len() == BATCH as usize, "a claim brought {} rows", claimed.claims.len());
        }
    }
    Ok(crate::command::bench::median(&costs[HISTORY]) / crate::command::bench::median(&costs[FRESH]))
}
