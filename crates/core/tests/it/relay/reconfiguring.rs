//! New settings and routes while the relay runs, and policies of destinations and routes.

use std::collections::BTreeMap;

use consign_core::outcome::Outcome;
use consign_core::relay::{Input, RelaySettings};
use consign_core::retry::{RetryPolicy, UnroutablePolicy};
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::settle::Transition;

use crate::harness::{Harness, confirmed, routes, row, rows, seconds};

fn unroutable() -> Outcome {
    Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }
}

fn dead_at_once() -> RetryPolicy {
    RetryPolicy { unroutable: UnroutablePolicy::Dead, ..RetryPolicy::default() }
}

fn rule(event_type: &str, retry: Option<RetryPolicy>) -> Rule {
    let key = Template::parse("k").unwrap();
    Rule { event_type: event_type.into(), destination: DestinationName::new("a"), key, retry }
}

fn table(rules: Vec<Rule>) -> RouteTable {
    RouteTable::new(rules, vec![DestinationName::new("a")])
}

#[test]
fn a_new_window_holds_from_the_next_publish_on() {
    let mut harness = Harness::new(RelaySettings { window: 1, ..RelaySettings::default() }, &["a"]);
    harness.claimed(rows("e", 3, "a"));
    assert_eq!(harness.flights.len(), 1);

    let wider = RelaySettings { window: 3, ..RelaySettings::default() };
    harness.feed(Input::Reconfigure(Box::new(wider), routes(&["a"])));

    assert_eq!(harness.flights.len(), 3);
}

#[test]
fn a_new_route_takes_events_that_had_none() {
    let mut harness = Harness::with_defaults();
    harness.claimed([row("e", "other")]);
    assert!(matches!(harness.settle_one(), Transition::Release { .. }));

    harness.feed(Input::Reconfigure(Box::default(), table(vec![rule("other", None)])));
    harness.claimed([row("e", "other")]);

    assert_eq!(harness.flying(), ["e"]);
    harness.land("e", confirmed());
    assert!(matches!(harness.settle_one(), Transition::Sent(_)));
}

#[test]
fn a_routes_policy_comes_before_the_destinations_and_that_before_the_relays() {
    let mut harness = Harness::with_defaults();
    let by_route = table(vec![rule("dies", Some(dead_at_once())), rule("*", None)]);
    let by_destination = table(vec![rule("lives", Some(RetryPolicy::default())), rule("*", None)])
        .with_retry(BTreeMap::from([(DestinationName::new("a"), dead_at_once())]));

    harness.feed(Input::Reconfigure(Box::default(), by_route));
    assert!(matches!(harness.publish_one(row("1", "dies"), unroutable()), Transition::Dead { .. }));
    assert!(matches!(harness.publish_one(row("2", "other"), unroutable()), Transition::Retry { .. }));

    harness.feed(Input::Reconfigure(Box::default(), by_destination));
    assert!(matches!(harness.publish_one(row("3", "lives"), unroutable()), Transition::Retry { .. }));
    assert!(matches!(harness.publish_one(row("4", "other"), unroutable()), Transition::Dead { .. }));
}

#[test]
fn a_sweep_gives_no_policys_rows_up_early() {
    let patient = RetryPolicy { attempts_max: 500, ..RetryPolicy::default() };
    let mut harness = Harness::with_defaults();
    harness.sweeps.clear();
    harness.feed(Input::Reconfigure(Box::default(), table(vec![rule("*", Some(patient))])));
    harness.feed(Input::Swept(consign_core::settle::Swept::default()));

    harness.pass(seconds(3));

    assert_eq!(harness.sweeps.front().expect("a sweep is open").2, 500);
}

#[test]
fn an_event_older_than_its_policy_allows_dies_at_its_next_counted_failure() {
    let retry = RetryPolicy { max_age: Some(seconds(60)), ..RetryPolicy::default() };
    let mut harness = Harness::new(RelaySettings { retry, ..RelaySettings::default() }, &["a"]);

    let young = harness.publish_one(row("young", "a").age(seconds(59)), unroutable());
    let refused = harness.publish_one(row("spared", "a").age(seconds(61)), crate::harness::refused());
    let old = harness.publish_one(row("old", "a").age(seconds(61)), unroutable());

    assert!(matches!(young, Transition::Retry { .. }), "{young:?}");
    assert!(matches!(refused, Transition::Release { .. }), "an outage gives nobody up: {refused:?}");
    assert!(matches!(old, Transition::Dead { .. }), "{old:?}");
}

/// L3: a long backlog for a destination that is away must not keep the claims busy in turn after turn.
#[test]
fn rows_given_back_for_a_destination_that_is_away_come_back_spread_out() {
    let settings = RelaySettings { batch_rows: 500, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a", "b"]);
    harness.unavailable("a");
    let mut due = std::collections::BTreeMap::<u128, usize>::new();

    for round in 0..40 {
        harness.claimed_of_more(rows(&format!("{round}-"), 500, "a"));
        for (_, to) in harness.settle_all() {
            let Transition::Release { delay, .. } = to else { panic!("{to:?}") };
            let at = harness.now.plus(delay).since_origin();
            *due.entry(at.as_millis() / 1_000).or_default() += 1;
        }
    }

    let most = due.values().max().copied().unwrap();
    assert!(most <= 2_500, "{most} of 20000 rows come back within one second: {due:?}");
    harness.accepting("a");
    harness.unavailable("a");
    harness.claimed_of_more(rows("late-", 1, "a"));
    let delay = match harness.settle_one() {
        Transition::Release { delay, .. } => delay,
        other => panic!("{other:?}"),
    };
    assert!(delay <= seconds(5), "a new outage starts anew: {delay:?}");
}

#[test]
fn a_slow_destination_leaves_room_for_the_others() {
    let settings = RelaySettings { batch_rows: 4, window: 1, held_rows: 20, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a", "b"]);

    for round in 0..8 {
        harness.claimed_of_more(rows(&format!("slow{round}-"), 4, "a"));
        harness.settle_all();
    }
    harness.claimed_of_more([row("quick", "b")]);

    assert!(harness.flying().contains(&"quick"), "{:?}", harness.flying());
    assert!(harness.relay.held() <= 20);
    assert!(harness.relay.totals().released > 20);
}
