//! What becomes of a batch: its transactions, then the acknowledgements, the parked and the dead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_core::delivery::{Delivery, Message, Receipt};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::filter::{Hint, RepeatFilter};
use consign_core::inbox::{Committed, Concluded, Failed, Inbox, ProcessError, Processed, Unit};
use consign_core::lease::Publish;
use consign_core::operation::Operation;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, InboxStore, Lane, ParkDelivery, ParkReason, Parking, StoreError};
use consign_core::route::Route;
use consign_core::time::Draw;
use consign_failpoint as failpoint;
use tokio::sync::{Notify, watch};

use super::attempts::Attempts;
use super::lanes::{Batch, Course};
use super::{ConflictPolicy, ConsumerSettings, ConsumerTotals, DeadLetters, Interpret, Observation, Observe};
use crate::clock::ProcessClock;
use crate::draw::SystemDraw;
use crate::shutdown::Shutdown;

/// Everything the batches of one consumer share.
pub(super) struct Worker<S, C, D, F> {
    pub inbox: Arc<Inbox<S>>,
    pub consumer: Arc<C>,
    pub dead_letters: Arc<DeadLetters<D>>,
    pub filter: Arc<F>,
    pub observer: Arc<dyn Observe>,
    pub settings: ConsumerSettings,
    pub clock: ProcessClock,
    pub shutdown: Shutdown,
    pub attempts: Mutex<Attempts>,
    /// Wakes the source of parked deliveries.
    pub wake: Arc<Notify>,
    /// Why the consumer must stop, once it must.
    pub halt: watch::Sender<Option<String>>,
}

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub totals: ConsumerTotals,
    pub course: Course,
}

/// A delivery and what is known of its wait, when it was parked before.
type Failure<R> = (Failed<R>, Operation);

impl<S, C, D, F> Worker<S, C, D, F>
where
    S: InboxStore + Parking,
    C: Interpret<S::Transaction>,
    D: Destination,
    F: RepeatFilter,
{
    /// Processes a batch to its end.
    pub(super) async fn process<R: Receipt>(self: Arc<Self>, batch: Batch<R, C::Handler>) -> (usize, Report) {
        let mut report = Report::default();
        let Batch { lane, mut units, mut look_first, overdue } = batch;
        report.course.rows = units.len();
        report.totals.batches = 1;
        let mut shutdown = self.shutdown.clone();
        let mut tries = 0;
        loop {
            let mut in_hand = Vec::new();
            for concluded in self.run(units, look_first).await {
                let Concluded { result, operation, handler } = concluded;
                match result {
                    Ok(committed) => self.committed(committed, &operation, &mut report).await,
                    Err(failed) => match &failed.error {
                        ProcessError::Store(_) | ProcessError::CommitUnknown(_) => {
                            in_hand.push((failed, operation, handler));
                        }
                        ProcessError::Handler(_) | ProcessError::Gap { .. } => {
                            self.failed((failed, operation), overdue, &mut report).await;
                        }
                    },
                }
            }
            let Some((failed, operation, _)) = in_hand.first() else { return (lane, report) };
            // The store is away or contended: the deliveries stay in hand, so that the broker counts nothing.
            tries += 1;
            let (consumer, error) = (self.consumer.name(), &failed.error);
            let (key, rows) = (&operation.key, in_hand.len());
            tracing::warn!(consumer, key, rows, tries, %error, "store failed, the deliveries stay in hand");
            tokio::select! {
                () = tokio::time::sleep(self.pause(tries)) => {}
                () = shutdown.requested() => {
                    for (failed, ..) in in_hand {
                        self.hand_back(failed, Duration::ZERO, &mut report).await;
                    }
                    return (lane, report);
                }
            }
            let again = |(failed, operation, handler): (Failed<R>, Operation, C::Handler)| Unit {
                delivery: failed.again(),
                operation,
                handler,
            };
            units = in_hand.into_iter().map(again).collect();
            // An unknown COMMIT may have been applied.
            look_first = true;
        }
    }

    /// Processes units, those apart that the filter takes for repeats: they probably need no transaction.
    async fn run<R: Receipt>(
        &self,
        units: Vec<Unit<R, C::Handler>>,
        look_first: bool,
    ) -> Vec<Concluded<R, C::Handler>> {
        let operations: Vec<&Operation> = units.iter().map(|unit| &unit.operation).collect();
        let hints = self.filter.hints(&operations).await;
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for (unit, hint) in units.into_iter().zip(hints) {
            match hint {
                Hint::Unknown => unknown.push(unit),
                Hint::Repeat | Hint::Contradiction => known.push(unit),
            }
        }
        let mut concluded = self.inbox.process_all(unknown, look_first).await;
        if !known.is_empty() {
            concluded.extend(self.inbox.process_all(known, true).await);
        }
        let applied = |concluded: &&Concluded<R, C::Handler>| {
            let processed = concluded.result.as_ref().map(|committed| committed.processed);
            matches!(processed, Ok(Processed::Applied | Processed::Duplicate))
        };
        let remembered: Vec<&Operation> =
            concluded.iter().filter(applied).map(|concluded| &concluded.operation).collect();
        self.filter.remember(&remembered).await;
        concluded
    }

    async fn committed<R: Receipt>(
        &self,
        committed: Committed<R>,
        operation: &Operation,
        report: &mut Report,
    ) {
        failpoint::pass("consume.after_commit");
        let (consumer, key, processed) = (self.consumer.name(), &operation.key, committed.processed);
        self.attempts().forget(key);
        tracing::debug!(consumer, key, ?processed, "processed");
        self.observe(operation, Ok(processed));
        match processed {
            Processed::Applied => report.totals.applied += 1,
            Processed::Duplicate => report.totals.duplicates += 1,
            Processed::Stale => report.totals.stale += 1,
            Processed::Conflict => report.totals.conflicts += 1,
        }
        report.course.repeats += usize::from(matches!(processed, Processed::Duplicate | Processed::Conflict));
        if processed == Processed::Applied && operation.guard.is_some() {
            // The next step of the aggregate may be waiting.
            self.wake.notify_one();
        }
        if processed == Processed::Conflict {
            tracing::error!(
                consumer,
                key,
                "same business key, other content: conflict recorded, nothing changed"
            );
            match self.settings.on_conflict {
                ConflictPolicy::RecordAndAck => {}
                ConflictPolicy::DeadLetter => {
                    let failed = committed.refuse("conflict: same business key, other content");
                    return self.bury(failed, Some(operation), report).await;
                }
                ConflictPolicy::Stop => {
                    let reason = format!("conflict on {key:?}: see consign conflicts list");
                    tracing::error!(consumer, reason, "the consumer stops, as on_conflict says");
                    self.halt.send_replace(Some(reason.clone()));
                    return self.hand_back(committed.refuse(reason), Duration::ZERO, report).await;
                }
            }
        }
        if committed.ack().await.is_err() {
            report.totals.receipts_lost += 1;
        }
        failpoint::pass("consume.after_ack");
    }

    /// A delivery that was refused, or came before its turn.
    async fn failed<R: Receipt>(&self, (failed, operation): Failure<R>, overdue: bool, report: &mut Report) {
        report.course.refused += 1;
        self.observe(&operation, Err(&failed.error));
        let (consumer, key) = (self.consumer.name(), operation.key.clone());
        let attempt = failed.message.delivery_count.max(1);
        if let ProcessError::Gap { aggregate, version, .. } = &failed.error {
            if overdue {
                return self.bury(failed, Some(&operation), report).await;
            }
            let (aggregate, version, detail) = (aggregate.clone(), *version, failed.error.to_string());
            tracing::info!(consumer, key, detail, "parked until the step before it was applied");
            let step = Some((aggregate.as_str(), version));
            let delay = self.settings.gap_wait;
            // The wait for a step is no attempt.
            let attempts = attempt - 1;
            return self
                .park(
                    failed,
                    &operation,
                    Parked { reason: ParkReason::Gap, detail: &detail, attempts, step, delay },
                    report,
                )
                .await;
        }
        if attempt >= self.settings.attempts_max {
            return self.bury(failed, Some(&operation), report).await;
        }
        let (detail, delay) = (failed.error.to_string(), self.pause(attempt));
        tracing::warn!(consumer, key, attempt, reason = detail, "delivery refused, it will be tried again");
        let parked =
            Parked { reason: ParkReason::Retry, detail: &detail, attempts: attempt, step: None, delay };
        self.park(failed, &operation, parked, report).await;
    }

    async fn park<R: Receipt>(
        &self,
        failed: Failed<R>,
        operation: &Operation,
        parked: Parked<'_>,
        report: &mut Report,
    ) {
        let message = Message::default();
        let delivery = ParkDelivery {
            consumer: self.consumer.name(),
            business_key: Some(&operation.key),
            // The failed delivery brings its own.
            message: &message,
            reason: parked.reason,
            detail: parked.detail,
            attempts: parked.attempts,
            step: parked.step,
            delay: parked.delay,
        };
        match failed.park(self.inbox.store(), delivery).await {
            Ok(acknowledged) => {
                report.totals.parked += 1;
                report.totals.receipts_lost += u64::from(acknowledged.is_err());
                self.wake.notify_one();
            }
            Err((failed, StoreError::Schema(_))) => {
                // Without the table, a delivery waits in hand and its refusals are counted in memory.
                let counted = self.attempts().count(&operation.key).max(failed.message.delivery_count);
                if counted >= self.settings.attempts_max {
                    return self.bury(failed, Some(operation), report).await;
                }
                self.hand_back(failed, self.pause(counted), report).await;
            }
            Err((failed, error)) => {
                tracing::warn!(consumer = self.consumer.name(), key = operation.key, %error, "not parked");
                self.hand_back(failed, self.pause(1), report).await;
            }
        }
    }

    async fn hand_back<R: Receipt>(&self, failed: Failed<R>, delay: Duration, report: &mut Report) {
        match failed.retry(delay).await {
            Ok(()) => report.totals.retried += 1,
            Err(_) => report.totals.receipts_lost += 1,
        }
    }

    /// Hands back what was never processed.
    pub(super) async fn return_unprocessed<R: Receipt>(&self, delivery: Delivery<R>) {
        // A lost receipt comes again as well.
        let _ = delivery.receipt.retry(Duration::ZERO).await;
    }

    fn pause(&self, attempt: u32) -> Duration {
        const PAUSE_MAX: Duration = Duration::from_mins(1);
        let ceiling = self.settings.retry_delay.saturating_mul(1 << attempt.saturating_sub(1).min(6));
        ceiling.min(PAUSE_MAX).mul_f64(0.5 + SystemDraw.fraction() / 2.0)
    }

    /// Puts a delivery aside that gives no operation.
    pub(super) async fn refuse<R: Receipt>(self: Arc<Self>, delivery: Delivery<R>, reason: String) -> Report {
        let mut report = Report::default();
        self.bury(Failed::refused(delivery, reason), None, &mut report).await;
        report
    }

    /// Puts a delivery aside and acknowledges it only after that is durable.
    async fn bury<R: Receipt>(&self, failed: Failed<R>, operation: Option<&Operation>, report: &mut Report) {
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
                        let pause = self.pause(self.settings.attempts_max);
                        return self.hand_back(failed, pause, report).await;
                    }
                }
            }
            DeadLetters::Table => match failed.record_dead(self.inbox.store(), consumer, key).await {
                Ok(acknowledged) => acknowledged,
                Err((failed, error)) => {
                    tracing::error!(consumer, key, %error, "dead delivery was not recorded, it comes again");
                    let pause = self.pause(self.settings.attempts_max);
                    return self.hand_back(failed, pause, report).await;
                }
            },
        };
        tracing::error!(consumer, key, reason, "delivery put aside as dead");
        if let Some(key) = key {
            self.attempts().forget(key);
        }
        match buried {
            Ok(()) => report.totals.dead += 1,
            Err(_) => report.totals.receipts_lost += 1,
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

    fn observe(&self, operation: &Operation, result: Result<Processed, &ProcessError>) {
        self.observer.processed(&Observation { operation, result });
    }

    fn attempts(&self) -> std::sync::MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a delivery is parked.
struct Parked<'a> {
    reason: ParkReason,
    detail: &'a str,
    attempts: u32,
    step: Option<(&'a str, i64)>,
    delay: Duration,
}
