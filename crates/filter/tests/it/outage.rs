//! The server is flushed, killed, frozen, locked or full. No call fails or waits; the filter comes back by itself.

use std::time::Duration;

use consign_core::filter::Hint;
use consign_core::operation::Operation;
use consign_filter::{FilterOptions, RedisFilter};
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use crate::operations::{eventually, hint, options, points, remember};
use crate::server::{PrivateServer, connect};

/// Short enough to see whether it is kept, long enough for a busy machine.
const SHORT: Duration = Duration::from_millis(500);

fn filter(server: &PrivateServer) -> RedisFilter {
    RedisFilter::new(FilterOptions { deadline: SHORT, ..options(&server.url()) }).unwrap()
}

/// Whether an operation can be remembered and recognised.
async fn works(filter: &RedisFilter, operation: &Operation) -> bool {
    remember(filter, std::slice::from_ref(operation)).await;
    hint(filter, operation).await == Hint::Repeat
}

/// Asks until the circuit opens; every answer is Unknown and in time.
async fn ask_until_left_alone(filter: &RedisFilter, operation: &Operation) {
    let before = filter.totals();
    for failures in 1..=3 {
        let asked = Instant::now();
        assert_eq!(hint(filter, operation).await, Hint::Unknown);
        assert!(asked.elapsed() < SHORT * 3, "{:?}", asked.elapsed());
        assert_eq!(filter.totals().errors, before.errors + failures);
    }
    assert_eq!(filter.totals().skipped, before.skipped);
}

/// B39: everything remembered is gone from one moment to the next.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_flushed_knows_nothing_and_learns_anew() {
    let server = PrivateServer::start();
    let filter = RedisFilter::new(options(&server.url())).unwrap();
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);

    let mut connection = connect(&server.url()).await;
    let () = redis::cmd("FLUSHALL").query_async(&mut connection).await.unwrap();

    assert_eq!(hint(&filter, &operation).await, Hint::Unknown);
    assert!(works(&filter, &operation).await);
    assert_eq!(filter.totals().errors, 0);
}

/// B39: with the server down, three calls notice; the rest do not even try, until it is back.
#[tokio::test(flavor = "multi_thread")]
async fn killed_server_is_left_alone_and_found_again() {
    let server = PrivateServer::start();
    let filter = filter(&server);
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);

    server.control("kill");
    ask_until_left_alone(&filter, &operation).await;
    let errors = filter.totals().errors;
    for _ in 0..100 {
        assert_eq!(hint(&filter, &operation).await, Hint::Unknown);
    }
    remember(&filter, &[operation.clone(), points("order-2", "2")]).await;
    let totals = filter.totals();
    assert!(totals.skipped >= 102 || totals.errors > errors, "left alone, save for a probe: {totals:?}");
    assert!(totals.errors <= errors + 1, "{totals:?}");

    server.control("up");
    eventually("the filter works again", async || works(&filter, &operation).await).await;
    assert_eq!(filter.totals().contradictions, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_was_down_from_the_start_is_found_once_it_is_up() {
    let server = PrivateServer::start();
    server.control("kill");
    let filter = filter(&server);
    let operation = points("order-1", "1");

    ask_until_left_alone(&filter, &operation).await;
    server.control("up");

    eventually("the filter works", async || works(&filter, &operation).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_between_two_calls_costs_one_answer_at_most() {
    let server = PrivateServer::start();
    let filter = RedisFilter::new(options(&server.url())).unwrap();
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);

    server.control("kill");
    server.control("up");

    remember(&filter, std::slice::from_ref(&operation)).await;
    assert!(works(&filter, &operation).await);
    assert!(filter.totals().errors <= 1, "{:?}", filter.totals());
}

/// The sockets stay open, so that only the deadline tells.
#[tokio::test(flavor = "multi_thread")]
async fn frozen_server_costs_three_deadlines_and_is_found_again() {
    let server = PrivateServer::start();
    let filter = filter(&server);
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);

    server.control("pause");
    ask_until_left_alone(&filter, &operation).await;
    server.control("resume");

    eventually("the filter works again", async || works(&filter, &operation).await).await;
}

/// Nothing can be stored, but what is stored is still read, and the server is not given up for it.
#[tokio::test(flavor = "multi_thread")]
async fn full_server_still_answers() {
    let server = PrivateServer::start();
    let filter = RedisFilter::new(options(&server.url())).unwrap();
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);
    let mut connection = connect(&server.url()).await;
    let full = redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg("1").to_owned();
    let () = full.query_async(&mut connection).await.unwrap();
    let before = connections(&mut connection).await;

    for number in 2..10 {
        let other = points(&format!("order-{number}"), "1");
        remember(&filter, std::slice::from_ref(&other)).await;
        assert_eq!(hint(&filter, &other).await, Hint::Unknown);
        assert_eq!(hint(&filter, &operation).await, Hint::Repeat);
    }

    assert_eq!(filter.totals().errors, 8);
    assert_eq!(filter.totals().skipped, 0);
    assert_eq!(connections(&mut connection).await, before, "the connection is as good as any");
}

/// After a failover the server refuses to write; its name may lead to the new master, so it is connected to anew.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_the_master_no_more_is_connected_to_anew() {
    let server = PrivateServer::start();
    let filter = RedisFilter::new(options(&server.url())).unwrap();
    let operation = points("order-1", "1");
    assert!(works(&filter, &operation).await);
    let mut connection = connect(&server.url()).await;
    let nobody = redis::cmd("REPLICAOF").arg("127.0.0.1").arg("1").to_owned();
    let () = nobody.query_async(&mut connection).await.unwrap();
    let before = connections(&mut connection).await;

    remember(&filter, &[points("order-2", "2")]).await;

    assert_eq!(filter.totals().errors, 1);
    assert_eq!(hint(&filter, &points("order-2", "2")).await, Hint::Unknown);
    assert_ne!(connections(&mut connection).await, before);
}

/// How many connections the server has taken so far, as its statistics tell.
async fn connections(connection: &mut MultiplexedConnection) -> String {
    let statistics: String = redis::cmd("INFO").arg("stats").query_async(connection).await.unwrap();
    let line = statistics.lines().find(|line| line.starts_with("total_connections_received:"));
    line.expect("the server counts its connections").to_owned()
}
