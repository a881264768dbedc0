//! Deliveries that the consumer's own database handed out under a lease.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::consumer::{
    AnyReceipt, Batch, ConflictPolicy, ConsumerSettings, ConsumerTotals, DeadLetters, News, Surroundings,
    Worker,
};
use consign_core::delivery::Message;
use consign_core::filter::NoFilter;
use consign_core::inbox::{Inbox, Unit};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{
    Destination, Lane, ParkDelivery, ParkReason, ParkedDelivery, Parking, Readiness, StoreError,
};
use consign_core::time::Monotonic;

use super::memory::{Award, Handle, Memory, Step, run};
use super::operation;

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

/// Processes one parked delivery whose lease ends after ten seconds, `late` seconds after it was handed out.
fn process(memory: &Memory, late: u64) -> ConsumerTotals {
    let parked = ParkedDelivery {
        id: 1,
        lease_token: "token".into(),
        reason: ParkReason::Retry,
        overdue: false,
        message: Message::default(),
    };
    let until = Monotonic::new(Duration::from_secs(10));
    let (delivery, _) = AnyReceipt::<Handle, Memory>::from_parked(Arc::new(memory.clone()), parked, until);
    let unit = Unit { delivery, operation: operation("k", 1), handler: Award(Ok(())) };
    let worker = Worker::new(
        "points-award",
        Arc::new(Inbox::new(memory.clone())),
        Arc::new(DeadLetters::<Nowhere>::Table),
        Arc::new(NoFilter),
        settings(),
        Process { clock: Mutex::default(), pace: Duration::from_secs(late) },
    );
    run(worker.process(Batch { lane: 0, units: vec![unit], look_first: false, overdue: false })).totals
}

#[test]
fn a_parked_delivery_is_processed_and_removed_within_its_lease() {
    let memory = Memory::default();

    let totals = process(&memory, 9);

    assert_eq!(totals.applied, 1);
    assert_eq!(memory.steps().last(), Some(&Step::Unpark));
}

/// Found by the simulator: the store hands such a delivery out once more, and processing this copy, too, kept both of
/// them coming for ever.
#[test]
fn a_parked_delivery_that_waited_longer_than_its_lease_is_left_to_its_next_one() {
    let memory = Memory::default();

    let totals = process(&memory, 10);

    assert_eq!(totals, ConsumerTotals { batches: 1, ..ConsumerTotals::default() });
    assert!(memory.steps().is_empty(), "{:?}", memory.steps());
}
