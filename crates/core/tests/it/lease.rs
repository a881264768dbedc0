//! Claims and leases, without an engine around them.

use std::time::Duration;

use consign_core::event::{Event, EventId};
use consign_core::lease::{Claim, ClaimRequest, PublishLimits};
use consign_core::outcome::Proof;
use consign_core::route::{DestinationName, Route};
use consign_core::settle::Transition;
use consign_core::time::Monotonic;

use crate::harness::{event, millis, seconds};

const ASKED: Monotonic = Monotonic::new(Duration::from_secs(1000));
const LIMITS: PublishLimits =
    PublishLimits { deadline: Duration::from_secs(15), margin: Duration::from_secs(5) };

fn request() -> ClaimRequest {
    ClaimRequest::new(10, 1 << 20, seconds(30), [0xab; 16], ASKED)
}

fn claim() -> Claim {
    request().claim(event("e", "a", 0), 1, Duration::ZERO)
}

fn route() -> Route {
    Route { destination: DestinationName::new("a"), key: "k".into() }
}

#[test]
fn a_token_is_written_as_32_hexadecimal_digits() {
    let mut bits = [0; 16];
    bits[0] = 0x0f;
    bits[15] = 0xa0;
    let request = ClaimRequest::new(1, 1, seconds(30), bits, ASKED);

    assert_eq!(request.token().to_hex(), "0f0000000000000000000000000000a0");
    assert_eq!(format!("{:?}", request.token()), "0f0000000000000000000000000000a0");
    assert_eq!(request.token().bits(), (0x0f << 120) | 0xa0);
}

#[test]
fn a_settlement_carries_the_id_and_the_token_of_its_claim() {
    let settlement = claim().release(seconds(3), "why");

    assert_eq!(settlement.id(), &EventId::stored("e"));
    assert_eq!(settlement.token().to_hex(), "ab".repeat(16));
    assert_eq!(settlement.to(), &Transition::Release { delay: seconds(3), why: "why".into() });
    assert_eq!(settlement.to().word(), "released");
    assert_eq!(claim().dead("never").to().word(), "dead");
    let (_, pending) = claim().start(ASKED, LIMITS, route()).unwrap();
    assert_eq!(pending.confirmed(Proof::Appended { partition: 0, offset: 7 }).to().word(), "confirmed");
    assert_eq!(Transition::Retry { delay: seconds(3), why: String::new() }.word(), "retry");
}

#[test]
fn the_margin_rule_holds_at_every_moment_of_a_lease() {
    for spent in (0..=31_000).step_by(50) {
        let now = ASKED.plus(millis(spent));
        let latest = ASKED.plus(seconds(25));

        match claim().start(now, LIMITS, route()) {
            Ok((publish, _pending)) => {
                assert!(publish.deadline <= latest, "after {spent} ms");
                assert!(publish.deadline <= now.plus(LIMITS.deadline), "after {spent} ms");
                assert!(publish.deadline > now, "after {spent} ms");
            }
            Err(settlement) => {
                assert!(now.plus(millis(500)) > latest, "given up after {spent} ms");
                assert!(matches!(settlement.to(), Transition::Release { .. }));
            }
        }
    }
}

#[test]
fn publishing_again_does_not_lengthen_the_lease() {
    let (first, pending) = claim().start(ASKED.plus(seconds(5)), LIMITS, route()).unwrap();
    let (second, pending) = pending.publish(ASKED.plus(seconds(15)), LIMITS, route()).unwrap();

    assert_eq!(first.deadline, ASKED.plus(seconds(20)));
    assert_eq!(second.deadline, ASKED.plus(seconds(25)));
    assert!(pending.publish(ASKED.plus(seconds(25)), LIMITS, route()).is_err());
}

#[test]
fn a_deadline_shorter_than_the_least_wait_is_still_a_publish() {
    let short = PublishLimits { deadline: millis(100), margin: seconds(5) };

    let (publish, _pending) = claim().start(ASKED.plus(millis(24_900)), short, route()).unwrap();

    assert_eq!(publish.deadline, ASKED.plus(seconds(25)));
}

/// E18: extremes saturate and never panic.
#[test]
fn a_clock_at_its_end_saturates() {
    let end = Monotonic::new(Duration::MAX);
    let request = ClaimRequest::new(1, 1, Duration::MAX, [0; 16], end);

    let claim = request.claim(event("e", "a", 0), u32::MAX, Duration::MAX);

    assert_eq!(end.plus(seconds(1)), end);
    assert_eq!(ASKED.since(end), Duration::ZERO);
    assert!(claim.start(end, LIMITS, route()).is_err());
}

#[test]
fn weight_counts_payload_headers_and_a_flat_allowance() {
    let bare = Event { payload: None, ..event("e", "a", 0) };
    let full = Event { headers: vec![("ab".into(), "cde".into())], ..event("e", "a", 1000) };

    assert_eq!(full.weight() - bare.weight(), 1005);
    assert!(bare.weight() > 0, "a row without a payload takes room too");
}
