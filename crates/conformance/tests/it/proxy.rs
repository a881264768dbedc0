//! The proxy, between a client and a server that sends back what it gets.

use std::io;
use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow, Proxy};
use consign_conformance::waiting::{eventually, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(10);
/// Long enough for bytes on loopback, short enough for a test.
const SILENCE: Duration = Duration::from_millis(150);

/// An echo server behind a proxy.
async fn echo() -> Proxy {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let upstream = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = socket.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Proxy::start(upstream).await.unwrap()
}

async fn connect(proxy: &Proxy) -> TcpStream {
    within(PATIENCE, TcpStream::connect(proxy.address())).await.unwrap()
}

async fn round_trip(socket: &mut TcpStream, bytes: &[u8]) {
    socket.write_all(bytes).await.unwrap();
    let mut back = vec![0; bytes.len()];
    within(PATIENCE, socket.read_exact(&mut back)).await.unwrap();
    assert_eq!(back, bytes);
}

async fn hears_nothing(socket: &mut TcpStream) -> bool {
    let mut byte = [0];
    timeout(SILENCE, socket.read(&mut byte)).await.is_err()
}

/// What reading comes to when the connection has ended.
async fn end_of(socket: &mut TcpStream) -> io::Result<usize> {
    let mut rest = Vec::new();
    within(PATIENCE, socket.read_to_end(&mut rest)).await
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;

    round_trip(&mut socket, &vec![7; 100_000]).await;

    assert_eq!(proxy.connections(), 1);
    assert_eq!((proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient)), (100_000, 100_000));
}

#[tokio::test]
async fn a_half_closed_connection_still_answers() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;

    socket.write_all(b"last words").await.unwrap();
    socket.shutdown().await.unwrap();

    let mut rest = String::new();
    within(PATIENCE, socket.read_to_string(&mut rest)).await.unwrap();
    assert_eq!(rest, "last words");
}

#[tokio::test]
async fn swallowed_answers_never_come_though_the_server_heard() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;
    round_trip(&mut socket, b"before").await;

    proxy.set(Direction::ToClient, Flow::Swallow);
    socket.write_all(b"unheard").await.unwrap();

    assert!(hears_nothing(&mut socket).await);
    eventually(PATIENCE, || async { proxy.bytes(Direction::ToClient) == 13 }).await;
    proxy.heal();
    round_trip(&mut socket, b"after").await;
}

#[tokio::test]
async fn swallowed_requests_never_reach_the_server() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;
    proxy.set(Direction::ToServer, Flow::Swallow);

    socket.write_all(b"lost").await.unwrap();

    assert!(hears_nothing(&mut socket).await);
    assert_eq!((proxy.bytes(Direction::ToServer), proxy.bytes(Direction::ToClient)), (4, 0));
}

#[tokio::test]
async fn delayed_bytes_come_late_and_whole() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;
    proxy.set(Direction::ToClient, Flow::Delay(SILENCE));
    let started = Instant::now();

    round_trip(&mut socket, b"patience").await;

    assert!(started.elapsed() >= SILENCE);
}

#[tokio::test]
async fn slow_bytes_come_whole_and_at_their_rate() {
    const BYTES: u64 = 4000;
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;
    proxy.set(Direction::ToServer, Flow::Slow(10 * BYTES));
    let started = Instant::now();

    round_trip(&mut socket, &vec![7; BYTES.try_into().unwrap()]).await;

    // A tenth of a second for a tenth of the rate, less the pause behind the last slice.
    assert!(started.elapsed() >= Duration::from_millis(80));
}

#[tokio::test]
async fn a_cut_ends_open_connections_and_not_the_next_one() {
    for how in [Cut::Close, Cut::Reset] {
        let proxy = echo().await;
        let mut socket = connect(&proxy).await;
        round_trip(&mut socket, b"before").await;

        proxy.cut(how);

        let end = end_of(&mut socket).await;
        match how {
            Cut::Close => assert_eq!(end.unwrap(), 0),
            Cut::Reset => assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset),
        }
        round_trip(&mut connect(&proxy).await, b"after").await;
    }
}

#[tokio::test]
async fn a_byte_budget_cuts_the_connection_at_that_byte() {
    let proxy = echo().await;
    let mut socket = connect(&proxy).await;
    round_trip(&mut socket, b"before the budget counts").await;
    proxy.set(Direction::ToClient, Flow::CutAfter(5));

    socket.write_all(b"0123456789").await.unwrap();

    let mut heard = Vec::new();
    let end = within(PATIENCE, socket.read_to_end(&mut heard)).await;
    assert!(end.is_err(), "the connection was reset");
    assert!(b"01234".starts_with(&heard), "{heard:?}");
}

#[tokio::test]
async fn refused_connections_end_at_once_and_open_ones_live_on() {
    let proxy = echo().await;
    let mut open = connect(&proxy).await;
    round_trip(&mut open, b"before").await;

    proxy.refuse();

    // The handshake is the kernel's: the refusal shows at the first read.
    let refused = match TcpStream::connect(proxy.address()).await {
        Ok(mut socket) => end_of(&mut socket).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!((proxy.refused(), proxy.connections()), (1, 1));
    round_trip(&mut open, b"still here").await;
    proxy.heal();
    round_trip(&mut connect(&proxy).await, b"again").await;
}

#[tokio::test]
async fn a_dropped_proxy_takes_its_connections_along() {
    let proxy = echo().await;
    let address = proxy.address();
    let mut socket = connect(&proxy).await;
    round_trip(&mut socket, b"before").await;

    drop(proxy);

    assert_eq!(end_of(&mut socket).await.unwrap_or(0), 0);
    eventually(PATIENCE, || async { TcpStream::connect(address).await.is_err() }).await;
}
