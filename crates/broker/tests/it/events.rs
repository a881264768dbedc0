//! Events, publishes and receipts for the tests.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use consign_core::delivery::{Delivery, Receipt, ReceiptLost};
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::inbox::Failed;
use consign_core::lease::Publish;
use consign_core::outcome::Proof;
use consign_core::ports::Source;
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;
use tokio::time::{Instant, timeout};

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn event(id: impl Into<String>, payload: impl Into<Bytes>) -> Event {
    Event {
        id: EventId::stored(id.into()),
        aggregate: Aggregate { kind: Some("order".into()), id: Some("42".into()), version: Some(1) },
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

/// A publish of `event` under `key` that must resolve within `wait`, on a clock that counts from `origin`.
pub fn publish(event: Event, key: &str, origin: Instant, wait: Duration) -> Publish {
    let route = Route { destination: DestinationName::new("test"), key: key.to_owned() };
    let deadline = Monotonic::new(origin.elapsed() + wait);
    Publish { event: Arc::new(event), route, deadline }
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

pub async fn next<S: Source>(source: &mut S) -> Delivery<S::Receipt> {
    within("a delivery", source.next()).await.expect("the source is not stopped")
}

/// Acknowledges without an inbox, as after dead-lettering.
pub async fn ack<R: Receipt>(delivery: Delivery<R>) -> Result<(), ReceiptLost> {
    Failed::refused(delivery, "a test").dead_lettered(&Proof::Appended { partition: 0, offset: 0 }).await
}

pub async fn retry<R: Receipt>(delivery: Delivery<R>, delay: Duration) -> Result<(), ReceiptLost> {
    Failed::refused(delivery, "a test").retry(delay).await
}

/// Waits until `condition` holds, asking again and again.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    within(what, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
