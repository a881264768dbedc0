//! Ordered mode: the events of one aggregate one after the other, different aggregates side by side.

use consign_core::outcome::Outcome;
use consign_core::ports::StoreError;
use consign_core::relay::{DeadHead, Input, Order, RelaySettings};
use consign_core::retry::RetryPolicy;
use consign_core::settle::{Settled, Transition};

use crate::harness::{Harness, Row, confirmed, refused, row, seconds};

fn ordered(dead: DeadHead) -> Harness {
    let settings = RelaySettings { order: Order::PerAggregate { dead }, ..RelaySettings::default() };
    Harness::new(settings, &["a"])
}

fn order(aggregate: &str, step: u32) -> Row {
    row(format!("{aggregate}{step}"), "a").of(aggregate)
}

fn ids(settled: &[(String, Transition)]) -> Vec<&str> {
    settled.iter().map(|(id, _)| id.as_str()).collect()
}

fn delay(transition: &Transition) -> std::time::Duration {
    match transition {
        Transition::Retry { delay, .. } | Transition::Release { delay, .. } => *delay,
        other => panic!("the row does not go back: {other:?}"),
    }
}

#[test]
fn the_next_event_takes_off_only_after_the_previous_one_is_settled() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2), order("x", 3)]);
    assert_eq!(harness.flying(), ["x1"]);

    harness.land("x1", confirmed());
    assert!(harness.flying().is_empty(), "confirmed is not settled");
    assert_eq!(harness.settling().len(), 1, "nobody else is on the way, so nothing is waited for");

    harness.settled(Settled::Applied);
    assert_eq!(harness.flying(), ["x2"]);
    harness.land("x2", confirmed());
    harness.settle_all();
    assert_eq!(harness.flying(), ["x3"]);
    harness.land("x3", confirmed());
    harness.settle_all();
    assert_eq!(harness.relay.held(), 0);
    assert_eq!(harness.relay.totals().sent, 3);
}

#[test]
fn aggregates_are_side_by_side() {
    let mut harness = ordered(DeadHead::Block);

    harness.claimed([order("x", 1), order("x", 2), order("y", 1), order("y", 2), order("z", 1)]);

    assert_eq!(harness.flying(), ["x1", "y1", "z1"]);
}

#[test]
fn events_without_an_aggregate_have_no_order() {
    let mut harness = ordered(DeadHead::Block);

    harness.claimed([row("p", "a"), row("q", "a")]);

    assert_eq!(harness.flying(), ["p", "q"]);
}

#[test]
fn competing_mode_waits_for_nobody() {
    let mut harness = Harness::with_defaults();

    harness.claimed([order("x", 1), order("x", 2)]);

    assert_eq!(harness.flying(), ["x1", "x2"]);
}

#[test]
fn followers_go_back_with_the_event_before_them_and_for_as_long() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2), order("x", 3), order("y", 1)]);

    harness.land("x1", refused());
    let settled = harness.settle_all();

    assert_eq!(ids(&settled), ["x1", "x2", "x3"]);
    let waits: Vec<_> = settled.iter().map(|(_, to)| delay(to)).collect();
    assert_eq!(waits, vec![waits[0]; 3]);
    assert!(settled[1..].iter().all(|(_, to)| matches!(to, Transition::Release { .. })), "{settled:?}");
    assert_eq!(harness.flying(), ["y1"]);
    assert_eq!(harness.relay.held(), 1);
}

/// What waits for its turn takes memory as well.
#[test]
fn followers_count_against_the_bytes_that_may_be_held_until_they_go() {
    let heavy = |step| order("x", step).payload(8_000);
    let settings = RelaySettings {
        batch_bytes: 10_000,
        held_bytes: 25_000,
        order: Order::PerAggregate { dead: DeadHead::Block },
        ..RelaySettings::default()
    };
    for (outcome, flying) in [(confirmed(), vec!["x2"]), (refused(), vec![])] {
        let mut harness = Harness::new(settings.clone(), &["a"]);
        harness.claimed_of_more([heavy(1), heavy(2)]);
        harness.pass(seconds(1));
        assert!(harness.claims.is_empty(), "one flies and one follows");

        harness.land("x1", outcome);
        harness.settle_all();

        assert_eq!((harness.flying(), harness.claims.len()), (flying, 1));
    }
}

#[test]
fn a_dead_event_blocks_its_aggregate() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2), order("y", 1)]);

    harness.land("x1", Outcome::Rejected { reason: "too large".into() });
    let settled = harness.settle_all();

    assert_eq!(ids(&settled), ["x1", "x2"]);
    assert!(matches!(settled[0].1, Transition::Dead { .. }));
    assert_eq!(delay(&settled[1].1), seconds(30));
    assert_eq!(harness.flying(), ["y1"]);
}

#[test]
fn a_dead_event_is_skipped_once_it_is_dead_in_the_store_too() {
    let mut harness = ordered(DeadHead::Skip);
    harness.claimed([order("x", 1), order("x", 2)]);

    harness.land("x1", Outcome::Rejected { reason: "too large".into() });
    assert!(harness.flying().is_empty());
    let settled = harness.settle_all();

    assert_eq!(ids(&settled), ["x1"]);
    assert_eq!(harness.flying(), ["x2"]);
}

#[test]
fn nobody_follows_an_event_that_was_fenced() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2)]);
    harness.land("x1", confirmed());

    harness.settled(Settled::Fenced);

    let settled = harness.settle_all();
    assert_eq!(ids(&settled), ["x2"]);
    assert_eq!(delay(&settled[0].1), seconds(1));
    assert!(harness.flying().is_empty());
}

#[test]
fn a_settle_without_an_answer_is_repeated_before_anybody_follows() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2)]);
    harness.land("x1", confirmed());

    harness.settle_failed(StoreError::CommitUnknown("reset".into()));
    assert!(harness.flying().is_empty());
    harness.pass(seconds(5));
    harness.settled(Settled::AlreadyApplied);

    assert_eq!(harness.flying(), ["x2"]);
}

/// Found by the simulator: an answer that took seconds let the next event overtake the one that people had requeued.
#[test]
fn what_became_of_an_earlier_claim_of_the_same_event_lets_nobody_follow() {
    for late in [Settled::AlreadyApplied, Settled::Fenced] {
        let mut harness = ordered(DeadHead::Block);
        harness.claimed([order("x", 1)]);
        harness.land("x1", Outcome::Rejected { reason: "too large".into() });
        assert_eq!(ids(&harness.settling()), ["x1"]);

        harness.claimed([order("x", 1), order("x", 2)]);
        assert_eq!(harness.flying(), ["x1"], "requeued by people, and claimed again");
        harness.settled(late);

        assert_eq!(harness.flying(), ["x1"]);
        harness.land("x1", confirmed());
        assert_eq!(ids(&harness.settle_all()), ["x1"]);
        assert_eq!(harness.flying(), ["x2"]);
    }
}

#[test]
fn a_settle_that_the_store_never_takes_ends_the_chain() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2)]);
    harness.land("x1", confirmed());

    harness.settle_failed(StoreError::Data("bad value".into()));

    let settled = harness.settle_all();
    assert_eq!(ids(&settled), ["x2"]);
    assert!(harness.flying().is_empty());
    assert_eq!(harness.relay.held(), 0);
}

#[test]
fn a_chain_without_a_route_goes_back_whole() {
    let mut harness = ordered(DeadHead::Block);

    harness.claimed([row("x1", "nowhere").of("x"), order("x", 2)]);

    assert!(harness.flying().is_empty());
    let settled = harness.settle_all();
    assert_eq!(ids(&settled), ["x1", "x2"]);
    assert_eq!(delay(&settled[1].1), delay(&settled[0].1));
}

#[test]
fn a_drain_gives_followers_back_and_waits_for_what_is_on_its_way() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2), order("x", 3)]);
    harness.claim_request();

    harness.feed(Input::Drain);
    harness.feed(Input::ClaimFailed(StoreError::Contended("deadlock".into())));
    assert_eq!(harness.flying(), ["x1"]);
    harness.land("x1", confirmed());
    let settled = harness.settle_all();

    assert_eq!(ids(&settled), ["x2", "x3", "x1"]);
    assert!(harness.flying().is_empty());
    assert_eq!(harness.relay.held(), 0);
}

/// Its leases end by themselves; a drain that waited for them would never be over.
#[test]
fn followers_are_forgotten_when_the_store_is_away_at_the_drains_deadline() {
    let mut harness = ordered(DeadHead::Block);
    harness.swept(0);
    harness.claimed_of_more([order("x", 1)]);
    harness.land("x1", confirmed());
    assert_eq!((harness.settles.len(), harness.claims.len()), (1, 1));
    harness.feed(Input::Drain);
    harness.claimed([order("x", 2)]);
    harness.pass(RelaySettings::default().drain);
    assert_eq!((harness.relay.held(), harness.stops), (2, 0), "its settle has no answer yet");

    harness.settle_failed(StoreError::Unavailable("down".into()));

    assert_eq!((harness.relay.held(), harness.stops), (0, 1));
}

#[test]
fn followers_that_waited_too_long_are_not_published_on_a_lease_that_is_nearly_over() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1), order("x", 2), order("x", 3)]);
    harness.land("x1", confirmed());
    harness.pass(seconds(26));

    harness.settled(Settled::Applied);

    assert!(harness.flying().is_empty());
    assert_eq!(ids(&harness.settle_all()), ["x2", "x3"]);
}

/// The store hands an event out again after its lease ended; the older attempt of the same relay is still under way.
#[test]
fn an_event_claimed_again_waits_for_its_own_older_attempt() {
    let mut harness = ordered(DeadHead::Block);
    harness.claimed([order("x", 1)]);
    harness.claimed([order("x", 1)]);
    assert_eq!(harness.flying(), ["x1"]);

    harness.land("x1", confirmed());
    harness.settled(Settled::Fenced);

    let settled = harness.settle_all();
    assert_eq!(ids(&settled), ["x1"]);
    assert_eq!(harness.relay.held(), 0);
}

#[test]
fn a_count_of_attempts_ends_in_dead_only_for_the_event_at_fault() {
    let retry = RetryPolicy { attempts_max: 1, min_age_before_dead: seconds(0), ..RetryPolicy::default() };
    let order_settings = Order::PerAggregate { dead: DeadHead::Block };
    let settings = RelaySettings { order: order_settings, retry, ..RelaySettings::default() };
    let mut harness = Harness::new(settings, &["a"]);
    harness.claimed([order("x", 1), order("x", 2)]);

    harness.land("x1", Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() });
    let settled = harness.settle_all();

    assert!(matches!(settled[0].1, Transition::Dead { .. }), "{settled:?}");
    assert!(matches!(settled[1].1, Transition::Release { .. }), "{settled:?}");
}
