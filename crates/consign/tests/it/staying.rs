//! Deliveries that their broker wants back when they are refused: of a group in order, or counted by the broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use consign_broker::embedded::{EmbeddedReceipt, EmbeddedSource};
use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::ports::Source;

use crate::world::{AWARDS, DEAD, PARKED, Paid, World, paid};

/// A queue whose refused deliveries stay with it.
struct Staying {
    inner: EmbeddedSource,
    put_aside: Arc<AtomicU64>,
}

struct StayingReceipt {
    inner: EmbeddedReceipt,
    put_aside: Arc<AtomicU64>,
}

impl Source for Staying {
    type Receipt = StayingReceipt;

    async fn next(&mut self) -> Option<Delivery<StayingReceipt>> {
        let Delivery { message, receipt } = self.inner.next().await?;
        let receipt = StayingReceipt { inner: receipt, put_aside: Arc::clone(&self.put_aside) };
        Some(Delivery { message, receipt })
    }

    async fn stop(&mut self) {
        self.inner.stop().await;
    }

    async fn close(self) {
        self.inner.close().await;
    }
}

impl Receipt for StayingReceipt {
    async fn ack(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        self.inner.ack(permit).await
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.inner.retry(delay).await
    }

    async fn put_aside(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        self.put_aside.fetch_add(1, Ordering::Relaxed);
        self.inner.ack(permit).await
    }

    fn stays_with_broker(&self) -> bool {
        true
    }
}

fn staying(world: &World) -> (Staying, Arc<AtomicU64>) {
    let put_aside = Arc::new(AtomicU64::new(0));
    (Staying { inner: world.source(), put_aside: Arc::clone(&put_aside) }, put_aside)
}

/// Parked, it would leave its place, and those behind it would overtake it.
#[tokio::test]
async fn a_refused_delivery_that_stays_with_its_broker_is_handed_back_and_not_parked() {
    let world = World::new().await;
    world.publish(&Paid { user: 8, ..paid(1, 5) }).await;
    let (source, put_aside) = staying(&world);

    let consumer = world
        .start_on(source, world.consumer(false).await, |settings| {
            settings.attempts_max = 1000;
            settings.retry_delay = Duration::from_millis(10);
        })
        .await;
    world.publish(&paid(2, 5)).await;
    world.until(AWARDS, 1).await;
    world.open_account(8).await;
    world.until(AWARDS, 2).await;
    let end = consumer.drain().await;

    assert!(end.totals.retried > 0, "{end:?}");
    assert_eq!((end.totals.parked, world.number(PARKED).await), (0, 0));
    assert_eq!(put_aside.load(Ordering::Relaxed), 0);
}

/// The attempts are the broker's count; the record is committed before the broker puts the delivery aside.
#[tokio::test]
async fn a_delivery_that_its_broker_counted_to_the_limit_is_recorded_and_put_aside() {
    let world = World::new().await;
    world.publish(&Paid { user: 8, ..paid(1, 5) }).await;
    let (source, put_aside) = staying(&world);

    let consumer = world
        .start_on(source, world.consumer(false).await, |settings| {
            settings.retry_delay = Duration::from_millis(10);
        })
        .await;
    world.until(DEAD, 1).await;
    world.until_queued(0).await;
    let end = consumer.drain().await;

    assert_eq!((end.totals.retried, end.totals.dead, end.totals.parked), (2, 1, 0), "{end:?}");
    assert_eq!(put_aside.load(Ordering::Relaxed), 1);
}
