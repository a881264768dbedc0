//! What becomes of a batch: its transactions, then the acknowledgements, the parked and the dead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::attempts::Attempts;
use super::{
    AnyReceipt, Batch, ConflictPolicy, ConsumerSettings, ConsumerTotals, Course, DeadLetters, News,
    Surroundings,
};
use crate::delivery::{Delivery, Message, Receipt};
use crate::event::{Aggregate, Event, EventId};
use crate::filter::{Hint, RepeatFilter};
use crate::inbox::{Committed, Concluded, Failed, Handler, Inbox, ProcessError, Processed, Unit};
use crate::lease::Publish;
use crate::operation::Operation;
use crate::outcome::Outcome;
#[cfg(feature = "mutants")]
use crate::outcome::Proof;
use crate::ports::{Destination, InboxStore, Lane, ParkDelivery, ParkReason, Parking, StoreError};
use crate::route::Route;
use crate::safeguard::{Safeguard, stands};

/// Everything the batches of one consumer share.
#[derive(Debug)]
pub struct Worker<S, D, F, E> {
    /// The consumer's name, part of every marker's key.
    pub name: String,
    /// Markers and business tables.
    pub inbox: Arc<Inbox<S>>,
    /// Where failures go.
    pub dead_letters: Arc<DeadLetters<D>>,
    /// What spares transactions for repeats.
    pub filter: Arc<F>,
    /// How it runs.
    pub settings: ConsumerSettings,
    /// The process around it.
    pub surroundings: E,
    attempts: Mutex<Attempts>,
}

/// What a batch came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// What its deliveries came to.
    pub totals: ConsumerTotals,
    /// How it went, for the lane.
    pub course: Course,
}

impl<S, D, F, E> Worker<S, D, F, E>
where
    S: InboxStore + Parking,
    D: Destination,
    F: RepeatFilter,
    E: Surroundings,
{
    /// A worker that has refused nothing yet.
    pub fn new(
        name: impl Into<String>,
        inbox: Arc<Inbox<S>>,
        dead_letters: Arc<DeadLetters<D>>,
        filter: Arc<F>,
        settings: ConsumerSettings,
        surroundings: E,
    ) -> Self {
        let (name, attempts) = (name.into(), Mutex::new(Attempts::default()));
        Self { name, inbox, dead_letters, filter, settings, surroundings, attempts }
    }

    /// Processes a batch to its end: each delivery is acknowledged, parked, put aside or handed back, and stays in hand
    /// while the store is away.
    ///
    /// Run it in a task that nothing aborts: a unit of work must reach its COMMIT or ROLLBACK.
    pub async fn process<R: Receipt, H: Handler<S::Transaction>>(
        &self,
        batch: Batch<AnyReceipt<R, S>, H>,
    ) -> Report {
        let mut report = Report::default();
        let Batch { mut units, mut look_first, overdue, .. } = batch;
        report.course.rows = units.len();
        report.totals.batches = 1;
        let mut tries = 0;
        #[cfg(feature = "mutants")]
        if !stands(Safeguard::CommitBeforeAck) {
            for unit in &mut units {
                unit.delivery.receipt.spend().await;
            }
        }
        loop {
            // Left to their next lease: under the one that is over, nothing that is done here could be settled, and
            // deliveries that wait longer than their leases would be processed for ever.
            let now = self.surroundings.now();
            units.retain(|unit| !unit.delivery.receipt.lapsed(now));
            let mut in_hand = Vec::new();
            for concluded in self.run(units, look_first).await {
                let Concluded { result, operation, handler } = concluded;
                match result {
                    Ok(committed) => self.committed(committed, &operation, &mut report).await,
                    Err(failed) => match &failed.error {
                        ProcessError::Store(_) | ProcessError::CommitUnknown(_) => {
                            in_hand.push((failed, operation, handler));
                        }
                        #[cfg(feature = "mutants")]
                        ProcessError::Handler(_) | ProcessError::Gap { .. }
                            if report.course.rows > 1 && !stands(Safeguard::AckByDelivery) =>
                        {
                            let _ = failed.dead_lettered(&unproven()).await;
                        }
                        ProcessError::Handler(_) | ProcessError::Gap { .. } => {
                            self.failed(failed, &operation, overdue, &mut report).await;
                        }
                    },
                }
            }
            let Some((failed, operation, _)) = in_hand.first() else { return report };
            // The store is away or contended: the deliveries stay in hand, so that the broker counts nothing.
            tries += 1;
            self.tell(&News::InHand { operation, error: &failed.error, rows: in_hand.len(), tries });
            if !self.surroundings.pause(self.pause(tries)).await {
                for (failed, ..) in in_hand {
                    self.hand_back(failed, Duration::ZERO, &mut report).await;
                }
                return report;
            }
            let again = |(failed, operation, handler): (Failed<AnyReceipt<R, S>>, Operation, H)| Unit {
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
    async fn run<R: Receipt, H: Handler<S::Transaction>>(
        &self,
        units: Vec<Unit<R, H>>,
        look_first: bool,
    ) -> Vec<Concluded<R, H>> {
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
        #[cfg(feature = "mutants")]
        if !stands(Safeguard::HintIsChecked) {
            concluded.extend(known.drain(..).map(Concluded::believed));
        }
        if !known.is_empty() {
            concluded.extend(self.inbox.process_all(known, true).await);
        }
        let applied = |concluded: &&Concluded<R, H>| {
            let processed = concluded.result.as_ref().map(|committed| committed.processed);
            matches!(processed, Ok(Processed::Applied | Processed::Duplicate))
                || !stands(Safeguard::FilterHearsCommits)
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
        let (key, processed) = (&operation.key, committed.processed);
        self.attempts().forget(key);
        self.tell(&News::Processed { operation, processed });
        match processed {
            Processed::Applied => report.totals.applied += 1,
            Processed::Duplicate => report.totals.duplicates += 1,
            Processed::Stale => report.totals.stale += 1,
            Processed::Conflict => report.totals.conflicts += 1,
        }
        report.course.repeats += usize::from(matches!(processed, Processed::Duplicate | Processed::Conflict));
        if processed == Processed::Applied && operation.guard.is_some() {
            // The next step of the aggregate may be waiting.
            self.surroundings.wake_parked();
        }
        if processed == Processed::Conflict {
            match self.settings.on_conflict {
                ConflictPolicy::RecordAndAck => {}
                ConflictPolicy::DeadLetter => {
                    let failed = committed.refuse("conflict: same business key, other content");
                    return self.bury(failed, Some(operation), report).await;
                }
                ConflictPolicy::Stop => {
                    let reason = format!("conflict on {key:?}: see consign conflicts list");
                    self.surroundings.halt(reason.clone());
                    return self.hand_back(committed.refuse(reason), Duration::ZERO, report).await;
                }
            }
        }
        match committed.ack().await {
            Ok(_) => self.tell(&News::Acknowledged { operation }),
            Err(_) => report.totals.receipts_lost += 1,
        }
    }

    /// A delivery that was refused, or came before its turn.
    async fn failed<R: Receipt>(
        &self,
        failed: Failed<R>,
        operation: &Operation,
        overdue: bool,
        report: &mut Report,
    ) {
        report.course.refused += 1;
        self.tell(&News::Refused { operation, error: &failed.error });
        let attempt = failed.message.delivery_count.max(1);
        let detail = failed.error.to_string();
        if let ProcessError::Gap { aggregate, version, .. } = &failed.error {
            if overdue && stands(Safeguard::GapEnds) {
                return self.bury(failed, Some(operation), report).await;
            }
            let aggregate = aggregate.clone();
            // The wait for a step is no attempt.
            let (step, attempts) = (Some((aggregate.as_str(), *version)), attempt - 1);
            let delay = self.settings.gap_wait;
            let parked = Parked { reason: ParkReason::Gap, detail: &detail, attempts, step, delay };
            return self.park(failed, operation, parked, report).await;
        }
        if attempt >= self.settings.attempts_max && stands(Safeguard::LastAttempt) {
            return self.bury(failed, Some(operation), report).await;
        }
        let delay = self.pause(attempt);
        if failed.stays_with_broker() {
            return self.hand_back(failed, delay, report).await;
        }
        let parked =
            Parked { reason: ParkReason::Retry, detail: &detail, attempts: attempt, step: None, delay };
        self.park(failed, operation, parked, report).await;
    }

    async fn park<R: Receipt>(
        &self,
        failed: Failed<R>,
        operation: &Operation,
        parked: Parked<'_>,
        report: &mut Report,
    ) {
        let Parked { reason, detail, attempts, .. } = parked;
        self.tell(&News::Parking {
            operation,
            reason,
            detail,
            attempt: failed.message.delivery_count.max(1),
        });
        let message = Message::default();
        let delivery = ParkDelivery {
            consumer: &self.name,
            business_key: Some(&operation.key),
            // The failed delivery brings its own.
            message: &message,
            reason,
            detail,
            attempts,
            step: parked.step,
            delay: parked.delay,
        };
        match failed.park(self.inbox.store(), delivery).await {
            Ok(acknowledged) => {
                report.totals.parked += 1;
                report.totals.receipts_lost += u64::from(acknowledged.is_err());
                self.surroundings.wake_parked();
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
                self.tell(&News::NotParked { operation, error: &error });
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
    pub async fn return_unprocessed<R: Receipt>(&self, delivery: Delivery<R>) {
        // A lost receipt comes again as well.
        let _ = delivery.receipt.retry(Duration::ZERO).await;
    }

    fn pause(&self, attempt: u32) -> Duration {
        const PAUSE_MAX: Duration = Duration::from_mins(1);
        let ceiling = self.settings.retry_delay.saturating_mul(1 << attempt.saturating_sub(1).min(6));
        ceiling.min(PAUSE_MAX).mul_f64(0.5 + self.surroundings.fraction() / 2.0)
    }

    /// Puts a delivery aside that gives no operation.
    pub async fn refuse<R: Receipt>(&self, delivery: Delivery<R>, reason: String) -> Report {
        let mut report = Report::default();
        self.bury(Failed::refused(delivery, reason), None, &mut report).await;
        report
    }

    /// Puts a delivery aside and acknowledges it only after that is durable.
    async fn bury<R: Receipt>(&self, failed: Failed<R>, operation: Option<&Operation>, report: &mut Report) {
        let key = operation.map(|operation| operation.key.as_str());
        let reason = failed.error.to_string();
        let buried = match self.dead_letters.as_ref() {
            DeadLetters::Destination(destination, route) => {
                let publish = self.dead_letter(&failed.message, &reason, route.clone());
                match destination.publish(Lane::Window, publish).await {
                    Outcome::Confirmed(proof) => failed.dead_lettered(&proof).await,
                    #[cfg(feature = "mutants")]
                    _ if !stands(Safeguard::DeadLetterProof) => failed.dead_lettered(&unproven()).await,
                    outcome => {
                        self.tell(&News::NotDead { key, why: &format!("{outcome:?}") });
                        let pause = self.pause(self.settings.attempts_max);
                        return self.hand_back(failed, pause, report).await;
                    }
                }
            }
            DeadLetters::Table => match failed.record_dead(self.inbox.store(), &self.name, key).await {
                Ok(acknowledged) => acknowledged,
                Err((failed, error)) => {
                    self.tell(&News::NotDead { key, why: &error.to_string() });
                    let pause = self.pause(self.settings.attempts_max);
                    return self.hand_back(failed, pause, report).await;
                }
            },
        };
        self.tell(&News::Dead { key, reason: &reason });
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
        headers.push(("consign-dead-consumer".into(), self.name.clone()));
        headers.push(("consign-dead-source".into(), message.source.clone()));
        headers.push(("consign-dead-reason".into(), reason[..cut].into()));
        let id = message.id.clone().unwrap_or_else(|| self.surroundings.fresh_id());
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
        let deadline = self.surroundings.now().plus(self.settings.publish_deadline);
        Publish { event: Arc::new(event), route, deadline }
    }

    fn tell(&self, news: &News<'_>) {
        self.surroundings.tell(news);
    }

    fn attempts(&self) -> std::sync::MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a missing guard takes for a proof. No shipped binary can make one out of nothing.
#[cfg(feature = "mutants")]
fn unproven() -> Proof {
    Proof::Appended { partition: 0, offset: 0 }
}

/// How a delivery is parked.
struct Parked<'a> {
    reason: ParkReason,
    detail: &'a str,
    attempts: u32,
    step: Option<(&'a str, i64)>,
    delay: Duration,
}
