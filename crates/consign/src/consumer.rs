//! Runs a source's deliveries through the inbox: validate, one transaction, commit, then ack.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_core::declared::{DeclaredChange, DeclaredConsumer};
use consign_core::delivery::{Delivery, Message, Receipt};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::inbox::{Committed, Failed, Handler, Inbox, ProcessError, Processed};
use consign_core::lease::Publish;
use consign_core::operation::Operation;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, InboxStore, InboxTransaction, Lane, Source};
use consign_core::route::Route;
use consign_core::time::Draw;
use futures_util::{StreamExt, stream::FuturesUnordered};

use crate::clock::ProcessClock;
use crate::draw::SystemDraw;
use crate::failpoint;
use crate::shutdown::Shutdown;

/// What a consumer makes of a message: the operation, and the business change to run with its marker.
pub trait Interpret<Tx>: Send + Sync {
    /// The business change of one message.
    type Handler: Handler<Tx>;

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

/// How one consumer runs.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Deliveries processed side by side.
    pub workers: usize,
    /// A delivery refused this often goes to the dead letters.
    pub attempts_max: u32,
    /// The first pause before a refused delivery comes again; it doubles with every attempt, up to a minute.
    pub retry_delay: Duration,
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
    /// Deliveries handed back.
    pub retried: u64,
    /// Deliveries put aside.
    pub dead: u64,
    /// Acknowledgements that found their channel or lease gone.
    pub receipts_lost: u64,
}

/// One consumer over one source.
pub struct ConsumerRuntime<S, C, D> {
    /// Markers and business tables.
    pub inbox: Arc<Inbox<S>>,
    /// What the consumer does.
    pub consumer: Arc<C>,
    /// Where its failures go.
    pub dead_letters: Arc<DeadLetters<D>>,
    /// How it runs.
    pub settings: ConsumerSettings,
    /// The process's clock, shared with the destinations.
    pub clock: ProcessClock,
}

impl<S, C, D> ConsumerRuntime<S, C, D>
where
    S: InboxStore + 'static,
    C: Interpret<S::Transaction> + 'static,
    D: Destination + 'static,
{
    /// Runs until the drain that `shutdown` asks for is over: no new deliveries, those in hand finished and settled.
    pub async fn run<F: Source>(self, mut source: F, mut shutdown: Shutdown) -> ConsumerTotals {
        let worker = Arc::new(Worker {
            inbox: self.inbox,
            consumer: self.consumer,
            dead_letters: self.dead_letters,
            settings: self.settings.clone(),
            clock: self.clock,
            shutdown: shutdown.clone(),
            attempts: Mutex::new(Attempts::default()),
        });
        let mut totals = ConsumerTotals::default();
        let mut working = FuturesUnordered::new();
        let mut stopping = false;
        let mut ended = false;
        while !ended || !working.is_empty() {
            tokio::select! {
                Some(finished) = working.next(), if !working.is_empty() => {
                    count(&mut totals, finished);
                }
                delivery = source.next(), if !ended && working.len() < self.settings.workers => match delivery {
                    // A unit of work must reach its COMMIT or ROLLBACK: spawned, and nothing aborts it.
                    Some(delivery) => working.push(tokio::spawn(Arc::clone(&worker).process(delivery))),
                    None => ended = true,
                },
                () = shutdown.requested(), if !stopping => {
                    stopping = true;
                    source.stop().await;
                }
            }
        }
        // The process may exit right after this: the last acknowledgements must be with the broker.
        source.close().await;
        totals
    }
}

/// What became of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Processed(Processed),
    Retried,
    Dead,
    ReceiptLost,
}

fn count(totals: &mut ConsumerTotals, finished: Result<End, tokio::task::JoinError>) {
    match finished.expect("a broken invariant in a worker ends the process") {
        End::Processed(Processed::Applied) => totals.applied += 1,
        End::Processed(Processed::Duplicate) => totals.duplicates += 1,
        End::Processed(Processed::Conflict) => totals.conflicts += 1,
        End::Retried => totals.retried += 1,
        End::Dead => totals.dead += 1,
        End::ReceiptLost => totals.receipts_lost += 1,
    }
}

struct Worker<S, C, D> {
    inbox: Arc<Inbox<S>>,
    consumer: Arc<C>,
    dead_letters: Arc<DeadLetters<D>>,
    settings: ConsumerSettings,
    clock: ProcessClock,
    shutdown: Shutdown,
    attempts: Mutex<Attempts>,
}

impl<S, C, D> Worker<S, C, D>
where
    S: InboxStore,
    C: Interpret<S::Transaction>,
    D: Destination,
{
    async fn process<R: Receipt>(self: Arc<Self>, delivery: Delivery<R>) -> End {
        if let Some(reason) = delivery.message.undecodable.clone() {
            return self.bury(Failed::refused(delivery, reason), None).await;
        }
        let (operation, handler) = match self.consumer.interpret(&delivery.message) {
            Ok(read) => read,
            Err(reason) => return self.bury(Failed::refused(delivery, reason), None).await,
        };
        let failed = match self.persist(delivery, &operation, &handler).await {
            Ok(committed) => return self.acknowledge(committed, &operation).await,
            Err(failed) => failed,
        };
        self.failed(failed, &operation).await
    }

    /// Processes the delivery, again and again while the store is away or contended: it stays in hand, so that the
    /// broker counts nothing. A drain ends the wait.
    async fn persist<R: Receipt>(
        &self,
        mut delivery: Delivery<R>,
        operation: &Operation,
        handler: &C::Handler,
    ) -> Result<Committed<R>, Failed<R>> {
        let mut shutdown = self.shutdown.clone();
        let mut tries = 0;
        loop {
            let failed = match self.inbox.process(delivery, operation, handler).await {
                Ok(committed) => return Ok(committed),
                Err(failed) => failed,
            };
            let (ProcessError::Store(error) | ProcessError::CommitUnknown(error)) = &failed.error else {
                return Err(failed);
            };
            tries += 1;
            tracing::warn!(
                consumer = self.consumer.name(),
                key = operation.key,
                tries,
                %error,
                "store failed, the delivery stays in hand"
            );
            tokio::select! {
                () = tokio::time::sleep(self.pause(tries)) => {}
                () = shutdown.requested() => return Err(failed),
            }
            delivery = failed.again();
        }
    }

    async fn acknowledge<R: Receipt>(&self, committed: Committed<R>, operation: &Operation) -> End {
        failpoint::pass("consume.after_commit");
        let processed = committed.processed;
        self.attempts().forget(&operation.key);
        tracing::debug!(consumer = self.consumer.name(), key = operation.key, ?processed, "processed");
        if processed == Processed::Conflict {
            tracing::error!(
                consumer = self.consumer.name(),
                key = operation.key,
                "same business key, other content: conflict recorded, nothing changed"
            );
        }
        match committed.ack().await {
            Ok(processed) => End::Processed(processed),
            Err(_) => End::ReceiptLost,
        }
    }

    async fn failed<R: Receipt>(&self, failed: Failed<R>, operation: &Operation) -> End {
        let consumer = self.consumer.name();
        match &failed.error {
            ProcessError::Handler(reason) => {
                let counted = self.attempts().count(&operation.key);
                let attempt = counted.max(failed.message.delivery_count);
                if attempt >= self.settings.attempts_max {
                    return self.bury(failed, Some(operation)).await;
                }
                tracing::warn!(
                    consumer,
                    key = operation.key,
                    attempt,
                    reason,
                    "delivery refused, it will come again"
                );
                self.hand_back(failed, attempt).await
            }
            // The delivery is not at fault and a drain ended the wait: it comes again and counts nothing.
            ProcessError::Store(_) | ProcessError::CommitUnknown(_) => self.hand_back(failed, 1).await,
        }
    }

    async fn hand_back<R: Receipt>(&self, failed: Failed<R>, attempt: u32) -> End {
        match failed.retry(self.pause(attempt)).await {
            Ok(()) => End::Retried,
            Err(_) => End::ReceiptLost,
        }
    }

    fn pause(&self, attempt: u32) -> Duration {
        const PAUSE_MAX: Duration = Duration::from_mins(1);
        let ceiling = self.settings.retry_delay.saturating_mul(1 << attempt.saturating_sub(1).min(6));
        ceiling.min(PAUSE_MAX).mul_f64(0.5 + SystemDraw.fraction() / 2.0)
    }

    /// Puts a delivery aside and acknowledges it only after that is durable.
    async fn bury<R: Receipt>(&self, failed: Failed<R>, operation: Option<&Operation>) -> End {
        let consumer = self.consumer.name();
        let key = operation.map(|operation| operation.key.as_str());
        let reason = failed.error.to_string();
        let buried = match self.dead_letters.as_ref() {
            DeadLetters::Destination(destination, route) => {
                let publish = self.dead_letter(&failed.message, &reason, route.clone());
                match destination.publish(Lane::Window, publish).await {
                    Outcome::Confirmed(proof) => failed.dead_lettered(&proof).await,
                    outcome => {
                        tracing::error!(
                            consumer,
                            key,
                            ?outcome,
                            "dead letter was not taken, the delivery comes again"
                        );
                        return self.hand_back(failed, self.settings.attempts_max).await;
                    }
                }
            }
            DeadLetters::Table => match failed.record_dead(self.inbox.store(), consumer, key).await {
                Ok(acknowledged) => acknowledged,
                Err((failed, error)) => {
                    tracing::error!(consumer, key, %error, "dead delivery was not recorded, it comes again");
                    return self.hand_back(failed, self.settings.attempts_max).await;
                }
            },
        };
        tracing::error!(consumer, key, reason, "delivery put aside as dead");
        if let Some(key) = key {
            self.attempts().forget(key);
        }
        match buried {
            Ok(()) => End::Dead,
            Err(_) => End::ReceiptLost,
        }
    }

    fn dead_letter(&self, message: &Message, reason: &str, route: Route) -> Publish {
        const REASON_BYTES_MAX: usize = 1000;
        let cut = reason.floor_char_boundary(REASON_BYTES_MAX);
        let mut headers = message.headers.clone();
        headers.push(("consign-dead-consumer".into(), self.consumer.name().into()));
        headers.push(("consign-dead-source".into(), message.source.clone()));
        headers.push(("consign-dead-reason".into(), reason[..cut].into()));
        let id = message.id.clone().unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        let event = Event {
            id: EventId::stored(id),
            aggregate: Aggregate::default(),
            event_type: message.message_type.clone().unwrap_or_default(),
            business_key: None,
            payload: Some(message.body.clone()),
            headers,
            destination: None,
            route_key: None,
            created_at_micros: None,
        };
        let deadline = self.clock.now().plus(self.settings.publish_deadline);
        Publish { event: Arc::new(event), route, deadline }
    }

    fn attempts(&self) -> std::sync::MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often deliveries of a key were refused by this process. Bounded: the oldest keys are forgotten first, which
/// costs a few more attempts and loses nothing.
#[derive(Debug, Default)]
struct Attempts {
    counts: HashMap<String, u32>,
    order: VecDeque<String>,
}

impl Attempts {
    const KEYS_MAX: usize = 10_000;

    fn count(&mut self, key: &str) -> u32 {
        if let Some(count) = self.counts.get_mut(key) {
            *count += 1;
            return *count;
        }
        if self.order.len() >= Self::KEYS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(key.into());
        self.counts.insert(key.into(), 1);
        1
    }

    fn forget(&mut self, key: &str) {
        if self.counts.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}
