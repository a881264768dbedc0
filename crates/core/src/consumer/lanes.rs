//! Lanes: deliveries wait here for a transaction to share. One lane works on one batch at a time, and an aggregate stays
//! on its lane, so that its deliveries meet no others of this process on their locks.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::consumer::Wait;
use crate::delivery::Message;
use crate::inbox::Unit;
use crate::operation::Operation;
use crate::ports::ParkReason;

/// The share of repeats from which the markers are read first: one repeat spoils a whole transaction, a read costs one
/// round trip.
const WORTH_LOOKING: f64 = 0.02;
/// The share of refused deliveries from which batches become smaller: each splits its batch.
const SPOILED: f64 = 0.05;
/// No batch is made smaller than this.
const SMALLEST: usize = 8;

/// What bounds a batch.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Deliveries at most.
    pub rows: usize,
    /// Payload bytes at most, though always one delivery.
    pub bytes: usize,
}

/// A delivery in its lane.
#[derive(Debug)]
struct Waiting<R, H> {
    unit: Unit<R, H>,
    /// It failed before: alone, it cannot spoil a batch again.
    suspect: bool,
    /// Its wait for the step before it is over.
    overdue: bool,
    /// The broker says that it may have been delivered before, so its marker may exist.
    redelivered: bool,
}

/// Deliveries to be processed in one transaction, if their content allows.
#[derive(Debug)]
pub struct Batch<R, H> {
    /// The lane that is busy with it.
    pub lane: usize,
    /// The deliveries, in order.
    pub units: Vec<Unit<R, H>>,
    /// Reading the markers first is worth its round trip.
    pub look_first: bool,
    /// Its only delivery has waited long enough for the step before it.
    pub overdue: bool,
}

/// What a batch came to, as far as the next batch's size depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Course {
    /// Deliveries processed.
    pub rows: usize,
    /// Of these, repeats and conflicts.
    pub repeats: usize,
    /// Of these, refused ones; each splits its batch.
    pub refused: usize,
}

#[derive(Debug)]
struct Lane<R, H> {
    waiting: VecDeque<Waiting<R, H>>,
    busy: bool,
    /// How many deliveries the next batch takes at most.
    target: usize,
    /// The share of repeats in the last batches.
    repeats: f64,
}

/// All lanes of one consumer.
#[derive(Debug)]
pub struct Lanes<R, H> {
    lanes: Vec<Lane<R, H>>,
    bounds: Bounds,
}

impl<R, H> Lanes<R, H> {
    /// `count` free lanes, at least one.
    pub fn new(count: usize, bounds: Bounds) -> Self {
        let lane = || Lane { waiting: VecDeque::new(), busy: false, target: bounds.rows, repeats: 0.0 };
        Self { lanes: (0..count.max(1)).map(|_| lane()).collect(), bounds }
    }

    /// Puts a delivery at the end of its lane; `wait` is known of one that was parked.
    pub fn accept(&mut self, unit: Unit<R, H>, wait: Option<Wait>) {
        let message = &unit.delivery.message;
        let affinity = affinity(&unit.operation, message).to_owned();
        let redelivered = message.redelivered || message.delivery_count > 1;
        let overdue = wait.is_some_and(|wait| wait.reason == ParkReason::Gap && wait.overdue);
        let suspect = overdue || wait.is_some_and(|wait| wait.reason == ParkReason::Retry);
        self.push(&affinity, Waiting { unit, suspect, overdue, redelivered });
    }

    fn push(&mut self, affinity: &str, waiting: Waiting<R, H>) {
        let mut hasher = DefaultHasher::new();
        affinity.hash(&mut hasher);
        let count = self.lanes.len() as u64;
        let lane = usize::try_from(hasher.finish() % count).expect("a remainder of a usize fits into one");
        self.lanes[lane].waiting.push_back(waiting);
    }

    /// True when nothing waits and no lane works.
    pub fn idle(&self) -> bool {
        self.lanes.iter().all(|lane| !lane.busy && lane.waiting.is_empty())
    }

    /// True when every lane has its next batch complete: more deliveries would only take memory.
    pub fn full(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting.len() >= self.bounds.rows)
    }

    /// True when a lane is free and has deliveries, but fewer than its batch may take.
    pub fn partial(&self) -> bool {
        self.lanes
            .iter()
            .any(|lane| !lane.busy && !lane.waiting.is_empty() && lane.waiting.len() < lane.target)
    }

    /// The next batch of a free lane: a complete one, or any when `partial` are wanted too.
    pub fn take(&mut self, partial: bool) -> Option<Batch<R, H>> {
        let ready = |lane: &Lane<R, H>| {
            !lane.busy && !lane.waiting.is_empty() && (partial || lane.waiting.len() >= lane.target)
        };
        let index = self.lanes.iter().position(ready)?;
        let bytes_max = self.bounds.bytes;
        let lane = &mut self.lanes[index];
        let mut units = Vec::with_capacity(lane.target.min(lane.waiting.len()));
        let (mut bytes, mut redelivered, mut overdue) = (0, false, false);
        while let Some(next) = lane.waiting.front() {
            let size = next.unit.delivery.message.body.len();
            let fits = units.len() < lane.target && bytes + size <= bytes_max && !next.suspect;
            if !units.is_empty() && !fits {
                break;
            }
            let next = lane.waiting.pop_front().expect("it was at the front");
            bytes += size;
            redelivered |= next.redelivered;
            let alone = next.suspect;
            overdue = next.overdue;
            units.push(next.unit);
            if alone {
                break;
            }
        }
        lane.busy = true;
        let look_first = redelivered || lane.repeats > WORTH_LOOKING;
        Some(Batch { lane: index, units, look_first, overdue })
    }

    /// A lane is free again; its next batch is sized by how this one went.
    pub fn finished(&mut self, lane: usize, course: Course) {
        let lane = &mut self.lanes[lane];
        lane.busy = false;
        if course.rows == 0 {
            return;
        }
        let share = |part: usize| f64::from(u32::try_from(part).unwrap_or(u32::MAX)) / rows(course.rows);
        lane.repeats = lane.repeats.mul_add(0.8, 0.2 * share(course.repeats));
        if share(course.refused) > SPOILED && course.rows > SMALLEST {
            lane.target = (lane.target / 2).max(SMALLEST.min(self.bounds.rows));
        } else if course.refused == 0 {
            lane.target = (lane.target * 2).min(self.bounds.rows);
        }
    }

    /// Everything that still waits.
    pub fn drain(&mut self) -> Vec<Unit<R, H>> {
        self.lanes.iter_mut().flat_map(|lane| lane.waiting.drain(..)).map(|waiting| waiting.unit).collect()
    }
}

/// What keeps deliveries on one lane: the guarded aggregate, the event's own, or else the business key, so that copies
/// never wait for each other's marker.
fn affinity<'a>(operation: &'a Operation, message: &'a Message) -> &'a str {
    const AGGREGATE_ID: &str = "consign-aggregate-id";
    if let Some(guard) = &operation.guard {
        return &guard.aggregate;
    }
    let header = message.headers.iter().find(|(name, _)| name == AGGREGATE_ID);
    header.map_or(operation.key.as_str(), |(_, value)| value.as_str())
}

fn rows(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::Delivery;
    use crate::guard::{Guard, Step};
    use bytes::Bytes;

    const BOUNDS: Bounds = Bounds { rows: 4, bytes: 100 };

    fn unit(key: &str, message: Message) -> Unit<(), ()> {
        let operation = Operation { key: key.into(), ..Operation::default() };
        Unit { delivery: Delivery { message, receipt: () }, operation, handler: () }
    }

    fn waiting(key: &str, bytes: usize) -> Waiting<(), ()> {
        let message = Message { body: Bytes::from(vec![b'x'; bytes]), ..Message::default() };
        Waiting { unit: unit(key, message), suspect: false, overdue: false, redelivered: false }
    }

    fn one_lane(keys: &[&str]) -> Lanes<(), ()> {
        let mut lanes = Lanes::new(1, BOUNDS);
        for key in keys {
            lanes.push(key, waiting(key, 1));
        }
        lanes
    }

    fn keys(batch: &Batch<(), ()>) -> Vec<&str> {
        batch.units.iter().map(|unit| unit.operation.key.as_str()).collect()
    }

    #[test]
    fn a_lane_works_on_one_batch_at_a_time_and_in_order() {
        let mut lanes = one_lane(&["a", "b", "c", "d", "e"]);

        let first = lanes.take(false).unwrap();
        assert_eq!(keys(&first), ["a", "b", "c", "d"]);
        assert!(lanes.take(true).is_none(), "the lane is busy");
        lanes.finished(first.lane, Course { rows: 4, ..Course::default() });

        assert!(lanes.take(false).is_none(), "one delivery is no complete batch");
        assert_eq!(keys(&lanes.take(true).unwrap()), ["e"]);
    }

    #[test]
    fn an_aggregate_stays_on_its_lane() {
        let mut lanes = Lanes::new(4, Bounds { rows: 100, bytes: 1000 });
        for number in 0..40 {
            lanes.push(&format!("order:{}", number % 5), waiting(&format!("order:{}", number % 5), 1));
        }

        let mut homes = std::collections::BTreeMap::new();
        while let Some(batch) = lanes.take(true) {
            for unit in &batch.units {
                let home = homes.entry(unit.operation.key.clone()).or_insert(batch.lane);
                assert_eq!(*home, batch.lane, "{}", unit.operation.key);
            }
        }
        assert_eq!(homes.len(), 5);
    }

    #[test]
    fn a_batch_is_bounded_by_bytes_but_takes_one_delivery_of_any_size() {
        let mut lanes = Lanes::new(1, BOUNDS);
        for (key, bytes) in [("huge", 500), ("a", 60), ("b", 60)] {
            lanes.push(key, waiting(key, bytes));
        }

        for expected in ["huge", "a", "b"] {
            let batch = lanes.take(true).unwrap();
            assert_eq!(keys(&batch), [expected]);
            lanes.finished(batch.lane, Course::default());
        }
    }

    #[test]
    fn a_suspect_travels_alone() {
        let mut lanes = one_lane(&["a"]);
        lanes.push("s", Waiting { suspect: true, ..waiting("s", 1) });
        lanes.push("b", waiting("b", 1));

        for expected in [["a"], ["s"], ["b"]] {
            let batch = lanes.take(true).unwrap();
            assert_eq!(keys(&batch), expected);
            lanes.finished(batch.lane, Course::default());
        }
    }

    #[test]
    fn repeats_make_looking_first_worth_it_and_their_absence_ends_it() {
        let mut lanes = one_lane(&[]);
        let mut next = |course: Course| {
            lanes.push("k", waiting("k", 1));
            let batch = lanes.take(true).unwrap();
            lanes.finished(batch.lane, course);
            batch.look_first
        };

        assert!(!next(Course { rows: 10, repeats: 3, refused: 0 }));
        assert!(next(Course { rows: 10, repeats: 3, refused: 0 }));
        for _ in 0..20 {
            next(Course { rows: 10, ..Course::default() });
        }
        assert!(!next(Course::default()));
    }

    #[test]
    fn a_redelivery_is_looked_up_first() {
        let mut lanes = one_lane(&["a"]);
        lanes.push("b", Waiting { redelivered: true, ..waiting("b", 1) });

        assert!(lanes.take(true).unwrap().look_first);
    }

    /// The batch that begins with a delivery which comes like this, and is followed by an ordinary one.
    fn accepted(message: Message, wait: Option<Wait>) -> Batch<(), ()> {
        let mut lanes = Lanes::new(1, BOUNDS);
        lanes.accept(unit("a", message), wait);
        lanes.push("b", waiting("b", 1));
        lanes.take(true).unwrap()
    }

    #[test]
    fn what_the_broker_marks_or_counts_as_a_repeat_is_looked_up_first() {
        for (redelivered, delivery_count, look_first) in
            [(false, 0, false), (false, 1, false), (false, 2, true), (false, 3, true), (true, 1, true)]
        {
            let batch = accepted(Message { redelivered, delivery_count, ..Message::default() }, None);

            assert_eq!(batch.look_first, look_first, "{redelivered} and {delivery_count}");
            assert_eq!(keys(&batch), ["a", "b"]);
        }
    }

    #[test]
    fn what_was_refused_before_or_waited_too_long_for_its_step_travels_alone() {
        for (reason, overdue, alone, step_is_overdue) in [
            (ParkReason::Retry, false, true, false),
            (ParkReason::Retry, true, true, false),
            (ParkReason::Gap, false, false, false),
            (ParkReason::Gap, true, true, true),
            (ParkReason::Requeued, false, false, false),
            (ParkReason::Requeued, true, false, false),
        ] {
            let batch = accepted(Message::default(), Some(Wait { reason, overdue }));

            assert_eq!(batch.units.len() == 1, alone, "{reason:?}, {overdue}");
            assert_eq!(batch.overdue, step_is_overdue, "{reason:?}, {overdue}");
        }
    }

    #[test]
    fn a_delivery_stays_with_its_guarded_aggregate_or_its_events_own_or_its_key() {
        let guard = Guard { aggregate: "order:1".into(), step: Step::ApplyIfNewer { version: 1 } };
        let plain = Operation { key: "k".into(), ..Operation::default() };
        let guarded = Operation { guard: Some(guard), ..plain.clone() };
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = vec![header("trace", "t1"), header("consign-aggregate-id", "42")];
        let message = Message { headers, ..Message::default() };

        assert_eq!(affinity(&guarded, &message), "order:1");
        assert_eq!(affinity(&plain, &message), "42");
        assert_eq!(affinity(&plain, &Message::default()), "k");
    }

    /// Lanes with so many deliveries waiting in each.
    fn filled(counts: &[usize]) -> Lanes<(), ()> {
        let mut lanes = Lanes::new(counts.len(), BOUNDS);
        for (lane, count) in lanes.lanes.iter_mut().zip(counts) {
            lane.waiting.extend((0..*count).map(|_| waiting("k", 1)));
        }
        lanes
    }

    #[test]
    fn lanes_are_idle_while_nothing_waits_and_nothing_is_worked_on() {
        let mut lanes = one_lane(&[]);
        assert!(lanes.idle());

        lanes.push("a", waiting("a", 1));
        assert!(!lanes.idle(), "it waits");
        let batch = lanes.take(true).unwrap();
        assert!(!lanes.idle(), "it is worked on");

        lanes.finished(batch.lane, Course::default());
        assert!(lanes.idle());
    }

    #[test]
    fn lanes_are_full_once_the_next_batch_of_each_is_complete() {
        for (counts, full) in [([0, 0], false), ([4, 3], false), ([4, 4], true), ([5, 9], true)] {
            assert_eq!(filled(&counts).full(), full, "{counts:?}");
        }
    }

    #[test]
    fn a_batch_is_partial_while_a_free_lane_has_less_than_it_may_take() {
        for (counts, partial) in
            [([0, 0], false), ([0, 3], true), ([4, 0], false), ([4, 4], false), ([9, 1], true)]
        {
            assert_eq!(filled(&counts).partial(), partial, "{counts:?}");
        }

        let mut busy = filled(&[4]);
        busy.take(false).unwrap();
        busy.push("late", waiting("late", 1));
        assert!(!busy.partial(), "its lane is busy");
    }

    #[test]
    fn a_batch_takes_deliveries_up_to_its_last_byte() {
        let mut lanes = Lanes::new(1, BOUNDS);
        for (key, bytes) in [("a", 50), ("b", 50), ("c", 1)] {
            lanes.push(key, waiting(key, bytes));
        }

        assert_eq!(keys(&lanes.take(true).unwrap()), ["a", "b"]);
    }

    #[test]
    fn a_drain_gives_back_everything_that_waits() {
        let mut lanes = one_lane(&["a", "b", "c", "d", "e"]);
        lanes.take(false).unwrap();
        lanes.push("f", waiting("f", 1));

        let drained: Vec<String> = lanes.drain().into_iter().map(|unit| unit.operation.key).collect();

        assert_eq!(drained, ["e", "f"]);
        assert!(lanes.drain().is_empty());
    }

    fn wide() -> Lanes<(), ()> {
        Lanes::new(1, Bounds { rows: 64, bytes: 1 << 20 })
    }

    /// How many of 64 deliveries the next batch takes, which then goes like this.
    fn size(lanes: &mut Lanes<(), ()>, course: Course) -> usize {
        for number in 0..64 {
            lanes.push("k", waiting(&number.to_string(), 1));
        }
        let batch = lanes.take(true).unwrap();
        lanes.finished(batch.lane, course);
        lanes.drain();
        batch.units.len()
    }

    fn refusing(rows: usize, refused: usize) -> Course {
        Course { rows, repeats: 0, refused }
    }

    #[test]
    fn refusals_make_batches_smaller_and_clean_batches_make_them_larger() {
        let mut lanes = wide();

        let smaller = [(); 5].map(|()| size(&mut lanes, refusing(64, 10)));
        let larger = [(); 5].map(|()| size(&mut lanes, refusing(64, 0)));

        assert_eq!(smaller, [64, 32, 16, 8, 8]);
        assert_eq!(larger, [8, 16, 32, 64, 64]);
    }

    #[test]
    fn a_small_share_of_refusals_and_refusals_in_a_small_batch_change_no_size() {
        for course in [refusing(64, 1), refusing(20, 1), refusing(8, 8)] {
            let mut lanes = wide();
            size(&mut lanes, refusing(64, 10));

            assert_eq!(size(&mut lanes, course), 32);
            assert_eq!(size(&mut lanes, refusing(64, 0)), 32, "after {course:?}");
        }
    }
}
