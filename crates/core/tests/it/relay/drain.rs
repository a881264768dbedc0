//! The way out.

use consign_core::ports::{Claimed, StoreError};
use consign_core::relay::{Input, RelaySettings};
use consign_core::settle::Transition;

use crate::harness::{Harness, channel_closed, confirmed, row, rows, seconds};

/// A relay that waits for neither claim nor sweep.
fn resting(settings: RelaySettings) -> Harness {
    let mut harness = Harness::new(settings, &["a"]);
    harness.swept(0);
    harness
}

fn released(settled: &[(String, Transition)]) -> Vec<&str> {
    settled
        .iter()
        .filter(|(_, to)| matches!(to, Transition::Release { delay, .. } if delay.is_zero()))
        .map(|(id, _)| id.as_str())
        .collect()
}

#[test]
fn an_idle_relay_stops_at_once() {
    let mut harness = resting(RelaySettings::default());
    harness.claimed([]);

    harness.feed(Input::Drain);

    assert_eq!(harness.stops, 1);
    assert_eq!(harness.relay.next_timer(), None);
}

#[test]
fn a_drain_releases_what_waits_waits_for_flights_and_stops_when_all_is_settled() {
    let settings = RelaySettings { window: 1, ..RelaySettings::default() };
    let mut harness = resting(settings);
    harness.claimed(rows("e", 3, "a"));

    harness.feed(Input::Drain);
    assert_eq!(released(&harness.settle_all()), ["e1", "e2"]);
    assert_eq!((harness.stops, harness.flying()), (0, vec!["e0"]));

    harness.land("e0", confirmed());
    assert_eq!(harness.stops, 0);
    assert!(matches!(harness.settle_one(), Transition::Sent(_)));
    assert_eq!(harness.stops, 1);
}

#[test]
fn a_drain_claims_and_sweeps_nothing_more() {
    let mut harness = resting(RelaySettings::default());
    harness.claimed_of_more([row("e", "a")]);
    harness.claimed([]);

    harness.feed(Input::Drain);
    harness.feed(Input::Wakeup);
    harness.pass(seconds(10));

    assert!(harness.claims.is_empty() && harness.sweeps.is_empty());
}

#[test]
fn rows_of_a_claim_that_was_open_when_the_drain_began_are_released() {
    let mut harness = resting(RelaySettings::default());
    assert_eq!(harness.claims.len(), 1);
    harness.feed(Input::Drain);
    assert_eq!(harness.stops, 0, "the claim may still bring rows");

    harness.claimed([row("e", "a"), row("killer", "a").swept_twice()]);

    assert_eq!(released(&harness.settle_all()), ["e", "killer"]);
    assert!(harness.flights.is_empty());
    assert_eq!(harness.stops, 1);
}

#[test]
fn a_drain_waits_for_an_open_sweep() {
    let mut harness = Harness::with_defaults();
    harness.claimed([]);

    harness.feed(Input::Drain);
    assert_eq!(harness.stops, 0);

    harness.swept(0);
    assert_eq!(harness.stops, 1);
}

#[test]
fn what_is_in_flight_at_the_deadline_is_abandoned_and_given_back() {
    let mut harness = resting(RelaySettings { drain: seconds(3), ..RelaySettings::default() });
    harness.claimed(rows("e", 2, "a"));
    harness.feed(Input::Drain);

    harness.pass(seconds(2));
    assert!(harness.settles.is_empty());

    harness.pass(seconds(1));
    assert_eq!(released(&harness.settling()), ["e0", "e1"]);
    harness.settle_all();
    assert_eq!(harness.stops, 1);
}

#[test]
fn an_outcome_after_the_deadline_settles_nothing() {
    let mut harness = resting(RelaySettings { drain: seconds(3), ..RelaySettings::default() });
    harness.claimed([row("e", "a")]);
    harness.feed(Input::Drain);
    harness.pass(seconds(3));

    harness.land("e", confirmed());

    assert_eq!(released(&harness.settle_all()), ["e"]);
    assert_eq!((harness.relay.totals().late_outcomes, harness.stops), (1, 1));
}

#[test]
fn a_channel_that_dies_during_the_drain_quarantines_nothing() {
    let mut harness = resting(RelaySettings::default());
    harness.claimed(rows("e", 2, "a"));
    harness.feed(Input::Drain);

    harness.land("e0", channel_closed());
    harness.land("e1", channel_closed());

    assert!(harness.flights.is_empty());
    let settled = harness.settle_all();
    assert!(settled.iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
    assert_eq!((settled.len(), harness.stops), (2, 1));
}

#[test]
fn suspects_and_twice_swept_rows_are_released_by_a_drain() {
    let mut harness = resting(RelaySettings::default());
    harness.claimed_of_more(rows("e", 3, "a"));
    harness.claimed([row("killer", "a").swept_twice()]);
    for number in 0..3 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }
    assert_eq!(harness.flying(), ["e0"]);

    harness.feed(Input::Drain);

    assert_eq!(released(&harness.settle_all()), ["e1", "e2", "killer"]);
    harness.land("e0", confirmed());
    harness.settle_all();
    assert_eq!(harness.stops, 1);
}

/// L6: with the store down a drain ends at its deadline after one last try, not whole pauses later.
#[test]
fn a_drain_against_a_failing_store_gives_up_after_a_last_try_at_the_deadline() {
    let mut harness = resting(RelaySettings { drain: seconds(6), ..RelaySettings::default() });
    harness.claimed([row("e", "a")]);
    harness.feed(Input::Drain);
    let began = harness.now;
    harness.land("e", confirmed());
    let down = || StoreError::Unavailable("down".into());
    harness.settle_failed(down());
    while harness.now < began.plus(seconds(6)) {
        assert_eq!(harness.stops, 0);
        harness.pass_to_timer();
        if !harness.settles.is_empty() && harness.now < began.plus(seconds(6)) {
            harness.settle_failed(down());
        }
    }

    assert_eq!(harness.settling().len(), 1, "the last try goes out at the deadline");
    assert_eq!(harness.now, began.plus(seconds(6)));
    harness.settle_failed(down());

    assert_eq!(harness.stops, 1);
    assert_eq!(harness.relay.next_timer(), None);
}

#[test]
fn a_second_drain_and_everything_after_the_stop_are_ignored() {
    let mut harness = resting(RelaySettings::default());
    harness.claimed([]);
    harness.feed(Input::Drain);
    assert_eq!(harness.stops, 1);

    harness.feed(Input::Drain);
    harness.feed(Input::Wakeup);
    harness.accepting("a");
    harness.unavailable("a");
    harness.feed(Input::Timer);

    assert_eq!(harness.stops, 1);
}

#[test]
fn a_second_drain_does_not_lengthen_the_first() {
    let mut harness = resting(RelaySettings { drain: seconds(3), ..RelaySettings::default() });
    harness.claimed([row("e", "a")]);
    harness.feed(Input::Drain);
    harness.pass(seconds(2));
    harness.feed(Input::Drain);

    harness.pass(seconds(1));

    assert_eq!(harness.settling().len(), 1);
    harness.feed(Input::Claimed(Claimed::default()));
}
