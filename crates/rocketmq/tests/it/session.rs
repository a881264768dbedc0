//! What keeps a client known to a scripted proxy: streams, settings, heartbeats, checks and handles.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use consign_rocketmq::{Code, Consumer, Filter, Message, Producer, Readiness, Resolution, Subscription};

use tokio::time::Instant;

use crate::messages::telemetry_command::Command;
use crate::messages::{
    self, ChangeInvisibleDurationResponse, HeartbeatResponse, ReceiveMessageResponse,
    RecoverOrphanedTransactionCommand, Resource, SendMessageResponse, SystemProperties, TelemetryCommand,
    TransactionResolution, TransactionSource, receive_message_response, settings,
};
use crate::peer::{Event, Peer, Reply, entry, far, soon, status};

fn message(id: &str) -> Message {
    Message { topic: "t".to_owned(), message_id: id.to_owned(), body: "{}".into(), ..Message::default() }
}

async fn producer(peer: &Peer) -> Producer {
    let producer = Producer::start(&peer.options(), ["t".to_owned()]).await.unwrap();
    let mut readiness = producer.readiness();
    let connected = readiness.wait_for(|readiness| *readiness == Readiness::Connected);
    drop(soon("the connection", connected).await.unwrap());
    producer
}

/// apache/rocketmq-clients#903 and #906: the published client never opens it again.
#[tokio::test]
async fn stream_that_ends_is_opened_again_with_the_settings() {
    let mut peer = Peer::start().await;
    let producer = producer(&peer).await;
    let first = peer.settings().await;

    peer.end_streams();
    let second = peer.settings().await;
    peer.cut();
    let third = peer.settings().await;

    let Some(settings::PubSub::Publishing(publishing)) = &first.pub_sub else { panic!("{first:?}") };
    assert_eq!(publishing.topics[0].name, "t");
    assert_eq!(first.backoff_policy.as_ref().unwrap().max_attempts, 1);
    assert_eq!((&first, &first), (&second, &third));
    let mut readiness = producer.readiness();
    let connected = readiness.wait_for(|readiness| *readiness == Readiness::Connected);
    drop(soon("the connection", connected).await.unwrap());
}

/// apache/rocketmq-clients#1137.
#[tokio::test]
async fn proxy_that_lost_the_settings_gets_them_again() {
    let mut peer = Peer::start().await;
    peer.on_heartbeat(|_| Reply::Answer(HeartbeatResponse { status: status(40015) }));
    let _producer = producer(&peer).await;

    peer.settings().await;
    peer.next("a heartbeat", |event| matches!(event, Event::Heartbeat).then_some(())).await;

    peer.settings().await;
}

fn check(id: &str) -> TelemetryCommand {
    let message = messages::Message {
        topic: Some(Resource { name: "t".to_owned(), ..Resource::default() }),
        system_properties: Some(SystemProperties {
            message_id: id.to_owned(),
            ..SystemProperties::default()
        }),
        ..messages::Message::default()
    };
    let command =
        RecoverOrphanedTransactionCommand { message: Some(message), transaction_id: "tx-9".to_owned() };
    TelemetryCommand { status: None, command: Some(Command::RecoverOrphanedTransactionCommand(command)) }
}

#[tokio::test]
async fn check_is_answered_while_a_heartbeat_is_under_way() {
    let mut peer = Peer::start().await;
    peer.on_heartbeat(|_| Reply::Silence);
    let producer = producer(&peer).await;
    peer.next("a heartbeat", |event| matches!(event, Event::Heartbeat).then_some(())).await;

    peer.tell(&check("m-1"));
    let orphan = soon("the check", producer.orphans().next()).await.unwrap();
    orphan.answer(Resolution::Commit, far()).await.unwrap();

    let end = peer.end().await;
    assert_eq!((end.message_id.as_str(), end.transaction_id.as_str()), ("m-1", "tx-9"));
    assert_eq!(end.resolution, i32::from(TransactionResolution::Commit));
    assert_eq!(end.source, i32::from(TransactionSource::SourceServerCheck));
}

#[tokio::test]
async fn checks_nobody_answers_do_not_stop_the_stream() {
    let mut peer = Peer::start().await;
    let producer = producer(&peer).await;
    peer.settings().await;

    for _ in 0..2000 {
        peer.tell(&check("m-1"));
    }
    peer.end_streams();

    peer.settings().await;
    assert!(soon("a check", producer.orphans().next()).await.is_some());
}

/// apache/rocketmq#9431: only the proxy that took the half message knows where it is.
#[tokio::test]
async fn end_goes_to_the_proxy_that_took_the_half_message() {
    let (mut one, mut other) = (Peer::start().await, Peer::start().await);
    one.route(&[&one.address, &other.address]);
    let producer = Producer::start(&one.options(), ["t".to_owned()]).await.unwrap();
    for id in ["1", "2", "3", "4"] {
        let half = producer.send_half(message(id), far()).await.unwrap();
        assert_eq!(half.transaction_id(), "tx");
        let taker = if half.receipt().endpoint == one.address { &mut one } else { &mut other };

        producer.end(half, Resolution::Commit, far()).await.unwrap();

        let end = taker.end().await;
        assert_eq!(end.message_id, id);
        assert_eq!(end.source, i32::from(TransactionSource::SourceClient));
    }
}

/// apache/rocketmq#1390.
#[tokio::test]
async fn half_message_that_is_stored_and_not_safe_is_rolled_back() {
    for code in [50002, 50401, 50402] {
        let mut peer = Peer::start().await;
        peer.on_send(move |_| {
            Reply::Answer(SendMessageResponse { status: status(20000), entries: vec![entry(code)] })
        });
        let producer = producer(&peer).await;

        let error = producer.send_half(message("1"), far()).await.unwrap_err();

        assert_eq!(error.code(), Some(Code::new(code)));
        let end = peer.end().await;
        assert_eq!(end.resolution, i32::from(TransactionResolution::Rollback));
        assert_eq!((end.message_id.as_str(), end.transaction_id.as_str()), ("1", "1"));
    }
}

fn delivery(id: &str) -> ReceiveMessageResponse {
    let system = SystemProperties {
        message_id: id.to_owned(),
        receipt_handle: Some(format!("handle-{id}")),
        ..SystemProperties::default()
    };
    let message = messages::Message {
        topic: Some(Resource { name: "t".to_owned(), ..Resource::default() }),
        system_properties: Some(system),
        ..messages::Message::default()
    };
    ReceiveMessageResponse { content: Some(receive_message_response::Content::Message(message)) }
}

async fn consumer(peer: &Peer) -> Consumer {
    let subscription = Subscription { topic: "t".to_owned(), filter: Filter::All };
    Consumer::start(&peer.options(), "g", vec![subscription]).await.unwrap()
}

/// apache/rocketmq#9515: flow control while the time is changed.
#[tokio::test]
async fn changed_handle_replaces_the_old_one_only_when_the_server_said_ok() {
    let peer = Peer::start().await;
    peer.on_receive(vec![delivery("1")]);
    let mut codes = vec![20000, 42900];
    peer.on_change(move |_| {
        let receipt_handle = "changed".to_owned();
        Reply::Answer(ChangeInvisibleDurationResponse {
            status: status(codes.pop().unwrap()),
            receipt_handle,
        })
    });
    let consumer = consumer(&peer).await;
    let wait = Duration::from_secs(1);
    let received = consumer.receive(1, wait, wait).await.unwrap().remove(0);

    let kept = consumer.change_invisible(received.handle, wait, far()).await.unwrap_err();
    assert_eq!((kept.error.code(), kept.handle.as_str()), (Some(Code::TOO_MANY_REQUESTS), "handle-1"));
    let changed = consumer.change_invisible(kept.handle, wait, far()).await.unwrap();

    assert_eq!(changed.as_str(), "changed");
}

/// A proxy gives back at once what a cancelled poll brings, and a broker of 5.5.0 loses what is given back in the
/// millisecond it was taken.
#[tokio::test]
async fn poll_whose_caller_is_gone_is_not_cancelled_and_gives_back_what_it_brings() {
    let mut peer = Peer::start().await;
    peer.on_receive(vec![delivery("1")]);
    peer.let_polls_wait(true);
    let consumer = consumer(&peer).await;
    let wait = Duration::from_secs(1);
    let poll = tokio::spawn(async move { consumer.receive(1, wait, wait).await });
    peer.next("the poll", |event| matches!(event, Event::Receiving).then_some(())).await;

    poll.abort();
    assert!(soon("the end of the caller", poll).await.unwrap_err().is_cancelled());
    peer.let_polls_wait(false);

    let changed = |event| if let Event::Changed(request) = event { Some(request) } else { None };
    let changed = peer.next("the message given back", changed).await;
    assert_eq!(changed.receipt_handle, "handle-1");
    assert_eq!(changed.invisible_duration.unwrap().seconds, 0);
}

/// The broker's record of the new time would have the key of the old one (`PopReviveService` of apache/rocketmq 5.5.0).
#[tokio::test]
async fn no_handle_is_changed_in_the_millisecond_it_was_given_out() {
    const CHANGES: usize = 20;
    let peer = Peer::start().await;
    peer.on_receive(vec![delivery("1")]);
    let came = Arc::new(Mutex::new(Vec::new()));
    let seen = came.clone();
    peer.on_change(move |_| {
        seen.lock().unwrap().push(Instant::now());
        let receipt_handle = "changed".to_owned();
        Reply::Answer(ChangeInvisibleDurationResponse { status: status(20000), receipt_handle })
    });
    let consumer = consumer(&peer).await;
    let wait = Duration::from_secs(1);
    let mut handle = consumer.receive(1, wait, wait).await.unwrap().remove(0).handle;

    for _ in 0..CHANGES {
        handle = consumer.change_invisible(handle, wait, far()).await.unwrap();
    }

    let came = came.lock().unwrap();
    assert_eq!(came.len(), CHANGES);
    // Each handle was given out after the change before it had come in.
    let shortest = came.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(shortest > Duration::from_millis(1), "{shortest:?} between two changes");
}

#[tokio::test]
async fn each_handle_of_an_acknowledgement_has_a_result_of_its_own() {
    let mut peer = Peer::start().await;
    peer.on_receive(vec![delivery("1"), delivery("2"), delivery("3")]);
    let consumer = consumer(&peer).await;
    let wait = Duration::from_secs(1);
    let received = consumer.receive(3, wait, wait).await.unwrap();

    let handles = received.into_iter().map(|received| received.handle).collect();
    let results = consumer.ack_many(handles, far()).await;

    let request =
        peer.next("the call", |event| if let Event::Acked(request) = event { Some(request) } else { None });
    assert_eq!(request.await.entries.len(), 3);
    assert!(results[0].is_ok() && results[2].is_ok());
    let expired = results[1].as_ref().unwrap_err();
    assert_eq!(
        (expired.error.code(), expired.handle.as_str()),
        (Some(Code::INVALID_RECEIPT_HANDLE), "handle-2")
    );
}
