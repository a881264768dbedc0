//! Relays and consumers of the shipped library on one side's place, watched, and killed where a scenario says so.
//!
//! The engines and adapters are the ones that `consign run` has; what is the lab's own stands around them: `watched`
//! tells what happens and ends the process at the window.

mod watched;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use consign::clock::ProcessClock;
use consign::consumer::{ConflictPolicy, ConsumerRuntime, ConsumerSettings, DeadLetters};
use consign::inbox::{BuildConsumer, HandledConsumer, column};
use consign::relay::RelayRuntime;
use consign::reload::Reload;
use consign::shutdown::{ShutdownTrigger, shutdown};
use consign::wakeup::Wakeup;
use consign_core::guard::{Guard, Step};
use consign_core::inbox::{HandlerError, Inbox};
use consign_core::lease::PublishLimits;
use consign_core::ports::{InboxStore, InboxTransaction, OutboxStore, Parking};
use consign_core::relay::RelaySettings;
use consign_core::retry::RetryPolicy;
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_store::mapping::{MarkerMapping, OutboxMapping};
use consign_store::{mysql, sqlite};
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::database::Database;
use super::life::{Life, Paid};
use super::mailbox::Mailbox;
use super::place::{Broker, INVISIBLE};
use super::record::{Actor, What};

pub use watched::{Deaths, Watched};

/// How long nothing may move before a broker that shows no messages in flight is taken to have none.
const QUIET: Duration = Duration::from_millis(600);

/// How it is found out that a chain has come to rest.
struct Patience {
    /// How long it may take.
    longest: Duration,
    /// How long what a dead process held may come again, although it was noted as acknowledged.
    comes_again: Duration,
    look_every: Duration,
}

impl Patience {
    fn of(life: &Life) -> Self {
        match &life.place.broker {
            Broker::File(_) | Broker::RabbitMq(_) => Self {
                longest: Duration::from_secs(40),
                comes_again: Duration::ZERO,
                look_every: Duration::from_millis(15),
            },
            // A look asks a server over the network, and what a dead process held comes after its invisible time.
            Broker::RocketMq(_) => Self {
                longest: Duration::from_secs(90),
                comes_again: if life.first() { Duration::ZERO } else { INVISIBLE },
                look_every: Duration::from_millis(150),
            },
        }
    }
}

/// What a consumer does inside the transaction of marker and effect, before it commits.
pub type Inside = Arc<dyn Fn(Paid) -> BoxFuture<'static, ()> + Send + Sync>;

/// A relay.
#[derive(Clone, Debug)]
pub struct Relaying {
    /// Who it is in the picture.
    pub actor: Actor,
    /// Where the process dies.
    pub deaths: Deaths,
    /// The port of another way to the broker.
    pub through: Option<u16>,
    /// How long a claim lasts.
    pub lease: Duration,
    /// How long a publish may take.
    pub deadline: Duration,
}

impl Default for Relaying {
    /// Long times: what does not die is not to be taken for dead on a slow machine.
    fn default() -> Self {
        Self {
            actor: Actor::Relay,
            deaths: Deaths::default(),
            through: None,
            lease: Duration::from_secs(20),
            deadline: Duration::from_secs(10),
        }
    }
}

/// A consumer.
#[derive(Clone)]
pub struct Consuming {
    /// Who it is in the picture.
    pub actor: Actor,
    /// Where the process dies.
    pub deaths: Deaths,
    /// What its handler does besides its award.
    pub inside: Inside,
    /// What it does with a message it has read, before anything else.
    pub on_read: Arc<dyn Fn(Paid) + Send + Sync>,
    /// Awards points, or keeps a copy of the order behind a guard.
    pub effect: Effect,
    /// Deliveries that share a transaction.
    pub batch: usize,
    /// Deliveries it holds at a time.
    pub prefetch: NonZeroU16,
}

/// What a consumer's effect is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Points for an order.
    Award,
    /// A copy of the order's latest version.
    Copy,
}

impl Default for Consuming {
    fn default() -> Self {
        Self {
            actor: Actor::Consumer,
            deaths: Deaths::default(),
            inside: Arc::new(|_| Box::pin(std::future::ready(()))),
            on_read: Arc::new(|_| ()),
            effect: Effect::Award,
            batch: 1,
            prefetch: NonZeroU16::new(50).expect("not zero"),
        }
    }
}

/// Runs relays and consumers until nothing is left to do for them.
pub async fn run(life: &Life, relays: Vec<Relaying>, consumers: Vec<Consuming>) -> anyhow::Result<()> {
    run_beside(life, relays, consumers, async { Ok(()) }).await
}

/// The same, beside something else that happens meanwhile and must be over first.
pub async fn run_beside(
    life: &Life,
    relays: Vec<Relaying>,
    consumers: Vec<Consuming>,
    script: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    match life.database.clone() {
        Database::Sqlite(store, _) => {
            let outbox = sqlite::Outbox::new(store.clone(), OutboxMapping::default(), "lab");
            let inbox = sqlite::Inbox::new(store, MarkerMapping::default());
            Box::pin(drive(life, Arc::new(outbox), &inbox, (&relays, &consumers), script)).await
        }
        Database::MySql(store) => {
            let outbox = mysql::Outbox::new(store.clone(), OutboxMapping::default(), "lab");
            let inbox = mysql::Inbox::new(store, MarkerMapping::default());
            Box::pin(drive(life, Arc::new(outbox), &inbox, (&relays, &consumers), script)).await
        }
    }
}

async fn drive<O, S>(
    life: &Life,
    outbox: Arc<O>,
    inbox: &S,
    (relays, consumers): (&[Relaying], &[Consuming]),
    script: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()>
where
    O: OutboxStore + 'static,
    S: InboxStore + Parking + Clone + 'static,
{
    let Patience { longest, comes_again, look_every } = Patience::of(life);
    let started = Instant::now();
    let mailbox = life.mailbox().await?;
    let mut running = Running::default();
    for relay in relays {
        running.start_relay(life, &outbox, relay).await?;
    }
    for consumer in consumers {
        running.start_consumer(life, inbox, consumer).await?;
    }
    script.await?;
    let rest = Rest { life, mailbox: &mailbox, relays: !relays.is_empty(), consumers: !consumers.is_empty() };
    let mut quiet_since = None;
    while quiet_since.is_none_or(|since: Instant| since.elapsed() < QUIET) {
        running.check()?;
        if started.elapsed() > longest {
            let left = mailbox.left().await?;
            bail!("the chain did not come to rest within {longest:?}: {left} messages are not acknowledged");
        }
        tokio::time::sleep(look_every).await;
        let resting = rest.reached().await? && (consumers.is_empty() || started.elapsed() >= comes_again);
        quiet_since = if resting { quiet_since.or(Some(Instant::now())) } else { None };
    }
    running.drain().await
}

/// What must be empty.
struct Rest<'a> {
    life: &'a Life,
    mailbox: &'a Mailbox,
    relays: bool,
    consumers: bool,
}

impl Rest<'_> {
    async fn reached(&self) -> anyhow::Result<bool> {
        let none = async |sql| anyhow::Ok(self.life.database.number(sql, &[]).await? == 0);
        let relayed = !self.relays
            || none("SELECT COUNT(*) FROM outbox_event WHERE status IN ('NEW', 'SENDING')").await?;
        let consumed = !self.consumers
            || (self.mailbox.left().await? == 0
                && none("SELECT COUNT(*) FROM consign_parked_delivery").await?);
        Ok(relayed && consumed)
    }
}

#[derive(Default)]
struct Running {
    triggers: Vec<ShutdownTrigger>,
    tasks: Vec<JoinHandle<()>>,
}

impl Running {
    async fn start_relay<O: OutboxStore + 'static>(
        &mut self,
        life: &Life,
        outbox: &Arc<O>,
        relay: &Relaying,
    ) -> anyhow::Result<()> {
        let clock = ProcessClock::start();
        let name = DestinationName::new("lab");
        let destination = life.place.destination(clock, relay.through).await?;
        let (actor, deaths) = (relay.actor, &relay.deaths);
        let store = Watched { inner: Arc::clone(outbox), life: life.clone(), actor, deaths: deaths.clone() };
        let destination = Watched { inner: destination, life: life.clone(), actor, deaths: deaths.clone() };
        let key = Template::parse(life.place.route()).expect("a template without fields");
        let rule = Rule { event_type: "*".into(), destination: name.clone(), key, retry: None };
        let runtime = RelayRuntime {
            name: "outbox".into(),
            store: Arc::new(store),
            destinations: BTreeMap::from([(name.clone(), Arc::new(destination))]),
            routes: RouteTable::new(vec![rule], vec![name]),
            settings: settings(relay),
            clock,
            wakeup: Wakeup::default(),
            reload: Reload::default(),
        };
        let (trigger, asked) = shutdown();
        self.triggers.push(trigger);
        self.tasks.push(tokio::spawn(async move {
            runtime.run(asked).await;
        }));
        Ok(())
    }

    async fn start_consumer<S>(&mut self, life: &Life, inbox: &S, consuming: &Consuming) -> anyhow::Result<()>
    where
        S: InboxStore + Parking + Clone + 'static,
    {
        let source = life.place.source(consuming.prefetch).await?;
        let inbox = Inbox::new(inbox.clone());
        let consumer = consumer(life, &inbox, consuming);
        let (actor, deaths) = (consuming.actor, consuming.deaths.clone());
        let runtime = ConsumerRuntime {
            inbox: Arc::new(inbox),
            consumer: Arc::new(consumer),
            dead_letters: Arc::new(DeadLetters::<consign::adapters::AnyDestination>::Table),
            filter: life.place.filter()?,
            observer: Arc::new(watched::Observer { life: life.clone(), actor }),
            settings: ConsumerSettings {
                workers: 5,
                batch: consuming.batch,
                batch_bytes: 1 << 20,
                linger: Duration::from_millis(2),
                attempts_max: 3,
                retry_delay: Duration::from_millis(50),
                gap_wait: Duration::from_secs(5),
                on_conflict: ConflictPolicy::RecordAndAck,
                publish_deadline: Duration::from_secs(2),
            },
            clock: ProcessClock::start(),
        };
        let source = Watched { inner: source, life: life.clone(), actor, deaths };
        let (trigger, asked) = shutdown();
        self.triggers.push(trigger);
        self.tasks.push(tokio::spawn(async move {
            runtime.run(source, asked).await;
        }));
        Ok(())
    }

    /// Nothing ends by itself.
    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.tasks.iter().any(JoinHandle::is_finished),
            "a relay or a consumer ended by itself"
        );
        Ok(())
    }

    async fn drain(self) -> anyhow::Result<()> {
        for trigger in &self.triggers {
            trigger.request();
        }
        for task in self.tasks {
            task.await?;
        }
        Ok(())
    }
}

/// Short pauses, so that what has to come comes soon.
fn settings(relay: &Relaying) -> RelaySettings {
    RelaySettings {
        lease: relay.lease,
        publish: PublishLimits { deadline: relay.deadline, margin: Duration::from_millis(300) },
        poll_max: Duration::from_millis(50),
        sweep_every: Duration::from_millis(150),
        sweep_delay: Duration::ZERO,
        drain: Duration::from_secs(5),
        retry: RetryPolicy {
            base: Duration::from_millis(50),
            cap: Duration::from_millis(200),
            ..RetryPolicy::default()
        },
        ..RelaySettings::default()
    }
}

/// The points consumer, as a team writes it with the library.
fn consumer<S>(life: &Life, inbox: &Inbox<S>, consuming: &Consuming) -> HandledConsumer<S::Transaction, Paid>
where
    S: InboxStore + 'static,
{
    let on_read = Arc::clone(&consuming.on_read);
    let (inside, effect) = (Arc::clone(&consuming.inside), consuming.effect);
    let (life, actor) = (life.clone(), consuming.actor);
    let keyed = match effect {
        Effect::Award => inbox.consumer::<Paid>("points-award").key(move |event| {
            on_read(event.payload);
            event.payload.key()
        }),
        Effect::Copy => inbox
            .consumer::<Paid>("order-copy")
            .key(|event| format!("order:{}:version:{}", event.payload.order_id, event.payload.version))
            .guard(|event| Guard {
                aggregate: format!("order:{}", event.payload.order_id),
                step: Step::ApplyIfNewer { version: event.payload.version },
            }),
    };
    let keyed = keyed.compare(|event| {
        vec![column("user_id", event.payload.user_id), column("amount", event.payload.amount)]
    });
    keyed.handle(move |tx, event| {
        let (paid, inside, life) = (event.payload, Arc::clone(&inside), life.clone());
        Box::pin(async move {
            match effect {
                Effect::Award => award(tx, paid).await?,
                Effect::Copy => copy(tx, paid).await?,
            }
            life.tell(actor, What::EffectOpen, paid.order_id);
            inside(paid).await;
            Ok(())
        })
    })
}

async fn award(tx: &mut impl InboxTransaction, paid: Paid) -> Result<(), HandlerError> {
    let values = [paid.amount.into(), paid.user_id.into()];
    let rows = tx.execute("UPDATE points_account SET points = points + ? WHERE user_id = ?", &values).await?;
    if rows != 1 {
        return Err(HandlerError::Refused(format!("user {} has no account", paid.user_id)));
    }
    let values = [paid.order_id, paid.user_id, paid.amount].map(Into::into);
    tx.execute("INSERT INTO points_entry (order_id, user_id, amount) VALUES (?, ?, ?)", &values).await?;
    Ok(())
}

async fn copy(tx: &mut impl InboxTransaction, paid: Paid) -> Result<(), HandlerError> {
    let values = [paid.amount, paid.version, paid.order_id].map(Into::into);
    let changed =
        tx.execute("UPDATE order_copy SET amount = ?, version = ? WHERE order_id = ?", &values).await?;
    if changed == 0 {
        tx.execute("INSERT INTO order_copy (amount, version, order_id) VALUES (?, ?, ?)", &values).await?;
    }
    Ok(())
}
