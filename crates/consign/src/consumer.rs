//! Runs a source's deliveries through the inbox: validate, a transaction that many may share, commit, then ack.
//!
//! What becomes of each is decided in [`consign_core::consumer`]; here are the tasks, the timers and the logs.

use std::sync::Arc;

use consign_core::consumer::{AnyReceipt, Batch, Bounds, Lanes, Report, Wait, Worker};
pub use consign_core::consumer::{ConflictPolicy, ConsumerSettings, ConsumerTotals, DeadLetters};
use consign_core::declared::{DeclaredChange, DeclaredConsumer};
use consign_core::delivery::{Delivery, Message};
use consign_core::filter::RepeatFilter;
use consign_core::inbox::{Handler, Inbox, ProcessError, Processed, Unit};
use consign_core::operation::Operation;
use consign_core::ports::{Destination, InboxStore, InboxTransaction, ParkedDelivery, Parking, Source};
use consign_core::time::Monotonic;
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::clock::ProcessClock;
use crate::shutdown::Shutdown;

mod parked;
mod process;

use parked::ParkedSource;
use process::Process;

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
        let parked =
            ParkedSource::new(Arc::clone(&store), self.consumer.name(), limit, Arc::clone(&wake), self.clock);
        let lanes = Lanes::new(self.settings.workers, bounds);
        let process = Process {
            consumer: self.consumer.name().to_owned(),
            observer: self.observer,
            clock: self.clock,
            shutdown: shutdown.clone(),
            wake,
            halt,
        };
        let name = self.consumer.name().to_owned();
        let (settings, filter) = (self.settings, self.filter);
        let worker = Worker::new(name, self.inbox, self.dead_letters, filter, settings, process);
        let running = Running {
            worker: Arc::new(worker),
            consumer: self.consumer,
            store,
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
    worker: Arc<Worker<S, D, F, Process>>,
    consumer: Arc<C>,
    store: Arc<S>,
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
                (delivery, until) = parked.next(), if !stopping && !full => self.accept_parked(delivery, until),
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
            let lane = batch.lane;
            (Some(lane), worker.process(batch).await)
        }));
    }

    fn accept(&mut self, delivery: Delivery<Q::Receipt>) {
        self.interpret(AnyReceipt::from_broker(delivery), None);
    }

    fn accept_parked(&mut self, parked: ParkedDelivery, until: Monotonic) {
        let (delivery, wait) = AnyReceipt::from_parked(Arc::clone(&self.store), parked, until);
        self.interpret(delivery, Some(wait));
    }

    /// Reads a delivery and puts it into its lane, or aside when it gives no operation.
    fn interpret(&mut self, delivery: Delivery<AnyReceipt<Q::Receipt, S>>, wait: Option<Wait>) {
        let message = &delivery.message;
        let read = match &message.undecodable {
            Some(reason) => Err(reason.clone()),
            None => self.consumer.interpret(message),
        };
        match read {
            Ok((operation, handler)) => {
                self.lanes.accept(Unit { delivery, operation, handler }, wait);
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
