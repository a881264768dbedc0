//! Batches: each operation comes to what it would have come to alone, in as few transactions as that allows.

use std::sync::Arc;

use consign_core::delivery::{Delivery, Message};
use consign_core::guard::{Guard, Step as GuardStep, Transitions};
use consign_core::inbox::{HandlerError, Inbox, ProcessError, Processed, Unit};
use consign_core::operation::Operation;
use consign_core::ports::StoreError;
use proptest::prelude::*;

use super::memory::{Award, Fault, Handle, Memory, Step, run};
use super::{contended, operation, refused};

type Results = Vec<Result<Processed, ProcessError>>;

fn unit(memory: &Memory, operation: Operation, award: Award) -> Unit<Handle, Award> {
    let delivery = Delivery { message: Message::default(), receipt: memory.receipt() };
    Unit { delivery, operation, handler: award }
}

fn applies(memory: &Memory, key: &str, amount: i128) -> Unit<Handle, Award> {
    unit(memory, operation(key, amount), Award(Ok(())))
}

fn process_all(memory: &Memory, units: Vec<Unit<Handle, Award>>, look_first: bool) -> Results {
    run(Inbox::new(memory.clone()).process_all(units, look_first))
        .into_iter()
        .map(|concluded| concluded.result.map(|committed| committed.processed).map_err(|failed| failed.error))
        .collect()
}

fn times(memory: &Memory, step: &Step) -> usize {
    memory.steps().iter().filter(|one| *one == step).count()
}

#[test]
fn new_operations_share_one_transaction() {
    let memory = Memory::default();
    let units = (0..50).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results, vec![Ok(Processed::Applied); 50]);
    assert_eq!((times(&memory, &Step::Begin), times(&memory, &Step::Commit)), (1, 1));
    assert_eq!(times(&memory, &Step::ReadMarker), 0, "nobody asked to look first");
    assert_eq!(memory.effects().len(), 50);
}

#[test]
fn markers_are_taken_in_the_order_of_their_keys_and_changes_made_in_the_order_of_arrival() {
    let memory = Memory::default();
    let units = ["c", "a", "b"].map(|key| applies(&memory, key, 1)).into();

    process_all(&memory, units, false);

    assert_eq!(memory.marked(), ["a", "b", "c"]);
    assert_eq!(memory.effects(), ["c", "a", "b"]);
}

#[test]
fn a_repeat_among_new_operations_costs_one_read_and_one_more_transaction() {
    let memory = Memory::default();
    process_all(&memory, vec![applies(&memory, "k3", 1)], false);
    let units = (0..8).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, false);

    let duplicates = results.iter().filter(|result| **result == Ok(Processed::Duplicate)).count();
    assert_eq!((duplicates, results[3].clone()), (1, Ok(Processed::Duplicate)));
    assert_eq!(times(&memory, &Step::Begin), 3);
    assert_eq!(memory.effects().len(), 8);
}

#[test]
fn looking_first_spares_the_transaction_that_a_repeat_would_spoil() {
    let memory = Memory::default();
    process_all(&memory, vec![applies(&memory, "k3", 1)], false);
    let units = (0..8).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, true);

    assert_eq!(results[3], Ok(Processed::Duplicate));
    assert_eq!((times(&memory, &Step::Begin), times(&memory, &Step::Rollback)), (2, 0));
}

#[test]
fn copies_of_one_key_in_a_batch_make_one_effect_and_a_conflict_is_recorded() {
    let memory = Memory::default();
    let units = vec![applies(&memory, "k", 1), applies(&memory, "k", 1), applies(&memory, "k", 2)];

    let results = process_all(&memory, units, false);

    assert_eq!(results, [Ok(Processed::Applied), Ok(Processed::Duplicate), Ok(Processed::Conflict)]);
    assert_eq!((memory.effects().len(), memory.conflicts().len()), (1, 1));
}

/// The first copy's marker is there by then: a transaction would only be rolled back.
#[test]
fn a_copy_in_a_batch_is_looked_up_and_costs_no_transaction() {
    let memory = Memory::default();
    let units = (0..4).map(|_| applies(&memory, "k", 1)).collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results[0], Ok(Processed::Applied));
    assert_eq!(results[1..], vec![Ok(Processed::Duplicate); 3]);
    assert_eq!((times(&memory, &Step::Begin), times(&memory, &Step::ReadMarker)), (1, 3));
}

#[test]
fn what_is_left_of_a_batch_after_a_refusal_has_all_its_tries_before_it() {
    let fails = |step: &Step| Fault::Fails(step.clone(), contended());
    let while_whole = [(); 4].map(|()| fails(&Step::Apply));
    let memory = Memory::failing(while_whole.into_iter().chain([fails(&Step::Commit)]));
    let units = vec![
        applies(&memory, "k0", 1),
        applies(&memory, "k1", 1),
        unit(&memory, operation("k2", 1), refused()),
    ];

    let results = process_all(&memory, units, false);

    let refusal = ProcessError::Handler("0 rows matched, not 1".into());
    assert_eq!(results, [Ok(Processed::Applied), Ok(Processed::Applied), Err(refusal)]);
    assert_eq!((memory.effects().len(), memory.open_transactions()), (2, 0));
}

#[test]
fn a_failing_operation_stands_alone_and_its_neighbours_are_applied() {
    let memory = Memory::default();
    let units = (0..9)
        .map(|number| {
            let award = if number == 4 { refused() } else { Award(Ok(())) };
            unit(&memory, operation(&format!("k{number}"), 1), award)
        })
        .collect();

    let results = process_all(&memory, units, false);

    for (number, result) in results.iter().enumerate() {
        match number {
            4 => assert_eq!(*result, Err(ProcessError::Handler("0 rows matched, not 1".into()))),
            _ => assert_eq!(*result, Ok(Processed::Applied), "{number}"),
        }
    }
    assert_eq!((memory.effects().len(), memory.markers()), (8, 8));
    assert_eq!(memory.open_transactions(), 0);
}

/// A value that the store refuses while it takes many markers: nobody says whose it was.
#[test]
fn a_fault_that_nobody_can_locate_is_found_by_halves() {
    let memory = Memory::refusing_key("k5", StoreError::Data("business_key is too long".into()));
    let units = (0..8).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results[5], Err(ProcessError::Handler("business_key is too long".into())));
    assert_eq!(results.iter().filter(|result| **result == Ok(Processed::Applied)).count(), 7);
    assert_eq!(memory.effects().len(), 7);
}

/// Its statement changed what it should not have: the message may be right, so it waits in hand.
#[test]
fn a_mismatch_is_narrowed_down_to_its_operation_and_is_the_stores_there() {
    let mismatch = StoreError::Mismatch("2 rows changed, not 1".into());
    let memory = Memory::refusing_key("k5", mismatch.clone());
    let units = (0..8).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results[..5], vec![Ok(Processed::Applied); 5]);
    assert_eq!(results[5], Err(ProcessError::Store(mismatch)));
    assert_eq!(memory.effects().len(), 5);
}

#[test]
fn a_contended_batch_is_run_again_as_a_whole() {
    let memory = Memory::failing([Fault::Fails(Step::Apply, contended())]);
    let units = (0..5).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results, vec![Ok(Processed::Applied); 5]);
    assert_eq!(times(&memory, &Step::Begin), 2);
    assert_eq!(memory.effects().len(), 5);
}

/// I18: nothing of a batch whose COMMIT got no answer is acknowledged, and nothing of it is doubled.
#[test]
fn an_unknown_commit_concerns_the_whole_unit() {
    for fault in [Fault::CommitAnswerLost, Fault::CommitLost] {
        let memory = Memory::failing([fault]);
        let batch = || (0..3).map(|number| applies(&memory, &format!("k{number}"), 1)).collect();

        let first = process_all(&memory, batch(), false);
        assert!(
            first.iter().all(|result| matches!(result, Err(ProcessError::CommitUnknown(_)))),
            "{first:?}"
        );
        let second = process_all(&memory, batch(), false);

        assert!(second.iter().all(Result::is_ok), "{second:?}");
        assert_eq!((memory.effects().len(), memory.markers()), (3, 3));
    }
}

/// What comes after the lost COMMIT was not part of it, and is not run while the store is in doubt.
#[test]
fn a_store_that_is_away_fails_what_was_not_run_yet() {
    let memory = Memory::failing([Fault::CommitLost]);
    let units = vec![applies(&memory, "k", 1), applies(&memory, "k", 1)];

    let results = process_all(&memory, units, false);

    assert!(matches!(results[0], Err(ProcessError::CommitUnknown(_))), "{results:?}");
    assert!(matches!(results[1], Err(ProcessError::Store(StoreError::Unavailable(_)))), "{results:?}");
    assert_eq!(times(&memory, &Step::Begin), 1);
}

fn versioned(key: &str, aggregate: &str, step: GuardStep) -> Operation {
    let guard = Some(Guard { aggregate: aggregate.into(), step });
    Operation { guard, ..operation(key, 1) }
}

fn sequential(version: i64) -> GuardStep {
    GuardStep::Sequential { version, first: 1 }
}

#[test]
fn steps_of_one_aggregate_follow_each_other_inside_a_batch() {
    let memory = Memory::default();
    let units = (1..=4)
        .map(|version| {
            unit(&memory, versioned(&format!("k{version}"), "order:1", sequential(version)), Award(Ok(())))
        })
        .collect();

    let results = process_all(&memory, units, false);

    assert_eq!(results, vec![Ok(Processed::Applied); 4]);
    assert_eq!(times(&memory, &Step::Begin), 1);
    assert_eq!(memory.version("order:1"), Some(4));
}

#[test]
fn a_step_after_a_missing_one_is_a_gap_and_its_neighbours_are_applied() {
    let memory = Memory::default();
    let steps = [("k1", "order:1", 1), ("k3", "order:1", 3), ("k9", "order:2", 1)];
    let units = steps
        .map(|(key, aggregate, version)| {
            unit(&memory, versioned(key, aggregate, sequential(version)), Award(Ok(())))
        })
        .into();

    let results = process_all(&memory, units, false);

    let gap = ProcessError::Gap { aggregate: "order:1".into(), expected: 2, version: 3 };
    assert_eq!(results, [Ok(Processed::Applied), Err(gap), Ok(Processed::Applied)]);
    assert_eq!((memory.version("order:1"), memory.version("order:2")), (Some(1), Some(1)));
}

#[test]
fn an_old_version_is_stale_and_leaves_no_marker() {
    let memory = Memory::default();
    let newer = |version| GuardStep::ApplyIfNewer { version };
    let units = [("k2", 2), ("k1", 1)]
        .map(|(key, version)| unit(&memory, versioned(key, "order:1", newer(version)), Award(Ok(()))))
        .into();

    let results = process_all(&memory, units, false);

    assert_eq!(results, [Ok(Processed::Applied), Ok(Processed::Stale)]);
    assert_eq!((memory.effects(), memory.markers()), (vec!["k2".to_owned()], 1));
}

#[test]
fn a_refused_step_does_not_advance_its_aggregate() {
    let memory = Memory::default();
    let units = vec![
        unit(&memory, versioned("k1", "order:1", sequential(1)), refused()),
        unit(&memory, versioned("k2", "order:1", sequential(2)), Award(Ok(()))),
    ];

    let results = process_all(&memory, units, false);

    assert_eq!(results[0], Err(ProcessError::Handler("0 rows matched, not 1".into())));
    assert_eq!(results[1], Err(ProcessError::Gap { aggregate: "order:1".into(), expected: 1, version: 2 }));
    assert_eq!((memory.version("order:1"), memory.markers()), (None, 0));
}

#[test]
fn a_forbidden_change_of_state_is_refused_with_both_states() {
    let memory = Memory::default();
    let allowed = Arc::new(Transitions::parse(["->NEW", "NEW->PAID"]).unwrap());
    let step = GuardStep::Transition { to: "PAID".into(), allowed };

    let results =
        process_all(&memory, vec![unit(&memory, versioned("k", "order:1", step), Award(Ok(())))], false);

    let reason = r#"order:1 cannot go from nothing to "PAID""#;
    assert_eq!(results, [Err(ProcessError::Handler(reason.into()))]);
}

/// One random operation: key, amount, whether its handler refuses, and perhaps a guarded step.
#[derive(Clone, Debug)]
struct Draw {
    key: u8,
    amount: i128,
    refuses: bool,
    step: Option<(u8, GuardStep)>,
}

fn draws(distinct: bool) -> impl Strategy<Value = Vec<Draw>> {
    let step = (0..3_u8, 0..6_i64, any::<bool>()).prop_map(|(aggregate, version, ordered)| {
        let step = if ordered { sequential(version) } else { GuardStep::ApplyIfNewer { version } };
        // A rule belongs to the consumer, so an aggregate sees one rule only.
        (aggregate + if ordered { 0 } else { 100 }, step)
    });
    let draw = (0..12_u8, 1..3_i128, 0..8_u8, proptest::option::of(step)).prop_map(
        move |(key, amount, luck, step)| Draw {
            key,
            amount,
            refuses: luck == 0,
            // Copies of one operation carry the same step; keys are drawn apart to keep it so.
            step: if distinct { step } else { None },
        },
    );
    proptest::collection::vec(draw, 1..24).prop_map(move |mut draws| {
        if distinct {
            for (index, draw) in draws.iter_mut().enumerate() {
                draw.key = u8::try_from(index).unwrap();
            }
        }
        draws
    })
}

fn units(memory: &Memory, draws: &[Draw]) -> Vec<Unit<Handle, Award>> {
    draws
        .iter()
        .map(|draw| {
            let key = format!("k{}", draw.key);
            let guard = draw
                .step
                .as_ref()
                .map(|(aggregate, step)| Guard { aggregate: format!("a{aggregate}"), step: step.clone() });
            let award = if draw.refuses { Err(HandlerError::Refused("no".into())) } else { Ok(()) };
            unit(memory, Operation { guard, ..operation(&key, draw.amount) }, Award(award))
        })
        .collect()
}

/// Each by itself, one after another.
fn one_by_one(memory: &Memory, draws: &[Draw]) -> Results {
    units(memory, draws).into_iter().flat_map(|unit| process_all(memory, vec![unit], false)).collect()
}

proptest! {
    /// The heart of batches: the same results, effects, markers and versions as without them.
    #[test]
    fn a_batch_comes_to_what_its_operations_come_to_alone(
        draws in prop_oneof![draws(true), draws(false)],
        look_first in any::<bool>(),
        size in 1..24_usize,
    ) {
        let (batched, alone) = (Memory::default(), Memory::default());

        let mut results = Results::new();
        for chunk in draws.chunks(size) {
            results.extend(process_all(&batched, units(&batched, chunk), look_first));
        }
        let expected = one_by_one(&alone, &draws);

        prop_assert_eq!(results, expected);
        let sorted = |mut effects: Vec<String>| { effects.sort(); effects };
        prop_assert_eq!(sorted(batched.effects()), sorted(alone.effects()));
        prop_assert_eq!(batched.conflicts().len(), alone.conflicts().len());
        prop_assert_eq!(batched.everything(), alone.everything());
        prop_assert_eq!(batched.open_transactions(), 0);
    }
}
