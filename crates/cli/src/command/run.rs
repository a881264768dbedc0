//! `consign run`, `consign relay`, `consign consume`: the long-running parts, until a signal asks for a drain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use consign::adapters::AnyDestination;
use consign::clock::ProcessClock;
use consign::consumer::{ConsumerRuntime, ConsumerSettings, ConsumerTotals, DeadLetters};
use consign::relay::RelayRuntime;
use consign::shutdown::{Shutdown, shutdown};
use consign_core::inbox::Inbox;
use consign_core::ports::{InboxStore, OutboxStore};
use consign_core::relay::Totals;
use consign_core::route::DestinationName;
use tokio::task::JoinSet;

use crate::config::{Config, ConfigArguments, ConsumerConfig};
use crate::exit::Exit;
use crate::parts::{self, Broker, Store};
use crate::{command, signals};

/// What the long-running commands are asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign run --config consign.toml\n  CONSIGN_CONFIG=consign.toml consign relay\n\n\
                        SIGTERM or Ctrl-C drains; a second signal ends at once, and nothing is lost either way."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
}

/// Which parts run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Relay and consumers.
    Both,
    /// The relay alone.
    Relay,
    /// The consumers alone.
    Consumers,
}

impl Role {
    const fn relays(self) -> bool {
        matches!(self, Self::Both | Self::Relay)
    }

    const fn consumes(self) -> bool {
        matches!(self, Self::Both | Self::Consumers)
    }
}

/// Runs until the drain is over.
pub async fn run(arguments: Arguments, role: Role) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    check_role(&config, role)?;
    let (trigger, shutdown) = shutdown();
    signals::watch(trigger)?;
    let clock = ProcessClock::start();
    if config.setup.on_start {
        command::migrate::set_up(&config).await?;
    }
    let broker = Broker::open(&config, clock).await?;
    match parts::open_store(&config).await? {
        Store::MySql(store) => {
            let outboxes = if role.relays() { store.outboxes(&config).await? } else { Vec::new() };
            let inbox = if role.consumes() { Some(store.inbox(&config).await?) } else { None };
            serve(&config, clock, &broker, outboxes, inbox, shutdown).await
        }
        Store::Sqlite(store) => {
            let outboxes = if role.relays() { store.outboxes(&config).await? } else { Vec::new() };
            let inbox = if role.consumes() { Some(store.inbox(&config).await?) } else { None };
            serve(&config, clock, &broker, outboxes, inbox, shutdown).await
        }
    }
}

fn check_role(config: &Config, role: Role) -> anyhow::Result<()> {
    if role == Role::Consumers && config.consumers.is_empty() {
        bail!("the config declares no consumer: add a [[consumer]], or run consign relay");
    }
    if role == Role::Relay && config.destinations.is_empty() {
        bail!("the config has no destination: add [destination.NAME] and a [[route]]");
    }
    Ok(())
}

/// Runs one relay per outbox and every declared consumer, and joins them all.
async fn serve<O, I>(
    config: &Config,
    clock: ProcessClock,
    broker: &Broker,
    outboxes: Vec<(String, O)>,
    inbox: Option<I>,
    shutdown: Shutdown,
) -> anyhow::Result<Exit>
where
    O: OutboxStore + 'static,
    I: InboxStore + 'static,
{
    let mut relays: JoinSet<(String, Totals)> = JoinSet::new();
    for (name, store) in outboxes {
        let runtime = RelayRuntime {
            name: name.clone(),
            store: Arc::new(store),
            destinations: broker.destinations().clone(),
            routes: config.routes.clone(),
            settings: config.relay.settings.clone(),
            clock,
        };
        let shutdown = shutdown.clone();
        relays.spawn(async move { (name, runtime.run(shutdown).await) });
    }
    let mut consumers: JoinSet<(String, ConsumerTotals)> = JoinSet::new();
    if let Some(inbox) = inbox {
        let inbox = Arc::new(Inbox::new(inbox));
        for consumer in &config.consumers {
            let name = consumer.consumer.name().to_owned();
            let source = broker.source(config, consumer)?;
            let runtime = ConsumerRuntime {
                inbox: Arc::clone(&inbox),
                consumer: Arc::clone(&consumer.consumer),
                dead_letters: Arc::new(dead_letters(consumer, broker.destinations())?),
                settings: settings(config, consumer),
                clock,
            };
            let shutdown = shutdown.clone();
            consumers.spawn(async move { (name, runtime.run(source, shutdown).await) });
        }
    }
    tracing::info!(relays = relays.len(), consumers = consumers.len(), "running");
    while let Some(ended) = relays.join_next().await {
        let (outbox, totals) = ended.context("a relay broke an invariant")?;
        tracing::info!(outbox, ?totals, "relay drained");
    }
    while let Some(ended) = consumers.join_next().await {
        let (consumer, totals) = ended.context("a consumer broke an invariant")?;
        tracing::info!(consumer, ?totals, "consumer drained");
    }
    Ok(Exit::Fine)
}

fn settings(config: &Config, consumer: &ConsumerConfig) -> ConsumerSettings {
    ConsumerSettings {
        workers: consumer.workers,
        attempts_max: consumer.attempts_max,
        retry_delay: consumer.retry_delay,
        publish_deadline: config.relay.settings.publish.deadline.max(Duration::from_secs(1)),
    }
}

fn dead_letters(
    consumer: &ConsumerConfig,
    destinations: &BTreeMap<DestinationName, Arc<AnyDestination>>,
) -> anyhow::Result<DeadLetters<AnyDestination>> {
    let Some(route) = &consumer.dead_letter else { return Ok(DeadLetters::Table) };
    let destination = destinations
        .get(&route.destination)
        .with_context(|| format!("dead_letter names unknown destination {:?}", route.destination))?;
    Ok(DeadLetters::Destination(Arc::clone(destination), route.clone()))
}
