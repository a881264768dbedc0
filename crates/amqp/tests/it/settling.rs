//! Acks that share a frame: what exactly the peer reads.

use std::time::Duration;

use consign_amqp::{ChannelError, Connection, Consumer, ConsumerEnd, DeliveryHandle};

use crate::consuming::{consumer_of, consuming, delivery, tag_and};
use crate::peer::{Peer, Tune, close, connected, soon};

/// A consumer with this many deliveries on channel 1, and their handles by tag minus one. Tests take turns with
/// the connection's task on one thread: what is settled without an await between is settled in one turn.
async fn holding(count: u64) -> (Connection, Consumer, Peer, Vec<Option<DeliveryHandle>>) {
    let (connection, mut consumer, mut peer) = consuming(100).await;
    let handles = hold(&mut consumer, &mut peer, count).await;
    (connection, consumer, peer, handles)
}

async fn hold(consumer: &mut Consumer, peer: &mut Peer, count: u64) -> Vec<Option<DeliveryHandle>> {
    for tag in 1..=count {
        peer.send(&delivery(tag, &format!("m{tag}"), b"body")).await;
    }
    let mut handles = Vec::new();
    for tag in 1..=count {
        let handle = soon("a delivery", consumer.next()).await.unwrap().handle;
        assert_eq!(handle.id().tag.get(), tag);
        handles.push(Some(handle));
    }
    handles
}

fn take(handles: &mut [Option<DeliveryHandle>], number: usize) -> DeliveryHandle {
    handles[number - 1].take().unwrap()
}

fn ack(handles: &mut [Option<DeliveryHandle>], numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        take(handles, number).ack().unwrap();
    }
}

/// Reads one ack.
async fn acked(peer: &mut Peer) -> Vec<u8> {
    peer.expect(1, 60, 80).await
}

#[tokio::test]
async fn acks_of_one_turn_are_one_frame_for_a_finished_prefix() {
    let (_connection, _consumer, mut peer, mut handles) = holding(5).await;

    ack(&mut handles, 1..=3);
    assert_eq!(acked(&mut peer).await, tag_and(3, 1));

    ack(&mut handles, [4]);
    assert_eq!(acked(&mut peer).await, tag_and(4, 0));
    ack(&mut handles, [5]);
    assert_eq!(acked(&mut peer).await, tag_and(5, 0));
}

/// More than the connection's task takes from its queue at once.
#[tokio::test]
async fn acks_of_a_long_turn_are_a_frame_for_each_time_the_queue_is_looked_at() {
    let (connection, mut peer) = connected(Tune::default()).await;
    let mut consumer = consumer_of(&connection, &mut peer, 1, 1000).await;
    let mut handles = hold(&mut consumer, &mut peer, 1000).await;

    ack(&mut handles, 1..=1000);

    let mut frames = 0;
    loop {
        frames += 1;
        let ack = acked(&mut peer).await;
        assert_eq!(ack[8], 1);
        if ack == tag_and(1000, 1) {
            break;
        }
    }
    assert!(frames <= 4, "{frames} frames");
}

#[tokio::test]
async fn acks_behind_a_hole_are_single_until_it_is_settled() {
    let (_connection, _consumer, mut peer, mut handles) = holding(9).await;

    ack(&mut handles, [1, 2, 4, 5]);
    assert_eq!(acked(&mut peer).await, tag_and(2, 1));
    assert_eq!(acked(&mut peer).await, tag_and(4, 0));
    assert_eq!(acked(&mut peer).await, tag_and(5, 0));

    ack(&mut handles, [6, 3]);
    assert_eq!(acked(&mut peer).await, tag_and(6, 1));
    ack(&mut handles, 7..=8);
    assert_eq!(acked(&mut peer).await, tag_and(8, 1));
}

#[tokio::test]
async fn acks_out_of_order_are_one_frame_when_nothing_is_missing() {
    let (_connection, _consumer, mut peer, mut handles) = holding(5).await;

    ack(&mut handles, [5, 3, 1, 2]);

    assert_eq!(acked(&mut peer).await, tag_and(3, 1));
    assert_eq!(acked(&mut peer).await, tag_and(5, 0));
    ack(&mut handles, [4]);
    assert_eq!(acked(&mut peer).await, tag_and(4, 0));
}

#[tokio::test]
async fn a_nack_in_the_middle_parts_the_acks_and_keeps_their_order() {
    let (_connection, _consumer, mut peer, mut handles) = holding(7).await;

    ack(&mut handles, 1..=2);
    take(&mut handles, 3).nack(true).unwrap();
    ack(&mut handles, [4]);
    take(&mut handles, 6).reject(false).unwrap();
    ack(&mut handles, [5, 7]);

    assert_eq!(acked(&mut peer).await, tag_and(2, 1));
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(3, 0b10));
    assert_eq!(acked(&mut peer).await, tag_and(4, 0));
    assert_eq!(peer.expect(1, 60, 90).await, tag_and(6, 0));
    assert_eq!(acked(&mut peer).await, tag_and(7, 1));
}

/// The case a wrong order would lose: the ack of 3 covers 2, which must have gone back before.
#[tokio::test]
async fn an_ack_that_waits_does_not_cover_a_later_nack() {
    let (_connection, _consumer, mut peer, mut handles) = holding(3).await;

    ack(&mut handles, [1, 3]);
    take(&mut handles, 2).nack(true).unwrap();

    assert_eq!(acked(&mut peer).await, tag_and(1, 0));
    assert_eq!(acked(&mut peer).await, tag_and(3, 0));
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(2, 0b10));
}

/// A delivery that waits for its retry, and one whose handle was dropped: neither may be covered.
#[tokio::test]
async fn deliveries_that_are_held_or_forgotten_are_never_covered() {
    let (_connection, _consumer, mut peer, mut handles) = holding(7).await;
    drop(take(&mut handles, 4));

    ack(&mut handles, [2, 3]);
    assert_eq!(acked(&mut peer).await, tag_and(2, 0));
    assert_eq!(acked(&mut peer).await, tag_and(3, 0));

    take(&mut handles, 1).nack(true).unwrap();
    ack(&mut handles, [5, 6]);
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(1, 0b10));
    assert_eq!(acked(&mut peer).await, tag_and(5, 0));
    assert_eq!(acked(&mut peer).await, tag_and(6, 0));
}

/// Nobody took it, but it is the consumer's all the same.
#[tokio::test]
async fn deliveries_that_nobody_took_yet_are_never_covered() {
    let (_connection, mut consumer, mut peer) = consuming(100).await;
    peer.send(&[delivery(1, "m1", b""), delivery(2, "m2", b""), delivery(3, "m3", b"")].concat()).await;
    let first = soon("a delivery", consumer.next()).await.unwrap();
    let second = soon("a delivery", consumer.next()).await.unwrap();

    second.handle.ack().unwrap();
    first.handle.ack().unwrap();

    assert_eq!(acked(&mut peer).await, tag_and(2, 1));
    drop(consumer);
    peer.expect(1, 60, 30).await;
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(3, 0b10));
}

#[tokio::test]
async fn acks_come_before_what_is_asked_of_their_channel_later() {
    let (_connection, mut consumer, mut peer, mut handles) = holding(4).await;

    ack(&mut handles, 1..=2);
    let (cancelled, ()) = tokio::join!(consumer.cancel(), async {
        assert_eq!(acked(&mut peer).await, tag_and(2, 1));
        assert_eq!(peer.expect(1, 60, 30).await, b"\x06ctag-1\0");
        peer.send(&crate::peer::method(1, 60, 31, &[&crate::peer::short_text("ctag-1")])).await;
    });
    cancelled.unwrap();
    ack(&mut handles, 3..=4);
    drop((consumer, handles));

    assert_eq!(acked(&mut peer).await, tag_and(4, 1));
    peer.expect(1, 20, 40).await;
}

#[tokio::test]
async fn acks_come_before_the_end_of_their_connection() {
    let (connection, consumer, mut peer, mut handles) = holding(3).await;

    ack(&mut handles, 1..=3);
    let closing = connection.close(Duration::from_secs(5));
    let (_, ()) = tokio::join!(closing, async {
        assert_eq!(acked(&mut peer).await, tag_and(3, 1));
        peer.expect(0, 10, 50).await;
        peer.send(&crate::peer::method(0, 10, 51, &[])).await;
    });

    assert!(consumer.ended().is_some());
}

/// `B34`: tags start again on the next channel, here even under the same number.
#[tokio::test]
async fn acks_of_a_replaced_channel_are_refused_and_its_tags_mean_nothing_to_the_next() {
    let (connection, mut peer) = connected(Tune { channel_max: 1, ..Tune::default() }).await;
    let mut old = consumer_of(&connection, &mut peer, 1, 100).await;
    let mut before = hold(&mut old, &mut peer, 4).await;
    ack(&mut before, [3]);
    assert_eq!(acked(&mut peer).await, tag_and(3, 0));
    peer.send(&close(1, 406, "PRECONDITION_FAILED - delivery acknowledgement timed out")).await;
    assert!(soon("the end", old.next()).await.is_none());
    peer.expect(1, 20, 41).await;
    drop(old);
    let mut new = consumer_of(&connection, &mut peer, 1, 100).await;
    let mut handles = hold(&mut new, &mut peer, 3).await;

    let refused = take(&mut before, 1).ack().unwrap_err();
    assert!(matches!(refused.reason, ChannelError::Closed { code: 406, .. }));
    assert!(take(&mut before, 2).nack(true).is_err());
    ack(&mut handles, [2, 3]);
    assert_eq!(acked(&mut peer).await, tag_and(2, 0));
    assert_eq!(acked(&mut peer).await, tag_and(3, 0));
    ack(&mut handles, [1]);

    assert_eq!(acked(&mut peer).await, tag_and(1, 0));
    assert_eq!(new.ended(), None);
}

/// "Up to this tag" would have no meaning then.
#[tokio::test]
async fn a_broker_whose_tags_do_not_rise_loses_the_channel() {
    let (connection, mut consumer, mut peer, handles) = holding(2).await;

    peer.send(&delivery(2, "again", b"")).await;

    assert!(soon("the end", consumer.next()).await.is_none());
    let end = consumer.ended();
    assert!(matches!(end, Some(ConsumerEnd::Channel(ChannelError::Closed { code: 505, .. }))), "{end:?}");
    peer.expect(1, 20, 40).await;
    assert!(connection.is_open() && handles.iter().flatten().all(|handle| !handle.is_valid()));
}
