//! Rows that were swept twice: published with empty hands.

use consign_core::ports::Lane;
use consign_core::relay::RelaySettings;
use consign_core::settle::{Settled, Transition};

use crate::harness::{Harness, confirmed, refused, row, rows, seconds, timed_out};

#[test]
fn a_twice_swept_row_is_published_alone_on_the_quarantine_lane() {
    let mut harness = Harness::with_defaults();

    harness.claimed([row("killer", "a").swept_twice()]);

    assert_eq!(harness.flying(), ["killer"]);
    assert_eq!(harness.lane("killer"), Lane::Quarantine);
}

#[test]
fn a_twice_swept_row_waits_until_the_hands_are_empty() {
    let mut harness = Harness::with_defaults();
    harness.claimed_of_more([row("e", "a")]);

    harness.claimed([row("killer", "a").swept_twice()]);
    assert_eq!(harness.flying(), ["e"]);
    assert_eq!(harness.relay.held(), 2, "the one that waits is held as well");

    harness.land("e", confirmed());
    assert!(harness.flights.is_empty(), "a row whose settle is open is still at risk");

    harness.pass(seconds(1));
    harness.settled(Settled::Applied);
    assert_eq!(harness.flying(), ["killer"]);
}

#[test]
fn nothing_is_claimed_while_a_twice_swept_row_waits_or_flies() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.claimed_of_more([row("e", "a")]);
    harness.claimed_of_more([row("killer", "a").swept_twice()]);
    harness.pass(seconds(1));
    assert!(harness.claims.is_empty(), "it waits");

    harness.land("e", confirmed());
    harness.settle_all();
    assert_eq!(harness.flying(), ["killer"]);
    harness.pass(seconds(10));
    assert!(harness.claims.is_empty(), "it flies");

    harness.land("killer", confirmed());
    assert_eq!(harness.claims.len(), 1);
}

/// A store that hands out two must not make one of them vanish until its lease ends.
#[test]
fn a_second_twice_swept_row_is_given_back() {
    let mut harness = Harness::with_defaults();

    harness.claimed([row("first", "a").swept_twice(), row("second", "a").swept_twice()]);

    let settled = harness.settle_all();
    assert!(matches!(&settled[..], [(id, Transition::Release { .. })] if id == "second"), "{settled:?}");
    assert_eq!(harness.flying(), ["first"]);
}

#[test]
fn a_twice_swept_row_that_waited_out_its_lease_is_given_back() {
    let mut harness = Harness::with_defaults();
    harness.claimed_of_more([row("slow", "a")]);
    harness.claimed([row("killer", "a").swept_twice()]);

    harness.pass(seconds(26));
    harness.land("slow", timed_out());
    let settled = harness.settle_all();

    assert!(harness.flights.is_empty());
    assert_eq!(settled.len(), 2, "{settled:?}");
    assert!(matches!(&settled[1], (id, Transition::Release { .. }) if id == "killer"), "{settled:?}");
}

#[test]
fn a_twice_swept_row_for_an_unavailable_destination_is_given_back() {
    let mut harness = Harness::new(RelaySettings::default(), &["a", "b"]);
    harness.unavailable("a");

    harness.claimed([row("killer", "a").swept_twice()]);

    assert!(matches!(harness.settle_one(), Transition::Release { .. }));
    assert!(harness.flights.is_empty());
}

#[test]
fn a_twice_swept_row_can_be_the_probe_of_an_open_breaker() {
    let mut harness = Harness::with_defaults();
    harness.claimed(rows("fail", 5, "a"));
    for number in 0..5 {
        harness.land(&format!("fail{number}"), refused());
    }
    harness.settle_all();
    harness.claimed([]);

    harness.claimed([row("killer", "a").swept_twice()]);
    assert_eq!(harness.flying(), ["killer"]);
    harness.land("killer", refused());
    harness.settle_all();

    let failed = harness.now;
    harness.claim_request();
    assert!(harness.now.since(failed) >= seconds(1), "the failed probe opened the breaker again");
}
