//! The rounds: competing and ordered in turn, then ordered relays that are killed.

use std::fmt::Write;
use std::num::NonZeroU16;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use consign_broker::rabbitmq::{RabbitMqSource, SourceOptions};
use consign_core::inbox::Failed;
use consign_core::outcome::Proof;
use consign_core::ports::Source;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use crate::config::{Config, Database};

use super::Arguments;
use super::audit::Audit;
use super::scratch::{NAME, Scratch, TABLE};

/// Rounds of each mode.
const ROUNDS: u32 = 2;
/// Relays that share the aggregates in the round with kills.
const RELAYS: usize = 3;
/// How often one of them is killed.
const KILLS: u32 = 4;
/// Nothing in the bench takes longer.
const DEADLINE: Duration = Duration::from_mins(10);

/// What was measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// Events appended in all rounds of ordered mode.
    pub events: u64,
    /// Events that overtook another one of their aggregate.
    pub violations: u64,
    /// Events that were never delivered.
    pub lost: u64,
    /// Copies.
    pub repeats: u64,
    /// Relay processes that were killed.
    pub relay_kills: u32,
    /// Events per second through one relay in ordered mode, per round.
    pub ordered_per_second: Vec<f64>,
    /// Events per second through one relay in competing mode, per round.
    pub competing_per_second: Vec<f64>,
}

/// Runs all rounds.
pub async fn order(config: &Config, scratch: &Scratch, arguments: &Arguments) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let rounds = 2 * ROUNDS + u32::from(arguments.kill);
    let events = (arguments.events / rounds).max(1);
    for round in 1..=ROUNDS {
        for mode in ["competing", "ordered"] {
            eprintln!("bench: round {round} of {ROUNDS}: {events} events in {mode} mode");
            scratch.fill(arguments.aggregates, events).await?;
            let consumer = Consumer::start(scratch);
            let mut relay = Relay::start(config, scratch, mode, Lease::Long)?;
            let elapsed = relay.drain(scratch).await?;
            relay.stop().await?;
            let audit = consumer.finish(u64::from(events)).await?;
            let per_second = f64::from(events) / elapsed.as_secs_f64();
            if mode == "ordered" {
                figures.ordered_per_second.push(per_second);
                figures.count(events, &audit);
            } else {
                figures.competing_per_second.push(per_second);
            }
        }
    }
    if arguments.kill {
        eprintln!("bench: {events} events through {RELAYS} ordered relays, {KILLS} of them killed");
        scratch.fill(arguments.aggregates, events).await?;
        let consumer = Consumer::start(scratch);
        figures.relay_kills = killed(config, scratch, events).await?;
        let audit = consumer.finish(u64::from(events)).await?;
        figures.count(events, &audit);
    }
    Ok(figures)
}

impl Figures {
    fn count(&mut self, events: u32, audit: &Audit) {
        self.events += u64::from(events);
        self.violations += audit.violations;
        self.repeats += audit.repeats;
        self.lost += u64::from(events).saturating_sub(audit.events);
    }
}

/// Kills a relay each time another share of the events is SENT, and starts a new one in its place.
async fn killed(config: &Config, scratch: &Scratch, events: u32) -> anyhow::Result<u32> {
    let mut relays = Vec::new();
    for _ in 0..RELAYS {
        relays.push(Relay::start(config, scratch, "ordered", Lease::Short)?);
    }
    let started = Instant::now();
    let mut kills = 0;
    while kills < KILLS {
        let share = u64::from(events) * u64::from(kills + 1) / u64::from(KILLS + 2);
        while scratch.sent().await? < share {
            ensure!(started.elapsed() < DEADLINE, "{share} events were not sent within {DEADLINE:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut victim = relays.remove(0);
        victim.child.start_kill().context("cannot kill a relay")?;
        victim.child.wait().await?;
        kills += 1;
        relays.push(Relay::start(config, scratch, "ordered", Lease::Short)?);
    }
    relays[0].drain(scratch).await?;
    for relay in relays {
        relay.stop().await?;
    }
    Ok(kills)
}

/// How long leases are: as configured, or short so that nobody waits long for those of the killed.
#[derive(Clone, Copy)]
enum Lease {
    Long,
    Short,
}

/// A relay process of its own, as it is run in production.
struct Relay {
    child: Child,
    /// Holds its config.
    _folder: tempfile::TempDir,
}

impl Relay {
    fn start(config: &Config, scratch: &Scratch, mode: &str, lease: Lease) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("consign.toml");
        std::fs::write(&file, relay_config(config, scratch, mode, lease))?;
        let Database::MySql { url, .. } = &config.store.database else { bail!("the store is MySQL") };
        let child = Command::new(std::env::current_exe()?)
            .args(["relay", "--config"])
            .arg(&file)
            .env("CONSIGN_BENCH_STORE_URL", url.expose())
            .env("CONSIGN_BENCH_BROKER_URL", scratch.broker.url.expose())
            .env("CONSIGN_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a relay process")?;
        Ok(Self { child, _folder: folder })
    }

    /// Waits until every event is SENT.
    async fn drain(&mut self, scratch: &Scratch) -> anyhow::Result<Duration> {
        let started = Instant::now();
        while !scratch.drained().await? {
            ensure!(started.elapsed() < DEADLINE, "the backlog was not drained within {DEADLINE:?}");
            if let Some(status) = self.child.try_wait()? {
                bail!("the relay process ended by itself: {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(started.elapsed())
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        let id = self.child.id().context("the relay process is running")?;
        Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        ensure!(self.child.wait().await?.success(), "the relay process did not drain");
        Ok(())
    }
}

/// The configured relay on the bench's table and queue. Urls come by the environment: they may hold secrets.
fn relay_config(config: &Config, scratch: &Scratch, mode: &str, lease: Lease) -> String {
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
    let _ = writeln!(text, "[[outbox]]\nname = \"{NAME}\"\ntable = \"{TABLE}\"");
    let _ = writeln!(text, "[relay]\nmode = \"{mode}\"");
    if let Lease::Short = lease {
        let _ = writeln!(
            text,
            "lease_seconds = 5\npublish_deadline_seconds = 3\nmargin_seconds = 1\nsweep_seconds = 1\n\
             partition_lease_seconds = 3"
        );
    }
    let _ = write!(
        text,
        "[destination.{NAME}]\ntype = \"rabbitmq\"\nurl = \"${{CONSIGN_BENCH_BROKER_URL}}\"\n\
         exchange = {{ name = \"{NAME}\", type = \"topic\", durable = true }}\n"
    );
    let tls = &scratch.broker.tls;
    for (key, path) in [
        ("tls_ca_file", &tls.ca),
        ("tls_client_cert_file", &tls.client_cert),
        ("tls_client_key_file", &tls.client_key),
    ] {
        if let Some(path) = path {
            let _ = writeln!(text, "{key} = {}", toml::Value::String(path.display().to_string()));
        }
    }
    let _ = write!(
        text,
        "[[route]]\nevent_type = \"*\"\ndestination = \"{NAME}\"\nkey = \"order.{{aggregate_id}}\"\n"
    );
    text
}

/// Reads the queue all the while, since a growing one would slow the broker down.
struct Consumer {
    audit: Arc<Mutex<Audit>>,
    reading: JoinHandle<anyhow::Result<()>>,
}

#[derive(serde::Deserialize)]
struct Payload {
    aggregate: u32,
    version: u32,
}

impl Consumer {
    fn start(scratch: &Scratch) -> Self {
        let audit = Arc::new(Mutex::new(Audit::default()));
        let prefetch = NonZeroU16::new(1000).expect("not zero");
        let options = SourceOptions { connect: scratch.connect.clone(), queue: NAME.into(), prefetch };
        let reading = tokio::spawn(read(options, Arc::clone(&audit)));
        Self { audit, reading }
    }

    /// Waits until `events` distinct events came, or for none to come any more, and ends.
    async fn finish(self, events: u64) -> anyhow::Result<Audit> {
        const QUIET: Duration = Duration::from_secs(10);
        let lock = || self.audit.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = || {
            let audit = lock();
            audit.events + audit.repeats
        };
        let (mut last, mut since) = (seen(), Instant::now());
        while lock().events < events && since.elapsed() < QUIET {
            ensure!(!self.reading.is_finished(), "the consumer ended by itself");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = seen();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        self.reading.abort();
        let audit = std::mem::take(&mut *lock());
        Ok(audit)
    }
}

async fn read(options: SourceOptions, audit: Arc<Mutex<Audit>>) -> anyhow::Result<()> {
    let mut source = RabbitMqSource::new(options);
    while let Some(delivery) = source.next().await {
        let payload: Payload =
            serde_json::from_slice(&delivery.message.body).context("a message is not the bench's own")?;
        audit.lock().unwrap_or_else(PoisonError::into_inner).delivered(payload.aggregate, payload.version);
        // The bench has no inbox: what it saw is counted, and that is all its effect.
        let seen = Failed::refused(delivery, "seen");
        seen.dead_lettered(&Proof::Appended { partition: 0, offset: 0 }).await.ok();
    }
    Ok(())
}
