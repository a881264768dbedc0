//! What stands around the library's parts: it tells each step, and ends the process at the window.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use consign::consumer::{Observation, Observe};
use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::inbox::{ProcessError, Processed};
use consign_core::lease::{ClaimRequest, Publish};
use consign_core::outcome::Outcome;
use consign_core::ports::{Claimed, Destination, Lane, OutboxStore, Readiness, Source, StoreError};
use consign_core::settle::{SettleBatch, Settled, Swept, Transition};

use crate::command::lab::life::{Life, Paid};
use crate::command::lab::mailbox;
use crate::command::lab::place::Broker;
use crate::command::lab::record::{Actor, What};

/// Where a process dies, in its first lives.
#[derive(Clone, Debug, Default)]
pub struct Deaths {
    /// After this many confirmed publishes, before anything of the last one is settled.
    pub after_confirms: Option<u32>,
    /// In front of the acknowledgement with this number, after the commit that it acknowledges.
    pub before_ack: Option<u32>,
    /// How many lives end so.
    pub lives: u32,
    passed: Arc<AtomicU32>,
}

impl Deaths {
    /// Dies when the broker has confirmed this many messages.
    pub fn after_confirms(count: u32) -> Self {
        Self { after_confirms: Some(count), lives: 1, ..Self::default() }
    }

    /// Dies instead of sending the acknowledgement with this number, in so many lives.
    pub fn before_ack(number: u32, lives: u32) -> Self {
        Self { before_ack: Some(number), lives, ..Self::default() }
    }

    fn pass(&self, at: Option<u32>, life: &Life, actor: Actor) {
        if at.is_some_and(|at| self.passed.fetch_add(1, Ordering::SeqCst) + 1 >= at) {
            life.die_often(actor, self.lives);
        }
    }
}

/// A part of the library, watched.
pub struct Watched<T> {
    /// The part.
    pub inner: T,
    /// Who tells.
    pub life: Life,
    /// Who it is in the picture.
    pub actor: Actor,
    /// Where the process dies.
    pub deaths: Deaths,
}

fn order(publish: &Publish) -> Option<i64> {
    publish.event.aggregate.id.as_ref().and_then(|id| id.parse().ok())
}

impl<S: OutboxStore> OutboxStore for Watched<Arc<S>> {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let claimed = self.inner.claim(request).await?;
        for claim in &claimed.claims {
            let order = claim.event().aggregate.id.as_ref().and_then(|id| id.parse().ok());
            self.life.tell(self.actor, What::Claimed, order);
        }
        Ok(claimed)
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        let answers = self.inner.settle(batch).await?;
        for (settlement, answer) in batch.settlements.iter().zip(&answers) {
            let what = match (answer, settlement.to()) {
                (Settled::Fenced, _) => What::Fenced,
                (Settled::Applied | Settled::AlreadyApplied, Transition::Sent(_)) => What::MarkedSent,
                (
                    Settled::Applied | Settled::AlreadyApplied,
                    Transition::Retry { .. } | Transition::Release { .. } | Transition::Dead { .. },
                ) => What::MarkedNew,
            };
            self.life.tell(self.actor, what, None);
        }
        Ok(answers)
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        self.inner.sweep(limit, delay, attempts_max).await
    }
}

impl<D: Destination> Destination for Watched<D> {
    async fn publish(&self, lane: Lane, publish: Publish) -> Outcome {
        let order = order(&publish);
        let outcome = self.inner.publish(lane, publish).await;
        let what = match &outcome {
            Outcome::Confirmed(_) => What::Confirmed,
            Outcome::Unroutable { .. } => What::Unroutable,
            Outcome::Rejected { .. } | Outcome::Refused { .. } => What::Refused,
            Outcome::Unknown(_) => What::Unknown,
        };
        self.life.tell(self.actor, what, order);
        if matches!(outcome, Outcome::Confirmed(_)) {
            self.deaths.pass(self.deaths.after_confirms, &self.life, self.actor);
        }
        outcome
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        self.inner.readiness_after(known).await
    }
}

impl<Q: Source> Source for Watched<Q> {
    type Receipt = WatchedReceipt<Q::Receipt>;

    async fn next(&mut self) -> Option<Delivery<Self::Receipt>> {
        let Delivery { message, receipt } = self.inner.next().await?;
        let order = Paid::read(&message.body).ok().map(|paid| paid.order_id);
        self.life.tell(self.actor, What::Delivered, order);
        let (life, actor, deaths, id) =
            (self.life.clone(), self.actor, self.deaths.clone(), message.id.clone());
        Some(Delivery { message, receipt: WatchedReceipt { inner: receipt, life, actor, deaths, id, order } })
    }

    async fn stop(&mut self) {
        self.inner.stop().await;
    }

    async fn close(self) {
        self.inner.close().await;
    }
}

/// A receipt, watched.
pub struct WatchedReceipt<R> {
    inner: R,
    life: Life,
    actor: Actor,
    deaths: Deaths,
    id: Option<String>,
    order: Option<i64>,
}

/// Notes an acknowledgement before it leaves: another task may end the process at any moment, and what the broker has been
/// told and nobody noted would be waited for in vain.
async fn note(life: &Life, id: Option<&str>) {
    if let (Broker::RocketMq(_), Some(id)) = (&life.place.broker, id) {
        mailbox::acknowledged(&life.database, id).await.expect("the lab's own table takes a row");
    }
}

impl<R: Receipt> Receipt for WatchedReceipt<R> {
    async fn ack(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        self.deaths.pass(self.deaths.before_ack, &self.life, self.actor);
        note(&self.life, self.id.as_deref()).await;
        self.inner.ack(permit).await?;
        self.life.tell(self.actor, What::Acknowledged, self.order);
        Ok(())
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.inner.retry(delay).await?;
        self.life.tell(self.actor, What::Requeued, self.order);
        Ok(())
    }

    async fn put_aside(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        note(&self.life, self.id.as_deref()).await;
        self.inner.put_aside(permit).await?;
        self.life.tell(self.actor, What::Acknowledged, self.order);
        Ok(())
    }

    fn stays_with_broker(&self) -> bool {
        self.inner.stays_with_broker()
    }
}

/// Tells what deliveries came to.
pub struct Observer {
    /// Who tells.
    pub life: Life,
    /// Who it is in the picture.
    pub actor: Actor,
}

impl Observe for Observer {
    fn processed(&self, observation: &Observation<'_>) {
        let what = match observation.result {
            Ok(Processed::Applied) => What::EffectCommitted,
            Ok(Processed::Duplicate) => What::TakenForRepeat,
            Ok(Processed::Conflict) => What::ConflictRecorded,
            Ok(Processed::Stale) => What::Stale,
            Err(ProcessError::Handler(_)) => What::Failed,
            // It is tried again, and that is told.
            Err(_) => return,
        };
        let order = observation.operation.key.split(':').nth(1).and_then(|order| order.parse().ok());
        self.life.tell(self.actor, what, order);
    }
}
