//! What a send came to, at a scripted proxy.

use std::time::Duration;

use consign_rocketmq::{
    Address, CallError, Code, Credentials, Message, Options, Producer, Readiness, TlsOptions,
};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::messages::SendMessageResponse;
use crate::peer::{Event, Peer, Reply, entry, far, soon, status};

fn message(id: &str) -> Message {
    Message { topic: "t".to_owned(), message_id: id.to_owned(), body: "{}".into(), ..Message::default() }
}

async fn producer(options: &Options) -> Producer {
    Producer::start(options, ["t".to_owned()]).await.unwrap()
}

#[tokio::test]
async fn batch_is_judged_by_its_entries_and_never_by_its_top_status() {
    let peer = Peer::start().await;
    peer.on_send(|_| {
        let entries = vec![entry(20000), entry(42900), entry(50402)];
        Reply::Answer(SendMessageResponse { status: status(30000), entries })
    });
    let producer = producer(&peer.options()).await;

    let results = producer.send_many(vec![message("1"), message("2"), message("3")], far()).await;

    assert_eq!(results[0].as_ref().unwrap().message_id, "1");
    let codes = results.iter().map(|result| result.as_ref().err().and_then(CallError::code));
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [None, Some(Code::TOO_MANY_REQUESTS), Some(Code::SLAVE_PERSISTENCE_TIMEOUT)]
    );
}

#[tokio::test]
async fn top_status_that_is_ok_does_not_hide_an_entry_that_is_not() {
    let peer = Peer::start().await;
    peer.on_send(|_| {
        Reply::Answer(SendMessageResponse { status: status(20000), entries: vec![entry(50400)] })
    });
    let producer = producer(&peer.options()).await;

    let error = producer.send(message("1"), far()).await.unwrap_err();

    assert_eq!(error.code(), Some(Code::PROXY_TIMEOUT));
}

/// The published client ends the process here.
#[tokio::test]
async fn code_nobody_knows_is_an_answer_like_any_other() {
    let peer = Peer::start().await;
    peer.on_send(|_| {
        Reply::Answer(SendMessageResponse { status: status(20000), entries: vec![entry(49_999)] })
    });
    let producer = producer(&peer.options()).await;

    let error = producer.send(message("1"), far()).await.unwrap_err();

    assert_eq!(error, CallError::Answered { code: Code::new(49_999), message: "scripted 49999".to_owned() });
}

#[tokio::test]
async fn answer_without_entries_is_unknown_when_it_is_ok_and_the_answer_when_it_is_not() {
    let peer = Peer::start().await;
    peer.on_send(|request| {
        let code = if request.messages.len() == 1 { 20000 } else { 40402 };
        Reply::Answer(SendMessageResponse { status: status(code), entries: Vec::new() })
    });
    let producer = producer(&peer.options()).await;

    let one = producer.send(message("1"), far()).await.unwrap_err();
    let two = producer.send_many(vec![message("1"), message("2")], far()).await;

    assert!(matches!(one, CallError::Unknown { .. }), "{one}");
    assert!(two.iter().all(|result| result.as_ref().unwrap_err().code() == Some(Code::TOPIC_NOT_FOUND)));
}

#[tokio::test]
async fn connection_cut_after_the_request_left_is_unknown() {
    let mut peer = Peer::start().await;
    peer.on_send(|_| Reply::Silence);
    let producer = producer(&peer.options()).await;
    let sending = tokio::spawn({
        let producer = producer.clone();
        async move { producer.send(message("1"), far()).await }
    });
    peer.next("the request", |event| matches!(event, Event::Sent(..)).then_some(())).await;

    peer.cut();
    let error = soon("the end", sending).await.unwrap().unwrap_err();

    assert!(matches!(error, CallError::Unknown { .. }), "{error}");
}

#[tokio::test]
async fn deadline_after_the_request_left_is_unknown() {
    let mut peer = Peer::start().await;
    peer.on_send(|_| Reply::Silence);
    let producer = producer(&peer.options()).await;
    producer.route("t", far()).await.unwrap();

    let error = producer.send(message("1"), Instant::now() + Duration::from_millis(500)).await.unwrap_err();

    peer.next("the request", |event| matches!(event, Event::Sent(..)).then_some(())).await;
    assert!(matches!(error, CallError::Unknown { .. }), "{error}");
}

#[tokio::test]
async fn server_that_fails_without_a_code_is_unknown_and_one_that_forbids_has_answered() {
    let peer = Peer::start().await;
    let mut failures = vec![tonic::Status::permission_denied("no"), tonic::Status::unavailable("gone")];
    peer.on_send(move |_| Reply::Fails(failures.pop().unwrap()));
    let producer = producer(&peer.options()).await;

    let unavailable = producer.send(message("1"), far()).await.unwrap_err();
    let forbidden = producer.send(message("2"), far()).await.unwrap_err();

    assert!(matches!(unavailable, CallError::Unknown { .. }), "{unavailable}");
    assert_eq!(forbidden.code(), Some(Code::FORBIDDEN));
}

#[tokio::test]
async fn refused_connection_is_not_sent_and_another_broker_takes_the_message() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let closed = Address::new("127.0.0.1", closed);
    let peer = Peer::start().await;
    peer.route(&[&closed]);
    let alone = producer(&peer.options()).await;
    let refused = alone.send(message("1"), far()).await.unwrap_err();
    peer.route(&[&closed, &peer.address]);

    let producer = producer(&peer.options()).await;
    let first = producer.send(message("2"), far()).await.unwrap();
    let second = producer.send(message("3"), far()).await.unwrap();

    assert!(matches!(refused, CallError::NotSent { .. }), "{refused}");
    assert_eq!((first.endpoint, second.endpoint), (peer.address.clone(), peer.address.clone()));
}

/// Silence in the TLS handshake: the socket stands, but no call can be on it.
#[tokio::test]
async fn deadline_before_the_connection_stands_is_not_sent() {
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addresses = vec![Address::new("127.0.0.1", mute.local_addr().unwrap().port())];
    let ca_file = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stranger-ca.pem").into());
    let tls = Some(TlsOptions { ca_file, ..TlsOptions::default() });
    let options = Options { addresses, tls, ..Options::default() };
    let producer = producer(&options).await;

    let error = producer.send(message("1"), Instant::now() + Duration::from_millis(200)).await.unwrap_err();

    assert!(matches!(error, CallError::NotSent { .. }), "{error}");
}

#[tokio::test]
async fn every_call_is_signed_and_says_who_calls() {
    let mut peer = Peer::start().await;
    let credentials = Credentials { access_key: "app".to_owned(), secret_key: "secret".to_owned() };
    let namespace = "shop".to_owned();
    let options = Options { credentials: Some(credentials), namespace, ..peer.options() };
    let producer = producer(&options).await;
    producer.send(message("1"), far()).await.unwrap();

    let sent = |event| if let Event::Sent(headers) = event { Some(headers) } else { None };
    let headers = peer.next("the request", sent).await;
    let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();

    assert_eq!(header("x-mq-client-id"), producer.client_id());
    assert_eq!((header("x-mq-namespace").as_str(), header("x-mq-language").as_str()), ("shop", "RUST"));
    assert_eq!(header("x-mq-date-time").len(), "20251201T235959Z".len());
    let start = "MQv2-HMAC-SHA1 Credential=app, SignedHeaders=x-mq-date-time, Signature=";
    let signature = header("authorization").strip_prefix(start).unwrap().to_owned();
    assert_eq!(signature.len(), 40);
    assert!(!header("authorization").contains("secret"));
    assert!(headers.get("grpc-timeout").is_some());
}

#[tokio::test]
async fn closed_producer_says_goodbye() {
    let mut peer = Peer::start().await;
    let producer = producer(&peer.options()).await;
    let mut readiness = producer.readiness();
    let connected = readiness.wait_for(|readiness| *readiness == Readiness::Connected);
    drop(soon("the connection", connected).await.unwrap());

    producer.close().await;

    peer.next("the goodbye", |event| matches!(event, Event::Terminated).then_some(())).await;
    assert!(soon("the end of the checks", producer.orphans().next()).await.is_none());
}
