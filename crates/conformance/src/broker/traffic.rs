//! Messages on their way out and in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consign_core::delivery::{Delivery, Message, ReceiptLost};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::guard::Progress;
use consign_core::inbox::{Failed, Handler, HandlerError, Inbox, Processed};
use consign_core::lease::Publish;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::outcome::Outcome;
use consign_core::ports::{
    Advance, CommitError, DeadDelivery, Destination, InboxStore, InboxTransaction, Lane, Mark, Readiness,
    Source, StoreError,
};
use consign_core::route::Route;
use consign_core::value::Value;

use super::BrokerFixture;
use crate::waiting::within;

/// No step of a behaviour takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// How long a publish may take when all is well.
pub(crate) const PUBLISH_WAIT: Duration = Duration::from_secs(15);

/// An event with everything a broker carries.
pub(crate) fn event(id: impl Into<Box<str>>, payload: impl Into<Bytes>) -> Event {
    Event {
        id: EventId::stored(id),
        aggregate: Aggregate { kind: Some("order".into()), id: Some("42".into()), version: Some(3) },
        event_type: "OrderPaid".into(),
        business_key: Some("order:42:paid".into()),
        payload: Some(payload.into()),
        headers: vec![(
            "traceparent".into(),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        )],
        destination: None,
        route_key: None,
        created_at_micros: Some(1_709_210_096_789_012),
    }
}

/// Publishes under `route` with `wait` for an outcome.
pub(crate) async fn publish_by<F: BrokerFixture>(
    fixture: &F,
    event: Event,
    route: Route,
    wait: Duration,
) -> Outcome {
    publish_on(fixture, Lane::Window, event, route, wait).await
}

/// The same on a chosen lane.
pub(crate) async fn publish_on<F: BrokerFixture>(
    fixture: &F,
    lane: Lane,
    event: Event,
    route: Route,
    wait: Duration,
) -> Outcome {
    let publish = Publish { event: Arc::new(event), route, deadline: fixture.now().plus(wait) };
    // "Resolves by the deadline": the slack is for the machine, not for the adapter.
    within(wait + Duration::from_secs(5), fixture.destination().publish(lane, publish)).await
}

/// Publishes into the queue.
pub(crate) async fn publish<F: BrokerFixture>(fixture: &F, event: Event) -> Outcome {
    publish_by(fixture, event, fixture.bound_route(), PUBLISH_WAIT).await
}

/// Publishes into the queue until it is confirmed, as the relay does over its retries.
pub(crate) async fn publish_until_confirmed<F: BrokerFixture>(fixture: &F, event: Event) {
    within(PATIENCE, async {
        loop {
            ready(fixture).await;
            if matches!(publish(fixture, event.clone()).await, Outcome::Confirmed(_)) {
                return;
            }
        }
    })
    .await;
}

/// Waits until the destination takes publishes.
pub(crate) async fn ready<F: BrokerFixture>(fixture: &F) {
    within(PATIENCE, async {
        let mut known = Readiness::Unavailable("never asked".into());
        while known != Readiness::Accepting {
            known = fixture.destination().readiness_after(&known).await;
        }
    })
    .await;
}

pub(crate) fn assert_confirmed(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Confirmed(_)), "{outcome:?}");
}

/// Unknown, or Refused when provably nothing left.
pub(crate) fn assert_open(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Unknown(_) | Outcome::Refused { .. }), "{outcome:?}");
}

/// The next delivery, which must come.
pub(crate) async fn next<S: Source>(source: &mut S) -> Delivery<S::Receipt> {
    within(PATIENCE, source.next()).await.expect("the source was not stopped")
}

/// Acknowledges the only way there is: through a committed result.
pub(crate) async fn accept<R: consign_core::delivery::Receipt>(
    delivery: Delivery<R>,
) -> Result<Processed, ReceiptLost> {
    let operation = Operation { consumer: "suite".into(), ..Operation::default() };
    match Inbox::new(Applying).process(delivery, &operation, &Applying).await {
        Ok(committed) => committed.ack().await,
        Err(failed) => panic!("a store that applies everything failed: {}", failed.error),
    }
}

/// Hands the delivery back.
pub(crate) async fn retry<R: consign_core::delivery::Receipt>(
    delivery: Delivery<R>,
    delay: Duration,
) -> Result<(), ReceiptLost> {
    Failed::refused(delivery, "not now").retry(delay).await
}

/// Stops the source and accepts what was still on its way; gives the ids.
pub(crate) async fn drain<S: Source>(mut source: S) -> Vec<Option<String>> {
    within(PATIENCE, source.stop()).await;
    let mut ids = Vec::new();
    while let Some(delivery) = within(PATIENCE, source.next()).await {
        ids.push(delivery.message.id.clone());
        // A stopped source may have lost its channel meanwhile; the message then stays in the queue.
        let _ = accept(delivery).await;
    }
    ids
}

/// A store that applies everything and keeps nothing.
#[derive(Clone, Copy, Debug)]
struct Applying;

impl InboxTransaction for Applying {
    async fn mark(&mut self, _: &Operation) -> Result<Mark, StoreError> {
        Ok(Mark::Inserted)
    }

    async fn lock_progress(&mut self, _: &str, _: &[&str]) -> Result<Vec<Option<Progress>>, StoreError> {
        Ok(Vec::new())
    }

    async fn save_progress(&mut self, _: &str, _: &[Advance<'_>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn execute(&mut self, _: &str, _: &[Value]) -> Result<u64, StoreError> {
        Ok(0)
    }

    async fn commit(self) -> Result<(), CommitError> {
        Ok(())
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl InboxStore for Applying {
    type Transaction = Self;

    async fn begin(&self) -> Result<Self, StoreError> {
        Ok(*self)
    }

    async fn marker(&self, _: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        Ok(None)
    }

    async fn record_conflict(&self, _: &Operation, _: &Message, _: &StoredMarker) -> Result<(), StoreError> {
        Ok(())
    }

    async fn record_dead(&self, _: &DeadDelivery<'_>) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Handler<Applying> for Applying {
    async fn apply(&self, _: &mut Applying, _: &Operation, _: &Message) -> Result<(), HandlerError> {
        Ok(())
    }
}
