//! Batches of settlements on their way to the store.

use consign_core::outcome::Outcome;
use consign_core::ports::StoreError;
use consign_core::relay::{RelaySettings, Report};
use consign_core::settle::{Settled, Transition};

use crate::harness::{Harness, confirmed, millis, row, rows, seconds};

fn batches_of(batch_rows: u32) -> RelaySettings {
    RelaySettings { batch_rows, ..RelaySettings::default() }
}

fn rejected(reason: &str) -> Outcome {
    Outcome::Rejected { reason: reason.into() }
}

#[test]
fn settlements_wait_the_linger_for_company() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 3, "a"));
    harness.land("e0", confirmed());
    harness.pass(millis(2));
    harness.land("e1", confirmed());
    harness.pass(millis(2));
    assert!(harness.settles.is_empty());

    harness.pass(millis(1));

    assert_eq!(harness.settling().len(), 2);
}

#[test]
fn a_full_batch_does_not_wait() {
    let mut harness = Harness::new(batches_of(2), &["a"]);
    harness.claimed_of_more(rows("e", 2, "a"));
    harness.claimed(rows("f", 2, "a"));

    harness.land("e0", confirmed());
    assert!(harness.settles.is_empty());
    harness.land("e1", confirmed());

    assert_eq!(harness.settling().len(), 2);
}

#[test]
fn nobody_waits_for_company_when_nothing_else_is_in_flight() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);

    harness.land("e", confirmed());

    assert_eq!(harness.settling().len(), 1);
}

#[test]
fn one_batch_is_open_at_a_time_and_the_next_follows_at_once() {
    let mut harness = Harness::new(batches_of(2), &["a"]);
    harness.claimed_of_more(rows("e", 2, "a"));
    harness.claimed_of_more(rows("f", 2, "a"));
    for event in ["e0", "e1", "f0", "f1"] {
        harness.land(event, confirmed());
    }
    assert_eq!(harness.settles.len(), 1);

    harness.settled(Settled::Applied);

    assert_eq!(harness.settling().len(), 2);
}

#[test]
fn every_settlement_carries_the_token_of_its_own_claim() {
    let mut harness = Harness::with_defaults();
    let first = harness.claim_request();
    let tokens = vec![first.token().to_hex()];
    harness.claims.push_back(first);
    harness.claimed_of_more([row("first", "a")]);
    let second = harness.claim_request();
    let tokens = [tokens, vec![second.token().to_hex()]].concat();
    harness.claims.push_back(second);
    harness.claimed([row("second", "a")]);

    harness.land("first", confirmed());
    harness.land("second", confirmed());
    harness.pass(millis(5));

    let mut settled = Vec::new();
    while let Some(batch) = harness.settles.front() {
        settled.extend(batch.settlements.iter().map(|one| one.token().to_hex()));
        harness.settled(Settled::Applied);
    }
    assert_eq!(settled, tokens);
}

#[test]
fn a_settle_that_failed_is_repeated_whole_and_later_settlements_wait_behind_it() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 3, "a"));
    harness.land("e0", confirmed());
    harness.land("e1", confirmed());
    harness.pass(millis(5));
    harness.settle_failed(StoreError::Unavailable("down".into()));
    harness.land("e2", confirmed());
    assert!(harness.settles.is_empty());
    assert_eq!(harness.relay.held(), 3);

    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }

    let ids: Vec<String> = harness.settling().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["e0", "e1"]);
    harness.settled(Settled::Applied);
    assert_eq!(harness.settling().len(), 1);
    harness.settled(Settled::Applied);
    assert_eq!((harness.relay.totals().sent, harness.relay.held()), (3, 0));
}

#[test]
fn a_failed_settle_changed_nothing_and_is_no_repeat() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    harness.land("e", confirmed());
    assert!(!harness.settles[0].repeat);

    harness.settle_failed(StoreError::Contended("deadlock".into()));
    harness.pass(millis(5));

    assert!(!harness.settles[0].repeat);
}

/// F3 and I4: a lost COMMIT reply is repeated as such, and stays so whatever fails next.
#[test]
fn a_settle_whose_commit_got_no_answer_is_repeated_as_a_repeat() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    harness.land("e", confirmed());
    harness.settle_failed(StoreError::CommitUnknown("connection lost".into()));
    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }
    assert!(harness.settles[0].repeat);

    harness.settle_failed(StoreError::Unavailable("still down".into()));
    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }
    assert!(harness.settles[0].repeat);

    harness.settled(Settled::AlreadyApplied);
    assert_eq!((harness.relay.totals().sent, harness.relay.totals().fenced), (1, 0));
}

#[test]
fn failing_settles_back_off_without_losing_a_row() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 2, "a"));
    harness.land("e0", confirmed());
    harness.land("e1", rejected("too large"));
    let mut pauses = Vec::new();

    for _ in 0..10 {
        let before = harness.now;
        while harness.settles.is_empty() {
            harness.pass_to_timer();
        }
        pauses.push(harness.now.since(before));
        harness.settle_failed(StoreError::Unavailable("down".into()));
    }

    assert!(pauses[9] >= millis(2500) && pauses[9] <= seconds(5), "{pauses:?}");
    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }
    harness.settle_all();
    assert_eq!((harness.relay.totals().sent, harness.relay.totals().dead), (1, 1));
}

/// A claim that works says nothing about settling, and the other way round.
#[test]
fn claims_that_succeed_do_not_hurry_a_settle_that_fails() {
    let mut harness = Harness::with_defaults();
    harness.claimed_of_more([row("e", "a")]);
    harness.land("e", confirmed());
    for _ in 0..6 {
        harness.settle_failed(StoreError::Unavailable("down".into()));
        while harness.settles.is_empty() {
            harness.pass_to_timer();
        }
    }

    harness.claimed([]);
    harness.settle_failed(StoreError::Unavailable("down".into()));

    harness.pass(seconds(1));
    assert!(harness.settles.is_empty(), "the pause is still seconds long");
}

#[test]
fn fenced_rows_are_counted_and_reported_and_never_forced() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    harness.land("e", confirmed());

    harness.settled(Settled::Fenced);

    assert_eq!((harness.relay.totals().fenced, harness.relay.totals().sent), (1, 0));
    assert!(matches!(harness.reports.as_slice(), [Report::Fenced(id)] if id.as_str() == "e"));
    assert_eq!(harness.relay.held(), 0);
    harness.pass(seconds(60));
    assert!(harness.settles.is_empty(), "it is not tried again");
}

/// One row whose reason the store cannot hold must not keep the others from being settled.
#[test]
fn a_refused_value_is_narrowed_down_to_its_row_which_is_settled_with_a_plain_reason() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 5, "a"));
    for number in 0..5 {
        let bad = number == 3;
        harness.land(&format!("e{number}"), if bad { rejected("a \0 byte") } else { confirmed() });
    }
    harness.pass(millis(5));
    let mut settled = Vec::new();

    while let Some(batch) = harness.settles.front() {
        let unfit = |to: &Transition| matches!(to, Transition::Dead { reason } if reason.contains('\0'));
        if batch.settlements.iter().any(|one| unfit(one.to())) {
            harness.settle_failed(StoreError::Data("invalid byte sequence 0x00".into()));
        } else {
            settled.extend(harness.settling());
            harness.settled(Settled::Applied);
        }
    }

    settled.sort_by(|one, other| one.0.cmp(&other.0));
    let ids: Vec<&str> = settled.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["e0", "e1", "e2", "e3", "e4"]);
    let reason = "the store refused the text of the reason".into();
    assert_eq!(settled[3].1, Transition::Dead { reason });
    assert_eq!(harness.relay.held(), 0);
}

/// What no store can take is left to the sweep; it must not stand in the way for ever.
#[test]
fn a_row_that_is_refused_without_its_reason_too_is_left_to_the_sweep() {
    const TURNS_MAX: usize = 20;
    for outcome in [confirmed(), rejected("too large")] {
        let mut harness = Harness::with_defaults();
        harness.claimed(rows("e", 3, "a"));
        harness.land("e0", confirmed());
        harness.land("e1", outcome);
        harness.land("e2", confirmed());
        harness.pass(millis(5));
        let mut settled = Vec::new();

        for _ in 0..TURNS_MAX {
            let Some(batch) = harness.settles.front() else { break };
            if batch.settlements.iter().any(|one| one.id().as_str() == "e1") {
                harness.settle_failed(StoreError::Mismatch("2 rows changed, not 1".into()));
                harness.pass(millis(200));
            } else {
                settled.extend(harness.settling().into_iter().map(|(id, _)| id));
                harness.settled(Settled::Applied);
            }
        }

        settled.sort();
        assert_eq!(settled, ["e0", "e2"]);
        assert_eq!(harness.relay.held(), 0);
    }
}

#[test]
fn the_store_gets_a_pause_after_a_row_that_it_takes_in_no_form() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 2, "a"));
    harness.land("e0", confirmed());
    harness.land("e1", confirmed());
    harness.settle_failed(StoreError::Mismatch("2 rows changed, not 1".into()));
    assert_eq!(harness.settling().len(), 1, "the halves are tried at once");

    harness.settle_failed(StoreError::Mismatch("2 rows changed, not 1".into()));
    assert!(harness.settles.is_empty());
    harness.pass(millis(200));

    let ids: Vec<String> = harness.settling().into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["e1"]);
}

#[test]
fn a_repeated_batch_that_is_narrowed_down_stays_a_repeat() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 2, "a"));
    harness.land("e0", confirmed());
    harness.land("e1", rejected("a \0 byte"));
    harness.pass(millis(5));
    harness.settle_failed(StoreError::CommitUnknown("connection lost".into()));
    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }

    harness.settle_failed(StoreError::Data("invalid byte sequence 0x00".into()));

    assert_eq!(harness.settling().len(), 1);
    assert!(harness.settles[0].repeat);
}
