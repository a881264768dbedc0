//! Deliveries, their handles, and the ends of a consumer.

use std::num::NonZeroU16;
use std::time::Duration;

use consign_amqp::{ChannelError, ConsumeOptions, Consumer, ConsumerEnd, FieldValue};

use crate::peer::{
    Peer, Tune, close, connected, content, id_property, long_text, method, short_text, soon, table,
};

fn prefetch(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

/// A consumer with this prefetch on channel 1.
pub async fn consuming(count: u16) -> (consign_amqp::Connection, Consumer, Peer) {
    let (connection, mut peer) = connected(Tune::default()).await;
    let consumer = consumer_of(&connection, &mut peer, 1, count).await;
    (connection, consumer, peer)
}

pub async fn consumer_of(
    connection: &consign_amqp::Connection,
    peer: &mut Peer,
    number: u16,
    count: u16,
) -> Consumer {
    let options = ConsumeOptions { exclusive: true, ..ConsumeOptions::new(prefetch(count)) };
    let (consumer, ()) = tokio::join!(connection.open_consumer("points", options), async {
        assert_eq!(peer.channel_opened().await, number);
        let qos = peer.expect(number, 60, 10).await;
        let expected = [&[0; 4][..], &count.to_be_bytes(), &[0]].concat();
        assert_eq!(qos, expected, "per consumer, not global (B98)");
        peer.send(&method(number, 60, 11, &[])).await;
        assert_eq!(peer.expect(number, 60, 20).await, b"\0\0\x06points\0\x04\0\0\0\0");
        peer.send(&method(number, 60, 21, &[&short_text("ctag-1")])).await;
    });
    let consumer = consumer.unwrap();
    assert_eq!(consumer.tag(), "ctag-1");
    consumer
}

fn deliver(tag: u64, redelivered: bool) -> Vec<u8> {
    method(
        1,
        60,
        60,
        &[
            &short_text("ctag-1"),
            &tag.to_be_bytes(),
            &[u8::from(redelivered)],
            &short_text("events"),
            &short_text("order.paid"),
        ],
    )
}

pub fn delivery(tag: u64, id: &str, body: &[u8]) -> Vec<u8> {
    [deliver(tag, false), content(1, &id_property(id), body, 100)].concat()
}

pub fn tag_and(tag: u64, bits: u8) -> Vec<u8> {
    [&tag.to_be_bytes()[..], &[bits]].concat()
}

#[tokio::test]
async fn deliveries_are_settled_by_their_own_handles() {
    let (connection, mut consumer, mut peer) = consuming(10).await;
    peer.sliced = true;
    for tag in 1..=4 {
        peer.send(&delivery(tag, &format!("m{tag}"), b"body")).await;
    }
    let mut handles = Vec::new();
    for tag in 1..=4 {
        let delivery = soon("a delivery", consumer.next()).await.unwrap();
        assert_eq!(delivery.properties.unwrap().message_id, Some(format!("m{tag}")));
        assert_eq!(&delivery.body[..], b"body");
        assert_eq!((delivery.exchange.as_str(), delivery.routing_key.as_str()), ("events", "order.paid"));
        assert!(!delivery.redelivered);
        assert_eq!(delivery.handle.id().to_string(), format!("{}/1/{tag}", connection.incarnation()));
        handles.push(delivery.handle);
    }
    let mut next = || handles.pop().unwrap();
    next().ack().unwrap();
    assert_eq!(peer.expect(1, 60, 80).await, tag_and(4, 0));
    next().nack(true).unwrap();
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(3, 0b10));
    next().nack(false).unwrap();
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(2, 0));
    next().reject(true).unwrap();
    assert_eq!(peer.expect(1, 60, 90).await, tag_and(1, 1));
}

#[tokio::test]
async fn body_in_many_frames_is_one_body() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    let body: Vec<u8> =
        (0..3_000_000_u32).map(|index| index.to_le_bytes()[0] ^ index.to_le_bytes()[2]).collect();
    let frames = content(1, &id_property("large"), &body, 100_000);
    peer.send(&[deliver(1, true), frames, deliver(2, false), content(1, &[0, 0], b"", 1)].concat()).await;
    let large = soon("a delivery", consumer.next()).await.unwrap();
    assert!(large.redelivered);
    assert!(large.body == body, "the body differs");
    let empty = soon("a delivery", consumer.next()).await.unwrap();
    assert!(empty.body.is_empty());
    assert_eq!(empty.properties.unwrap().message_id, None);
}

/// `B55` (pika/pika#1205, ruby-amqp/amq-protocol#58, profunktor/fs2-rabbit#76): one odd header field.
#[tokio::test]
async fn undecodable_properties_spoil_one_delivery_and_nothing_else() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    let known = table(&[
        ("bytes", b"x\0\0\0\x02\xff\xfe"),
        ("unsigned", b"i\xff\xff\xff\xff"),
        ("tiny", b"B\xff"),
        ("text", &long_text("hi")),
        ("when", b"T\0\0\0\0\0\0\0\x05"),
        ("nothing", b"V"),
        ("half", b"f\x3f\0\0\0"),
        ("list", b"A\0\0\0\x04t\x01t\0"),
    ]);
    let odd = table(&[("odd", b"Z\x01\x02")]);
    let lying = b"\0\0\0\x50\x01aI".to_vec();
    let headers = |table: &[u8]| [&0x2080_u16.to_be_bytes()[..], table, &short_text("m")].concat();
    for (tag, headers) in (1..).zip([headers(&odd), headers(&lying), vec![0, 1, 0, 0], headers(&known)]) {
        peer.send(&[deliver(tag, false), content(1, &headers, b"body", 10)].concat()).await;
    }
    for (reason, length) in [("0x5a", 2 + 11 + 2), ("too early", 2 + 7 + 2), ("flag", 4)] {
        let delivery = soon("a delivery", consumer.next()).await.unwrap();
        let error = delivery.properties.unwrap_err();
        assert!(error.reason.contains(reason), "{error}");
        assert_eq!(error.raw.len(), length, "{error}");
        assert_eq!(&delivery.body[..], b"body");
        delivery.handle.nack(false).unwrap();
        peer.expect(1, 60, 120).await;
    }
    let delivery = soon("a delivery", consumer.next()).await.unwrap();
    let properties = delivery.properties.unwrap();
    assert_eq!(properties.message_id.as_deref(), Some("m"));
    let values: Vec<_> = properties.headers.iter().map(|(_, value)| value.clone()).collect();
    let expected = [
        FieldValue::Bytes(vec![0xff, 0xfe].into()),
        FieldValue::Int(0xffff_ffff),
        FieldValue::Int(255),
        FieldValue::Text("hi".to_owned()),
        FieldValue::Timestamp(5),
        FieldValue::Void,
        FieldValue::Float(0.5),
        FieldValue::Array(vec![FieldValue::Bool(true), FieldValue::Bool(false)]),
    ];
    assert_eq!(values, expected);
    assert_eq!(consumer.ended(), None);
}

/// `B34` (rabbitmq/rabbitmq-java-client#343, EasyNetQ/EasyNetQ#1329): ack on another incarnation.
#[tokio::test]
async fn handle_of_a_lost_connection_cannot_be_used_anywhere() {
    let (connection, mut consumer, mut peer) = consuming(10).await;
    peer.send(&[delivery(1, "m1", b""), delivery(2, "m2", b"")].concat()).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    peer.reset();
    soon("the end", connection.closed()).await;
    assert!(!taken.handle.is_valid());
    let id = taken.handle.id();
    let lost = taken.handle.ack().unwrap_err();
    assert_eq!(lost.id, id);
    assert!(matches!(lost.reason, ChannelError::ConnectionLost(_)));
    assert!(soon("the end", consumer.next()).await.is_none(), "m2 could not be settled any more");
    assert!(matches!(consumer.ended(), Some(ConsumerEnd::Channel(ChannelError::ConnectionLost(_)))));
}

/// `B34`: the channel alone dies, and its number is used again by another one.
#[tokio::test]
async fn handle_of_a_closed_channel_does_not_reach_its_successor() {
    let (connection, mut consumer, mut peer) = consuming(10).await;
    peer.send(&delivery(1, "m1", b"")).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    peer.send(&close(1, 406, "PRECONDITION_FAILED - delivery acknowledgement timed out")).await;
    assert!(soon("the end", consumer.next()).await.is_none());
    match consumer.ended() {
        Some(ConsumerEnd::Channel(ChannelError::Closed { code: 406, text })) => {
            assert!(text.contains("timed out"));
        }
        end => panic!("{end:?}"),
    }
    peer.expect(1, 20, 41).await;
    assert!(taken.handle.ack().is_err());
    drop(consumer);
    // Nothing of the old channel follows: the next frame opens the next one.
    let second = consumer_of(&connection, &mut peer, 2, 1).await;
    assert_eq!(second.ended(), None);
}

#[tokio::test]
async fn consumer_cancelled_by_the_server_ends_and_its_handles_stay() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    peer.send(&[delivery(1, "m1", b""), method(1, 60, 30, &[&short_text("ctag-1"), &[1]])].concat()).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    assert!(soon("the end", consumer.next()).await.is_none());
    assert_eq!(consumer.ended(), Some(ConsumerEnd::CancelledByServer));
    taken.handle.ack().unwrap();
    assert_eq!(peer.expect(1, 60, 80).await, tag_and(1, 0));
}

#[tokio::test]
async fn cancel_returns_what_nobody_took_and_leaves_handles_valid() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    peer.send(&[delivery(1, "m1", b""), delivery(2, "m2", b"")].concat()).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    let (cancelled, ()) = tokio::join!(consumer.cancel(), async {
        assert_eq!(peer.expect(1, 60, 30).await, b"\x06ctag-1\0");
        peer.send(&[delivery(3, "m3", b""), method(1, 60, 31, &[&short_text("ctag-1")])].concat()).await;
    });
    cancelled.unwrap();
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(2, 0b10));
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(3, 0b10));
    assert!(consumer.next().await.is_none());
    assert_eq!(consumer.ended(), Some(ConsumerEnd::CancelledByClient));
    drop(consumer);
    taken.handle.ack().unwrap();
    assert_eq!(peer.expect(1, 60, 80).await, tag_and(1, 0));
    peer.expect(1, 20, 40).await;
}

#[tokio::test]
async fn what_a_cancelled_consumer_holds_goes_back_in_one_step_behind_the_acks() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    let two = [delivery(1, "m1", b""), delivery(2, "m2", b"")];
    peer.send(&two.concat()).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    let (cancelled, ()) = tokio::join!(consumer.cancel_holding(), async {
        assert_eq!(peer.expect(1, 60, 30).await, b"\x06ctag-1\0");
        peer.send(&[delivery(3, "m3", b""), method(1, 60, 31, &[&short_text("ctag-1")])].concat()).await;
    });
    cancelled.unwrap();

    taken.handle.ack().unwrap();
    consumer.give_back();

    assert_eq!(peer.expect(1, 60, 80).await, tag_and(1, 0));
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(3, 0b11));
    peer.expect(1, 20, 40).await;
}

#[tokio::test]
async fn dropped_consumer_takes_no_more_while_its_handles_live() {
    let (_connection, mut consumer, mut peer) = consuming(10).await;
    peer.send(&delivery(1, "m1", b"")).await;
    let taken = soon("a delivery", consumer.next()).await.unwrap();
    drop(consumer);
    assert_eq!(peer.expect(1, 60, 30).await, b"\x06ctag-1\x01");
    peer.send(&delivery(2, "m2", b"")).await;
    assert_eq!(peer.expect(1, 60, 120).await, tag_and(2, 0b10));
    taken.handle.ack().unwrap();
    assert_eq!(peer.expect(1, 60, 80).await, tag_and(1, 0));
    assert_eq!(peer.expect(1, 20, 40).await[..2], 200_u16.to_be_bytes());
}

#[tokio::test]
async fn broker_that_exceeds_the_prefetch_loses_the_channel() {
    let (connection, mut consumer, mut peer) = consuming(2).await;
    peer.send(&[delivery(1, "m1", b""), delivery(2, "m2", b"")].concat()).await;
    soon("a delivery", consumer.next()).await.unwrap().handle.ack().unwrap();
    peer.expect(1, 60, 80).await;
    peer.send(&delivery(3, "m3", b"")).await;
    let second = soon("a delivery", consumer.next()).await.unwrap();
    let third = soon("a delivery", consumer.next()).await.unwrap();
    assert!(second.handle.is_valid() && third.handle.is_valid(), "two are within the prefetch");
    peer.send(&delivery(4, "m4", b"")).await;
    assert!(soon("the end", consumer.next()).await.is_none());
    assert!(matches!(consumer.ended(), Some(ConsumerEnd::Channel(ChannelError::Closed { code: 505, .. }))));
    peer.expect(1, 20, 40).await;
    assert!(connection.is_open());
}

#[tokio::test]
async fn body_beyond_the_limit_loses_the_channel_before_it_is_read() {
    let (connection, mut consumer, mut peer) = consuming(2).await;
    let size = (1_u64 << 40).to_be_bytes();
    let header = crate::peer::frame(2, 1, &[b"\0\x3c\0\0", &size[..], b"\0\0"].concat());
    peer.send(&[deliver(1, false), header, crate::peer::frame(3, 1, &[0; 1000])].concat()).await;
    assert!(soon("the end", consumer.next()).await.is_none());
    peer.expect(1, 20, 40).await;
    assert!(connection.is_open());
}

#[tokio::test]
async fn body_longer_than_its_header_says_ends_the_connection() {
    let (connection, _consumer, mut peer) = consuming(2).await;
    let header = crate::peer::frame(2, 1, b"\0\x3c\0\0\0\0\0\0\0\0\0\x01\0\0");
    peer.send(&[deliver(1, false), header, crate::peer::frame(3, 1, b"ab")].concat()).await;
    assert_eq!(soon("the end", connection.closed()).await.code, 501);
}

#[tokio::test]
async fn method_of_an_unopened_channel_ends_the_connection() {
    let (connection, _consumer, mut peer) = consuming(2).await;
    peer.send(&method(9, 60, 80, &[&1_u64.to_be_bytes(), &[0]])).await;
    assert_eq!(soon("the end", connection.close(Duration::from_secs(5))).await.code, 504);
}
