//! Runs a source's deliveries through the inbox: validate, a transaction that many may share, commit, then ack.
//!
//! ```text
//! source ─┐                          ┌ applied, duplicate, stale ─► ack
//!         ├─► interpret ─► lanes ─► batch ─┼ conflict ─► recorded, then by policy
//! parked ─┘                          ├ refused, too early ─► parked in the database, then ack
//!                                    └ refused too often ─► dead letter, then ack
//! ```

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::declared::{DeclaredChange, DeclaredConsumer};
use consign_core::delivery::{Delivery, Message};
use consign_core::filter::RepeatFilter;
use consign_core::inbox::{Handler, Inbox, ProcessError, Processed, Unit};
use consign_core::operation::Operation;
use consign_core::ports::{Destination, InboxStore, InboxTransaction, ParkReason, Parking, Source};
use consign_core::route::Route;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::ProcessClock;
use crate::shutdown::Shutdown;

mod attempts;
mod lanes;
mod parked;
mod worker;

use attempts::Attempts;
use lanes::{Batch, Bounds, Lanes, Waiting};
use parked::{AnyReceipt, ParkedSource, Wait};
use worker::{Report, Worker};

/// What a consumer makes of a message: the operation, and the business change to run with its marker.
pub trait Interpret<Tx>: Send + Sync {
    /// The business change of one message.
    type Handler: Handler<Tx> + 'static;

    /// The consumer's name, part of every marker's key.
    fn name(&self) -> &str;

    /// Reads a message.
    ///
    /// # Errors
    /// The message can never be processed as it is; the text says why. It goes to the dead letters at once.
    fn interpret(&self, message: &Message) -> Result<(Operation, Self::Handler), String>;
}

impl<Tx: InboxTransaction> Interpret<Tx> for DeclaredConsumer {
    type Handler = DeclaredChange;

    fn name(&self) -> &str {
        self.name()
    }

    fn interpret(&self, message: &Message) -> Result<(Operation, DeclaredChange), String> {
        self.operation(message).map_err(|refusal| refusal.to_string())
    }
}

/// What follows a recorded conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// It is acknowledged: people look at the record.
    #[default]
    RecordAndAck,
    /// It goes to the dead letters as well.
    DeadLetter,
    /// It is handed back, and the consumer stops.
    Stop,
}

/// How one consumer runs.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Transactions side by side. An aggregate's deliveries follow each other in one of them.
    pub workers: usize,
    /// Deliveries that share a transaction at most.
    pub batch: usize,
    /// Payload bytes that share a transaction at most, though always one delivery.
    pub batch_bytes: usize,
    /// How long a delivery waits for company while its lane is free.
    pub linger: Duration,
    /// A delivery refused this often goes to the dead letters.
    pub attempts_max: u32,
    /// The first pause before a refused delivery is tried again; it doubles with every attempt, up to a minute.
    pub retry_delay: Duration,
    /// How long a delivery waits for the step of its aggregate before it.
    pub gap_wait: Duration,
    /// What follows a recorded conflict.
    pub on_conflict: ConflictPolicy,
    /// How long a dead-letter publish may take.
    pub publish_deadline: Duration,
}

/// Where deliveries go that cannot be processed.
pub enum DeadLetters<D> {
    /// Published with proof to a destination under a route.
    Destination(Arc<D>, Route),
    /// Recorded in the consumer's own database.
    Table,
}

/// Totals of one consumer since its start, for logs. Audits query the database instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerTotals {
    /// Effects committed.
    pub applied: u64,
    /// Repeats of applied operations.
    pub duplicates: u64,
    /// Recorded conflicts.
    pub conflicts: u64,
    /// Old versions, nothing changed.
    pub stale: u64,
    /// Deliveries parked in the database.
    pub parked: u64,
    /// Deliveries handed back.
    pub retried: u64,
    /// Deliveries put aside.
    pub dead: u64,
    /// Acknowledgements that found their channel or lease gone.
    pub receipts_lost: u64,
    /// Batches processed.
    pub batches: u64,
}

impl std::ops::AddAssign for ConsumerTotals {
    fn add_assign(&mut self, other: Self) {
        self.applied += other.applied;
        self.duplicates += other.duplicates;
        self.conflicts += other.conflicts;
        self.stale += other.stale;
        self.parked += other.parked;
        self.retried += other.retried;
        self.dead += other.dead;
        self.receipts_lost += other.receipts_lost;
        self.batches += other.batches;
    }
}

/// What one delivery came to, for tracing and metrics.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// What was asked for.
    pub operation: &'a Operation,
    /// What it came to. An error may be followed by another attempt.
    pub result: Result<Processed, &'a ProcessError>,
}

/// Sees what deliveries come to. Called between a commit and its acknowledgement: it must not block.
pub trait Observe: Send + Sync {
    /// One delivery came to something.
    fn processed(&self, observation: &Observation<'_>);
}

/// Sees nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observe for NoObserver {
    fn processed(&self, _: &Observation<'_>) {}
}

/// How a consumer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerEnd {
    /// What it did.
    pub totals: ConsumerTotals,
    /// Why it stopped by itself; `None` when a drain was asked for.
    pub halted: Option<String>,
}

/// One consumer over one source.
pub struct ConsumerRuntime<S, C, D, F> {
    /// Markers and business tables.
    pub inbox: Arc<Inbox<S>>,
    /// What the consumer does.
    pub consumer: Arc<C>,
    /// Where its failures go.
    pub dead_letters: Arc<DeadLetters<D>>,
    /// What spares transactions for repeats.
    pub filter: Arc<F>,
    /// Who watches.
    pub observer: Arc<dyn Observe>,
    /// How it runs.
    pub settings: ConsumerSettings,
    /// The process's clock, shared with the destinations.
    pub clock: ProcessClock,
}

impl<S, C, D, F> ConsumerRuntime<S, C, D, F>
where
    S: InboxStore + Parking + Clone + 'static,
    C: Interpret<S::Transaction> + 'static,
    D: Destination + 'static,
    F: RepeatFilter + 'static,
{
    /// Runs until the drain that `shutdown` asks for is over: no new deliveries, those in hand finished and settled.
    pub async fn run<Q: Source>(self, source: Q, shutdown: Shutdown) -> ConsumerEnd {
        let wake = Arc::new(Notify::new());
        let (halt, halted) = watch::channel(None);
        let bounds = Bounds { rows: self.settings.batch, bytes: self.settings.batch_bytes };
        let limit = u32::try_from(self.settings.batch).unwrap_or(u32::MAX);
        let store = Arc::new(self.inbox.store().clone());
        let parked = ParkedSource::new(store, self.consumer.name(), limit, Arc::clone(&wake));
        let lanes = Lanes::new(self.settings.workers, bounds);
        let worker = Worker {
            inbox: self.inbox,
            consumer: self.consumer,
            dead_letters: self.dead_letters,
            filter: self.filter,
            observer: self.observer,
            settings: self.settings,
            clock: self.clock,
            shutdown: shutdown.clone(),
            attempts: Mutex::new(Attempts::default()),
            wake,
            halt,
        };
        let running = Running {
            worker: Arc::new(worker),
            lanes,
            working: FuturesUnordered::new(),
            totals: ConsumerTotals::default(),
            partial_since: None,
        };
        running.run(source, parked, shutdown, halted).await
    }
}

type Held<Q, S, H> = Lanes<AnyReceipt<<Q as Source>::Receipt, S>, H>;

/// A consumer at work.
struct Running<Q: Source, S: InboxStore, C: Interpret<S::Transaction>, D, F> {
    worker: Arc<Worker<S, C, D, F>>,
    lanes: Held<Q, S, C::Handler>,
    /// Spawned tasks: a unit of work must reach its COMMIT or ROLLBACK, and nothing aborts it.
    working: FuturesUnordered<JoinHandle<(Option<usize>, Report)>>,
    totals: ConsumerTotals,
    /// Since when a free lane has waited for company for its deliveries.
    partial_since: Option<Instant>,
}

impl<Q, S, C, D, F> Running<Q, S, C, D, F>
where
    Q: Source,
    S: InboxStore + Parking + 'static,
    C: Interpret<S::Transaction> + 'static,
    D: Destination + 'static,
    F: RepeatFilter + 'static,
{
    async fn run(
        mut self,
        mut source: Q,
        mut parked: ParkedSource<S>,
        mut shutdown: Shutdown,
        mut halted: watch::Receiver<Option<String>>,
    ) -> ConsumerEnd {
        let (mut stopping, mut ended) = (false, false);
        let mut unbegun = Vec::new();
        while !ended || !self.working.is_empty() || !self.lanes.idle() {
            let full = self.lanes.full();
            let linger_until = self.linger_until();
            tokio::select! {
                Some(finished) = self.working.next(), if !self.working.is_empty() => self.finished(finished),
                delivery = source.next(), if !ended && !full => match delivery {
                    Some(delivery) => {
                        self.accept(delivery);
                        // What has arrived already may share the transaction.
                        while !ended && !self.lanes.full() {
                            match source.next().now_or_never() {
                                Some(Some(delivery)) => self.accept(delivery),
                                Some(None) => ended = true,
                                None => break,
                            }
                        }
                    }
                    None => ended = true,
                },
                (delivery, wait) = parked.next(), if !stopping && !full => self.accept_parked(delivery, wait),
                () = sleep_until(linger_until.unwrap_or_else(Instant::now)), if linger_until.is_some() => {}
                () = shutdown.requested(), if !stopping => {
                    stopping = true;
                    source.stop().await;
                    unbegun = self.lanes.drain();
                }
                () = asked_to_halt(&mut halted), if !stopping => {
                    stopping = true;
                    source.stop().await;
                    unbegun = self.lanes.drain();
                }
            }
            self.dispatch(stopping);
        }
        // What was not begun goes back behind the last acknowledgement: a burst of returns in front of it would hold it up.
        for unit in unbegun {
            self.worker.return_unprocessed(unit.delivery).await;
        }
        // The process may exit right after this: the last acknowledgements must be with the broker.
        source.close().await;
        let halted = halted.borrow().clone();
        ConsumerEnd { totals: self.totals, halted }
    }

    /// When deliveries that could have company have waited long enough.
    fn linger_until(&mut self) -> Option<Instant> {
        if !self.lanes.partial() {
            self.partial_since = None;
            return None;
        }
        let since = *self.partial_since.get_or_insert_with(Instant::now);
        Some(since + self.worker.settings.linger)
    }

    fn dispatch(&mut self, stopping: bool) {
        let lingered = self.linger_until().is_some_and(|until| until <= Instant::now());
        while let Some(batch) = self.lanes.take(lingered || stopping) {
            self.start(batch);
        }
    }

    fn start(&mut self, batch: Batch<AnyReceipt<Q::Receipt, S>, C::Handler>) {
        let worker = Arc::clone(&self.worker);
        self.working.push(tokio::spawn(async move {
            let (lane, report) = worker.process(batch).await;
            (Some(lane), report)
        }));
    }

    fn accept(&mut self, delivery: Delivery<Q::Receipt>) {
        let Delivery { message, receipt } = delivery;
        self.interpret(Delivery { message, receipt: AnyReceipt::Broker(receipt) }, None);
    }

    fn accept_parked(&mut self, delivery: Delivery<parked::ParkedReceipt<S>>, wait: Wait) {
        let Delivery { message, receipt } = delivery;
        self.interpret(Delivery { message, receipt: AnyReceipt::Parked(receipt) }, Some(wait));
    }

    /// Reads a delivery and puts it into its lane, or aside when it gives no operation.
    fn interpret(&mut self, delivery: Delivery<AnyReceipt<Q::Receipt, S>>, wait: Option<Wait>) {
        let message = &delivery.message;
        let read = match &message.undecodable {
            Some(reason) => Err(reason.clone()),
            None => self.worker.consumer.interpret(message),
        };
        match read {
            Ok((operation, handler)) => {
                let affinity = affinity(&operation, message).to_owned();
                let redelivered = message.redelivered || message.delivery_count > 1;
                let overdue = wait.is_some_and(|wait| wait.reason == ParkReason::Gap && wait.overdue);
                let suspect = overdue || wait.is_some_and(|wait| wait.reason == ParkReason::Retry);
                let unit = Unit { delivery, operation, handler };
                self.lanes.push(&affinity, Waiting { unit, suspect, overdue, redelivered });
            }
            Err(reason) => {
                let worker = Arc::clone(&self.worker);
                self.working.push(tokio::spawn(async move { (None, worker.refuse(delivery, reason).await) }));
            }
        }
    }

    fn finished(&mut self, finished: Result<(Option<usize>, Report), tokio::task::JoinError>) {
        let (lane, report) = finished.expect("a broken invariant in a worker ends the process");
        self.totals += report.totals;
        if let Some(lane) = lane {
            self.lanes.finished(lane, report.course);
        }
    }
}

async fn asked_to_halt(halted: &mut watch::Receiver<Option<String>>) {
    // An error means that no worker is left to ask.
    let _ = halted.wait_for(Option::is_some).await;
}

/// What keeps deliveries on one lane: the guarded aggregate, the event's own, or else the business key, so that copies
/// never wait for each other's marker.
fn affinity<'a>(operation: &'a Operation, message: &'a Message) -> &'a str {
    const AGGREGATE_ID: &str = "consign-aggregate-id";
    if let Some(guard) = &operation.guard {
        return &guard.aggregate;
    }
    let header = message.headers.iter().find(|(name, _)| name == AGGREGATE_ID);
    header.map_or(operation.key.as_str(), |(_, value)| value.as_str())
}
