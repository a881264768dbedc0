//! Every legal order of returns, confirms and deadlines, against an oracle that sees the truth.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn tag(number: u64) -> NonZeroU64 {
    NonZeroU64::new(number).unwrap()
}

fn registered(ids: &[&str]) -> Confirms<usize> {
    let mut confirms = Confirms::new();
    for (index, id) in ids.iter().enumerate() {
        assert_eq!(confirms.register((*id).to_owned(), index).get(), index as u64 + 1);
    }
    confirms
}

fn returned() -> Settled {
    Settled::Returned { code: 312, text: "NO_ROUTE".to_owned() }
}

#[test]
fn tag_zero_means_all_only_with_multiple() {
    let mut confirms = registered(&["a", "b"]);
    assert_eq!(
        confirms.on_ack(0, false, |_, _| panic!("nothing may settle")),
        Err(Violation::UnmatchedConfirm { tag: 0 })
    );
    let mut settled = Vec::new();
    confirms.on_ack(0, true, |waiter, verdict| settled.push((waiter, verdict))).unwrap();
    assert_eq!(settled, [(0, Settled::Acked { tag: tag(1) }), (1, Settled::Acked { tag: tag(2) })]);
    confirms.on_ack(0, true, |_, _| panic!("nothing is outstanding")).unwrap();
}

#[test]
fn confirms_for_tags_that_are_not_outstanding_are_violations() {
    let mut confirms = registered(&["a", "b", "c"]);
    confirms.on_ack(2, false, |_, _| ()).unwrap();
    for (number, multiple) in [(4, false), (4, true), (2, false), (2, true)] {
        let result = confirms.on_nack(number, multiple, |_, _| panic!("nothing may settle"));
        assert_eq!(result, Err(Violation::UnmatchedConfirm { tag: number }));
    }
    assert_eq!(confirms.in_flight(), 2);
}

#[test]
fn return_of_an_unknown_message_is_a_violation() {
    let mut confirms = registered(&["a"]);
    assert_eq!(confirms.on_return("b", 312, "NO_ROUTE"), Err(Violation::UnmatchedReturn));
    confirms.on_ack(1, false, |_, _| ()).unwrap();
    assert_eq!(confirms.on_return("a", 312, "NO_ROUTE"), Err(Violation::UnmatchedReturn));
}

#[test]
fn return_marks_every_publish_with_its_message_id() {
    let mut confirms = registered(&["a", "b", "a"]);
    confirms.on_return("a", 312, "NO_ROUTE").unwrap();
    let mut settled = Vec::new();
    confirms.on_ack(3, true, |waiter, verdict| settled.push((waiter, verdict))).unwrap();
    assert_eq!(settled, [(0, returned()), (1, Settled::Acked { tag: tag(2) }), (2, returned())]);
}

#[test]
fn timed_out_publish_takes_its_late_confirm_and_return() {
    let mut confirms = registered(&["a", "b"]);
    assert_eq!(confirms.on_deadline(tag(1)), Some(0));
    assert_eq!(confirms.on_deadline(tag(1)), None);
    confirms.on_return("a", 312, "NO_ROUTE").unwrap();
    confirms.on_ack(1, false, |_, _| panic!("its waiter is gone")).unwrap();
    assert_eq!(confirms.in_flight(), 1);
    let mut settled = Vec::new();
    confirms.on_ack(2, false, |waiter, verdict| settled.push((waiter, verdict))).unwrap();
    assert_eq!(settled, [(1, Settled::Acked { tag: tag(2) })]);
    assert_eq!(confirms.tombstones, 0);
}

#[test]
fn too_many_timed_out_publishes_are_a_violation() {
    let mut confirms = Confirms::new();
    for _ in 0..=MAX_TOMBSTONES {
        assert_eq!(confirms.check_tombstones(), Ok(()));
        let tag = confirms.register("a".to_owned(), ());
        confirms.on_deadline(tag);
    }
    assert_eq!(confirms.check_tombstones(), Err(Violation::TooManyTombstones));
}

/// What the broker does with one publish, and whether the client's deadline comes first.
#[derive(Clone, Debug)]
struct Fate {
    message_id: u8,
    routed: bool,
    nacked: bool,
    times_out: bool,
}

/// One step of the channel's life; the numbers choose among what is legal at that point.
#[derive(Clone, Debug)]
enum Step {
    Publish(Fate),
    Return(prop::sample::Index),
    ConfirmOne(prop::sample::Index),
    ConfirmUpTo(prop::sample::Index),
    Deadline(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    let fate = (0..12u8, prop::bool::weighted(0.7), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    prop_oneof![
        4 => fate.prop_map(|(message_id, routed, nacked, times_out)| {
            Step::Publish(Fate { message_id, routed, nacked, times_out })
        }),
        3 => any::<prop::sample::Index>().prop_map(Step::Return),
        2 => any::<prop::sample::Index>().prop_map(Step::ConfirmOne),
        1 => any::<prop::sample::Index>().prop_map(Step::ConfirmUpTo),
        1 => any::<prop::sample::Index>().prop_map(Step::Deadline),
    ]
}

/// The broker and the world, knowing by tag which message was returned.
#[derive(Default)]
struct Oracle {
    /// By tag: fate, and whether its return went out.
    unconfirmed: BTreeMap<u64, (Fate, bool)>,
    /// Tags whose return went out, and per tag the ids returned while it was outstanding.
    returned: BTreeSet<u64>,
    tainted: BTreeSet<u64>,
    timed_out: BTreeSet<u64>,
    nacked: BTreeSet<u64>,
    verdicts: BTreeMap<u64, Settled>,
}

impl Oracle {
    /// A message may be confirmed when it was routed, or refused, or its return went out.
    fn may_confirm(&self, tag: u64) -> bool {
        let (fate, returned) = &self.unconfirmed[&tag];
        fate.routed || *returned
    }

    fn take(&mut self, tag: u64, confirms: &mut Confirms<u64>, multiple: bool, negative: bool) {
        let covered: Vec<u64> =
            if multiple { self.unconfirmed.range(..=tag).map(|(tag, _)| *tag).collect() } else { vec![tag] };
        let mut settled = Vec::new();
        let settle = |waiter, verdict| settled.push((waiter, verdict));
        let result = if negative {
            confirms.on_nack(tag, multiple, settle)
        } else {
            confirms.on_ack(tag, multiple, settle)
        };
        assert_eq!(result, Ok(()), "the order is legal");
        for tag in &covered {
            self.unconfirmed.remove(tag);
            if negative {
                self.nacked.insert(*tag);
            }
        }
        let expected: Vec<u64> =
            covered.iter().copied().filter(|tag| !self.timed_out.contains(tag)).collect();
        let waiters: Vec<u64> = settled.iter().map(|(waiter, _)| *waiter).collect();
        assert_eq!(
            waiters, expected,
            "exactly the covered publishes settle, in order, but not timed-out ones"
        );
        for (waiter, verdict) in settled {
            assert!(self.verdicts.insert(waiter, verdict).is_none(), "tag {waiter} settled twice");
        }
    }

    fn step(&mut self, step: Step, confirms: &mut Confirms<u64>) {
        match step {
            Step::Publish(fate) => {
                let next = confirms.last_tag + 1;
                let tag = confirms.register(fate.message_id.to_string(), next);
                assert_eq!(tag.get(), next);
                self.unconfirmed.insert(next, (fate, false));
            }
            Step::Return(index) => {
                let candidates: Vec<u64> = self
                    .unconfirmed
                    .iter()
                    .filter(|(_, (fate, returned))| !fate.routed && !returned)
                    .map(|(tag, _)| *tag)
                    .collect();
                if candidates.is_empty() {
                    return;
                }
                let tag = *index.get(&candidates);
                let id = self.unconfirmed[&tag].0.message_id;
                confirms.on_return(&id.to_string(), 312, "NO_ROUTE").unwrap();
                self.returned.insert(tag);
                for (other, (fate, returned)) in &mut self.unconfirmed {
                    if fate.message_id == id {
                        self.tainted.insert(*other);
                    }
                    *returned |= *other == tag;
                }
            }
            Step::ConfirmOne(index) => {
                let candidates: Vec<u64> =
                    self.unconfirmed.keys().copied().filter(|tag| self.may_confirm(*tag)).collect();
                if !candidates.is_empty() {
                    let tag = *index.get(&candidates);
                    let negative = self.unconfirmed[&tag].0.nacked;
                    self.take(tag, confirms, false, negative);
                }
            }
            Step::ConfirmUpTo(index) => {
                let prefix: Vec<u64> =
                    self.unconfirmed.keys().copied().take_while(|tag| self.may_confirm(*tag)).collect();
                if !prefix.is_empty() {
                    let tag = *index.get(&prefix);
                    let negative = self.unconfirmed.range(..=tag).all(|(_, (fate, _))| fate.nacked);
                    self.take(tag, confirms, true, negative);
                }
            }
            Step::Deadline(index) => {
                let candidates: Vec<u64> = self
                    .unconfirmed
                    .iter()
                    .filter(|(tag, (fate, _))| fate.times_out && !self.timed_out.contains(tag))
                    .map(|(tag, _)| *tag)
                    .collect();
                if !candidates.is_empty() {
                    let number = *index.get(&candidates);
                    assert_eq!(confirms.on_deadline(tag(number)), Some(number));
                    self.timed_out.insert(number);
                }
            }
        }
    }

    fn judge(&self) {
        for (tag, verdict) in &self.verdicts {
            let expected_ack = !self.tainted.contains(tag) && !self.nacked.contains(tag);
            match verdict {
                Settled::Acked { tag: acked } => {
                    assert_eq!(acked.get(), *tag);
                    assert!(!self.returned.contains(tag), "returned tag {tag} was acked");
                    assert!(expected_ack, "tag {tag} was acked");
                }
                Settled::Returned { code, .. } => {
                    assert_eq!(*code, 312);
                    assert!(self.tainted.contains(tag), "tag {tag} shares its id with no return");
                    assert!(!self.nacked.contains(tag));
                }
                Settled::Nacked => assert!(self.nacked.contains(tag), "tag {tag} was not nacked"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// libs.md H1: no returned message is ever acked; none is called returned unless it shares its id
    /// with one that was; nothing settles twice; what is open at the end is failed by the close.
    #[test]
    fn no_order_of_returns_confirms_and_deadlines_misleads(steps in vec(step(), 1..120)) {
        let mut confirms = Confirms::new();
        let mut oracle = Oracle::default();
        for step in steps {
            oracle.step(step, &mut confirms);
            prop_assert_eq!(confirms.in_flight(), oracle.unconfirmed.len());
        }
        oracle.judge();
        let open: Vec<u64> =
            oracle.unconfirmed.keys().copied().filter(|tag| !oracle.timed_out.contains(tag)).collect();
        prop_assert_eq!(confirms.on_close().collect::<Vec<_>>(), open);
    }
}
