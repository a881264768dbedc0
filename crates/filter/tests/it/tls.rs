//! TLS: the server's certificate is verified, always.

use std::time::Duration;

use consign_core::filter::Hint;
use consign_filter::{FilterOptions, RedisFilter};

use crate::operations::{hint, options, points, remember};
use crate::server::variable;

#[tokio::test(flavor = "multi_thread")]
async fn server_is_trusted_by_the_authority_that_is_named() {
    let options = FilterOptions {
        ca_file: Some(variable("CONSIGN_TEST_REDIS_TLS_CA").into()),
        ..options(&variable("CONSIGN_TEST_REDIS_TLS_URL"))
    };
    let filter = RedisFilter::new(options).unwrap();
    let operation = points("order-1", "1");

    remember(&filter, std::slice::from_ref(&operation)).await;

    assert_eq!(hint(&filter, &operation).await, Hint::Repeat);
    assert_eq!(filter.totals().errors, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_of_an_unknown_authority_is_refused() {
    let filter = RedisFilter::new(options(&variable("CONSIGN_TEST_REDIS_TLS_URL"))).unwrap();

    assert_eq!(hint(&filter, &points("order-1", "1")).await, Hint::Unknown);

    assert_eq!(filter.totals().errors, 1);
}

/// No fallback to a plain connection, however the server answers.
#[tokio::test(flavor = "multi_thread")]
async fn plain_listener_is_refused_where_tls_is_asked_for() {
    let plain = variable("CONSIGN_TEST_REDIS_URL").replace("redis://", "rediss://");
    let filter =
        RedisFilter::new(FilterOptions { deadline: Duration::from_secs(5), ..options(&plain) }).unwrap();

    assert_eq!(hint(&filter, &points("order-1", "1")).await, Hint::Unknown);

    assert_eq!(filter.totals().errors, 1);
}
