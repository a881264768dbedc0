//! What becomes of a delivery around the inbox: acknowledged, parked, put aside, handed back, or kept in hand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::consumer::{
    AnyReceipt, Batch, ConflictPolicy, ConsumerSettings, ConsumerTotals, DeadLetters, News, Report,
    Surroundings, Worker,
};
use consign_core::delivery::Message;
use consign_core::event::EventId;
use consign_core::filter::{Hint, RepeatFilter};
use consign_core::guard::{Guard, Step as GuardStep};
use consign_core::inbox::{Inbox, Unit};
use consign_core::lease::Publish;
use consign_core::operation::Operation;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness, StoreError};
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;

use super::memory::{Award, Fault, Memory, Step, run};
use super::{contended, delivery, operation, refused};
use crate::harness::{confirmed, seconds, timed_out};

/// A destination that gives every publish the same answer and keeps what came.
struct Shelf {
    answer: fn() -> Outcome,
    kept: Arc<Mutex<Vec<Publish>>>,
}

impl Destination for Shelf {
    async fn publish(&self, _: Lane, publish: Publish) -> Outcome {
        self.kept.lock().unwrap().push(publish);
        (self.answer)()
    }

    async fn readiness_after(&self, _: &Readiness) -> Readiness {
        std::future::pending().await
    }
}

/// A process that writes down what it is asked for; it is asked to stop at the pause after `pauses_max`.
#[derive(Clone)]
struct Process {
    log: Arc<Mutex<Vec<String>>>,
    pauses: Arc<Mutex<Vec<Duration>>>,
    pauses_max: usize,
    fraction: f64,
}

impl Process {
    fn note(&self, line: impl Into<String>) {
        self.log.lock().unwrap().push(line.into());
    }
}

impl Surroundings for Process {
    async fn pause(&self, span: Duration) -> bool {
        let mut pauses = self.pauses.lock().unwrap();
        pauses.push(span);
        pauses.len() <= self.pauses_max
    }

    fn now(&self) -> Monotonic {
        Monotonic::new(seconds(1000))
    }

    fn fraction(&self) -> f64 {
        self.fraction
    }

    fn fresh_id(&self) -> String {
        "fresh".into()
    }

    fn wake_parked(&self) {
        self.note("wake parked");
    }

    fn halt(&self, reason: String) {
        self.note(format!("halt: {reason}"));
    }

    fn tell(&self, news: &News<'_>) {
        self.note(match news {
            News::Processed { processed, .. } => format!("processed: {processed:?}"),
            News::Acknowledged { .. } => "acknowledged".into(),
            News::Refused { error, .. } => format!("refused: {error}"),
            News::InHand { rows, tries, .. } => format!("in hand: {rows} after {tries} tries"),
            News::Parking { reason, attempt, .. } => format!("parking: {reason:?} at attempt {attempt}"),
            News::NotParked { error, .. } => format!("not parked: {error}"),
            News::Dead { key, reason } => format!("dead: {key:?} {reason}"),
            News::NotDead { key, why } => format!("not dead: {key:?} {why}"),
        });
    }
}

/// A filter that says the same of everything and keeps the keys that it is told of.
struct Believer {
    hint: Hint,
    told: Arc<Mutex<Vec<String>>>,
}

impl RepeatFilter for Believer {
    async fn hints(&self, operations: &[&Operation]) -> Vec<Hint> {
        vec![self.hint; operations.len()]
    }

    async fn remember(&self, operations: &[&Operation]) {
        self.told.lock().unwrap().extend(operations.iter().map(|operation| operation.key.clone()));
    }
}

/// One consumer over a store in memory, with everything that it told.
struct Consumer {
    memory: Memory,
    worker: Worker<Memory, Shelf, Believer, Process>,
    process: Process,
    kept: Arc<Mutex<Vec<Publish>>>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Consumer {
    fn new(memory: Memory) -> Self {
        Self::over(memory, DeadLetters::Table, Hint::Unknown)
    }

    fn with_dead_letters(memory: Memory, answer: fn() -> Outcome) -> Self {
        let route = Route { destination: DestinationName::new("dead"), key: "points".into() };
        let shelf = Shelf { answer, kept: Arc::default() };
        Self::over(memory, DeadLetters::Destination(Arc::new(shelf), route), Hint::Unknown)
    }

    fn over(memory: Memory, dead_letters: DeadLetters<Shelf>, hint: Hint) -> Self {
        let process =
            Process { log: Arc::default(), pauses: Arc::default(), pauses_max: usize::MAX, fraction: 1.0 };
        let kept = match &dead_letters {
            DeadLetters::Destination(shelf, _) => Arc::clone(&shelf.kept),
            DeadLetters::Table => Arc::default(),
        };
        let told = Arc::default();
        let worker = Worker::new(
            "points-award",
            Arc::new(Inbox::new(memory.clone())),
            Arc::new(dead_letters),
            Arc::new(Believer { hint, told: Arc::clone(&told) }),
            settings(),
            process.clone(),
        );
        Self { memory, worker, process, kept, told }
    }

    fn deliver(&self, operation: Operation, award: Award) -> Report {
        self.deliver_message(Message::default(), operation, award, false)
    }

    fn deliver_message(
        &self,
        message: Message,
        operation: Operation,
        handler: Award,
        overdue: bool,
    ) -> Report {
        let mut delivery = AnyReceipt::from_broker(delivery(&self.memory));
        delivery.message = message;
        let units = vec![Unit { delivery, operation, handler }];
        run(self.worker.process(Batch { lane: 0, units, look_first: false, overdue }))
    }

    fn log(&self) -> Vec<String> {
        self.process.log.lock().unwrap().clone()
    }

    fn pauses(&self) -> Vec<Duration> {
        self.process.pauses.lock().unwrap().clone()
    }

    /// The last step of the story.
    fn end(&self) -> Option<Step> {
        self.memory.steps().last().cloned()
    }
}

fn settings() -> ConsumerSettings {
    ConsumerSettings {
        workers: 1,
        batch: 8,
        batch_bytes: 1024,
        linger: Duration::ZERO,
        attempts_max: 3,
        retry_delay: seconds(2),
        gap_wait: seconds(7),
        on_conflict: ConflictPolicy::RecordAndAck,
        publish_deadline: seconds(5),
    }
}

fn delivered(delivery_count: u32) -> Message {
    Message { delivery_count, ..Message::default() }
}

fn away() -> Fault {
    Fault::Fails(Step::Begin, StoreError::Unavailable("down".into()))
}

fn step(key: &str, version: i64) -> Operation {
    let step = GuardStep::Sequential { version, first: 1 };
    Operation { guard: Some(Guard { aggregate: "a".into(), step }), ..operation(key, 1) }
}

#[test]
fn an_applied_delivery_is_told_between_its_commit_and_its_ack() {
    let consumer = Consumer::new(Memory::default());

    let report = consumer.deliver(operation("k", 1), Award(Ok(())));

    assert_eq!(report.totals, ConsumerTotals { applied: 1, batches: 1, ..ConsumerTotals::default() });
    assert_eq!(consumer.log(), ["processed: Applied", "acknowledged"]);
    assert_eq!((report.course.rows, report.course.repeats, report.course.refused), (1, 0, 0));
}

#[test]
fn repeats_and_conflicts_are_counted_apart_and_as_repeats_of_their_batch() {
    let consumer = Consumer::new(Memory::default());
    consumer.deliver(operation("k", 1), Award(Ok(())));

    let duplicate = consumer.deliver(operation("k", 1), Award(Ok(())));
    let conflict = consumer.deliver(operation("k", 2), Award(Ok(())));

    assert_eq!((duplicate.totals.duplicates, duplicate.course.repeats), (1, 1));
    assert_eq!((conflict.totals.conflicts, conflict.course.repeats), (1, 1));
    assert_eq!(consumer.end(), Some(Step::Ack));
}

#[test]
fn a_step_that_is_applied_wakes_the_steps_that_wait_for_it() {
    let consumer = Consumer::new(Memory::default());

    consumer.deliver(step("first", 1), Award(Ok(())));
    let stale = consumer.deliver(step("again", 1), Award(Ok(())));

    assert_eq!(stale.totals.stale, 1);
    let log = consumer.log();
    assert_eq!(log.iter().filter(|line| *line == "wake parked").count(), 1, "{log:?}");
}

#[test]
fn a_conflict_goes_to_the_dead_letters_where_the_policy_says_so() {
    let mut consumer = Consumer::new(Memory::default());
    consumer.worker.settings.on_conflict = ConflictPolicy::DeadLetter;
    consumer.deliver(operation("k", 1), Award(Ok(())));

    let report = consumer.deliver(operation("k", 2), Award(Ok(())));

    assert_eq!((report.totals.conflicts, report.totals.dead), (1, 1));
    assert_eq!(consumer.memory.dead(), ["points-award k: conflict: same business key, other content"]);
    assert_eq!(consumer.end(), Some(Step::PutAside));
}

#[test]
fn a_conflict_is_handed_back_and_stops_the_consumer_where_the_policy_says_so() {
    let mut consumer = Consumer::new(Memory::default());
    consumer.worker.settings.on_conflict = ConflictPolicy::Stop;
    consumer.deliver(operation("k", 1), Award(Ok(())));

    let report = consumer.deliver(operation("k", 2), Award(Ok(())));

    assert_eq!((report.totals.conflicts, report.totals.retried), (1, 1));
    assert_eq!(consumer.end(), Some(Step::Retry));
    let halt = r#"halt: conflict on "k": see consign conflicts list"#;
    assert!(consumer.log().contains(&halt.into()), "{:?}", consumer.log());
}

#[test]
fn a_refused_delivery_is_parked_for_longer_with_every_attempt() {
    let consumer = Consumer::new(Memory::default());

    for attempt in [0, 1, 2] {
        let report = consumer.deliver_message(delivered(attempt), operation("k", 1), refused(), false);
        assert_eq!((report.totals.parked, report.course.refused), (1, 1));
    }

    let parked = |attempts: u32, delay: &str| {
        format!("Retry None after {attempts} attempts for {delay}: 0 rows matched, not 1")
    };
    assert_eq!(consumer.memory.parked(), [parked(1, "2s"), parked(1, "2s"), parked(2, "4s")]);
    assert_eq!(consumer.end(), Some(Step::Ack));
    assert_eq!(
        consumer.log()[6..],
        ["refused: 0 rows matched, not 1", "parking: Retry at attempt 2", "wake parked"]
    );
}

#[test]
fn a_delivery_refused_at_its_last_attempt_is_put_aside() {
    let consumer = Consumer::new(Memory::default());

    let report = consumer.deliver_message(delivered(3), operation("k", 1), refused(), false);

    assert_eq!((report.totals.dead, report.totals.parked), (1, 0));
    assert_eq!(consumer.memory.dead(), ["points-award k: 0 rows matched, not 1"]);
    assert_eq!(consumer.log().last().unwrap(), r#"dead: Some("k") 0 rows matched, not 1"#);
}

#[test]
fn waiting_for_a_step_counts_no_attempt() {
    let consumer = Consumer::new(Memory::default());

    consumer.deliver_message(delivered(2), step("second", 2), Award(Ok(())), false);

    let gap = r#"Gap Some(("a", 2)) after 1 attempts for 7s: version 2 of a came before version 1"#;
    assert_eq!(consumer.memory.parked(), [gap]);
}

#[test]
fn a_step_whose_wait_is_over_is_put_aside() {
    let consumer = Consumer::new(Memory::default());

    let report = consumer.deliver_message(delivered(1), step("second", 2), Award(Ok(())), true);

    assert_eq!(report.totals.dead, 1);
    assert!(consumer.memory.parked().is_empty());
}

#[test]
fn pauses_double_up_to_a_minute_and_jitter_takes_up_to_half() {
    let mut consumer = Consumer::new(Memory::default());
    consumer.worker.settings.attempts_max = u32::MAX;
    consumer.worker.surroundings.fraction = 0.5;

    for attempt in [1, 3, 6, 7, 100] {
        consumer.deliver_message(delivered(attempt), operation("k", 1), refused(), false);
    }

    let delays = ["for 1.5s:", "for 6s:", "for 45s:", "for 45s:", "for 45s:"];
    for (parked, delay) in consumer.memory.parked().iter().zip(delays) {
        assert!(parked.contains(delay), "{parked} is not {delay}");
    }
}

#[test]
fn a_store_that_is_away_keeps_deliveries_in_hand_and_pauses_longer_each_time() {
    let consumer = Consumer::new(Memory::failing([away(), away()]));

    let report = consumer.deliver(operation("k", 1), Award(Ok(())));

    assert_eq!(report.totals.applied, 1);
    assert_eq!(consumer.pauses(), [seconds(2), seconds(4)]);
    assert_eq!(consumer.log()[..2], ["in hand: 1 after 1 tries", "in hand: 1 after 2 tries"]);
    assert_eq!(consumer.end(), Some(Step::Ack));
}

#[test]
fn deliveries_in_hand_are_handed_back_when_the_process_is_asked_to_stop() {
    let mut consumer = Consumer::new(Memory::failing([away()]));
    consumer.worker.surroundings.pauses_max = 0;

    let report = consumer.deliver(operation("k", 1), Award(Ok(())));

    assert_eq!((report.totals.retried, report.totals.applied), (1, 0));
    assert_eq!(consumer.memory.retries(), [Duration::ZERO]);
}

#[test]
fn without_a_table_to_park_in_refusals_are_counted_in_memory() {
    let missing = || Fault::Fails(Step::Park, StoreError::Schema("no table".into()));
    let consumer = Consumer::new(Memory::failing([missing(), missing(), missing()]));

    for _ in 0..2 {
        let report = consumer.deliver(operation("k", 1), refused());
        assert_eq!((report.totals.retried, report.totals.dead), (1, 0));
    }
    let report = consumer.deliver(operation("k", 1), refused());

    assert_eq!(report.totals.dead, 1);
    assert_eq!(consumer.memory.retries(), [seconds(2), seconds(4)]);
}

#[test]
fn a_delivery_that_is_applied_in_the_end_starts_counting_anew() {
    let missing = || Fault::Fails(Step::Park, StoreError::Schema("no table".into()));
    let consumer = Consumer::new(Memory::failing([missing(), missing(), missing()]));
    consumer.deliver(operation("k", 1), refused());
    consumer.deliver(operation("k", 1), refused());
    consumer.deliver(operation("k", 1), Award(Ok(())));

    let other = consumer.deliver(operation("other", 1), refused());

    assert_eq!(other.totals.retried, 1);
    assert_eq!(consumer.memory.retries().last(), Some(&seconds(2)));
}

#[test]
fn a_delivery_that_cannot_be_parked_is_handed_back() {
    let consumer = Consumer::new(Memory::failing([Fault::Fails(Step::Park, contended())]));

    let report = consumer.deliver_message(delivered(2), operation("k", 1), refused(), false);

    assert_eq!((report.totals.retried, report.totals.parked), (1, 0));
    assert_eq!(consumer.memory.retries(), [seconds(2)]);
    assert_eq!(consumer.log().last().unwrap(), "not parked: the store is contended: deadlock");
}

#[test]
fn a_dead_letter_says_why_it_is_dead_and_where_it_came_from() {
    let consumer = Consumer::with_dead_letters(Memory::default(), confirmed);
    let headers = vec![("trace".into(), "t1".into())];
    let message = Message { headers, source: "orders".into(), body: "{}".into(), ..delivered(3) };

    let report = consumer.deliver_message(message, operation("k", 1), refused(), false);

    assert_eq!(report.totals.dead, 1);
    let kept = consumer.kept.lock().unwrap();
    let [publish] = &kept[..] else { panic!("{kept:?}") };
    assert_eq!(publish.event.id, EventId::stored("fresh"));
    assert_eq!(publish.event.payload.as_deref(), Some(&b"{}"[..]));
    assert_eq!(publish.deadline, Monotonic::new(seconds(1005)));
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        publish.event.headers,
        [
            header("trace", "t1"),
            header("consign-dead-consumer", "points-award"),
            header("consign-dead-source", "orders"),
            header("consign-dead-reason", "0 rows matched, not 1"),
        ]
    );
}

#[test]
fn a_dead_letter_without_a_proof_is_handed_back() {
    let consumer = Consumer::with_dead_letters(Memory::default(), timed_out);

    let report = consumer.deliver_message(delivered(3), operation("k", 1), refused(), false);

    assert_eq!((report.totals.dead, report.totals.retried), (0, 1));
    assert_eq!(consumer.memory.retries(), [seconds(8)]);
    assert_eq!(consumer.end(), Some(Step::Retry));
}

#[test]
fn a_dead_delivery_that_cannot_be_recorded_is_handed_back() {
    let consumer = Consumer::new(Memory::failing([Fault::Fails(Step::RecordDead, contended())]));

    let report = consumer.deliver_message(delivered(3), operation("k", 1), refused(), false);

    assert_eq!((report.totals.dead, report.totals.retried), (0, 1));
    assert_eq!(consumer.end(), Some(Step::Retry));
}

#[test]
fn a_delivery_that_gives_no_operation_is_put_aside_without_a_key() {
    let consumer = Consumer::new(Memory::default());

    let report = run(consumer.worker.refuse(delivery(&consumer.memory), "no such field".into()));

    assert_eq!(report.totals.dead, 1);
    assert_eq!(consumer.memory.dead(), ["points-award no key: no such field"]);
}

#[test]
fn a_delivery_that_was_never_processed_is_handed_back_at_once() {
    let consumer = Consumer::new(Memory::default());

    run(consumer.worker.return_unprocessed(delivery(&consumer.memory)));

    assert_eq!(consumer.memory.retries(), [Duration::ZERO]);
}

#[test]
fn the_filter_hears_of_what_is_applied_and_of_nothing_that_was_refused() {
    let consumer = Consumer::new(Memory::default());

    consumer.deliver(operation("applied", 1), Award(Ok(())));
    consumer.deliver(operation("applied", 2), Award(Ok(())));
    consumer.deliver(operation("refused", 1), refused());

    assert_eq!(*consumer.told.lock().unwrap(), ["applied"]);
}

#[test]
fn a_hint_is_checked_against_the_marker_before_it_is_believed() {
    let repeat = Consumer::over(Memory::default(), DeadLetters::Table, Hint::Repeat);

    let first = repeat.deliver(operation("k", 1), Award(Ok(())));
    let second = repeat.deliver(operation("k", 1), Award(Ok(())));

    assert_eq!((first.totals.applied, second.totals.duplicates), (1, 1));
    assert_eq!(repeat.memory.steps()[0], Step::ReadMarker, "a repeat needs no transaction, if it is one");
}

#[test]
fn totals_add_up_field_by_field() {
    let mut sum = ConsumerTotals {
        applied: 3,
        duplicates: 4,
        conflicts: 5,
        stale: 6,
        parked: 7,
        retried: 8,
        dead: 9,
        receipts_lost: 10,
        batches: 11,
    };

    sum += ConsumerTotals {
        applied: 100,
        duplicates: 200,
        conflicts: 300,
        stale: 400,
        parked: 500,
        retried: 600,
        dead: 700,
        receipts_lost: 800,
        batches: 900,
    };

    let together = ConsumerTotals {
        applied: 103,
        duplicates: 204,
        conflicts: 305,
        stale: 406,
        parked: 507,
        retried: 608,
        dead: 709,
        receipts_lost: 810,
        batches: 911,
    };
    assert_eq!(sum, together);
}

fn lost_at(step: Step) -> Consumer {
    Consumer::new(Memory::failing([Fault::Fails(step, StoreError::Unavailable("channel closed".into()))]))
}

/// The broker delivers it again: that is no fault of what was committed.
#[test]
fn an_acknowledgement_that_finds_its_channel_gone_is_counted_and_not_told_as_one() {
    let consumer = lost_at(Step::Ack);

    let report = consumer.deliver(operation("k", 1), Award(Ok(())));

    assert_eq!((report.totals.applied, report.totals.receipts_lost), (1, 1));
    assert_eq!(consumer.log(), ["processed: Applied"]);
}

#[test]
fn a_parked_delivery_whose_channel_is_gone_is_parked_all_the_same() {
    let report = lost_at(Step::Ack).deliver(operation("k", 1), refused());

    assert_eq!((report.totals.parked, report.totals.receipts_lost), (1, 1));
}

#[test]
fn what_cannot_be_handed_back_or_put_aside_any_more_is_counted_as_lost() {
    let mut stopped = Consumer::new(Memory::failing([
        away(),
        Fault::Fails(Step::Retry, StoreError::Unavailable("channel closed".into())),
    ]));
    stopped.worker.surroundings.pauses_max = 0;

    let retried = stopped.deliver(operation("k", 1), Award(Ok(())));
    let dead = lost_at(Step::PutAside).deliver_message(delivered(3), operation("k", 1), refused(), false);

    assert_eq!((retried.totals.retried, retried.totals.receipts_lost), (0, 1));
    assert_eq!((dead.totals.dead, dead.totals.receipts_lost), (0, 1));
}
