//! A broker that refuses publishes: `connection.blocked`, `channel.flow`, and a socket nobody reads.

use std::time::Duration;

use bytes::Bytes;
use consign_amqp::{Connection, NotSent, Publication, Verdict};
use tokio::time::Instant;

use crate::peer::{Peer, ack, far, message, method, publishing, short_text, soon};

fn acked(tag: u64) -> Verdict {
    Verdict::Acked { tag: tag.try_into().unwrap() }
}

fn assert_unavailable(verdict: &Verdict, word: &str) {
    match verdict {
        Verdict::NotSent { reason: NotSent::Unavailable(text) } => assert!(text.contains(word), "{text}"),
        verdict => panic!("{verdict:?}"),
    }
}

/// Sixty-four of these are more than the buffers of two sockets hold.
fn large(id: &str) -> Publication {
    static BODY: [u8; 1 << 20] = [b'x'; 1 << 20];
    Publication { body: Bytes::from_static(&BODY), ..message(id) }
}

async fn block(connection: &Connection, peer: &mut Peer) {
    peer.send(&method(0, 10, 60, &[&short_text("low on memory")])).await;
    let mut blocked = connection.blocked();
    let reason = soon("blocked", blocked.wait_for(Option::is_some)).await.unwrap().clone();
    assert_eq!(reason.as_deref(), Some("low on memory"));
}

async fn unblock(connection: &Connection, peer: &mut Peer) {
    peer.send(&method(0, 10, 61, &[])).await;
    soon("unblocked", connection.blocked().wait_for(Option::is_none)).await.unwrap();
}

#[tokio::test]
async fn blocked_connection_refuses_publishes_at_once_and_takes_them_again_later() {
    let (connection, publisher, mut peer) = publishing().await;
    block(&connection, &mut peer).await;
    assert_unavailable(&soon("a verdict", publisher.publish(message("m1"), far())).await, "low on memory");
    unblock(&connection, &mut peer).await;
    let waiting = publisher.publish(message("m2"), far());
    assert_eq!(peer.published().await.message_id, "m2");
    peer.send(&ack(1, 1, false)).await;
    assert_eq!(soon("a verdict", waiting).await, acked(1));
}

/// What is refused must not have left, and what has left must keep its tag.
#[tokio::test]
async fn block_in_the_middle_refuses_exactly_what_was_not_written() {
    let (connection, publisher, mut peer) = publishing().await;
    let mut waiting: Vec<_> =
        (0..64).map(|number| tokio::spawn(publisher.publish(large(&number.to_string()), far()))).collect();
    // The peer does not read, so that most of the 64 MiB cannot be written.
    block(&connection, &mut peer).await;
    let last = soon("a verdict", waiting.pop().unwrap()).await.unwrap();
    assert_unavailable(&last, "low on memory");
    unblock(&connection, &mut peer).await;
    let after = tokio::spawn(publisher.publish(message("after"), far()));
    let mut arrived = Vec::new();
    loop {
        let arrival = peer.published().await;
        if arrival.message_id == "after" {
            break;
        }
        assert_eq!(arrival.body.len(), 1 << 20);
        arrived.push(arrival.message_id);
    }
    assert!(!arrived.is_empty(), "the first one was begun");
    peer.send(&ack(1, arrived.len() as u64 + 1, true)).await;
    for (number, verdict) in waiting.into_iter().enumerate() {
        let verdict = soon("a verdict", verdict).await.unwrap();
        if arrived.contains(&number.to_string()) {
            assert_eq!(verdict, acked(number as u64 + 1));
        } else {
            assert_unavailable(&verdict, "low on memory");
        }
    }
    assert_eq!(soon("a verdict", after).await.unwrap(), acked(arrived.len() as u64 + 1));
}

#[tokio::test]
async fn outstanding_publish_of_a_blocked_connection_times_out_as_blocked() {
    let (connection, publisher, mut peer) = publishing().await;
    let waiting = publisher.publish(message("m"), Instant::now() + Duration::from_secs(1));
    peer.published_ids(1).await;
    block(&connection, &mut peer).await;
    assert_eq!(soon("a verdict", waiting).await, Verdict::TimedOut { blocked: true });
}

#[tokio::test]
async fn publish_that_could_not_be_written_by_its_deadline_was_not_sent() {
    let (_connection, publisher, mut peer) = publishing().await;
    let first = tokio::spawn(publisher.publish(large("first"), far()));
    let bulk: Vec<_> = (0..64).map(|_| publisher.publish(large("bulk"), far())).collect();
    let hasty = publisher.publish(message("hasty"), Instant::now() + Duration::from_millis(100));
    assert_unavailable(&soon("a verdict", hasty).await, "deadline");
    let late = publisher.publish(message("late"), Instant::now() - Duration::from_millis(1));
    assert_unavailable(&soon("a verdict", late).await, "deadline");
    let last = publisher.publish(message("last"), far());
    let mut ids = peer.published_ids(66).await;
    assert_eq!(ids.pop().as_deref(), Some("last"), "hasty and late never left");
    peer.send(&ack(1, 0, true)).await;
    assert_eq!(soon("a verdict", first).await.unwrap(), acked(1));
    assert_eq!(soon("a verdict", last).await, acked(66));
    drop(bulk);
}

#[tokio::test]
async fn stopped_flow_refuses_publishes_of_its_channel_only() {
    let (connection, publisher, mut peer) = publishing().await;
    let other = peer.publisher(&connection).await;
    peer.send(&method(1, 20, 20, &[&[0]])).await;
    assert_eq!(peer.expect(1, 20, 21).await, [0]);
    assert_unavailable(&soon("a verdict", publisher.publish(message("m1"), far())).await, "flow");
    let free = other.publish(message("m2"), far());
    assert_eq!(peer.published().await.channel, 2);
    peer.send(&[ack(2, 1, false), method(1, 20, 20, &[&[1]])].concat()).await;
    assert_eq!(soon("a verdict", free).await, acked(1));
    assert_eq!(peer.expect(1, 20, 21).await, [1]);
    let waiting = publisher.publish(message("m3"), far());
    assert_eq!(peer.published().await.message_id, "m3");
    peer.send(&ack(1, 1, false)).await;
    assert_eq!(soon("a verdict", waiting).await, acked(1));
}

#[tokio::test]
async fn flow_stopped_under_an_outstanding_publish_counts_as_blocked() {
    let (_connection, publisher, mut peer) = publishing().await;
    let waiting = publisher.publish(message("m"), Instant::now() + Duration::from_secs(1));
    peer.published_ids(1).await;
    peer.send(&method(1, 20, 20, &[&[0]])).await;
    assert_eq!(soon("a verdict", waiting).await, Verdict::TimedOut { blocked: true });
}
