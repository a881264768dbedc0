//! Whatever ends, everyone who waits is told, and nobody is told too much.

use std::time::Duration;

use consign_amqp::{ChannelError, ClosedBy, Connection, NotSent, Verdict};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::peer::{
    Listener, Tune, ack, close, connected, far, frame, message, method, publishing, returned, soon,
};

fn acked(tag: u64) -> Verdict {
    Verdict::Acked { tag: tag.try_into().unwrap() }
}

fn is_unavailable(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::NotSent { reason: NotSent::Unavailable(_) })
}

/// `B20` (OpenSDN-io/community#129, rabbitmq-dotnet-client#1928): a confirm that never comes.
#[tokio::test]
async fn publish_without_a_confirm_times_out_and_its_late_confirm_settles_nothing_else() {
    let (_connection, publisher, mut peer) = publishing().await;
    let deadline = Instant::now() + Duration::from_millis(400);
    let late = publisher.publish(message("late"), deadline);
    let patient = publisher.publish(message("patient"), far());
    peer.published_ids(2).await;
    assert_eq!(soon("a verdict", late).await, Verdict::TimedOut { blocked: false });
    assert!(Instant::now() >= deadline);
    let next = publisher.publish(message("late"), far());
    peer.published_ids(1).await;
    peer.send(&[ack(1, 1, false), returned(1, "patient"), ack(1, 2, false), ack(1, 3, false)].concat()).await;
    assert!(matches!(soon("a verdict", patient).await, Verdict::Returned { code: 312, .. }));
    assert_eq!(soon("a verdict", next).await, acked(3));
}

#[tokio::test]
async fn late_return_of_a_timed_out_publish_is_no_offence() {
    let (_connection, publisher, mut peer) = publishing().await;
    let late = publisher.publish(message("late"), Instant::now() + Duration::from_millis(400));
    peer.published_ids(1).await;
    assert_eq!(soon("a verdict", late).await, Verdict::TimedOut { blocked: false });
    let next = publisher.publish(message("next"), far());
    peer.published_ids(1).await;
    peer.send(&[returned(1, "late"), ack(1, 2, true)].concat()).await;
    assert_eq!(soon("a verdict", next).await, acked(2));
}

/// `B21` (rabbitmq/amqp091-go#46, #10, #21, #122): waiters stuck when the connection dies.
#[tokio::test]
async fn reset_with_two_hundred_outstanding_resolves_them_all() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting: Vec<_> =
        (0..200).map(|number| publisher.publish(message(&number.to_string()), far())).collect();
    peer.published_ids(200).await;
    let start = Instant::now();
    peer.reset();
    for verdict in waiting {
        let verdict = soon("a verdict", verdict).await;
        assert!(matches!(verdict, Verdict::ConnectionLost { in_flight: 200, .. }), "{verdict:?}");
    }
    assert_eq!(soon("the end", connection.close(Duration::from_secs(5))).await.by, ClosedBy::Network);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(is_unavailable(&soon("a verdict", publisher.publish(message("after"), far())).await));
    assert!(matches!(publisher.closed().await, ChannelError::ConnectionLost(_)));
    assert!(matches!(connection.open_channel().await, Err(ChannelError::ConnectionLost(_))));
}

/// `B21`: closing at once, while confirms are outstanding.
#[tokio::test]
async fn close_with_outstanding_publishes_counts_confirms_that_still_come() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting: Vec<_> =
        (1..=200).map(|number| publisher.publish(message(&number.to_string()), far())).collect();
    peer.published_ids(200).await;
    let closing = tokio::spawn({
        let connection = connection.clone();
        async move { connection.close(Duration::from_secs(5)).await }
    });
    assert_eq!(peer.expect(0, 10, 50).await[..2], 200_u16.to_be_bytes());
    peer.send(&[returned(1, "7"), ack(1, 150, true), method(0, 10, 51, &[])].concat()).await;
    for (number, verdict) in (1..).zip(waiting) {
        match (number, soon("a verdict", verdict).await) {
            (7, verdict) => assert!(matches!(verdict, Verdict::Returned { .. }), "{verdict:?}"),
            (..=150, verdict) => assert_eq!(verdict, acked(number)),
            (_, verdict) => {
                assert!(matches!(verdict, Verdict::ConnectionLost { in_flight: 50, .. }), "{verdict:?}");
            }
        }
    }
    let reason = soon("the end", closing).await.unwrap();
    assert_eq!((reason.code, reason.by), (200, ClosedBy::Client));
}

#[tokio::test]
async fn close_does_not_wait_longer_than_asked() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting = publisher.publish(message("m"), far());
    peer.published_ids(1).await;
    let reason = soon("the end", connection.close(Duration::from_millis(50))).await;
    assert_eq!(reason.by, ClosedBy::Client);
    assert!(reason.text.contains("did not answer"), "{reason}");
    assert!(matches!(soon("a verdict", waiting).await, Verdict::ConnectionLost { in_flight: 1, .. }));
}

/// `B24` (mosquito/aio-pika#98): tags of an old incarnation.
#[tokio::test]
async fn confirms_for_tags_of_an_old_incarnation_settle_nothing() {
    let (first, publisher, mut peer) = publishing().await;
    let old: Vec<_> = (0..100).map(|number| publisher.publish(message(&number.to_string()), far())).collect();
    peer.published_ids(100).await;
    peer.reset();
    for verdict in old {
        assert!(matches!(soon("a verdict", verdict).await, Verdict::ConnectionLost { in_flight: 100, .. }));
    }
    let (second, publisher, mut peer) = publishing().await;
    assert!(second.incarnation() > first.incarnation());
    assert_eq!(publisher.id().incarnation, second.incarnation());
    let new: Vec<_> = (0..100).map(|number| publisher.publish(message(&number.to_string()), far())).collect();
    peer.published_ids(100).await;
    // A peer that confuses the incarnations; the first frame is legal by its number, the second is not.
    peer.send(&[ack(1, 60, false), ack(1, 101, true)].concat()).await;
    for (number, verdict) in (1..).zip(new) {
        let verdict = soon("a verdict", verdict).await;
        if number == 60 {
            assert_eq!(verdict, acked(60));
        } else {
            assert!(matches!(verdict, Verdict::ChannelClosed { in_flight: 99, .. }), "{verdict:?}");
        }
    }
}

#[tokio::test]
async fn channel_closed_by_the_server_fails_its_window_and_spares_the_connection() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting: Vec<_> =
        (0..5).map(|number| publisher.publish(message(&number.to_string()), far())).collect();
    peer.published_ids(5).await;
    peer.send(&[ack(1, 2, true), close(1, 404, "NOT_FOUND - no exchange 'events'")].concat()).await;
    for (number, verdict) in (1..).zip(waiting) {
        match (number, soon("a verdict", verdict).await) {
            (..=2, verdict) => assert_eq!(verdict, acked(number)),
            (_, Verdict::ChannelClosed { code: 404, text, in_flight: 3 }) => assert!(text.contains("events")),
            (_, verdict) => panic!("{verdict:?}"),
        }
    }
    assert_eq!(peer.expect(1, 20, 41).await, []);
    assert!(is_unavailable(&soon("a verdict", publisher.publish(message("after"), far())).await));
    assert_eq!(publisher.closed().await.code(), Some(404));
    let second = peer.publisher(&connection).await;
    assert_eq!(second.id().number, 2, "numbers are used again as late as possible");
    let again = second.publish(message("again"), far());
    peer.published_ids(1).await;
    peer.send(&ack(2, 1, false)).await;
    assert_eq!(soon("a verdict", again).await, acked(1));
}

#[tokio::test]
async fn old_handle_does_not_reach_the_channel_that_took_over_its_number() {
    let listener = Listener::bind().await;
    let mut options = listener.options();
    options.channel_max = 1;
    let (connection, peer) = tokio::join!(Connection::open(&options), listener.serve(Tune::default()));
    let (connection, mut peer) = (connection.unwrap(), peer);
    let old = peer.publisher(&connection).await;
    let full = connection.open_channel().await.unwrap_err();
    assert!(matches!(&full, ChannelError::Invalid(text) if text.contains("all 1 channels")), "{full:?}");
    peer.send(&close(1, 404, "NOT_FOUND")).await;
    peer.expect(1, 20, 41).await;
    let new = peer.publisher(&connection).await;
    assert_eq!(new.id(), old.id());
    drop(old);
    let waiting = new.publish(message("m"), far());
    peer.published_ids(1).await;
    peer.send(&ack(1, 1, false)).await;
    assert_eq!(soon("a verdict", waiting).await, acked(1));
}

#[tokio::test]
async fn connection_closed_by_the_server_says_why() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting = publisher.publish(message("m"), far());
    peer.published_ids(1).await;
    let watchers: Vec<_> = (0..3)
        .map(|_| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.closed().await })
        })
        .collect();
    peer.send(&close(0, 320, "CONNECTION_FORCED - broker shut down")).await;
    match soon("a verdict", waiting).await {
        Verdict::ConnectionLost { reason, in_flight: 1 } => assert!(reason.contains("320"), "{reason}"),
        verdict => panic!("{verdict:?}"),
    }
    for watcher in watchers {
        let reason = soon("the end", watcher).await.unwrap();
        assert_eq!((reason.code, reason.by), (320, ClosedBy::Server));
    }
    assert_eq!(peer.expect(0, 10, 51).await, []);
    assert!(!connection.is_open());
}

#[tokio::test]
async fn reset_in_the_middle_of_a_frame_is_a_lost_connection() {
    let (_connection, publisher, mut peer) = publishing().await;
    let large = consign_amqp::Publication { body: vec![7; 4 << 20].into(), ..message("large") };
    let waiting = publisher.publish(large, far());
    let mut some = [0; 1000];
    soon("a part of the message", peer.stream.read_exact(&mut some)).await.unwrap();
    let partial = ack(1, 1, false);
    peer.send(&partial[..partial.len() / 2]).await;
    peer.reset();
    let verdict = soon("a verdict", waiting).await;
    assert!(matches!(verdict, Verdict::ConnectionLost { in_flight: 1, .. }), "{verdict:?}");
}

#[tokio::test]
async fn silence_for_two_heartbeats_is_a_lost_connection() {
    let (connection, mut peer) = connected(Tune { heartbeat: 1, ..Tune::default() }).await;
    let publisher = peer.publisher(&connection).await;
    let waiting = publisher.publish(message("m"), far());
    peer.published_ids(1).await;
    let start = Instant::now();
    let reason = soon("the end", connection.closed()).await;
    assert_eq!(reason.by, ClosedBy::Network);
    assert!(reason.text.contains("heartbeats"), "{reason}");
    assert!(start.elapsed() >= Duration::from_millis(1500));
    assert!(matches!(soon("a verdict", waiting).await, Verdict::ConnectionLost { in_flight: 1, .. }));
}

#[tokio::test]
async fn heartbeats_flow_while_there_is_nothing_to_say() {
    let (connection, mut peer) = connected(Tune { heartbeat: 1, ..Tune::default() }).await;
    for _ in 0..5 {
        let beat = peer.frame_or_end().await.expect("the client goes on");
        assert_eq!((beat.kind, beat.channel, beat.payload.len()), (8, 0, 0));
        peer.send(&frame(8, 0, &[])).await;
    }
    assert!(connection.is_open());
}

#[tokio::test]
async fn frame_larger_than_agreed_ends_the_connection() {
    let (connection, mut peer) = connected(Tune { frame_max: 4096, ..Tune::default() }).await;
    peer.send(&frame(3, 1, &[0; 4089])).await;
    let reason = soon("the end", connection.closed()).await;
    assert_eq!((reason.code, reason.by), (501, ClosedBy::Client));
    assert_eq!(peer.expect(0, 10, 50).await[..2], 501_u16.to_be_bytes());
    assert!(peer.frame_or_end().await.is_none(), "the client hangs up");
}

#[tokio::test]
async fn last_handle_that_is_dropped_closes_the_connection() {
    let (connection, publisher, mut peer) = publishing().await;
    drop(connection);
    let waiting = publisher.publish(message("m"), far());
    drop(publisher);
    peer.published_ids(1).await;
    peer.send(&ack(1, 1, false)).await;
    assert_eq!(soon("a verdict", waiting).await, acked(1));
    assert_eq!(peer.expect(1, 20, 40).await[..2], 200_u16.to_be_bytes());
    assert_eq!(peer.expect(0, 10, 50).await[..2], 200_u16.to_be_bytes());
    peer.send(&[method(1, 20, 41, &[]), method(0, 10, 51, &[])].concat()).await;
    assert!(peer.frame_or_end().await.is_none(), "the client hangs up");
}

#[tokio::test]
async fn soft_error_of_a_call_closes_its_channel_only() {
    let (connection, mut peer) = connected(Tune::default()).await;
    let (channel, number) = tokio::join!(connection.open_channel(), peer.channel_opened());
    let channel = channel.unwrap();
    let (result, ()) = tokio::join!(channel.queue_declare_passive("nope"), async {
        assert_eq!(peer.expect(number, 50, 10).await, b"\0\0\x04nope\x01\0\0\0\0");
        peer.send(&close(number, 404, "NOT_FOUND - no queue 'nope'")).await;
        peer.expect(number, 20, 41).await;
    });
    let expected = ChannelError::Closed { code: 404, text: "NOT_FOUND - no queue 'nope'".to_owned() };
    assert_eq!(result.unwrap_err(), expected);
    assert_eq!(channel.queue_purge("nope").await.unwrap_err(), expected);
    assert!(connection.is_open());
}

#[tokio::test]
async fn answer_to_no_call_ends_the_connection() {
    let (connection, _publisher, mut peer) = publishing().await;
    peer.send(&method(1, 50, 21, &[])).await;
    assert_eq!(soon("the end", connection.closed()).await.code, 505);
}

#[tokio::test]
async fn each_connection_has_an_incarnation_of_its_own_or_the_one_given() {
    let listener = Listener::bind().await;
    let mut options = listener.options();
    options.incarnation = Some(77);
    let (connection, _peer) = tokio::join!(Connection::open(&options), listener.serve(Tune::default()));
    assert_eq!(connection.unwrap().incarnation(), 77);
}
