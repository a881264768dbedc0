//! The breaker and the readiness of a destination.

use std::time::Duration;

use consign_core::outcome::Outcome;
use consign_core::relay::{Input, RelaySettings, Report};
use consign_core::settle::Transition;

use crate::harness::{Harness, confirmed, millis, refused, row, rows, seconds, timed_out};

/// Fails five rows in a row, which opens the breaker of `a`.
fn open(harness: &mut Harness) {
    harness.claimed(rows("fail", 5, "a"));
    for number in 0..5 {
        harness.land(&format!("fail{number}"), refused());
    }
    harness.settle_all();
    assert!(
        harness.reports.iter().any(|report| matches!(report, Report::CircuitOpened(..))),
        "{:?}",
        harness.reports
    );
    harness.reports.clear();
    // The claim that was asked for before the breaker opened.
    if harness.claims.pop_front().is_some() {
        harness.feed(Input::Claimed(consign_core::ports::Claimed::default()));
    }
}

/// Answers the open claim with nothing, so that the next one has its whole lease.
fn refresh_claim(harness: &mut Harness) {
    harness.claimed([]);
}

fn probe(harness: &mut Harness, outcome: Outcome) {
    harness.claimed_of_more([row("probe", "a")]);
    harness.land("probe", outcome);
    harness.settle_all();
}

#[test]
fn claims_pause_while_the_only_destination_is_unavailable_and_resume_when_it_accepts() {
    let mut harness = Harness::with_defaults();
    harness.unavailable("a");
    harness.claimed([]);

    harness.pass(Duration::from_hours(1));
    assert!(harness.claims.is_empty());
    assert!(matches!(harness.reports.as_slice(), [Report::Unavailable(..)]));

    harness.accepting("a");
    assert_eq!(harness.claims.len(), 1);
    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn rows_that_wait_for_a_destination_that_becomes_unavailable_are_released() {
    let settings = RelaySettings { window: 1, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed(rows("e", 3, "a"));

    harness.unavailable("a");

    let settled = harness.settle_all();
    assert_eq!(settled.len(), 2, "{settled:?}");
    assert!(settled.iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
    assert_eq!(harness.flying(), ["e0"]);
}

#[test]
fn a_row_for_an_unavailable_destination_comes_back_within_seconds() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.unavailable("a");
    harness.pass(Duration::from_hours(1));

    harness.claimed([row("e", "a")]);

    let Transition::Release { delay, .. } = harness.settle_one() else { panic!("the row waits") };
    assert_eq!(delay, seconds(5));
}

#[test]
fn other_destinations_flow_while_one_is_unavailable() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.unavailable("a");

    harness.claimed_of_more([row("stuck", "a"), row("free", "b")]);

    assert_eq!(harness.flying(), ["free"]);
    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn other_destinations_flow_while_a_breaker_is_open() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    open(&mut harness);

    harness.claimed([row("stuck", "a"), row("free", "b")]);

    assert_eq!(harness.flying(), ["free"]);
}

#[test]
fn the_breaker_opens_after_five_failures_in_a_row() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 6, "a"));

    for number in 0..4 {
        harness.land(&format!("e{number}"), refused());
    }
    assert!(harness.reports.is_empty());

    harness.land("e4", timed_out());
    assert!(matches!(harness.reports.as_slice(), [Report::CircuitOpened(name, _)] if name.as_str() == "a"));
}

#[test]
fn an_answer_in_between_keeps_the_breaker_closed() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 9, "a"));

    for number in 0..9 {
        let outcome = if number == 4 { confirmed() } else { refused() };
        harness.land(&format!("e{number}"), outcome);
    }

    assert!(harness.reports.is_empty(), "{:?}", harness.reports);
}

#[test]
fn a_destination_that_asks_to_be_left_alone_is_left_alone_at_once() {
    let asked = Outcome::Refused { reason: "429".into(), retry_after: Some(seconds(40)) };
    let mut harness = Harness::with_defaults();
    harness.claimed_of_more([row("e", "a")]);
    harness.land("e", asked);
    harness.settle_all();
    harness.claimed([row("next", "a")]);
    let Transition::Release { delay, .. } = harness.settle_one() else { panic!("the row waits") };
    assert!(delay > seconds(39), "the row waits as long as the destination asked, not {delay:?}");

    harness.pass(seconds(39));
    assert!(harness.claims.is_empty());

    harness.pass(seconds(1));
    assert_eq!(harness.claim_request().limit, 1);
}

/// What the destination asked for once is no measure for a row that comes when it is simply away.
#[test]
fn a_row_does_not_wait_an_hour_because_others_were_asked_to() {
    let hour = Duration::from_hours(1);
    let asked = Outcome::Refused { reason: "503".into(), retry_after: Some(hour) };
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.publish_one(row("asked", "a"), asked);
    assert!(returns_after(&mut harness, "while asked") > Duration::from_mins(59));

    harness.unavailable("a");

    assert!(returns_after(&mut harness, "while away") <= seconds(5));
}

/// How long a row waits that is given back for the sake of `a`.
fn returns_after(harness: &mut Harness, id: &str) -> Duration {
    harness.claimed([row(id, "a")]);
    match harness.settle_one() {
        Transition::Release { delay, .. } => delay,
        other => panic!("{id} does not go back: {other:?}"),
    }
}

#[test]
fn an_open_breaker_stops_claims_until_its_pause_is_over() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);

    harness.pass(millis(499));
    assert!(harness.claims.is_empty());

    harness.pass(millis(501));
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn a_probe_is_exactly_one_event() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);

    assert_eq!(harness.claim_request().limit, 1);
    let request = consign_core::lease::ClaimRequest::new(9, 9, seconds(30), [1; 16], harness.now);
    let claims = rows("e", 3, "a").into_iter().map(|row| row.claim(&request)).collect();
    harness.feed(Input::Claimed(consign_core::ports::Claimed { claims, ..Default::default() }));

    assert_eq!(harness.flying(), ["e0"]);
    assert_eq!(harness.settle_all().len(), 2, "the others go back");
    harness.pass(seconds(14));
    assert!(harness.claims.is_empty(), "nothing is claimed while the probe is in flight");
}

#[test]
fn a_confirmed_probe_closes_the_breaker() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);

    probe(&mut harness, confirmed());

    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn an_unroutable_probe_closes_the_breaker_for_the_broker_answered() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);

    probe(&mut harness, Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() });

    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn failed_probes_pause_longer_and_longer_up_to_half_a_minute() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);
    let mut pauses = Vec::new();

    for _ in 0..9 {
        let request = harness.claim_request();
        harness.claims.push_back(request);
        probe(&mut harness, timed_out());
        let opened = harness.now;
        let request = harness.claim_request();
        harness.claims.push_back(request);
        pauses.push(harness.now.since(opened));
    }

    assert!(pauses[0] < seconds(2), "{pauses:?}");
    assert!(pauses[8] > seconds(14) && pauses[8] <= seconds(30), "{pauses:?}");
}

#[test]
fn a_destination_that_accepts_again_is_probed_at_once() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);
    harness.unavailable("a");
    assert!(harness.claims.is_empty());

    harness.accepting("a");

    // Whatever was left of the breaker's pause, connecting says more.
    let request = harness.claims.pop_front().expect("it is claimed for at once");
    assert_eq!(request.limit, 1);
}

/// L5: rows given back during an outage are due within seconds of its end, however long the breaker's pause was.
#[test]
fn an_open_breaker_sends_rows_away_for_seconds_only() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    open(&mut harness);
    for _ in 0..8 {
        // Claims go on for the other destination; the pause is over when a row for this one takes off.
        while harness.flights.is_empty() {
            harness.claimed([row("probe", "a")]);
            harness.settle_all();
            harness.pass(seconds(1));
            refresh_claim(&mut harness);
        }
        harness.land("probe", timed_out());
        harness.settle_all();
    }

    harness.claimed([row("e", "a")]);

    let Transition::Release { delay, .. } = harness.settle_one() else { panic!("the row waits") };
    assert!(delay <= seconds(5), "{delay:?}");
}

/// A probe that was never sent must not leave the breaker waiting for its outcome.
#[test]
fn a_probe_whose_lease_is_nearly_over_makes_room_for_another() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);
    let request = harness.claim_request();
    harness.claims.push_back(request);
    harness.pass(seconds(28));
    harness.claimed([row("late", "a")]);
    assert!(harness.flights.is_empty());
    harness.settle_all();

    harness.claimed([row("next", "a")]);

    assert_eq!(harness.flying(), ["next"]);
}

/// The same when the probe's channel died and too little of its lease is left to try it alone.
#[test]
fn a_probe_whose_channel_died_late_makes_room_for_another() {
    let mut harness = Harness::with_defaults();
    open(&mut harness);
    let request = harness.claim_request();
    harness.claims.push_back(request);
    harness.pass(seconds(20));
    harness.claimed([row("probe", "a")]);
    harness.pass(seconds(5));
    harness.land("probe", crate::harness::channel_closed());
    assert!(harness.flights.is_empty(), "too late to try it alone");
    harness.settle_all();

    harness.claimed([row("next", "a")]);

    assert_eq!(harness.flying(), ["next"]);
}

/// The breaker's pause ends while it can let nothing through: its driver must not spin on that moment.
#[test]
fn a_breaker_that_opens_beside_a_quarantine_waits_for_its_end() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 6, "a"));
    harness.claimed([]);
    harness.land("e0", crate::harness::channel_closed());
    for number in 1..6 {
        harness.land(&format!("e{number}"), timed_out());
    }
    harness.settle_all();

    harness.pass(seconds(10));
    assert!(harness.claims.is_empty());

    harness.land("e0", confirmed());
    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn a_hundred_failures_at_once_open_the_breaker_once() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 100, "a"));

    for number in 0..100 {
        harness.land(&format!("e{number}"), timed_out());
    }

    let opened = harness.reports.iter().filter(|report| matches!(report, Report::CircuitOpened(..))).count();
    assert_eq!(opened, 1);
}
