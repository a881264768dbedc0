//! Deliveries that the consumer's own database handed out under a lease, and those that never go there.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::consumer::{
    AnyReceipt, Batch, ConflictPolicy, ConsumerSettings, ConsumerTotals, DeadLetters, News, Surroundings,
    Wait, Worker,
};
use consign_core::delivery::{AckPermit, Delivery, Message, Receipt, ReceiptLost};
use consign_core::filter::NoFilter;
use consign_core::inbox::{Inbox, Unit};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{
    Destination, Lane, ParkDelivery, ParkReason, ParkedDelivery, Parking, Readiness, StoreError,
};
use consign_core::time::Monotonic;

use super::memory::{Award, Fault, Handle, Memory, Step, run};
use super::{delivery, operation, refused};

impl Parking for Memory {
    async fn park(&self, delivery: &ParkDelivery<'_>) -> Result<(), StoreError> {
        self.step(Step::Park)?;
        let ParkDelivery { reason, detail, attempts, step, delay, .. } = delivery;
        self.note_parked(format!("{reason:?} {step:?} after {attempts} attempts for {delay:?}: {detail}"));
        Ok(())
    }

    async fn due(&self, _: &str, _: u32, _: Duration) -> Result<Vec<ParkedDelivery>, StoreError> {
        Ok(Vec::new())
    }

    async fn unpark(&self, _: i64, _: &str) -> Result<bool, StoreError> {
        self.step(Step::Unpark).map(|()| true)
    }
}

/// Dead letters go to the table here.
struct Nowhere;

impl Destination for Nowhere {
    async fn publish(&self, _: Lane, _: Publish) -> Outcome {
        Outcome::Refused { reason: "there is no destination".into(), retry_after: None }
    }

    async fn readiness_after(&self, _: &Readiness) -> Readiness {
        std::future::pending().await
    }
}

/// A process whose clock moves by `pace` whenever it is asked.
struct Process {
    clock: Mutex<Duration>,
    pace: Duration,
}

impl Surroundings for Process {
    async fn pause(&self, _: Duration) -> bool {
        true
    }

    fn now(&self) -> Monotonic {
        let mut clock = self.clock.lock().expect("no test panics with the clock");
        *clock += self.pace;
        Monotonic::new(*clock)
    }

    fn fraction(&self) -> f64 {
        0.5
    }

    fn fresh_id(&self) -> String {
        "fresh".into()
    }

    fn wake_parked(&self) {}

    fn halt(&self, reason: String) {
        panic!("the consumer stops: {reason}")
    }

    fn tell(&self, _: &News<'_>) {}
}

fn settings() -> ConsumerSettings {
    ConsumerSettings {
        workers: 1,
        batch: 1,
        batch_bytes: 1024,
        linger: Duration::ZERO,
        attempts_max: 3,
        retry_delay: Duration::from_secs(1),
        gap_wait: Duration::from_secs(1),
        on_conflict: ConflictPolicy::RecordAndAck,
        publish_deadline: Duration::from_secs(1),
    }
}

/// A handle of a broker that keeps the order of its deliveries: none of them may be parked.
#[derive(Debug)]
struct Ordered(Handle);

impl Receipt for Ordered {
    async fn ack(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        self.0.ack(permit).await
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.0.retry(delay).await
    }

    fn stays_with_broker(&self) -> bool {
        true
    }
}

/// Processes one delivery with a clock that moves by `pace` whenever it is asked.
fn process<R: Receipt>(
    memory: &Memory,
    delivery: Delivery<AnyReceipt<R, Memory>>,
    handler: Award,
    pace: Duration,
) -> ConsumerTotals {
    let unit = Unit { delivery, operation: operation("k", 1), handler };
    let worker = Worker::new(
        "points-award",
        Arc::new(Inbox::new(memory.clone())),
        Arc::new(DeadLetters::<Nowhere>::Table),
        Arc::new(NoFilter),
        settings(),
        Process { clock: Mutex::default(), pace },
    );
    run(worker.process(Batch { lane: 0, units: vec![unit], look_first: false, overdue: false })).totals
}

fn parked(memory: &Memory) -> (Delivery<AnyReceipt<Handle, Memory>>, Wait) {
    let parked = ParkedDelivery {
        id: 1,
        lease_token: "token".into(),
        reason: ParkReason::Gap,
        overdue: true,
        message: Message { id: Some("e1".into()), ..Message::default() },
    };
    let until = Monotonic::new(Duration::from_secs(10));
    AnyReceipt::from_parked(Arc::new(memory.clone()), parked, until)
}

/// Processes one parked delivery whose lease ends after ten seconds, `late` seconds after it was handed out.
fn process_parked(memory: &Memory, late: u64) -> ConsumerTotals {
    process(memory, parked(memory).0, Award(Ok(())), Duration::from_secs(late))
}

#[test]
fn a_parked_delivery_keeps_its_message_and_what_is_known_of_its_wait() {
    let (delivery, wait) = parked(&Memory::default());

    assert_eq!(delivery.message.id.as_deref(), Some("e1"));
    assert_eq!(wait, Wait { reason: ParkReason::Gap, overdue: true });
}

#[test]
fn a_parked_delivery_that_cannot_be_removed_comes_again() {
    let memory = Memory::failing([Fault::Fails(Step::Unpark, StoreError::Unavailable("down".into()))]);

    let totals = process_parked(&memory, 9);

    assert_eq!((totals.applied, totals.receipts_lost), (1, 1));
}

#[test]
fn a_refused_delivery_that_nothing_may_overtake_is_handed_back_and_never_parked() {
    let memory = Memory::default();
    let Delivery { message, receipt } = delivery(&memory);
    let ordered = AnyReceipt::from_broker(Delivery { message, receipt: Ordered(receipt) });

    let totals = process(&memory, ordered, refused(), Duration::ZERO);

    assert_eq!((totals.retried, totals.parked), (1, 0));
    assert_eq!(memory.steps().last(), Some(&Step::Retry));
    assert!(!memory.steps().contains(&Step::Park));
}

/// It has left its broker, whatever the broker's rule is.
#[test]
fn a_refused_delivery_that_was_parked_is_parked_again() {
    let memory = Memory::default();

    let totals = process(&memory, parked(&memory).0, refused(), Duration::from_secs(1));

    assert_eq!((totals.retried, totals.parked), (0, 1));
    assert_eq!(memory.steps().last(), Some(&Step::Unpark));
}

#[test]
fn a_parked_delivery_is_processed_and_removed_within_its_lease() {
    let memory = Memory::default();

    let totals = process_parked(&memory, 9);

    assert_eq!(totals.applied, 1);
    assert_eq!(memory.steps().last(), Some(&Step::Unpark));
}

/// Found by the simulator: the store hands such a delivery out once more, and processing this copy, too, kept both of
/// them coming for ever.
#[test]
fn a_parked_delivery_that_waited_longer_than_its_lease_is_left_to_its_next_one() {
    let memory = Memory::default();

    let totals = process_parked(&memory, 10);

    assert_eq!(totals, ConsumerTotals { batches: 1, ..ConsumerTotals::default() });
    assert!(memory.steps().is_empty(), "{:?}", memory.steps());
}
