//! What takes off, when, and with how much of its lease.

use consign_core::ports::{Claimed, Lane, StoreError};
use consign_core::relay::{Input, RelaySettings};
use consign_core::settle::Transition;

use crate::harness::{Harness, confirmed, millis, row, rows, seconds};

#[test]
fn a_claimed_row_is_published_at_once_with_the_whole_deadline() {
    let mut harness = Harness::with_defaults();

    harness.claimed([row("e", "a")]);

    let flight = &harness.flights[0];
    assert_eq!(flight.lane, Lane::Window);
    assert_eq!(flight.publish.deadline, harness.now.plus(seconds(15)));
    assert_eq!((flight.publish.route.destination.as_str(), flight.publish.route.key.as_str()), ("a", "a"));
}

/// A slow claim shortens the lease and never lengthens it (D13).
#[test]
fn the_lease_counts_from_before_the_claim_was_sent() {
    let mut harness = Harness::with_defaults();
    let asked = harness.now;

    harness.pass(seconds(12));
    harness.claimed([row("e", "a")]);

    let latest = asked.plus(seconds(30 - 5));
    assert_eq!(harness.flights[0].publish.deadline, latest);
}

#[test]
fn a_row_with_less_than_the_margin_left_is_released_and_its_attempt_given_back() {
    for spent in [millis(24_501), seconds(25), seconds(29), seconds(30), seconds(300)] {
        let mut harness = Harness::with_defaults();
        harness.pass(spent);

        harness.claimed([row("late", "a")]);

        assert!(harness.flights.is_empty(), "published after {spent:?}");
        assert!(matches!(harness.settle_one(), Transition::Release { .. }), "after {spent:?}");
    }
}

#[test]
fn every_deadline_ends_before_the_lease_less_the_margin() {
    for spent in (0..=24_500).step_by(250) {
        let mut harness = Harness::with_defaults();
        let asked = harness.now;
        harness.pass(millis(spent));

        harness.claimed([row("e", "a")]);

        let deadline = harness.flights[0].publish.deadline;
        assert!(deadline <= asked.plus(seconds(25)), "after {spent} ms");
        assert!(deadline >= harness.now.plus(millis(500)), "after {spent} ms");
    }
}

/// A relay that was stopped and goes on (F11, SIGSTOP) finds its leases over.
#[test]
fn rows_that_waited_through_a_pause_longer_than_their_lease_are_not_published() {
    let settings = RelaySettings { window: 1, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed(rows("e", 3, "a"));
    assert_eq!(harness.flying(), ["e0"]);

    harness.now = harness.now.plus(seconds(90));
    harness.land("e0", confirmed());

    assert!(harness.flights.is_empty());
    let settled = harness.settle_all();
    assert!(matches!(settled[0], (ref id, Transition::Sent(_)) if id == "e0"), "{settled:?}");
    assert!(settled[1..].iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
    assert_eq!(settled.len(), 3);
}

#[test]
fn the_window_bounds_the_publishes_in_flight_per_destination() {
    let settings = RelaySettings { window: 2, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a", "b"]);

    harness.claimed([rows("a", 5, "a"), rows("b", 1, "b")].concat());
    assert_eq!(harness.flying(), ["a0", "a1", "b0"]);

    harness.land("a1", confirmed());
    assert_eq!(harness.flying(), ["a0", "b0", "a2"]);
}

#[test]
fn the_window_bounds_the_bytes_in_flight_per_destination() {
    let settings = RelaySettings { window_bytes: 10_000, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);

    harness.claimed((0..3).map(|number| row(format!("e{number}"), "a").payload(6_000)));
    assert_eq!(harness.flying(), ["e0"]);

    harness.land("e0", confirmed());
    assert_eq!(harness.flying(), ["e1"]);
}

#[test]
fn a_row_that_fills_the_window_to_its_last_byte_takes_off() {
    let weight = crate::harness::event("e0", "a", 5_000).weight();
    for (window_bytes, flying) in [(2 * weight, 2), (2 * weight - 1, 1)] {
        let mut harness = Harness::new(RelaySettings { window_bytes, ..RelaySettings::default() }, &["a"]);

        harness.claimed((0..3).map(|number| row(format!("e{number}"), "a").payload(5_000)));

        assert_eq!(harness.flights.len(), flying, "{window_bytes} bytes");
    }
}

#[test]
fn rows_of_one_destination_take_off_in_the_order_they_were_claimed() {
    let settings = RelaySettings { window: 1, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed(rows("e", 4, "a"));
    let mut order = Vec::new();

    while let Some(flight) = harness.flights.first() {
        let event = flight.event().to_owned();
        harness.land(&event, confirmed());
        order.push(event);
    }

    assert_eq!(order, ["e0", "e1", "e2", "e3"]);
}

/// The broker side can never settle: a publish carries no token. And a late outcome of an old attempt settles nothing.
#[test]
fn a_late_outcome_of_an_old_publish_settles_nothing() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    let old = harness.take_flight("e");
    harness.feed(Input::Outcome(old.id, crate::harness::timed_out()));
    harness.settle_all();
    harness.claimed([row("e", "a").attempt(2)]);
    assert_ne!(harness.flights[0].id, old.id);

    harness.feed(Input::Outcome(old.id, confirmed()));

    assert_eq!(harness.flying(), ["e"], "the second attempt is still in flight");
    assert!(harness.settle_all().is_empty());
    assert_eq!(harness.relay.totals().late_outcomes, 1);
}

#[test]
fn a_failing_store_does_not_keep_claimed_rows_from_being_published() {
    let settings = RelaySettings { window: 1, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed(rows("e", 2, "a"));
    harness.land("e0", confirmed());
    harness.pass(millis(5));
    harness.settle_failed(StoreError::Unavailable("down".into()));

    assert_eq!(harness.flying(), ["e1"]);
}

#[test]
fn held_rows_are_counted_until_they_are_settled() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    assert_eq!(harness.relay.held(), 1);

    harness.land("e", confirmed());
    assert_eq!(harness.relay.held(), 1);

    harness.settle_all();
    assert_eq!(harness.relay.held(), 0);
}

#[test]
fn totals_count_what_happened() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 3, "a"));
    harness.land("e0", confirmed());
    harness.land("e1", crate::harness::refused());
    harness.land("e2", crate::harness::timed_out());
    harness.settle_all();

    let totals = harness.relay.totals();

    assert_eq!((totals.claimed, totals.published, totals.sent), (3, 3, 1));
    assert_eq!((totals.refused, totals.unknown, totals.released + totals.retried), (1, 1, 2));
    harness.feed(Input::Claimed(Claimed::default()));
}
