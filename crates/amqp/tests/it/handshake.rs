//! Opening a connection: what is agreed, and each way to fail.

use std::error::Error;
use std::time::Duration;

use consign_amqp::{ConnectError, Connection};

use crate::peer::{Listener, Tune, close, connected, soon};

#[tokio::test]
async fn server_info_and_credentials_are_exchanged() {
    let listener = Listener::bind().await;
    let mut options = listener.options();
    options.connection_name = Some("relay-1".to_owned());
    let (connection, start_ok) = tokio::join!(Connection::open(&options), async {
        let mut peer = listener.accept().await;
        let start_ok = peer.greet().await;
        peer.send(&close(0, 403, "ACCESS_REFUSED - enough seen")).await;
        start_ok
    });
    assert!(connection.is_err());
    let contains = |part: &[u8]| start_ok.windows(part.len()).any(|window| window == part);
    assert!(contains(b"\x05PLAIN\0\0\0\x0b\0app\0s3cr3t\x05en_US"));
    for capability in [
        "publisher_confirms",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "authentication_failure_close",
        "exchange_exchange_bindings",
    ] {
        assert!(contains(format!("{capability}t\x01").as_bytes()), "{capability}");
    }
    assert!(contains(b"\x0fconnection_nameS\0\0\0\x07relay-1"));

    let (connection, _peer) = connected(Tune::default()).await;
    let server = connection.server();
    assert_eq!((server.product.as_str(), server.version.as_str()), ("Scripted", "1.2.3"));
    assert!(server.capabilities.contains("publisher_confirms") && server.capabilities.len() == 1);
}

/// Refuses after the credentials, or after the virtual host was named.
async fn refused(code: u16, after_tune: bool) -> ConnectError {
    let listener = Listener::bind().await;
    let options = listener.options();
    let (connection, ()) = tokio::join!(Connection::open(&options), async {
        let mut peer = listener.accept().await;
        peer.greet().await;
        if after_tune {
            let tune = crate::peer::method(0, 10, 30, &[&[0; 8]]);
            peer.send(&tune).await;
            let agreed = peer.expect(0, 10, 31).await;
            assert_eq!(agreed, [&2047_u16.to_be_bytes()[..], &131_072_u32.to_be_bytes(), &[0, 60]].concat());
            peer.expect(0, 10, 40).await;
        }
        peer.send(&close(0, code, "REFUSED")).await;
    });
    connection.unwrap_err()
}

#[tokio::test]
async fn refused_credentials_and_refused_virtual_hosts_are_told_apart() {
    let error = refused(403, false).await;
    assert!(matches!(&error, ConnectError::AuthenticationRefused { user, .. } if user == "app"), "{error:?}");
    let error = refused(530, true).await;
    assert!(
        matches!(&error, ConnectError::VirtualHostRefused { virtual_host, .. } if virtual_host == "orders")
    );
    let error = refused(541, false).await;
    assert!(matches!(&error, ConnectError::Closed { code: 541, .. }), "{error:?}");
}

#[tokio::test]
async fn nobody_at_the_port_is_a_refused_connection() {
    let listener = Listener::bind().await;
    let options = listener.options();
    drop(listener);
    let error = soon("an answer", Connection::open(&options)).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error:?}");
    let shown = format!("{error} {error:?} {:?} {options:?}", error.source());
    assert!(!shown.contains("s3cr3t"), "{shown}");
}

#[tokio::test]
async fn unknown_host_does_not_resolve() {
    let options = "amqp://no-such-host.invalid/".parse().unwrap();
    let error = soon("an answer", Connection::open(&options)).await.unwrap_err();
    assert!(
        matches!(&error, ConnectError::Resolve { host, .. } if host == "no-such-host.invalid"),
        "{error:?}"
    );
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = Listener::bind().await;
    let mut options = listener.options();
    options.connection_timeout = Duration::from_millis(500);
    let (connection, _peer) = tokio::join!(Connection::open(&options), listener.accept());
    let error = connection.unwrap_err();
    assert!(matches!(error, ConnectError::Timeout { stage: "the amqp handshake", .. }), "{error:?}");
}

#[tokio::test]
async fn server_of_another_protocol_is_named_as_such() {
    for words in [&b"AMQP\0\x01\0\0"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let listener = Listener::bind().await;
        let options = listener.options();
        let (connection, ()) = tokio::join!(Connection::open(&options), async {
            let mut peer = listener.accept().await;
            peer.send(words).await;
        });
        let error = connection.unwrap_err();
        assert!(matches!(error, ConnectError::Protocol(_)), "{error:?}");
    }
}

#[tokio::test]
async fn plain_server_behind_a_tls_uri_is_no_connection() {
    let listener = Listener::bind().await;
    let mut options = listener.options();
    let ca_file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stranger-ca.pem").into();
    options.tls = Some(consign_amqp::TlsOptions { ca_file: Some(ca_file), ..Default::default() });
    let (connection, ()) = tokio::join!(Connection::open(&options), async {
        let mut peer = listener.accept().await;
        peer.send(b"AMQP\0\0\x09\x01").await;
    });
    assert!(matches!(connection.unwrap_err(), ConnectError::Tls(_)));
    options.tls =
        Some(consign_amqp::TlsOptions { ca_file: Some("missing.pem".into()), ..Default::default() });
    let (connection, _peer) = tokio::join!(Connection::open(&options), listener.accept());
    let error = connection.unwrap_err();
    assert!(matches!(&error, ConnectError::Tls(text) if text.contains("missing.pem")), "{error:?}");
}
