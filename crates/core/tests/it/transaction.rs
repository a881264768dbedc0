//! Transaction messages: the check-back's answers, the producer's steps, and the repair, over a store and a broker in memory.
//! The rules are those of the model `checkback`; its guards are named where a test holds one.

mod memory;

use std::time::Duration;

use consign_core::ports::{CommitError, Mark, StoreError};
use consign_core::time::Monotonic;
use consign_core::transaction::check::check;
use consign_core::transaction::half::Question;
use consign_core::transaction::local::{MarkError, Prepared};
use consign_core::transaction::marker::{Evidence, Marker, Unconfirmed};
use consign_core::transaction::message::{TransactionKey, TransactionMessage};
use consign_core::transaction::repair::{RepairError, Repaired, repair};
use consign_core::transaction::{Doubt, End, InvalidSpans, Spans, Verdict};

use crate::inbox::memory::run;
use memory::{Broker, Fault, Markers};

const SECOND: i64 = 1_000_000;

fn spans() -> Spans {
    Spans::default()
}

/// A transaction that began this many seconds after the epoch.
fn question(begun_seconds: i64) -> Question {
    Question {
        key: TransactionKey::draw([7; 8], 1, 1),
        topic: "orders".into(),
        store: Some("orders-db".into()),
        begun_at_micros: Some(begun_seconds * SECOND),
    }
}

/// The orders database this many seconds after the epoch.
fn store_at(seconds: i64) -> Markers {
    Markers { now_micros: seconds * SECOND, ..Markers::new("orders-db") }
}

fn answer(store: &Markers, question: &Question) -> Verdict {
    run(check(store, question, &spans()))
}

fn unavailable() -> StoreError {
    StoreError::Unavailable("down".into())
}

#[test]
fn a_committed_marker_is_answered_with_commit_and_a_rollback_marker_with_rollback() {
    let (store, question) = (store_at(1), question(0));

    store.put(&question.key, Marker::Committed);
    assert!(matches!(answer(&store, &question), Verdict::Commit(_)));

    store.put(&question.key, Marker::RolledBack);
    assert!(matches!(answer(&store, &question), Verdict::Rollback(_)));
    assert_eq!(*store.fence_calls.lock().unwrap(), 0);
}

/// `Patience` and `RollbackIsFenced` of the model.
#[test]
fn an_absent_marker_is_unknown_while_the_transaction_may_run_and_is_fenced_afterwards() {
    let question = question(100);
    for (seconds, doubt) in [(0, Doubt::Young), (100, Doubt::Young), (159, Doubt::Young)] {
        let store = store_at(seconds);
        assert_eq!(answer(&store, &question), Verdict::Unknown(doubt), "at {seconds}");
        assert_eq!(store.marker(&question.key), None, "at {seconds}");
    }

    let store = store_at(160);
    assert!(matches!(answer(&store, &question), Verdict::Rollback(_)));

    assert_eq!(
        store.marker(&question.key),
        Some(Marker::RolledBack),
        "the answer and the fence are one write"
    );
    assert_eq!(store.mark(&question.key), Mark::Taken, "a late local transaction cannot commit");
    assert!(matches!(answer(&store, &question), Verdict::Rollback(_)), "asked again");
    assert_eq!(*store.fence_calls.lock().unwrap(), 1);
}

/// A marker that may have been forgotten is not the same as one that never was.
#[test]
fn a_transaction_older_than_the_horizon_is_never_fenced() {
    let question = question(0);
    let horizon = i64::try_from(spans().horizon().as_secs()).unwrap();

    let store = store_at(horizon);
    assert_eq!(answer(&store, &question), Verdict::Unknown(Doubt::Forgotten));
    assert_eq!(store.marker(&question.key), None);

    assert!(matches!(answer(&store_at(horizon - 1), &question), Verdict::Rollback(_)));
}

/// `TakenIsReadAgain` of the model.
#[test]
fn a_fence_that_finds_the_key_taken_answers_what_is_there() {
    let question = question(0);
    for marker in [Marker::Committed, Marker::RolledBack] {
        let store = store_at(60);
        store.fences.lock().unwrap().push_back(Fault::Overtaken(marker));

        let verdict = answer(&store, &question);

        match marker {
            Marker::Committed => assert!(matches!(verdict, Verdict::Commit(_)), "{verdict:?}"),
            Marker::RolledBack => assert!(matches!(verdict, Verdict::Rollback(_)), "{verdict:?}"),
        }
        assert_eq!(store.marker(&question.key), Some(marker), "nothing is overwritten");
    }
    let store = store_at(60);
    store.fences.lock().unwrap().push_back(Fault::Vanishes);
    assert_eq!(answer(&store, &question), Verdict::Unknown(Doubt::Contested));
}

/// `ForeignIsUnknown` of the model; apache/rocketmq#9791.
#[test]
fn a_message_of_another_marker_store_is_unknown_whatever_is_in_this_one() {
    for name in [None, Some("payments-db".to_owned()), Some("ORDERS-DB".to_owned())] {
        let question = Question { store: name, ..question(0) };
        for marker in [None, Some(Marker::Committed), Some(Marker::RolledBack)] {
            let store = store_at(3600);
            if let Some(marker) = marker {
                store.put(&question.key, marker);
            }
            assert_eq!(answer(&store, &question), Verdict::Unknown(Doubt::Foreign));
            assert_eq!((store.marker(&question.key), *store.fence_calls.lock().unwrap()), (marker, 0));
        }
    }
}

#[test]
fn a_message_without_a_date_is_answered_from_a_marker_alone() {
    let question = Question { begun_at_micros: None, ..question(0) };
    let store = store_at(3600);

    assert_eq!(answer(&store, &question), Verdict::Unknown(Doubt::Undated));
    store.put(&question.key, Marker::Committed);
    assert!(matches!(answer(&store, &question), Verdict::Commit(_)));
}

/// A database error is never a guess, whichever statement meets it. A COMMIT of the fence without an answer is one.
#[test]
fn an_error_of_the_store_is_unknown_at_every_step() {
    let question = question(0);
    for error in [
        unavailable(),
        StoreError::Contended("a local transaction holds the key".into()),
        StoreError::CommitUnknown("no answer".into()),
        StoreError::Schema("no table".into()),
        StoreError::Data("no".into()),
        StoreError::Mismatch("no".into()),
    ] {
        let unknown = Verdict::Unknown(Doubt::Store(error.clone()));

        let looking = store_at(60);
        looking.looks.lock().unwrap().push_back(Some(error.clone()));
        assert_eq!(answer(&looking, &question), unknown);

        let fencing = store_at(60);
        fencing.fences.lock().unwrap().push_back(Fault::Error(error.clone()));
        assert_eq!(answer(&fencing, &question), unknown);

        let again = store_at(60);
        again.fences.lock().unwrap().push_back(Fault::Overtaken(Marker::Committed));
        again.looks.lock().unwrap().extend([None, Some(error)]);
        assert_eq!(answer(&again, &question), unknown);
    }
}

fn prepared() -> Prepared<&'static str> {
    let since = Monotonic::new(Duration::from_secs(5));
    Prepared::new("half", TransactionKey::draw([7; 8], 1, 1), since, Duration::from_mins(1))
}

/// `AnswersNeedMarkers` and `UnsureSendsNothing` of the model, on the producer's side.
#[test]
fn the_broker_is_told_what_the_commit_answered_and_nothing_without_an_answer() {
    let marked = || prepared().marked(Ok(Mark::Inserted)).expect("marked");

    assert!(matches!(marked().ended(&Ok(())), Some(("half", End::Commit(_)))));
    let rolled_back = Err(CommitError::RolledBack(StoreError::Contended("deadlock".into())));
    assert!(matches!(marked().ended(&rolled_back), Some(("half", End::Rollback(_)))));
    assert_eq!(marked().ended(&Err(CommitError::Unknown(StoreError::CommitUnknown("lost".into())))), None);
    assert!(matches!(marked().rolled_back(), ("half", End::Rollback(_))));
    assert!(matches!(prepared().abandoned(), ("half", End::Rollback(_))));
    let key = TransactionKey::draw([7; 8], 1, 1);
    assert_eq!((prepared().key(), marked().key()), (&key, &key));
}

/// `OneKey` of the model.
#[test]
fn a_local_transaction_that_was_fenced_or_met_an_error_gets_no_mark() {
    let error = prepared().marked(Ok(Mark::Taken)).expect_err("fenced");
    assert!(matches!(error, MarkError::Fenced { .. }));

    let error = prepared().marked(Err(unavailable())).expect_err("not marked");
    assert_eq!(error, MarkError::Store(unavailable()));
}

#[test]
fn a_transaction_that_had_its_time_is_told_before_it_meets_the_fence() {
    let at = |seconds| prepared().in_time(Monotonic::new(Duration::from_secs(seconds)));

    assert_eq!(at(64), Ok(()));
    assert!(matches!(at(65), Err(MarkError::TooLate { .. })));
}

#[test]
fn spans_that_would_forget_what_the_broker_may_ask_about_are_refused() {
    let (minute, day) = (Duration::from_mins(1), Duration::from_hours(24));
    let hour = Duration::from_hours(1);

    assert!(Spans::new(minute, day, day + hour, day + hour).is_ok());
    let early = |field, span| Err(InvalidSpans::ForgetsTooEarly { field, span, horizon: day });
    assert_eq!(Spans::new(minute, day, day, 2 * day), early("keep", day));
    assert_eq!(Spans::new(minute, day, 2 * day, day), early("keep_unconfirmed", day));
    let reaches = InvalidSpans::LongestReachesHorizon { longest: day, horizon: day };
    assert_eq!(Spans::new(day, day, 2 * day, 2 * day), Err(reaches));
}

#[test]
fn spans_are_kept_as_they_were_given() {
    let hours = |hours| Duration::from_hours(hours);

    let spans = Spans::new(hours(1), hours(2), hours(3), hours(4)).unwrap();

    assert_eq!((spans.longest(), spans.horizon()), (hours(1), hours(2)));
    assert_eq!((spans.keep(), spans.keep_unconfirmed()), (hours(3), hours(4)));
}

#[test]
fn every_doubt_says_why_nothing_is_answered() {
    for (doubt, text) in [
        (Doubt::Foreign, "the message belongs to another marker store"),
        (Doubt::Undated, "the message does not say when its transaction began"),
        (Doubt::Young, "the local transaction may still be running"),
        (Doubt::Forgotten, "the transaction is older than what markers are kept for"),
        (Doubt::Contested, "the marker's key is taken by nothing that is committed"),
        (Doubt::Store(unavailable()), "the store is unavailable: down"),
    ] {
        assert_eq!(doubt.to_string(), text);
    }
}

/// It stands in people's tables: another word would make a stranger of what was confirmed before.
#[test]
fn the_word_for_evidence_stays_what_it_is() {
    assert_eq!(Evidence::Stored.word(), "STORED");
}

fn unconfirmed(message: Option<TransactionMessage>) -> Unconfirmed {
    let digest = order().digest();
    Unconfirmed {
        key: TransactionKey::draw([7; 8], 1, 1),
        topic: "orders".into(),
        message,
        digest,
        attempts: 1,
    }
}

fn order() -> TransactionMessage {
    TransactionMessage::new("orders", "OrderPaid", r#"{"orderId":42}"#)
}

/// `EndIsNoProof` of the model, and what is published again has the same id.
#[test]
fn a_message_that_is_not_in_its_topic_is_sent_again_and_confirmed_only_when_it_is_found() {
    let (store, mut broker) = (store_at(60), Broker { ends_get_lost: true, ..Broker::default() });
    let key = unconfirmed(None).key;
    let round = |broker: &Broker| run(repair(&store, broker, broker, unconfirmed(Some(order()))));

    assert_eq!(round(&broker), Ok(Repaired::SentAgain));
    assert_eq!(round(&broker), Ok(Repaired::SentAgain), "an end that got lost proves nothing");
    assert!(store.confirmed.lock().unwrap().is_empty());
    broker.ends_get_lost = false;
    assert_eq!(round(&broker), Ok(Repaired::SentAgain));
    assert!(store.confirmed.lock().unwrap().is_empty());

    assert_eq!(round(&broker), Ok(Repaired::Confirmed));

    assert!(store.confirmed.lock().unwrap().contains(&key));
    let halves = broker.halves.lock().unwrap();
    assert_eq!(halves.len(), 3);
    assert!(halves.iter().all(|half| half.key == key && half.store.as_str() == "orders-db"));
}

/// apache/rocketmq#8158: a message may be in its topic and among the discarded ones as well.
#[test]
fn a_message_that_is_in_its_topic_is_not_sent_again_though_the_broker_gave_up_on_it_too() {
    let (store, broker) = (store_at(60), Broker::default());
    let key = unconfirmed(None).key;
    broker.topics.lock().unwrap().insert(key.clone(), vec![order()]);
    broker.given_up.lock().unwrap().insert(key, order());

    assert_eq!(run(repair(&store, &broker, &broker, unconfirmed(None))), Ok(Repaired::Confirmed));
    assert!(broker.halves.lock().unwrap().is_empty());
}

#[test]
fn a_message_the_store_does_not_keep_is_taken_from_the_discarded_ones_if_it_is_the_same() {
    let (store, broker) = (store_at(60), Broker::default());
    let key = unconfirmed(None).key;
    let round = || run(repair(&store, &broker, &broker, unconfirmed(None)));

    assert_eq!(round(), Ok(Repaired::Lost), "it is nowhere");
    let other = TransactionMessage::new("orders", "OrderPaid", "{}");
    broker.given_up.lock().unwrap().insert(key.clone(), other);
    assert_eq!(round(), Ok(Repaired::Lost), "another payload is another message");
    let elsewhere = TransactionMessage { topic: "payments".into(), ..order() };
    broker.given_up.lock().unwrap().insert(key.clone(), elsewhere);
    assert_eq!(round(), Ok(Repaired::Lost), "another topic is another message");
    broker.given_up.lock().unwrap().insert(key, order());
    assert_eq!(round(), Ok(Repaired::SentAgain));
    assert_eq!(round(), Ok(Repaired::Confirmed));
}

#[test]
fn a_broker_that_does_not_answer_changes_nothing() {
    let (store, broker) = (store_at(60), Broker { silent: true, ..Broker::default() });

    let repaired = run(repair(&store, &broker, &broker, unconfirmed(Some(order()))));

    assert!(matches!(repaired, Err(RepairError::Ledger(_))), "{repaired:?}");
    assert!(store.confirmed.lock().unwrap().is_empty());
}
