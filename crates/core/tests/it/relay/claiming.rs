//! When the engine claims, and how much.

use std::time::Duration;

use consign_core::ports::{Claimed, StoreError};
use consign_core::relay::{Input, RelaySettings, Report};
use consign_core::settle::{Settled, Transition};

use crate::harness::{Harness, confirmed, millis, row, rows, seconds};

fn small() -> RelaySettings {
    RelaySettings { batch_rows: 4, window: 2, held_rows: 0, ..RelaySettings::default() }
}

#[test]
fn a_claim_is_bounded_by_rows_and_bytes() {
    let settings = RelaySettings { batch_rows: 7, batch_bytes: 1234, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);

    let request = harness.claim_request();

    assert_eq!((request.limit, request.bytes_max), (7, 1234));
    assert_eq!(request.length, seconds(30));
}

#[test]
fn every_claim_has_a_new_token() {
    let mut harness = Harness::with_defaults();
    let mut tokens = std::collections::BTreeSet::new();

    for _ in 0..50 {
        let request = harness.claim_request();
        tokens.insert(request.token().to_hex());
        harness.feed(Input::Claimed(Claimed::default()));
    }

    assert_eq!(tokens.len(), 50);
}

#[test]
fn nothing_is_claimed_before_a_destination_accepts() {
    let mut harness = Harness::disconnected(RelaySettings::default(), &["a"]);

    harness.pass(seconds(60));
    assert!(harness.claims.is_empty());

    harness.accepting("a");
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn one_claim_is_open_at_a_time() {
    let mut harness = Harness::with_defaults();
    assert_eq!(harness.claims.len(), 1);

    harness.feed(Input::Wakeup);
    harness.pass(seconds(10));

    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn a_full_batch_is_followed_by_the_next_claim_at_once() {
    let mut harness = Harness::with_defaults();

    harness.claimed_of_more([row("e", "a")]);

    assert_eq!(harness.claims.len(), 1);
}

/// Rows that others hold locks on are due and cannot be had: asking again at once would spin.
#[test]
fn an_empty_claim_with_more_due_rows_waits_all_the_same() {
    let mut harness = Harness::with_defaults();

    harness.claimed_of_more([]);

    assert!(harness.claims.is_empty());
    harness.pass(millis(10));
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn idle_polling_slows_down_from_5_milliseconds_to_1_second() {
    let mut harness = Harness::with_defaults();
    let mut pauses = Vec::new();

    for _ in 0..12 {
        harness.claimed([]);
        let asked = harness.now;
        harness.claim_request();
        pauses.push(harness.now.since(asked));
        harness.claims.clear();
        harness.feed(Input::Claimed(Claimed::default()));
    }

    assert!(pauses[0] <= millis(10), "{pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!(*pauses.last().unwrap(), seconds(1));
}

#[test]
fn a_row_makes_polling_quick_again() {
    let mut harness = idle();

    harness.claimed([row("e", "a")]);

    let asked = harness.now;
    harness.claim_request();
    assert_eq!(harness.now.since(asked), millis(5));
}

#[test]
fn a_wake_up_claims_at_once_and_makes_polling_quick_again() {
    let mut harness = idle();
    harness.claimed([]);
    assert!(harness.claims.is_empty());

    harness.feed(Input::Wakeup);

    assert_eq!(harness.claims.len(), 1);
    harness.claimed([]);
    let asked = harness.now;
    harness.claim_request();
    assert_eq!(harness.now.since(asked), millis(10));
}

fn idle() -> Harness {
    let mut harness = Harness::with_defaults();
    for _ in 0..12 {
        harness.claimed([]);
    }
    let request = harness.claim_request();
    harness.claims.push_back(request);
    harness
}

#[test]
fn claims_stop_while_a_slow_destination_fills_the_hands_and_go_on_when_they_empty() {
    let mut harness = Harness::new(small(), &["a"]);
    harness.claimed_of_more(rows("first", 4, "a"));
    harness.claimed_of_more(rows("second", 4, "a"));

    harness.pass(seconds(5));
    assert!(harness.claims.is_empty());
    assert_eq!(harness.relay.held(), 8);

    for _ in 0..4 {
        let event = harness.flying()[0].to_owned();
        harness.land(&event, confirmed());
    }
    harness.settle_all();
    assert_eq!(harness.relay.held(), 4);
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn claims_stop_while_the_held_bytes_leave_no_room_for_another_batch() {
    let settings =
        RelaySettings { batch_bytes: 10_000, held_bytes: 25_000, window: 1, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);

    harness.claimed_of_more([row("first", "a").payload(8_000)]);
    harness.claimed_of_more([row("second", "a").payload(8_000)]);

    harness.pass(seconds(5));
    assert!(harness.claims.is_empty());
    harness.land("first", confirmed());
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn a_batch_larger_than_everything_that_may_be_held_is_claimed_with_empty_hands() {
    let settings = RelaySettings { batch_bytes: 10_000, held_bytes: 5_000, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);

    harness.claimed_of_more([row("e", "a")]);
    assert!(harness.claims.is_empty());

    harness.land("e", confirmed());
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn one_row_heavier_than_every_limit_still_flows() {
    let settings = RelaySettings {
        batch_bytes: 1_000,
        held_bytes: 2_000,
        window_bytes: 1_000,
        ..RelaySettings::default()
    };
    let mut harness = Harness::new(settings, &["a"]);

    harness.claimed([row("heavy", "a").payload(1_000_000)]);

    assert_eq!(harness.flying(), ["heavy"]);
    harness.pass(seconds(1));
    assert!(harness.claims.is_empty(), "nothing is claimed on top of it");
}

#[test]
fn a_failed_claim_owns_nothing_and_is_repeated_after_a_growing_pause() {
    let mut harness = Harness::with_defaults();
    let mut pauses = Vec::new();

    for _ in 0..10 {
        harness.claim_failed(StoreError::Unavailable("down".into()));
        let failed = harness.now;
        let request = harness.claim_request();
        harness.claims.push_back(request);
        pauses.push(harness.now.since(failed));
    }

    assert!(pauses[0] <= millis(100), "{pauses:?}");
    assert!(pauses[9] >= millis(2500) && pauses[9] <= seconds(5), "{pauses:?}");
    assert_eq!(harness.relay.held(), 0);
    assert!(harness.reports.iter().any(|report| matches!(report, Report::Store("claim", _))));
}

/// Unknown means not owned: the rows come back by a sweep, and claiming goes on under another token.
#[test]
fn a_claim_whose_commit_got_no_answer_owns_nothing() {
    let mut harness = Harness::with_defaults();
    let request = harness.claim_request();
    let lost = request.token().to_hex();

    harness.feed(Input::ClaimFailed(StoreError::CommitUnknown("connection lost".into())));

    assert_eq!(harness.relay.held(), 0);
    assert!(harness.flights.is_empty());
    assert_ne!(harness.claim_request().token().to_hex(), lost);
}

#[test]
fn a_wake_up_does_not_hurry_a_failing_store() {
    let mut harness = Harness::with_defaults();
    harness.claim_failed(StoreError::Unavailable("down".into()));

    harness.feed(Input::Wakeup);

    assert!(harness.claims.is_empty());
}

/// Deadlock victims try again almost at once (MySQL error 1213).
#[test]
fn a_contended_claim_is_repeated_within_milliseconds() {
    let mut harness = Harness::with_defaults();
    harness.claim_failed(StoreError::Contended("deadlock".into()));

    harness.pass(millis(5));

    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn an_event_without_a_route_waits_and_is_reported() {
    let mut harness = Harness::with_defaults();

    harness.claimed([row("lost", "nowhere"), row("found", "a")]);

    assert_eq!(harness.flying(), ["found"]);
    assert!(matches!(&harness.reports[..], [Report::NoRoute(id, _)] if id.as_str() == "lost"));
    let Transition::Release { delay, why } = harness.settle_one() else { panic!("the row waits") };
    assert_eq!(delay, seconds(30));
    assert!(why.contains("no route takes event type \"nowhere\""), "{why}");
}

#[test]
fn a_rule_that_leads_to_an_unconfigured_destination_is_reported_too() {
    use consign_core::relay::Relay;
    use consign_core::route::{DestinationName, RouteTable, Rule, Template};

    let rule = Rule {
        event_type: "*".into(),
        destination: DestinationName::new("gone"),
        key: Template::parse("k").unwrap(),
        retry: None,
    };
    let mut harness = Harness::with_defaults();
    let routes = RouteTable::new(vec![rule], vec![DestinationName::new("a")]);
    harness.relay = Relay::new(RelaySettings::default(), routes, crate::draw::Seeded::new(1), harness.now);
    harness.claims.clear();
    harness.sweeps.clear();
    harness.accepting("a");

    harness.claimed([row("lost", "x"), row("lost suspect", "x").swept_twice()]);

    let lost = harness.reports.iter().filter(|report| matches!(report, Report::NoRoute(..))).count();
    assert_eq!(lost, 2, "{:?}", harness.reports);
    assert_eq!(harness.settle_all().len(), 2);
}

/// A corrupt row (D22) hinders nobody.
#[test]
fn a_malformed_row_goes_dead_and_its_neighbours_flow() {
    let mut harness = Harness::with_defaults();
    let request = harness.claim_request();
    let malformed =
        request.malformed(consign_core::event::EventId::stored("broken"), "payload is not valid JSON");
    let claims = vec![row("fine", "a").claim(&request)];

    harness.feed(Input::Claimed(Claimed { claims, malformed: vec![malformed], more: false }));

    assert_eq!(harness.flying(), ["fine"]);
    let reason = "payload is not valid JSON".into();
    assert_eq!(harness.settle_one(), Transition::Dead { reason });
    assert_eq!((harness.relay.totals().claimed, harness.relay.totals().dead), (2, 1));
}

#[test]
fn nothing_is_claimed_while_settles_fail() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    harness.land("e", confirmed());
    harness.claim_request();
    harness.settle_failed(StoreError::Unavailable("read-only".into()));
    harness.feed(Input::Claimed(Claimed::default()));

    harness.feed(Input::Wakeup);
    assert!(harness.claims.is_empty());

    while harness.settles.is_empty() {
        harness.pass_to_timer();
    }
    harness.settled(Settled::Applied);
    harness.pass(Duration::from_secs(1));
    assert_eq!(harness.claims.len(), 1);
}
