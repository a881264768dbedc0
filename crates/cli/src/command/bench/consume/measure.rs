//! The measurements: the same kind of traffic, consumed in one way after another.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use consign::adapters::AnyDestination;
use consign::clock::ProcessClock;
use consign::consumer::{
    ConflictPolicy, ConsumerRuntime, ConsumerSettings, DeadLetters, Interpret, Observation, Observe,
};
use consign::inbox::{BuildConsumer, column};
use consign::shutdown::shutdown;
use consign_broker::rabbitmq::{DestinationOptions, RabbitMqDestination, RabbitMqSource, SourceOptions};
use consign_core::declared::{
    Binding, BindingSource, Bindings, ComparedBinding, DeclaredComparison, DeclaredConsumer, ExpectRows,
    KeyTemplate, Statement,
};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::filter::NoFilter;
use consign_core::inbox::{HandlerError, Inbox};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, InboxTransaction, Lane, Readiness};
use consign_core::route::{DestinationName, Route};
use consign_core::value::ValueType;
use consign_store::mysql;
use futures_util::{StreamExt, stream};
use tokio::sync::Notify;

use crate::config::Config;
use crate::parts::AnyFilter;

use super::Plan;
use super::scratch::{ACCOUNT_COUNT, AWARD, Effects, NAME, Scratch};

const ROUNDS: u32 = 3;
/// Points of one award.
const AMOUNT: i64 = 5;
/// Connecting to the broker takes at most this long.
const CONNECT_DEADLINE: Duration = Duration::from_mins(1);
/// Nothing in the bench takes longer.
const DEADLINE: Duration = Duration::from_mins(10);

/// What was measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// One transaction per delivery on one connection, per round; every ratio is taken to it.
    pub single: Vec<f64>,
    /// A declared consumer in batches.
    pub batched: Vec<f64>,
    /// The same, some deliveries being repeats.
    pub repeats: Vec<f64>,
    /// The same repeats with the configured filter; none when the config has no filter.
    pub filtered: Vec<f64>,
    /// A handler in Rust, in batches on several connections.
    pub handler: Vec<f64>,
    /// Operations that were sent.
    pub expected: u64,
    /// What the tables held at the end of each run, added up.
    pub found: Effects,
    /// Operations without a marker or an award.
    pub lost: u64,
    /// Awards beyond one per operation.
    pub doubled: u64,
}

/// How one run consumes.
#[derive(Clone, Copy, Debug)]
struct Way {
    workers: usize,
    batch: usize,
    prefetch: u16,
}

/// Runs all rounds.
pub async fn consume(config: &Config, scratch: &Scratch, plan: Plan) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let plain = Arc::new(AnyFilter::None(NoFilter));
    let filter = config.filter.as_ref().map(|_| AnyFilter::open(config).map(Arc::new)).transpose()?;
    let batched = Way { workers: plan.workers, batch: plan.batch, prefetch: plan.prefetch() };
    let single = Way { workers: 1, batch: 1, prefetch: plan.prefetch() };
    let per_round = plan.messages / ROUNDS;
    // Enough to measure, few enough to wait for.
    let (few, some) = ((per_round / 10).max(500), (per_round / 4).max(500));
    for round in 1..=ROUNDS {
        eprintln!("bench: round {round} of {ROUNDS}: {few} deliveries, a transaction each");
        let speed = run(scratch, &declared()?, &plain, single, (few, 0.0), &mut figures).await?;
        figures.single.push(speed);
        eprintln!("bench: round {round} of {ROUNDS}: {per_round} deliveries in batches");
        let speed = run(scratch, &declared()?, &plain, batched, (per_round, 0.0), &mut figures).await?;
        figures.batched.push(speed);
        eprintln!("bench: round {round} of {ROUNDS}: {per_round} deliveries in batches, with repeats");
        let speed =
            run(scratch, &declared()?, &plain, batched, (per_round, plan.repeats), &mut figures).await?;
        figures.repeats.push(speed);
        if let Some(filter) = &filter {
            eprintln!(
                "bench: round {round} of {ROUNDS}: {per_round} deliveries in batches, with repeats and the filter"
            );
            // The tables start anew in every run, and the filter with them: it knows nothing of this consumer.
            let consumer = declared_as(&format!("bench-{}-{round}", std::process::id()))?;
            let speed =
                run(scratch, &consumer, filter, batched, (per_round, plan.repeats), &mut figures).await?;
            figures.filtered.push(speed);
        }
        eprintln!("bench: round {round} of {ROUNDS}: {some} deliveries in batches of a Rust handler");
        let inbox = Inbox::new(scratch.inbox()?);
        let speed =
            run(scratch, &Arc::new(handled(&inbox)), &plain, batched, (some, 0.0), &mut figures).await?;
        figures.handler.push(speed);
    }
    Ok(figures)
}

/// Publishes, consumes, and audits the tables; deliveries per second.
async fn run<C>(
    scratch: &Scratch,
    consumer: &Arc<C>,
    filter: &Arc<AnyFilter>,
    way: Way,
    (deliveries, repeats): (u32, f64),
    figures: &mut Figures,
) -> anyhow::Result<f64>
where
    C: Interpret<mysql::Transaction> + 'static,
{
    scratch.reset().await?;
    let operations = publish(scratch, deliveries, repeats).await?;
    let elapsed = drain(scratch, consumer, filter, way, u64::from(deliveries)).await?;
    let found = scratch.effects(AMOUNT).await?;
    figures.expected += operations;
    figures.found.markers += found.markers;
    figures.found.awards += found.awards;
    figures.lost += operations.saturating_sub(found.markers.min(found.awards));
    figures.doubled += found.awards.saturating_sub(operations);
    Ok(f64::from(deliveries) / elapsed.as_secs_f64())
}

/// Puts deliveries into the queue, of which a share repeats earlier ones; how many are distinct.
async fn publish(scratch: &Scratch, deliveries: u32, repeats: f64) -> anyhow::Result<u64> {
    const IN_FLIGHT: usize = 256;
    let clock = ProcessClock::start();
    let options = DestinationOptions::new(scratch.connect().clone(), NAME);
    let destination = RabbitMqDestination::new(options, clock.origin());
    let mut readiness = Readiness::Unavailable(String::new());
    while readiness != Readiness::Accepting {
        readiness = tokio::time::timeout(CONNECT_DEADLINE, destination.readiness_after(&readiness))
            .await
            .context("the broker was not reached")?;
    }
    let mut distinct = 0_u32;
    let mut owed = 0.0;
    let orders: Vec<u32> = (0..deliveries)
        .map(|number| {
            owed += repeats;
            if owed >= 1.0 && distinct > 0 {
                owed -= 1.0;
                // An order from a while ago, as a redelivery would bring it.
                return distinct.saturating_sub(1 + number % 1000);
            }
            distinct += 1;
            distinct - 1
        })
        .collect();
    let outcomes = stream::iter(orders).map(|order| {
        let deadline = clock.now().plus(Duration::from_mins(1));
        destination.publish(Lane::Window, Publish { event: Arc::new(paid(order)), route: route(), deadline })
    });
    let mut outcomes = outcomes.buffer_unordered(IN_FLIGHT);
    while let Some(outcome) = outcomes.next().await {
        ensure!(matches!(outcome, Outcome::Confirmed(_)), "a publish of the bench came to {outcome:?}");
    }
    Ok(u64::from(distinct))
}

fn route() -> Route {
    Route { destination: DestinationName::new(NAME), key: "OrderPaid".into() }
}

fn paid(order: u32) -> Event {
    let user = order.wrapping_mul(2_654_435_761) % ACCOUNT_COUNT;
    let payload = format!(r#"{{"orderId":{order},"userId":{user},"amount":{AMOUNT}}}"#);
    Event {
        id: EventId::stored(format!("bench-{order}")),
        aggregate: Aggregate { kind: Some("order".into()), id: Some(order.to_string()), version: None },
        event_type: "OrderPaid".into(),
        business_key: None,
        payload: Some(payload.into()),
        headers: Vec::new(),
        destination: None,
        route_key: None,
        created_at_micros: None,
    }
}

/// Counts what came to an end.
#[derive(Debug)]
struct Counter {
    processed: AtomicU64,
    wanted: u64,
    complete: Notify,
}

impl Observe for Counter {
    fn processed(&self, observation: &Observation<'_>) {
        if observation.result.is_ok() && self.processed.fetch_add(1, Ordering::Relaxed) + 1 == self.wanted {
            self.complete.notify_one();
        }
    }
}

/// Consumes until every delivery came to an end.
async fn drain<C>(
    scratch: &Scratch,
    consumer: &Arc<C>,
    filter: &Arc<AnyFilter>,
    way: Way,
    deliveries: u64,
) -> anyhow::Result<Duration>
where
    C: Interpret<mysql::Transaction> + 'static,
{
    let counter =
        Arc::new(Counter { processed: AtomicU64::new(0), wanted: deliveries, complete: Notify::new() });
    let observer: Arc<dyn Observe> = counter.clone();
    let runtime: ConsumerRuntime<_, _, AnyDestination, _> = ConsumerRuntime {
        inbox: Arc::new(Inbox::new(scratch.inbox()?)),
        consumer: Arc::clone(consumer),
        dead_letters: Arc::new(DeadLetters::Table),
        filter: Arc::clone(filter),
        observer,
        settings: settings(way),
        clock: ProcessClock::start(),
    };
    let prefetch = NonZeroU16::new(way.prefetch).context("a prefetch of at least 1")?;
    let source = RabbitMqSource::new(SourceOptions {
        connect: scratch.connect().clone(),
        queue: NAME.into(),
        prefetch,
    });
    let (trigger, asked) = shutdown();
    let started = Instant::now();
    let running = tokio::spawn(runtime.run(source, asked));
    if tokio::time::timeout(DEADLINE, counter.complete.notified()).await.is_err() {
        bail!(
            "{} of {deliveries} deliveries were processed within {DEADLINE:?}",
            counter.processed.load(Ordering::Relaxed)
        );
    }
    let elapsed = started.elapsed();
    trigger.request();
    running.await.context("the consumer broke an invariant")?;
    Ok(elapsed)
}

fn settings(way: Way) -> ConsumerSettings {
    ConsumerSettings {
        workers: way.workers,
        batch: way.batch,
        batch_bytes: 4 << 20,
        linger: Duration::from_millis(5),
        attempts_max: 5,
        retry_delay: Duration::from_secs(1),
        gap_wait: Duration::from_mins(1),
        on_conflict: ConflictPolicy::RecordAndAck,
        publish_deadline: Duration::from_secs(15),
    }
}

/// The points story's consumer, as a config declares it.
fn declared() -> anyhow::Result<Arc<DeclaredConsumer>> {
    declared_as("bench")
}

fn declared_as(name: &str) -> anyhow::Result<Arc<DeclaredConsumer>> {
    let binding = |pointer: &str| Binding {
        source: BindingSource::Pointer(pointer.into()),
        value_type: ValueType::Integer,
        required: true,
    };
    let bindings = Bindings::new(BTreeMap::from([
        ("order_id".to_owned(), binding("/orderId")),
        ("user_id".to_owned(), binding("/userId")),
        ("amount".to_owned(), binding("/amount")),
    ]))?;
    let compared = |name: &str| ComparedBinding { column: name.into(), binding: name.into() };
    let comparison = DeclaredComparison::Columns(vec![compared("user_id"), compared("amount")]);
    let statement = Statement::parse(AWARD, bindings.known_names(), ExpectRows::Exactly(1))?;
    let key = KeyTemplate::parse("order:{order_id}:paid")?;
    let consumer = DeclaredConsumer::new(name, key, bindings, comparison, vec![statement]);
    consumer.map(Arc::new).map_err(|problems| anyhow::anyhow!("the bench's consumer: {problems:?}"))
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrderPaid {
    order_id: i64,
    user_id: i64,
    amount: i64,
}

/// The same consumer in Rust.
fn handled(
    inbox: &Inbox<mysql::Inbox>,
) -> impl Interpret<mysql::Transaction, Handler: Send + Sync> + use<> + 'static {
    let award = AWARD.replace(":amount", "?").replace(":user_id", "?");
    let award: Arc<str> = award.into();
    inbox
        .consumer::<OrderPaid>("bench")
        .key(|event| format!("order:{}:paid", event.payload.order_id))
        .compare(|event| {
            vec![column("user_id", event.payload.user_id), column("amount", event.payload.amount)]
        })
        .handle(move |tx, event| {
            let award = Arc::clone(&award);
            Box::pin(async move {
                let values = [event.payload.amount.into(), event.payload.user_id.into()];
                match tx.execute(&award, &values).await? {
                    1 => Ok(()),
                    rows => Err(HandlerError::Refused(format!("{rows} accounts, not 1"))),
                }
            })
        })
}
