//! The inbox: at most one effect per operation, an ack only after a commit, and no silent conflict.

mod batch;
pub mod memory;
mod parked;
mod worker;

use consign_core::delivery::{Delivery, Message};
use consign_core::event::EventId;
use consign_core::inbox::{Committed, Failed, HandlerError, Inbox, ProcessError, Processed};
use consign_core::operation::{Compared, Comparison, Operation};
use consign_core::outcome::Proof;
use consign_core::ports::StoreError;
use consign_core::value::Value;

use memory::{Award, Fault, Handle, Memory, Step, run, run_both};

fn operation(key: &str, amount: i128) -> Operation {
    Operation {
        consumer: "points-award".into(),
        key: key.into(),
        event_id: Some(EventId::stored("e1")),
        comparison: Comparison::Columns(vec![Compared {
            column: "amount".into(),
            value: Value::Integer(amount),
        }]),
        ..Operation::default()
    }
}

fn delivery(memory: &Memory) -> Delivery<Handle> {
    Delivery { message: Message::default(), receipt: memory.receipt() }
}

async fn process(
    memory: &Memory,
    operation: &Operation,
    award: Award,
) -> Result<Committed<Handle>, Failed<Handle>> {
    Inbox::new(memory.clone()).process(delivery(memory), operation, &award).await
}

/// Processes and acknowledges.
async fn applied(memory: &Memory, operation: &Operation) -> Processed {
    let committed = process(memory, operation, Award(Ok(()))).await.expect("the delivery is processed");
    committed.ack().await.unwrap()
}

fn failure(memory: &Memory, operation: &Operation, award: Award) -> ProcessError {
    run(process(memory, operation, award)).expect_err("the delivery fails").error
}

fn refused() -> Award {
    Award(Err(HandlerError::Refused("0 rows matched, not 1".into())))
}

fn contended() -> StoreError {
    StoreError::Contended("deadlock".into())
}

#[test]
fn a_first_delivery_is_marked_applied_committed_and_then_acknowledged() {
    let memory = Memory::default();

    let processed = run(applied(&memory, &operation("order:1:paid", 100)));

    assert_eq!(processed, Processed::Applied);
    assert_eq!(memory.effects(), ["order:1:paid"]);
    assert_eq!(memory.steps(), [Step::Begin, Step::Mark, Step::Apply, Step::Commit, Step::Ack]);
}

#[test]
fn a_repeat_is_a_duplicate_found_by_rolling_back_and_reading_the_marker() {
    let memory = Memory::default();
    run(applied(&memory, &operation("order:1:paid", 100)));

    let processed = run(applied(&memory, &operation("order:1:paid", 100)));

    assert_eq!(processed, Processed::Duplicate);
    assert_eq!(memory.effects().len(), 1);
    assert_eq!(memory.steps()[5..], [Step::Begin, Step::Mark, Step::Rollback, Step::ReadMarker, Step::Ack]);
}

#[test]
fn the_same_fact_under_another_event_id_is_a_duplicate() {
    let memory = Memory::default();
    run(applied(&memory, &operation("order:1:paid", 100)));
    let wrapped = Operation { event_id: Some(EventId::stored("e2")), ..operation("order:1:paid", 100) };

    assert_eq!(run(applied(&memory, &wrapped)), Processed::Duplicate);
}

/// I19: other content under the same key changes nothing and is recorded before its ack.
#[test]
fn other_content_under_the_same_key_is_a_conflict_recorded_before_its_ack() {
    let memory = Memory::default();
    run(applied(&memory, &operation("order:1:paid", 100)));

    let processed = run(applied(&memory, &operation("order:1:paid", 101)));

    assert_eq!(processed, Processed::Conflict);
    assert_eq!(memory.effects().len(), 1);
    assert_eq!(memory.conflicts(), ["amount=101 beside {\"amount\": Some(\"100\")}"]);
    assert_eq!(memory.steps()[8..], [Step::ReadMarker, Step::RecordConflict, Step::Ack]);
}

#[test]
fn a_conflict_that_cannot_be_recorded_is_not_acknowledged() {
    let down = StoreError::Unavailable("down".into());
    let memory = Memory::failing([Fault::Fails(Step::RecordConflict, down.clone())]);
    run(applied(&memory, &operation("order:1:paid", 100)));

    let error = failure(&memory, &operation("order:1:paid", 101), Award(Ok(())));

    assert_eq!(error, ProcessError::Store(down));
    assert!(memory.conflicts().is_empty());
}

/// I17: the unique key decides between copies that arrive at once.
#[test]
fn two_copies_at_once_make_one_effect() {
    let memory = Memory::default();
    let (one, other) = (operation("order:1:paid", 100), operation("order:1:paid", 100));

    let (first, second) = run_both(applied(&memory, &one), applied(&memory, &other));

    assert_eq!((first, second), (Processed::Applied, Processed::Duplicate));
    assert_eq!(memory.effects().len(), 1);
}

#[test]
fn the_second_copy_is_applied_when_the_first_one_rolls_back() {
    let memory = Memory::default();
    let (one, other) = (operation("order:1:paid", 100), operation("order:1:paid", 100));

    let (first, second) = run_both(process(&memory, &one, refused()), applied(&memory, &other));

    assert!(first.is_err());
    assert_eq!(second, Processed::Applied);
    assert_eq!((memory.effects().len(), memory.markers()), (1, 1));
}

/// I16: marker and effect stand or fall together.
#[test]
fn a_refusing_handler_leaves_neither_marker_nor_effect() {
    let memory = Memory::default();

    let error = failure(&memory, &operation("order:1:paid", 100), refused());

    assert_eq!(error, ProcessError::Handler("0 rows matched, not 1".into()));
    assert_eq!((memory.effects().len(), memory.markers(), memory.open_transactions()), (0, 0, 0));
}

#[test]
fn a_handler_whose_store_fails_is_not_the_deliverys_fault() {
    let memory = Memory::default();
    let lost = StoreError::Unavailable("connection lost".into());

    let error = failure(&memory, &operation("k", 1), Award(Err(HandlerError::Store(lost.clone()))));

    assert_eq!(error, ProcessError::Store(lost));
    assert_eq!(memory.open_transactions(), 0);
}

/// D6: a deadlock victim is run again as a whole, a few times.
#[test]
fn a_contended_unit_is_run_again_from_its_beginning() {
    for step in [Step::Mark, Step::Apply, Step::Commit] {
        let memory = Memory::failing((0..4).map(|_| Fault::Fails(step.clone(), contended())));

        let processed = run(applied(&memory, &operation("k", 1)));

        assert_eq!(processed, Processed::Applied, "{step:?}");
        assert_eq!(memory.effects().len(), 1);
        assert_eq!(memory.steps().iter().filter(|one| **one == Step::Begin).count(), 5);
    }
}

#[test]
fn a_unit_that_stays_contended_is_handed_back() {
    let memory = Memory::failing((0..9).map(|_| Fault::Fails(Step::Mark, contended())));

    let error = failure(&memory, &operation("k", 1), Award(Ok(())));

    assert_eq!(error, ProcessError::Store(contended()));
    assert_eq!(memory.steps().iter().filter(|one| **one == Step::Begin).count(), 5);
    assert_eq!(memory.open_transactions(), 0);
}

/// No marker, no effect: calling it a duplicate would lose the operation.
#[test]
fn a_delivery_whose_rival_rolled_back_before_the_marker_was_read_is_applied() {
    let memory = Memory::failing([Fault::MarkerVanishes]);
    run(applied(&memory, &operation("k", 1)));

    let processed = run(applied(&memory, &operation("k", 1)));

    assert_eq!((processed, memory.markers()), (Processed::Applied, 1));
}

/// I18: an unknown commit is not acknowledged; if it was applied, the redelivery is a duplicate.
#[test]
fn a_commit_without_an_answer_is_not_acknowledged_and_its_redelivery_is_a_duplicate() {
    let memory = Memory::failing([Fault::CommitAnswerLost]);

    let error = failure(&memory, &operation("k", 1), Award(Ok(())));
    assert!(matches!(error, ProcessError::CommitUnknown(_)), "{error:?}");
    assert!(!memory.steps().contains(&Step::Ack));

    assert_eq!(run(applied(&memory, &operation("k", 1))), Processed::Duplicate);
    assert_eq!(memory.effects().len(), 1);
}

#[test]
fn the_redelivery_after_a_commit_that_was_lost_altogether_is_applied() {
    let memory = Memory::failing([Fault::CommitLost]);

    let error = failure(&memory, &operation("k", 1), Award(Ok(())));
    assert!(matches!(error, ProcessError::CommitUnknown(_)), "{error:?}");

    assert_eq!(run(applied(&memory, &operation("k", 1))), Processed::Applied);
    assert_eq!(memory.effects().len(), 1);
}

#[test]
fn a_unit_that_never_began_is_the_stores_failure() {
    let down = StoreError::Unavailable("down".into());
    let memory = Memory::failing([Fault::Fails(Step::Begin, down.clone())]);

    assert_eq!(failure(&memory, &operation("k", 1), Award(Ok(()))), ProcessError::Store(down));
}

/// A key too long for its column would be refused however often it came: it counts, and ends among the dead (B49).
#[test]
fn a_value_that_the_store_refuses_is_the_deliverys_fault_at_every_step() {
    let too_long = || StoreError::Data("business_key has 129 characters, at most 128 fit".into());
    for step in [Step::Mark, Step::Apply, Step::Commit] {
        let memory = Memory::failing([Fault::Fails(step.clone(), too_long())]);

        let error = failure(&memory, &operation("k", 1), Award(Ok(())));

        assert!(matches!(error, ProcessError::Handler(_)), "{step:?}: {error:?}");
        assert_eq!((memory.markers(), memory.effects().len()), (0, 0), "{step:?}");
    }
    for step in [Step::ReadMarker, Step::RecordConflict] {
        let memory = Memory::failing([Fault::Fails(step.clone(), too_long())]);
        run(applied(&memory, &operation("k", 1)));

        let error = failure(&memory, &operation("k", 2), Award(Ok(())));

        assert!(matches!(error, ProcessError::Handler(_)), "{step:?}: {error:?}");
    }
}

#[test]
fn a_failed_rollback_does_not_hide_the_handlers_refusal() {
    let memory = Memory::failing([Fault::Fails(Step::Rollback, StoreError::Unavailable("gone".into()))]);

    let error = failure(&memory, &operation("k", 1), refused());

    assert!(matches!(error, ProcessError::Handler(_)), "{error:?}");
}

#[test]
fn a_failed_delivery_can_come_again() {
    let memory = Memory::default();

    run(async {
        let failed = process(&memory, &operation("k", 1), refused()).await.unwrap_err();
        failed.retry(std::time::Duration::from_secs(1)).await.unwrap();
    });

    assert_eq!(memory.steps().last(), Some(&Step::Retry));
}

#[test]
fn a_delivery_kept_in_hand_is_processed_again_without_the_broker() {
    let memory = Memory::failing([Fault::Fails(Step::Begin, StoreError::Unavailable("down".into()))]);
    let operation = operation("k", 1);

    let processed = run(async {
        let failed = process(&memory, &operation, Award(Ok(()))).await.unwrap_err();
        let inbox = Inbox::new(memory.clone());
        let committed = inbox.process(failed.again(), &operation, &Award(Ok(()))).await.unwrap();
        committed.ack().await.unwrap()
    });

    assert_eq!(processed, Processed::Applied);
    assert!(!memory.steps().contains(&Step::Retry));
    assert_eq!(memory.steps().last(), Some(&Step::Ack));
}

/// I22: a delivery leaves its place only once its dead record is committed.
#[test]
fn a_dead_delivery_is_put_aside_after_its_record() {
    let memory = Memory::default();

    run(async {
        let failed = process(&memory, &operation("k", 1), refused()).await.unwrap_err();
        failed.record_dead(&memory, "points-award", Some("k")).await.unwrap().unwrap();
    });

    assert_eq!(memory.dead(), ["points-award k: 0 rows matched, not 1"]);
    let steps = memory.steps();
    assert_eq!(steps[steps.len() - 2..], [Step::RecordDead, Step::PutAside]);
}

#[test]
fn a_dead_delivery_that_cannot_be_recorded_keeps_its_receipt() {
    let down = StoreError::Unavailable("down".into());
    let memory = Memory::failing([Fault::Fails(Step::RecordDead, down.clone())]);

    run(async {
        let failed = Failed::refused(delivery(&memory), "not JSON");
        let (failed, error) = failed.record_dead(&memory, "points-award", None).await.unwrap_err();
        assert_eq!(error, down);
        failed.retry(std::time::Duration::ZERO).await.unwrap();
    });

    assert_eq!(memory.steps(), [Step::RecordDead, Step::Retry]);
}

#[test]
fn a_dead_letter_is_acknowledged_with_the_proof_that_it_was_taken() {
    let memory = Memory::default();

    run(async {
        let failed = Failed::refused(delivery(&memory), "not JSON");
        failed.dead_lettered(&Proof::Appended { partition: 0, offset: 7 }).await.unwrap();
    });

    assert_eq!(memory.steps(), [Step::Ack]);
}
