//! `consign run`, `consign relay`, `consign consume`: the long-running parts, until a signal asks for a drain.

mod partitions;
mod transactions;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use consign::adapters::AnyDestination;
use consign::clock::ProcessClock;
use consign::consumer::{
    ConflictPolicy, ConsumerEnd, ConsumerRuntime, ConsumerSettings, DeadLetters, NoObserver,
};
use consign::relay::RelayRuntime;
use consign::reload::{Reload, reload};
use consign::shutdown::{Shutdown, ShutdownTrigger, shutdown};
use consign::wakeup::{self, Wakeup};
use consign_core::inbox::Inbox;
use consign_core::ports::{InboxStore, OutboxStore, Parking};
use consign_core::relay::Totals;
use consign_core::route::DestinationName;
use tokio::task::JoinSet;

use crate::config::{Config, ConfigArguments, ConsumerConfig, OnConflict};
use crate::exit::Exit;
use crate::parts::{self, AnyFilter, Broker, Partitioned, Store};
use crate::retention;
use crate::{command, signals};

/// Payload bytes that share a transaction at most.
const BATCH_BYTES: usize = 4 << 20;

/// What the long-running commands are asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign run --config consign.toml\n  CONSIGN_CONFIG=consign.toml consign relay\n\n\
                        SIGTERM or Ctrl-C drains; a second signal ends at once, and nothing is lost either way.\n\
                        SIGHUP reads routes, retry policies and the relay's limits again."
)]
pub struct Arguments {
    #[command(flatten)]
    pub config: ConfigArguments,
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
    let (giver, reload) = reload();
    crate::reload::watch(arguments.config, &config, giver)?;
    let asked = Asked { shutdown, reload };
    let clock = ProcessClock::start();
    if config.setup.on_start {
        command::migrate::set_up(&config).await?;
    }
    let broker = Broker::open(&config, clock).await?;
    match parts::open_store(&config).await? {
        Store::MySql(store) => {
            let outboxes = if role.relays() { store.outboxes(&config).await? } else { Vec::new() };
            let inbox = if role.consumes() { Some(store.inbox(&config).await?) } else { None };
            let forgetful = if role.relays() { store.relay_outboxes(&config)? } else { Vec::new() };
            let forgetting = retention::start(&config, forgetful, &asked.shutdown);
            let answering = if role.relays() {
                transactions::start(&config, |it| store.transaction_markers(it), asked.shutdown.clone())
                    .await?
            } else {
                None
            };
            let exit = serve(&config, clock, &broker, outboxes, inbox, asked).await?;
            transactions::end(answering).await?;
            retention::end(forgetting).await?;
            Ok(exit)
        }
        Store::Sqlite(store) => {
            let outboxes = if role.relays() { store.outboxes(&config).await? } else { Vec::new() };
            let inbox = if role.consumes() { Some(store.inbox(&config).await?) } else { None };
            let forgetful = if role.relays() { store.relay_outboxes(&config)? } else { Vec::new() };
            let forgetting = retention::start(&config, forgetful, &asked.shutdown);
            let answering = if role.relays() {
                transactions::start(&config, |it| store.transaction_markers(it), asked.shutdown.clone())
                    .await?
            } else {
                None
            };
            let exit = serve(&config, clock, &broker, outboxes, inbox, asked).await?;
            transactions::end(answering).await?;
            retention::end(forgetting).await?;
            Ok(exit)
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

/// What people may ask of running parts.
struct Asked {
    shutdown: Shutdown,
    reload: Reload,
}

/// Runs one relay per outbox and every declared consumer, and joins them all.
async fn serve<O, I>(
    config: &Config,
    clock: ProcessClock,
    broker: &Broker,
    outboxes: Vec<(String, O)>,
    inbox: Option<I>,
    asked: Asked,
) -> anyhow::Result<Exit>
where
    O: OutboxStore + Partitioned + 'static,
    I: InboxStore + Parking + Clone + 'static,
{
    let Asked { shutdown, reload } = asked;
    let mut relays: JoinSet<(String, Totals)> = JoinSet::new();
    let mut keepers = Keepers::new();
    let wakeups: BTreeMap<String, Wakeup> =
        outboxes.iter().map(|(name, _)| (name.clone(), Wakeup::default())).collect();
    // Before the first claim: an address that cannot be listened at leaves no row leased.
    let listening = match &config.relay.wakeup {
        Some(address) if !wakeups.is_empty() => {
            Some(tokio::spawn(wakeup::listen(address.clone(), wakeups.clone(), shutdown.clone())?))
        }
        _ => None,
    };
    for (name, store) in outboxes {
        let wakeup = wakeups[&name].clone();
        let store = Arc::new(store);
        keepers.start(&name, &store, config.relay.partition_lease);
        let runtime = RelayRuntime {
            name: name.clone(),
            store,
            destinations: broker.destinations().clone(),
            routes: config.routes.clone(),
            settings: config.relay.settings.clone(),
            clock,
            wakeup,
            reload: reload.clone(),
        };
        let shutdown = shutdown.clone();
        relays.spawn(async move { (name, runtime.run(shutdown).await) });
    }
    let mut consumers: JoinSet<(String, ConsumerEnd)> = JoinSet::new();
    let filter = Arc::new(AnyFilter::open(config)?);
    if let Some(inbox) = inbox {
        let inbox = Arc::new(Inbox::new(inbox));
        for consumer in &config.consumers {
            let name = consumer.consumer.name().to_owned();
            let source = broker.source(config, consumer).await?;
            let runtime = ConsumerRuntime {
                inbox: Arc::clone(&inbox),
                consumer: Arc::new(consumer.interpreter()),
                dead_letters: Arc::new(dead_letters(consumer, broker.destinations())?),
                filter: Arc::clone(&filter),
                observer: Arc::new(NoObserver),
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
    keepers.stop().await?;
    if let Some(listening) = listening {
        listening.await.context("the listener for wake-ups broke an invariant")?;
    }
    let mut exit = Exit::Fine;
    while let Some(ended) = consumers.join_next().await {
        let (consumer, ConsumerEnd { totals, halted }) = ended.context("a consumer broke an invariant")?;
        match halted {
            None => tracing::info!(consumer, ?totals, "consumer drained"),
            Some(reason) => {
                tracing::error!(consumer, ?totals, reason, "consumer stopped by its policy");
                exit = Exit::Failed;
            }
        }
    }
    filter.report();
    Ok(exit)
}

/// Those who keep the relays' partitions, for as long as the relays have rows in hand.
struct Keepers {
    trigger: ShutdownTrigger,
    stop: Shutdown,
    tasks: JoinSet<()>,
}

impl Keepers {
    fn new() -> Self {
        let (trigger, stop) = shutdown();
        Self { trigger, stop, tasks: JoinSet::new() }
    }

    fn start<O: Partitioned + 'static>(&mut self, outbox: &str, store: &Arc<O>, lease: Duration) {
        self.tasks.spawn(partitions::keep(outbox.to_owned(), Arc::clone(store), lease, self.stop.clone()));
    }

    async fn stop(mut self) -> anyhow::Result<()> {
        self.trigger.request();
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("keeping partitions broke an invariant")?;
        }
        Ok(())
    }
}

fn settings(config: &Config, consumer: &ConsumerConfig) -> ConsumerSettings {
    ConsumerSettings {
        workers: consumer.workers,
        batch: consumer.batch,
        batch_bytes: BATCH_BYTES,
        linger: consumer.batch_linger,
        gap_wait: consumer.gap_wait.unwrap_or_default(),
        on_conflict: match consumer.on_conflict {
            OnConflict::RecordAndAck => ConflictPolicy::RecordAndAck,
            OnConflict::DeadLetter => ConflictPolicy::DeadLetter,
            OnConflict::Stop => ConflictPolicy::Stop,
        },
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
