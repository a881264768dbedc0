//! The server is flushed, killed, frozen, locked or full. No call fails or waits; the filter comes back by itself.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_core::filter::Hint;
use consign_core::operation::Operation;
use consign_filter::{FilterOptions, RedisFilter};
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

    for number in 2..10 {
        let other = points(&format!("order-{number}"), "1");
        remember(&filter, std::slice::from_ref(&other)).await;
        assert_eq!(hint(&filter, &other).await, Hint::Unknown);
        assert_eq!(hint(&filter, &operation).await, Hint::Repeat);
    }

    assert_eq!(filter.totals().errors, 8);
    assert_eq!(filter.totals().skipped, 0);
}

/// A wrong password is no reason to fail, nor to show it, whatever the server echoes.
#[tokio::test]
async fn wrong_password_is_unknown_and_shown_nowhere() {
    let server = PrivateServer::start();
    let mut connection = connect(&server.url()).await;
    let locked = redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("right-one").to_owned();
    let () = locked.query_async(&mut connection).await.unwrap();
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    // The test has one thread, and so does the filter.
    let _scope = tracing::subscriber::set_default(subscriber);
    let wrong = format!("redis://:s3cret-one@{}/", server.address());
    let filter = RedisFilter::new(FilterOptions { deadline: SHORT, ..options(&wrong) }).unwrap();
    let operation = points("order-1", "1");

    ask_until_left_alone(&filter, &operation).await;

    let said = format!("{filter:?} {}", log.text());
    assert!(said.contains("the filter of repeats does not answer"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    let right = format!("redis://:right-one@{}/", server.address());
    assert!(works(&RedisFilter::new(options(&right)).unwrap(), &operation).await);
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
