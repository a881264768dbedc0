//! Sweeps.

use consign_core::ports::StoreError;
use consign_core::relay::{Input, RelaySettings, Report};
use consign_core::settle::Swept;

use crate::harness::{Harness, millis, seconds};

fn failed(harness: &mut Harness, error: StoreError) {
    harness.sweeps.pop_front().expect("a sweep is open");
    harness.feed(Input::SweepFailed(error));
}

#[test]
fn a_relay_sweeps_at_its_start_even_while_no_destination_accepts() {
    let harness = Harness::disconnected(RelaySettings::default(), &["a"]);

    assert_eq!(harness.sweeps, [(500, seconds(10), 20)]);
}

#[test]
fn a_sweep_follows_every_two_seconds() {
    let mut harness = Harness::with_defaults();
    harness.swept(3);

    harness.pass(millis(1_999));
    assert!(harness.sweeps.is_empty());

    harness.pass(millis(1));
    assert_eq!(harness.sweeps.len(), 1);
    assert_eq!(harness.relay.totals().swept, 3);
}

#[test]
fn a_full_sweep_is_followed_by_another_at_once() {
    let mut harness = Harness::with_defaults();

    harness.swept(500);

    assert_eq!(harness.sweeps.len(), 1);
}

#[test]
fn dead_rows_fill_a_sweep_too() {
    let mut harness = Harness::with_defaults();
    harness.sweeps.clear();

    harness.feed(Input::Swept(Swept { returned: 499, dead: 1 }));

    assert_eq!(harness.sweeps.len(), 1);
    assert_eq!(harness.relay.totals().swept, 500);
}

#[test]
fn a_failed_sweep_is_reported_and_another_follows() {
    let mut harness = Harness::with_defaults();

    failed(&mut harness, StoreError::Unavailable("down".into()));

    assert!(matches!(harness.reports.as_slice(), [Report::Store("sweep", _)]));
    harness.pass(millis(1_999));
    assert!(harness.sweeps.is_empty());
    harness.pass(seconds(5));
    assert_eq!(harness.sweeps.len(), 1);
}

#[test]
fn a_failing_sweep_does_not_slow_down_claims() {
    let mut harness = Harness::with_defaults();
    for _ in 0..10 {
        failed(&mut harness, StoreError::Contended("locked".into()));
        while harness.sweeps.is_empty() {
            if harness.claims.pop_front().is_some() {
                harness.feed(Input::Claimed(consign_core::ports::Claimed::default()));
            }
            harness.pass_to_timer();
        }
    }
    harness.claim_failed(StoreError::Unavailable("a blip".into()));

    harness.pass(millis(100));

    assert_eq!(harness.claims.len(), 1);
}
