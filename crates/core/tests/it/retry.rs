//! Delays and exhaustion.

use std::time::Duration;

use consign_core::retry::RetryPolicy;
use consign_core::time::Draw;

use crate::draw::Seeded;
use crate::harness::{millis, seconds};

/// Draws the same fraction always.
struct Fixed(f64);

impl Draw for Fixed {
    fn bits(&mut self) -> [u8; 16] {
        [0; 16]
    }

    fn fraction(&mut self) -> f64 {
        self.0
    }
}

fn bounds(policy: &RetryPolicy, attempt: u32) -> (Duration, Duration) {
    (policy.delay(attempt, &mut Fixed(0.0)), policy.delay(attempt, &mut Fixed(1.0)))
}

#[test]
fn delays_double_up_to_the_cap_with_full_jitter_over_a_floor() {
    let policy = RetryPolicy::default();

    assert_eq!(bounds(&policy, 1), (millis(100), millis(1_100)));
    assert_eq!(bounds(&policy, 2), (millis(100), millis(2_100)));
    assert_eq!(bounds(&policy, 9), (millis(100), millis(256_100)));
    assert_eq!(bounds(&policy, 10), (millis(100), millis(300_100)));
}

#[test]
fn attempts_beyond_every_count_wait_the_cap_and_do_not_overflow() {
    let policy = RetryPolicy { base: Duration::from_hours(24), ..RetryPolicy::default() };

    for attempt in [0, 1, 33, 64, u32::MAX] {
        assert!(bounds(&policy, attempt).1 <= seconds(301), "attempt {attempt}");
    }
}

#[test]
fn less_jitter_moves_the_earliest_delay_towards_the_latest() {
    let half = RetryPolicy { jitter: 0.5, ..RetryPolicy::default() };
    let none = RetryPolicy { jitter: 0.0, ..RetryPolicy::default() };

    assert_eq!(bounds(&half, 1), (millis(600), millis(1_100)));
    assert_eq!(bounds(&none, 1), (millis(1_100), millis(1_100)));
}

#[test]
fn jitter_spreads_rows_that_failed_together() {
    let policy = RetryPolicy::default();
    let mut draw = Seeded::new(3);

    let early = (0..1000).filter(|_| policy.delay(5, &mut draw) < seconds(8)).count();

    assert!((400..600).contains(&early), "{early} of 1000 came in the first half");
}

#[test]
fn a_row_is_exhausted_by_attempts_and_age_together() {
    let policy = RetryPolicy::default();
    let age = Duration::from_mins(15);

    assert!(policy.exhausted(20, age));
    assert!(!policy.exhausted(19, age));
    assert!(!policy.exhausted(20, Duration::from_secs(899)));
    assert!(!policy.exhausted(u32::MAX, Duration::ZERO));
}

#[test]
fn fractions_are_drawn_from_zero_to_below_one() {
    struct Extreme(u8);
    impl Draw for Extreme {
        fn bits(&mut self) -> [u8; 16] {
            [self.0; 16]
        }
    }

    assert!(Extreme(0).fraction().abs() < f64::EPSILON);
    let most = Extreme(0xff).fraction();
    assert!(most < 1.0 && most > 0.999_999, "{most}");
}
