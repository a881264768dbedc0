//! What is remembered, and for how long.

use std::time::Duration;

use consign_core::filter::{Hint, RepeatFilter};
use consign_core::operation::{Comparison, EarlierComparison, Operation};
use consign_filter::{FilterTotals, RedisFilter};

use crate::operations::{eventually, hint, operation, options, points, remember};
use crate::server::{connect, keys, shared};

#[tokio::test]
async fn remembered_operation_is_a_repeat_and_another_comparison_a_contradiction() {
    let filter = RedisFilter::new(options(&shared())).unwrap();
    assert_eq!(hint(&filter, &points("order-1", "10.5")).await, Hint::Unknown);

    remember(&filter, &[points("order-1", "10.5")]).await;

    assert_eq!(hint(&filter, &points("order-1", "10.5")).await, Hint::Repeat);
    assert_eq!(hint(&filter, &points("order-1", "10.50")).await, Hint::Repeat);
    assert_eq!(hint(&filter, &points("order-1", "11")).await, Hint::Contradiction);
    let totals = FilterTotals { hits: 2, misses: 1, contradictions: 1, errors: 0, skipped: 0 };
    assert_eq!(filter.totals(), totals);
}

/// A comparison that changed with a deployment must not turn what was remembered before into contradictions.
#[tokio::test]
async fn operation_is_a_repeat_under_the_version_that_remembered_it() {
    let filter = RedisFilter::new(options(&shared())).unwrap();
    let old = points("order-1", "10.5");
    let mut new = points("order-1", "10.5");
    new.comparison = Comparison::Fingerprint("ab".repeat(32));
    new.comparison_version = 2;

    remember(&filter, std::slice::from_ref(&old)).await;

    assert_eq!(hint(&filter, &new).await, Hint::Contradiction);
    new.earlier = vec![EarlierComparison { version: 1, comparison: old.comparison.clone() }];
    assert_eq!(hint(&filter, &new).await, Hint::Repeat);
    new.earlier[0].version = 3;
    assert_eq!(hint(&filter, &new).await, Hint::Contradiction);
}

/// B45 (unkeyed/unkey#4091 and others), here without a collation that could fold them.
#[tokio::test]
async fn consumers_and_keys_that_look_alike_are_not_mixed_up() {
    let filter = RedisFilter::new(options(&shared())).unwrap();

    remember(&filter, &[operation("points", "a:b", "1"), points("Straße", "1")]).await;

    for other in [
        operation("points:a", "b", "1"),
        operation("Points", "a:b", "1"),
        operation("mail", "a:b", "1"),
        points("a:B", "1"),
        points("a:b ", "1"),
        points("STRASSE", "1"),
        points("Strasse", "1"),
    ] {
        assert_eq!(hint(&filter, &other).await, Hint::Unknown, "{other:?}");
    }
    assert_eq!(hint(&filter, &points("a:b", "1")).await, Hint::Repeat);
}

#[tokio::test]
async fn applications_with_other_prefixes_share_nothing() {
    let one = RedisFilter::new(options(&shared())).unwrap();
    let other = RedisFilter::new(options(&shared())).unwrap();

    remember(&one, &[points("order-1", "1")]).await;

    assert_eq!(hint(&other, &points("order-1", "1")).await, Hint::Unknown);
}

#[tokio::test]
async fn memory_is_shared_between_processes_and_ends_with_the_ttl() {
    let mut options = options(&shared());
    options.ttl = Duration::from_secs(2);
    let writer = RedisFilter::new(options.clone()).unwrap();
    let reader = RedisFilter::new(options).unwrap();

    remember(&writer, &[points("order-1", "1")]).await;

    assert_eq!(hint(&reader, &points("order-1", "1")).await, Hint::Repeat);
    let forgotten = async || hint(&reader, &points("order-1", "1")).await == Hint::Unknown;
    eventually("the operation is forgotten", forgotten).await;
    assert_eq!(reader.totals().errors, 0);
}

#[tokio::test]
async fn every_key_expires_and_none_shows_the_business_key() {
    let options = options(&shared());
    let filter = RedisFilter::new(options.clone()).unwrap();
    let mut connection = connect(&shared()).await;

    remember(&filter, &[points("anna@example.org", "1"), points("order-2", "2")]).await;

    let keys = keys(&mut connection, &options.prefix).await;
    assert_eq!(keys.len(), 2);
    for key in keys {
        let left: i64 = redis::cmd("TTL").arg(&key).query_async(&mut connection).await.unwrap();
        assert!((1..=600).contains(&left), "{left} s");
        let name = String::from_utf8(key).unwrap();
        assert!(name.starts_with(&format!("{}:points:", options.prefix)) && !name.contains("anna"), "{name}");
    }
}

/// Every other one of 10,000 is remembered; the hints come in the order of the questions.
#[tokio::test]
async fn ten_thousand_operations_are_answered_in_order_batch_by_batch() {
    const BATCH: usize = 500;
    let filter = RedisFilter::new(options(&shared())).unwrap();
    let all: Vec<Operation> = (0..10_000).map(|order| points(&format!("order-{order}"), "1")).collect();
    let known: Vec<&Operation> = all.iter().step_by(2).collect();

    for batch in known.chunks(BATCH) {
        filter.remember(batch).await;
    }
    let mut hints = Vec::new();
    for batch in all.chunks(BATCH) {
        hints.extend(filter.hints(&batch.iter().collect::<Vec<_>>()).await);
    }

    assert_eq!(hints.len(), all.len());
    for (index, pair) in hints.chunks(2).enumerate() {
        assert_eq!(pair, [Hint::Repeat, Hint::Unknown], "pair {index}");
    }
    let totals = FilterTotals { hits: 5_000, misses: 5_000, ..FilterTotals::default() };
    assert_eq!(filter.totals(), totals);
}

#[tokio::test]
async fn copies_of_a_filter_count_together() {
    let filter = RedisFilter::new(options(&shared())).unwrap();
    let copy = filter.clone();

    assert_eq!(hint(&copy, &points("order-1", "1")).await, Hint::Unknown);

    assert_eq!(filter.totals().misses, 1);
}
