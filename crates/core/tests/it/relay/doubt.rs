//! Unknown outcomes: whom they are held against.

use std::time::Duration;

use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::Lane;
use consign_core::relay::{RelaySettings, Report};
use consign_core::settle::Transition;

use crate::harness::{
    Harness, Row, channel_closed, confirmed, connection_lost, row, rows, seconds, timed_out,
};

fn counted(to: &Transition) -> bool {
    match to {
        Transition::Retry { .. } | Transition::Dead { .. } => true,
        Transition::Release { .. } => false,
        Transition::Sent(_) => panic!("an unknown outcome led to SENT"),
    }
}

#[test]
fn a_timeout_counts_when_the_destination_answered_others_meanwhile() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 2, "a"));
    harness.pass(seconds(1));
    harness.land("e0", confirmed());
    harness.settle_all();

    harness.land("e1", timed_out());

    assert!(counted(&harness.settle_one()));
}

#[test]
fn a_timeout_in_company_does_not_count_while_the_destination_answers_nobody() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 2, "a"));

    harness.land("e0", timed_out());
    harness.land("e1", timed_out());

    let settled = harness.settle_all();
    assert!(settled.iter().all(|(_, to)| !counted(to)), "{settled:?}");
}

#[test]
fn an_answer_from_before_the_publish_is_no_sign_of_health() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("before", 1, "a"));
    harness.land("before0", confirmed());
    harness.settle_all();
    harness.claimed(rows("e", 2, "a"));

    harness.land("e0", timed_out());

    assert!(!counted(&harness.settle_one()));
}

#[test]
fn a_lone_timeout_counts_while_nothing_speaks_against_the_destination() {
    let mut harness = Harness::with_defaults();

    assert!(counted(&harness.publish_one(row("e", "a"), timed_out())));
}

/// B22: a broker with an alarm takes the bytes, then reports itself blocked and confirms nothing.
#[test]
fn a_timeout_does_not_count_while_the_destination_is_unavailable() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("alone", 1, "a"));
    harness.unavailable("a");
    harness.land("alone0", timed_out());
    assert!(!counted(&harness.settle_one()));

    harness.accepting("a");
    harness.claimed(rows("e", 2, "a"));
    harness.pass(seconds(1));
    harness.land("e0", confirmed());
    harness.settle_all();
    harness.unavailable("a");
    harness.land("e1", timed_out());

    assert!(!counted(&harness.settle_one()), "an answer from before the outage is no sign of health");
}

#[test]
fn a_lone_lost_connection_counts_and_one_in_company_does_not() {
    let mut harness = Harness::with_defaults();
    assert!(counted(&harness.publish_one(row("e", "a"), connection_lost())));

    harness.claimed(rows("e", 3, "a"));
    // Not even an answer to a neighbour makes a message guilty of the end of the connection.
    harness.pass(seconds(1));
    harness.land("e0", confirmed());
    harness.land("e1", connection_lost());
    harness.land("e2", connection_lost());

    let settled = harness.settle_all();
    assert!(settled[1..].iter().all(|(_, to)| !counted(to)), "{settled:?}");
}

/// An outage of hours leaves every row deliverable: confirms that never come burn a handful of attempts at most.
#[test]
fn an_hour_without_confirms_kills_no_row() {
    let mut harness = Harness::with_defaults();
    let end = harness.now.plus(Duration::from_hours(1));
    let mut attempt = 1;
    while harness.now < end {
        // A claim that was asked for before the last timeout has too little of its lease left.
        harness.claimed([]);
        harness.claimed([row("e", "a").attempt(attempt).age(Duration::from_hours(2))]);
        harness.pass(seconds(15));
        harness.land("e", timed_out());
        let to = harness.settle_one();
        assert!(!matches!(to, Transition::Dead { .. }), "{to:?} after {attempt} attempts");
        attempt += u32::from(counted(&to));
    }

    assert!(attempt <= 6, "{attempt}");
}

#[test]
fn the_death_of_a_channel_puts_everything_in_flight_on_it_through_quarantine_one_at_a_time() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 4, "a"));

    for number in 0..4 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }

    let mut tried = Vec::new();
    while let Some(flight) = harness.flights.first() {
        assert_eq!(harness.flights.len(), 1, "one at a time");
        assert_eq!(flight.lane, Lane::Quarantine);
        let event = flight.event().to_owned();
        harness.land(&event, confirmed());
        tried.push(event);
    }
    assert_eq!(tried, ["e0", "e1", "e2", "e3"]);
    let quarantined = harness.reports.iter().filter(|one| matches!(one, Report::Quarantined(..))).count();
    assert_eq!(quarantined, 1, "told once");
}

/// I15: exactly the poison goes DEAD, and its neighbours reach SENT on the same claim.
#[test]
fn only_the_culprit_of_a_channel_death_is_judged() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 4, "a"));
    for number in 0..4 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }

    for number in 0..4 {
        let poison = Outcome::Rejected { reason: "406 too large".into() };
        harness.land(&format!("e{number}"), if number == 2 { poison } else { confirmed() });
    }

    let settled = harness.settle_all();
    for (event, to) in &settled {
        assert_eq!(matches!(to, Transition::Dead { .. }), event == "e2", "{event}: {to:?}");
        assert_eq!(matches!(to, Transition::Sent(_)), event != "e2", "{event}: {to:?}");
    }
    assert_eq!(settled.len(), 4);
}

#[test]
fn a_message_that_closes_its_own_channel_is_counted() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "a")]);
    harness.land("e", channel_closed());
    assert_eq!(harness.lane("e"), Lane::Quarantine);

    harness.land("e", channel_closed());

    assert!(counted(&harness.settle_one()));
}

/// A channel that dies under its only message speaks about the message, and must not close the door to its neighbours.
#[test]
fn messages_that_close_their_own_channels_do_not_open_the_breaker() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 8, "a"));
    for number in 0..8 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }

    for number in 0..8 {
        harness.land(&format!("e{number}"), channel_closed());
    }

    assert!(!harness.reports.iter().any(|one| matches!(one, Report::CircuitOpened(..))));
    assert_eq!(harness.settle_all().len(), 8);
}

#[test]
fn other_destinations_are_claimed_for_during_a_quarantine() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.claimed_of_more(rows("e", 2, "a"));
    harness.land_on_window("e0", channel_closed());
    harness.land_on_window("e1", channel_closed());

    harness.claimed_of_more([row("free", "b")]);

    assert_eq!(harness.flying(), ["e0", "free"]);
    assert_eq!(harness.claims.len(), 1);
}

/// A broker answers some messages by closing the whole connection (AMQP hard errors): a suspect flies alone.
#[test]
fn the_window_of_a_destination_is_held_while_its_suspects_are_tried() {
    let settings = RelaySettings { window: 2, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed_of_more(rows("e", 4, "a"));
    harness.claimed_of_more([]);
    harness.land_on_window("e0", channel_closed());
    harness.land_on_window("e1", channel_closed());

    assert_eq!(harness.flying(), ["e0"]);
    harness.land("e0", confirmed());
    assert_eq!(harness.flying(), ["e1"]);
    harness.pass(seconds(1));
    assert!(harness.claims.is_empty(), "rows for the only destination would only wait");

    harness.land("e1", confirmed());
    assert_eq!(harness.flying(), ["e2", "e3"]);
    assert_eq!(harness.lane("e2"), Lane::Window);
    assert_eq!(harness.claims.len(), 1);
}

#[test]
fn suspects_respect_a_destination_that_became_unavailable() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 3, "a"));
    for number in 0..3 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }
    assert_eq!(harness.flying(), ["e0"]);

    harness.unavailable("a");
    harness.land("e0", connection_lost());

    assert!(harness.flights.is_empty(), "{:?}", harness.flights);
    let settled = harness.settle_all();
    assert_eq!(settled.len(), 3);
    assert!(settled.iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
}

#[test]
fn suspects_keep_their_lease_and_are_not_published_beyond_it() {
    let mut harness = Harness::with_defaults();
    let asked = harness.now;
    harness.claimed(rows("e", 3, "a"));
    harness.pass(seconds(14));
    for number in 0..3 {
        harness.land_on_window(&format!("e{number}"), channel_closed());
    }
    assert_eq!(harness.flights[0].publish.deadline, asked.plus(seconds(25)));

    harness.pass(seconds(11));
    harness.land("e0", timed_out());

    assert!(harness.flights.is_empty());
    let settled = harness.settle_all();
    assert_eq!(settled.len(), 3);
    assert!(settled[1..].iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
}

/// A probe of an open breaker whose channel died, so that it is tried alone.
fn quarantined_probe() -> Harness {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("fail", 5, "a"));
    for number in 0..5 {
        harness.land(&format!("fail{number}"), timed_out());
    }
    harness.settle_all();
    harness.claimed([]);
    harness.claimed([row("probe", "a")]);
    assert_eq!(harness.lane("probe"), Lane::Window);
    harness.land("probe", channel_closed());
    assert_eq!(harness.lane("probe"), Lane::Quarantine);
    harness
}

/// The probe may be the very message that kills channels: the breaker must still find its way.
#[test]
fn a_probe_whose_channel_dies_is_tried_alone_and_closes_the_breaker_when_it_is_confirmed() {
    let mut harness = quarantined_probe();

    harness.land("probe", confirmed());

    assert!(matches!(harness.settle_one(), Transition::Sent(_)));
    assert_eq!(harness.claim_request().limit, 500);
}

#[test]
fn a_probe_whose_channel_dies_is_tried_alone_and_opens_the_breaker_again_when_it_fails() {
    let mut harness = quarantined_probe();

    harness.land("probe", timed_out());
    harness.settle_all();

    let failed = harness.now;
    assert_eq!(harness.claim_request().limit, 1);
    assert!(harness.now.since(failed) >= seconds(1), "the pause grew");
}

#[test]
fn an_abandoned_publish_is_not_held_against_anybody() {
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(old(row("e", "a")), Outcome::Unknown(Doubt::Abandoned));

    assert!(!counted(&to));
}

fn old(row: Row) -> Row {
    row.attempt(99).age(Duration::from_hours(99))
}
