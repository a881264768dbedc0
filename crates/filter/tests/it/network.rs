//! The network between: slow, lossy, cut.

use std::net::SocketAddr;
use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow, Proxy};
use consign_core::filter::{Hint, RepeatFilter};
use consign_core::operation::Operation;
use consign_filter::{FilterOptions, RedisFilter};
use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::operations::{eventually, hint, options, points, remember};
use crate::server::{shared, variable};

async fn proxy(url: &str) -> Proxy {
    let server = url.into_connection_info().unwrap();
    let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = server.addr() else {
        panic!("the shared server is on TCP")
    };
    let mut addresses = tokio::net::lookup_host((host.as_str(), *port)).await.unwrap();
    Proxy::start(addresses.find(SocketAddr::is_ipv4).unwrap()).await.unwrap()
}

fn through(proxy: &Proxy, deadline: Duration) -> FilterOptions {
    FilterOptions { deadline, ..options(&format!("redis://{}/", proxy.address())) }
}

/// With a round trip per operation, a hundred of them would take 10 s.
#[tokio::test]
async fn batch_takes_one_round_trip() {
    let proxy = proxy(&shared()).await;
    let filter = RedisFilter::new(through(&proxy, Duration::from_secs(3))).unwrap();
    let operations: Vec<Operation> = (0..100).map(|order| points(&format!("order-{order}"), "1")).collect();
    proxy.set(Direction::ToServer, Flow::Delay(Duration::from_millis(50)));
    proxy.set(Direction::ToClient, Flow::Delay(Duration::from_millis(50)));

    remember(&filter, &operations).await;
    let hints = filter.hints(&operations.iter().collect::<Vec<_>>()).await;

    assert_eq!(hints, [Hint::Repeat; 100]);
}

#[tokio::test]
async fn nothing_to_ask_makes_no_connection() {
    let proxy = proxy(&shared()).await;
    let filter = RedisFilter::new(through(&proxy, Duration::from_secs(3))).unwrap();

    assert_eq!(filter.hints(&[]).await, []);
    filter.remember(&[]).await;

    assert_eq!(proxy.connections(), 0);
}

/// A connection whose answers were lost is replaced, though both ends believe in it (redis-rs/redis-rs#984: broken once,
/// and never whole again).
#[tokio::test]
async fn half_open_connection_is_replaced() {
    let proxy = proxy(&shared()).await;
    let filter = RedisFilter::new(through(&proxy, Duration::from_millis(500))).unwrap();
    let operation = points("order-1", "1");
    remember(&filter, std::slice::from_ref(&operation)).await;
    assert_eq!(hint(&filter, &operation).await, Hint::Repeat);

    proxy.set(Direction::ToClient, Flow::Swallow);
    assert_eq!(hint(&filter, &operation).await, Hint::Unknown);
    proxy.heal();

    assert_eq!(hint(&filter, &operation).await, Hint::Repeat);
    assert_eq!(proxy.connections(), 2);
    assert_eq!(filter.totals().errors, 1);
}

#[tokio::test]
async fn cut_connection_is_replaced() {
    let proxy = proxy(&shared()).await;
    let filter = RedisFilter::new(through(&proxy, Duration::from_secs(3))).unwrap();
    let operation = points("order-1", "1");
    remember(&filter, std::slice::from_ref(&operation)).await;

    for how in [Cut::Close, Cut::Reset] {
        let before = filter.totals().errors;
        proxy.cut(how);
        eventually("the operation is recognised", async || hint(&filter, &operation).await == Hint::Repeat)
            .await;
        assert!(filter.totals().errors <= before + 1, "{how:?}: {:?}", filter.totals());
    }
}

/// The handshake takes longer than a caller waits. It goes on when its caller has given up, or no connection would ever
/// be made.
#[tokio::test]
async fn slow_handshake_goes_on_without_its_caller() {
    let proxy = proxy(&variable("CONSIGN_TEST_REDIS_TLS_URL")).await;
    let mut options = through(&proxy, Duration::from_millis(100));
    options.url = format!("rediss://{}/", proxy.address());
    options.ca_file = Some(variable("CONSIGN_TEST_REDIS_TLS_CA").into());
    let filter = RedisFilter::new(options).unwrap();
    let operation = points("order-1", "1");
    proxy.set(Direction::ToServer, Flow::Delay(Duration::from_millis(400)));

    assert_eq!(hint(&filter, &operation).await, Hint::Unknown);
    assert_eq!(filter.totals().errors, 1);
    let greeting = proxy.bytes(Direction::ToServer);
    let went_on = async || proxy.bytes(Direction::ToServer) > greeting;
    eventually("the client answers the server's part of the handshake", went_on).await;
    assert_eq!(proxy.connections(), 1);
    proxy.heal();

    let recognised = async || {
        remember(&filter, std::slice::from_ref(&operation)).await;
        hint(&filter, &operation).await == Hint::Repeat
    };
    eventually("the operation is recognised", recognised).await;
}

/// redis/redis-py#2624, redis/redis-py#2665: a caller that was cancelled left its answer behind for the next one to read.
#[tokio::test]
async fn answers_of_cancelled_questions_reach_nobody_else() {
    let proxy = proxy(&shared()).await;
    let filter = RedisFilter::new(through(&proxy, Duration::from_secs(10))).unwrap();
    let [known, unknown] = [points("order-1", "1"), points("order-2", "1")];
    remember(&filter, std::slice::from_ref(&known)).await;
    proxy.set(Direction::ToClient, Flow::Delay(Duration::from_millis(20)));

    for _ in 0..20 {
        let cancelled = tokio::time::timeout(Duration::from_millis(5), hint(&filter, &known)).await;
        assert!(cancelled.is_err(), "the answer takes longer");
        assert_eq!(hint(&filter, &unknown).await, Hint::Unknown);
        assert_eq!(hint(&filter, &known).await, Hint::Repeat);
    }

    assert_eq!(proxy.connections(), 1);
    assert_eq!(filter.totals().errors, 0);
}
