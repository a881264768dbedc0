//! `[retry]`, and what destinations and routes say differently.

use std::collections::BTreeMap;

use consign_core::retry::{RetryPolicy, UnroutablePolicy};
use consign_core::route::DestinationName;

use super::checker::Checker;
use super::raw::{RawDestination, RawRetry, RawRetryPart};

const DAY: u64 = 86_400;
/// A year: what is older than this and still wanted has no end.
const AGE_MAX: u64 = 366 * DAY;

/// Checks `[retry]`.
pub fn policy(checker: &mut Checker<'_>, raw: RawRetry) -> RetryPolicy {
    overridden(checker, "retry", &raw.into(), RetryPolicy::default())
}

/// Takes the policies out of the destinations and checks them over the relay's own.
pub fn of_destinations(
    checker: &mut Checker<'_>,
    destinations: &mut BTreeMap<String, RawDestination>,
    relay: RetryPolicy,
) -> BTreeMap<DestinationName, RetryPolicy> {
    let mut policies = BTreeMap::new();
    for (name, destination) in destinations {
        let Some(part) = destination.retry.take() else { continue };
        let policy = overridden(checker, &format!("destination.{name}.retry"), &part, relay);
        policies.insert(DestinationName::new(name.as_str()), policy);
    }
    policies
}

/// The policy `under` with the keys that are written at `key` in their places.
pub fn overridden(
    checker: &mut Checker<'_>,
    key: &str,
    raw: &RawRetryPart,
    under: RetryPolicy,
) -> RetryPolicy {
    let unroutable = [("retry", UnroutablePolicy::Retry), ("dead", UnroutablePolicy::Dead)];
    let at = |name: &str| format!("{key}.{name}");
    let mut policy = under;
    if let Some(seconds) = raw.base_seconds {
        policy.base = checker.seconds(&at("base_seconds"), seconds, 1..=DAY);
    }
    if let Some(seconds) = raw.cap_seconds {
        policy.cap = checker.seconds(&at("cap_seconds"), seconds, 1..=DAY);
    }
    if let Some(share) = raw.jitter {
        policy.jitter = share.0;
        if !(0.0..=1.0).contains(&share.0) {
            checker.refuse(&at("jitter"), format!("{} is out of range: use 0 to 1", share.0));
            policy.jitter = under.jitter;
        }
    }
    if let Some(attempts) = raw.attempts_max {
        policy.attempts_max = checker.within(&at("attempts_max"), attempts, 1..=1_000_000);
    }
    if let Some(seconds) = raw.min_age_before_dead_seconds {
        policy.min_age_before_dead =
            checker.seconds(&at("min_age_before_dead_seconds"), seconds, 0..=30 * DAY);
    }
    if let Some(seconds) = raw.max_age_seconds {
        policy.max_age = Some(checker.seconds(&at("max_age_seconds"), seconds, 1..=AGE_MAX));
    }
    if let Some(word) = &raw.unroutable {
        policy.unroutable = checker.choice(&at("unroutable"), word, &unroutable).unwrap_or_default();
    }
    if policy.base > policy.cap && (raw.base_seconds.is_some() || raw.cap_seconds.is_some()) {
        let (base, cap) = (policy.base.as_secs(), policy.cap.as_secs());
        if raw.base_seconds.is_some() {
            checker.refuse(
                &at("base_seconds"),
                format!("{base} is more than cap_seconds, which is {cap}: lower it"),
            );
        } else {
            checker.refuse(
                &at("cap_seconds"),
                format!("{cap} is less than base_seconds, which is {base}: raise it"),
            );
        }
    }
    policy
}
