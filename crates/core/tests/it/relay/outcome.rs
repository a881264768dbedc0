//! What each outcome leads to.

use std::time::Duration;

use consign_core::outcome::{Doubt, Outcome};
use consign_core::relay::{RelaySettings, Report};
use consign_core::retry::{RetryPolicy, UnroutablePolicy};
use consign_core::settle::Transition;

use crate::harness::{
    Harness, channel_closed, confirmed, connection_lost, refused, row, rows, seconds, timed_out,
};

fn unroutable() -> Outcome {
    Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }
}

fn rejected() -> Outcome {
    Outcome::Rejected { reason: "message larger than 16 MiB".into() }
}

#[test]
fn only_confirmed_leads_to_sent() {
    let others = [
        unroutable(),
        rejected(),
        refused(),
        timed_out(),
        connection_lost(),
        channel_closed(),
        Outcome::Unknown(Doubt::Abandoned),
    ];
    for outcome in others {
        let mut harness = Harness::with_defaults();
        harness.claimed([row("e", "a")]);
        harness.land("e", outcome.clone());
        // A dead channel's messages are tried once more, alone.
        if !harness.flights.is_empty() {
            harness.land("e", outcome.clone());
        }

        let to = harness.settle_one();

        assert!(!matches!(to, Transition::Sent(_)), "{outcome:?} led to {to:?}");
        assert_eq!(harness.relay.totals().sent, 0);
    }

    let to = Harness::with_defaults().publish_one(row("e", "a"), confirmed());
    assert!(matches!(to, Transition::Sent(_)));
}

#[test]
fn rejected_is_dead_at_once_and_reported() {
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(row("poison", "a"), rejected());

    assert_eq!(to, Transition::Dead { reason: "message larger than 16 MiB".into() });
    assert!(matches!(&harness.reports[..], [Report::Dead(id, _)] if id.as_str() == "poison"));
}

#[test]
fn a_rejected_message_does_not_punish_its_neighbours() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 3, "a"));

    harness.land("e1", rejected());
    harness.land("e0", confirmed());
    harness.land("e2", confirmed());

    let settled = harness.settle_all();
    let sent = settled.iter().filter(|(_, to)| matches!(to, Transition::Sent(_))).count();
    assert_eq!(sent, 2, "{settled:?}");
}

#[test]
fn refused_gives_the_attempt_back() {
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(row("e", "a").attempt(50).age(Duration::from_hours(24)), refused());

    assert!(matches!(to, Transition::Release { .. }), "{to:?}");
}

/// A row that is released at once would be back before the destination is.
#[test]
fn a_refused_row_waits_longer_with_every_attempt() {
    let retry = RetryPolicy { jitter: 0.0, ..RetryPolicy::default() };
    for (attempt, delay) in [(1, 1_100), (2, 2_100), (4, 8_100)] {
        let mut harness = Harness::new(RelaySettings { retry, ..RelaySettings::default() }, &["a"]);

        let to = harness.publish_one(row("e", "a").attempt(attempt), refused());

        let delay = Duration::from_millis(delay);
        assert_eq!(to, Transition::Release { delay, why: "nack".into() }, "attempt {attempt}");
    }
}

#[test]
fn rows_are_counted_by_what_became_of_them() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 10, "a"));
    let outcomes = [
        (0..1, confirmed as fn() -> Outcome),
        (1..3, unroutable as fn() -> Outcome),
        (3..6, refused as fn() -> Outcome),
        (6..10, rejected as fn() -> Outcome),
    ];

    for (numbers, outcome) in outcomes {
        for number in numbers {
            harness.land(&format!("e{number}"), outcome());
        }
    }
    harness.settle_all();

    let totals = harness.relay.totals();
    assert_eq!((totals.sent, totals.retried, totals.released, totals.dead), (1, 2, 3, 4));
    assert_eq!((totals.unroutable, totals.refused, totals.unknown, totals.fenced), (2, 3, 0, 0));
    assert_eq!((totals.claimed, totals.published, totals.late_outcomes), (10, 10, 0));
}

#[test]
fn a_refused_row_waits_as_long_as_the_destination_asks() {
    let asked = Outcome::Refused { reason: "503".into(), retry_after: Some(seconds(90)) };
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(row("e", "a"), asked);

    assert_eq!(to, Transition::Release { delay: seconds(90), why: "503".into() });
}

/// A destination that asks for ten years must not bury the row.
#[test]
fn a_destination_cannot_ask_for_more_than_an_hour() {
    let asked = Outcome::Refused { reason: "503".into(), retry_after: Some(Duration::from_hours(100_000)) };
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(row("e", "a"), asked);

    assert_eq!(to, Transition::Release { delay: Duration::from_hours(1), why: "503".into() });
}

#[test]
fn unroutable_is_retried_counted_and_reported_loudly() {
    let mut harness = Harness::with_defaults();

    let to = harness.publish_one(row("e", "a"), unroutable());

    let Transition::Retry { why, .. } = to else { panic!("{to:?}") };
    assert_eq!(why, "unroutable: 312 NO_ROUTE (route key \"a\")");
    assert!(matches!(&harness.reports[..], [Report::Unroutable(id, _, _)] if id.as_str() == "e"));
    assert_eq!(harness.relay.totals().unroutable, 1);
}

#[test]
fn the_policy_may_say_that_unroutable_is_dead() {
    let retry = RetryPolicy { unroutable: UnroutablePolicy::Dead, ..RetryPolicy::default() };
    let settings = RelaySettings { retry, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);

    let to = harness.publish_one(row("e", "a"), unroutable());

    assert!(matches!(to, Transition::Dead { .. }), "{to:?}");
}

#[test]
fn giving_up_needs_the_attempts_cap_and_the_minimum_age() {
    let hour = Duration::from_hours(1);
    let cases = [(19, hour, false), (20, seconds(60), false), (20, hour, true), (200, seconds(60), false)];
    for (attempt, age, gives_up) in cases {
        let mut harness = Harness::with_defaults();

        let to = harness.publish_one(row("e", "a").attempt(attempt).age(age), unroutable());

        let dead = matches!(to, Transition::Dead { .. });
        assert_eq!(dead, gives_up, "attempt {attempt} at age {age:?} led to {to:?}");
    }
}

#[test]
fn a_row_given_up_says_after_how_many_attempts_and_why() {
    let mut harness = Harness::with_defaults();

    let row = row("e", "a").attempt(20).age(Duration::from_hours(1));
    let to = harness.publish_one(row, unroutable());

    let reason = "given up after 20 attempts: unroutable: 312 NO_ROUTE (route key \"a\")".into();
    assert_eq!(to, Transition::Dead { reason });
}

/// Many rows that die at once have one fault in common, and it is not theirs.
#[test]
fn at_most_a_hundred_rows_in_ten_minutes_die_of_exhaustion() {
    let mut harness = Harness::with_defaults();
    let exhausted = |prefix: &str, count| -> Vec<_> {
        let old = |row: crate::harness::Row| row.attempt(20).age(Duration::from_hours(1));
        rows(prefix, count, "a").into_iter().map(old).collect()
    };
    let mut die = |prefix: &str, count: usize| {
        harness.claimed([]);
        harness.claimed(exhausted(prefix, count));
        for number in 0..count {
            harness.land(&format!("{prefix}{number}"), unroutable());
        }
        let settled = harness.settle_all();
        let dead = settled.iter().filter(|(_, to)| matches!(to, Transition::Dead { .. })).count();
        let brakes = harness.reports.iter().filter(|one| matches!(one, Report::BrakeOn(_))).count();
        harness.pass(seconds(290));
        (dead, settled.len() - dead, brakes)
    };

    assert_eq!(die("first", 130), (100, 30, 30));
    assert_eq!(die("second", 10), (0, 10, 40), "five minutes later the brake is on");
    assert_eq!(die("third", 10), (0, 10, 50), "just under ten minutes later too");
    assert_eq!(die("fourth", 10), (10, 0, 50), "and after that it is off");
}

#[test]
fn the_brake_does_not_hold_rejected_messages() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("e", 200, "a"));

    for number in 0..200 {
        harness.land(&format!("e{number}"), rejected());
    }

    let settled = harness.settle_all();
    assert!(settled.iter().all(|(_, to)| matches!(to, Transition::Dead { .. })));
}

#[test]
fn a_retry_waits_longer_with_every_attempt_up_to_the_cap() {
    let longest = |attempt: u32| {
        (0..200)
            .map(|seed| {
                let policy = RetryPolicy::default();
                policy.delay(attempt, &mut crate::draw::Seeded::new(seed))
            })
            .max()
            .unwrap()
    };

    assert!(longest(1) <= Duration::from_millis(1_100));
    assert!(longest(5) > seconds(10) && longest(5) <= seconds(17));
    assert!(longest(30) > seconds(200) && longest(30) <= seconds(301));
}
