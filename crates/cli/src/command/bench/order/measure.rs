//! The rounds: competing and ordered in turn, then ordered relays that are killed.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use consign_broker::rabbitmq::{RabbitMqSource, SourceOptions};
use consign_core::inbox::Failed;
use consign_core::outcome::Proof;
use consign_core::ports::Source;
use tokio::task::JoinHandle;

use crate::command::bench::relay_process::{RelayProcess, Task};
use crate::config::{Config, ORDERED_HELD_ROWS};

use super::Arguments;
use super::audit::Audit;
use super::scratch::{Kill, NAME, Scratch, TABLE};

/// Rounds of each mode.
const ROUNDS: u32 = 2;
/// Relays that share the aggregates in the round with kills.
const RELAYS: u32 = 3;
/// How often one of them is killed.
const KILLS: u32 = 4;
/// How long a relay of the round with kills holds a partition without a word.
pub const PARTITION_LEASE: Duration = Duration::from_secs(3);
/// How long it holds a row.
pub const LEASE: Duration = Duration::from_secs(5);
/// How often the table is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
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
    /// How long each aggregate that a killed relay was at stood still: from just before the kill to the settle of the
    /// first event that another relay published, in milliseconds.
    pub takeover_ms: Vec<f64>,
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
            let mut relay = start(config, scratch, &format!("mode = \"{mode}\""))?;
            let elapsed = drained(scratch, &mut relay).await?;
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
        let kills = killed(config, scratch, events).await?;
        figures.relay_kills = u32::try_from(kills.len())?;
        for kill in &kills {
            figures.takeover_ms.extend(scratch.takeover_ms(kill).await?);
        }
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
async fn killed(config: &Config, scratch: &Scratch, events: u32) -> anyhow::Result<Vec<Kill>> {
    let config = hasty(config);
    let mut relays = VecDeque::new();
    for number in 0..RELAYS {
        relays.push_back(start_named(&config, scratch, number)?);
    }
    let started = Instant::now();
    let mut kills = Vec::new();
    for number in 1..=KILLS {
        let share = u64::from(events) * u64::from(number) / u64::from(KILLS + 2);
        while scratch.sent().await? < share {
            ensure!(started.elapsed() < DEADLINE, "{share} events were not sent within {DEADLINE:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let (relay, victim) = relays.pop_front().context("there are relays")?;
        kills.push(Kill { relay, at: scratch.now().await? });
        victim.kill().await?;
        relays.push_back(start_named(&config, scratch, RELAYS + number)?);
    }
    drained(scratch, &mut relays[0].1).await?;
    for (_, relay) in relays {
        relay.stop().await?;
    }
    Ok(kills)
}

/// A relay under a name of its own, by which its attempts are found in the log: neither another one of this bench nor one of an
/// earlier bench has it.
fn start_named(config: &Config, scratch: &Scratch, number: u32) -> anyhow::Result<(String, RelayProcess)> {
    let name = format!("{NAME}-{}-{number}", std::process::id());
    let relay = format!(
        "mode = \"ordered\"\nsweep_seconds = 1\npartition_lease_seconds = {}\nname = \"{name}\"",
        PARTITION_LEASE.as_secs()
    );
    Ok((name, start(config, scratch, &relay)?))
}

/// A relay whose leases are short, so that nobody waits long for those of the killed.
fn hasty(config: &Config) -> Config {
    let mut config = config.clone();
    let settings = &mut config.relay.settings;
    settings.lease = LEASE;
    settings.publish.deadline = Duration::from_secs(3);
    settings.publish.margin = Duration::from_secs(1);
    config
}

fn start(config: &Config, scratch: &Scratch, relay: &str) -> anyhow::Result<RelayProcess> {
    let mut config = config.clone();
    if relay.contains("ordered") {
        // What an ordered relay has by itself; the bench writes every number of the configured one down.
        config.relay.settings.held_rows = config.relay.settings.held_rows.max(ORDERED_HELD_ROWS);
    }
    let task = Task { table: TABLE, name: NAME, key: "order.{aggregate_id}", relay };
    RelayProcess::start(&config, &scratch.site, task)
}

/// Waits until every event is SENT.
async fn drained(scratch: &Scratch, relay: &mut RelayProcess) -> anyhow::Result<Duration> {
    let started = Instant::now();
    while !scratch.drained().await? {
        ensure!(started.elapsed() < DEADLINE, "the backlog was not drained within {DEADLINE:?}");
        relay.check()?;
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(started.elapsed())
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
        let options = SourceOptions { connect: scratch.site.connect.clone(), queue: NAME.into(), prefetch };
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
