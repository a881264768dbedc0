//! Consuming: redelivery, lost channels, odd messages.

use std::time::Duration;

use consign_amqp::{FieldTable, FieldValue, Properties};
use consign_broker::rabbitmq::RabbitMqSource;
use consign_conformance::proxy::Cut;
use consign_core::outcome::Outcome;
use consign_core::ports::{Lane, Source};
use tokio::time::Instant;

use super::fixture::{Fixture, Server};
use crate::events::{ack, event, eventually, next, retry};

async fn with_messages(server: Server, kind: &str, ids: &[&str]) -> Fixture {
    let fixture = Fixture::new(server, kind).await;
    for id in ids {
        publish_event(&fixture, id).await;
    }
    fixture
}

#[tokio::test]
async fn a_retry_comes_again_after_its_delay_and_quorum_queues_count_it() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "quorum", &["e-1"]).await;
        let mut source = fixture.source(5);
        let handed_back = Instant::now();
        retry(next(&mut source).await, Duration::from_millis(400)).await.unwrap();

        let again = next(&mut source).await;

        assert!(handed_back.elapsed() >= Duration::from_millis(390), "after {:?}", handed_back.elapsed());
        assert_eq!((again.message.redelivered, again.message.delivery_count), (true, 2));
        ack(again).await.unwrap();
    }
}

/// A quorum queue with this limit, if any, and the fixture whose queue takes its dead letters.
async fn limited(server: Server, limit: Option<i64>) -> (Fixture, Fixture) {
    let graveyard = Fixture::new(server, "classic").await;
    let mut arguments = FieldTable::new()
        .with("x-queue-type", "quorum")
        .with("x-dead-letter-exchange", graveyard.exchange.as_str());
    if let Some(limit) = limit {
        arguments.insert("x-delivery-limit", limit);
    }
    let fixture = Fixture::with(server, arguments).await;
    publish_event(&fixture, "e-1").await;
    (fixture, graveyard)
}

async fn publish_event(fixture: &Fixture, id: &str) {
    let destination = fixture.destination().await;
    let outcome = fixture.publish(&destination, Lane::Window, event(id, "{}"), "bound").await;
    assert!(matches!(outcome, Outcome::Confirmed(_)), "{outcome:?}");
}

/// Takes the message and hands it back this often.
async fn hand_back(fixture: &Fixture, times: u32) -> RabbitMqSource {
    let mut source = fixture.source(1);
    for count in 1..=times {
        let delivery = next(&mut source).await;
        assert_eq!((delivery.message.delivery_count, delivery.message.redelivered), (count, count > 1));
        retry(delivery, Duration::ZERO).await.unwrap();
    }
    source
}

/// `B36` (rabbitmq/rabbitmq-server#11937): what the topology's findings say about limits, on the brokers themselves.
#[tokio::test]
async fn a_quorum_queue_gives_a_message_up_with_the_first_return_beyond_its_limit() {
    for server in Server::BOTH {
        let (fixture, graveyard) = limited(server, Some(3)).await;

        let _source = hand_back(&fixture, 4).await;

        eventually("the dead letter", || async { graveyard.ready().await == 1 }).await;
        assert_eq!(fixture.ready().await, 0);
    }
}

/// `B36`: twenty from 4.0 on, none before.
#[tokio::test]
async fn a_quorum_queue_without_a_declared_limit_has_the_default_of_its_brokers_version() {
    let (before, untouched) = limited(Server::V3, None).await;
    let (since, graveyard) = limited(Server::V4, None).await;

    let mut source = hand_back(&before, 30).await;
    let _source = hand_back(&since, 21).await;

    ack(next(&mut source).await).await.unwrap();
    eventually("the dead letter", || async { graveyard.ready().await == 1 }).await;
    assert_eq!((untouched.ready().await, since.ready().await), (0, 0));
}

/// A dead-letter exchange that leads back to the same queue alone takes nothing beyond the limit.
#[tokio::test]
async fn a_message_that_would_come_back_to_the_queue_that_gave_it_up_is_dropped() {
    for server in Server::BOTH {
        let (fixture, cycle) = limited(server, Some(1)).await;
        let back = FieldTable::new();
        fixture.side.queue_bind(&fixture.queue, &cycle.exchange, "bound", &back).await.unwrap();
        let mut source = hand_back(&fixture, 2).await;
        eventually("the copy beside it", || async { cycle.ready().await == 1 }).await;

        publish_event(&fixture, "e-2").await;

        let second = next(&mut source).await;
        assert_eq!(second.message.id.as_deref(), Some("e-2"), "{server:?}");
        ack(second).await.unwrap();
        let nothing = tokio::time::timeout(Duration::from_millis(500), source.next()).await;
        assert!(nothing.is_err(), "{server:?}: it came back");
    }
}

/// `B36`: deliveries that nobody looked at count as well, so attempts must stay below the limit with room to spare.
#[tokio::test]
async fn a_lost_connection_counts_as_a_delivery_on_a_quorum_queue() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "quorum", &["e-1"]).await;
        let mut source = fixture.source(1);
        let held = next(&mut source).await;

        fixture.proxy.cut(Cut::Reset);
        let again = next(&mut source).await;

        assert_eq!((again.message.redelivered, again.message.delivery_count), (true, 2), "{server:?}");
        drop(held);
        ack(again).await.unwrap();
    }
}

/// Classic queues count nothing: `redelivered` is all they tell.
#[tokio::test]
async fn a_classic_queue_tells_only_that_a_message_comes_again() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "classic", &["e-1"]).await;
        let mut source = fixture.source(1);
        let mut told = Vec::new();
        for _ in 0..3 {
            let delivery = next(&mut source).await;
            told.push((delivery.message.redelivered, delivery.message.delivery_count));
            retry(delivery, Duration::ZERO).await.unwrap();
        }

        assert_eq!(told, [(false, 1), (true, 1), (true, 1)], "{server:?}");
        ack(next(&mut source).await).await.unwrap();
    }
}

/// `B34` (rabbitmq/rabbitmq-java-client#343): a receipt of a lost channel is stale, for ack and retry alike, and
/// the consumer on the new channel lives.
#[tokio::test]
async fn receipts_of_a_lost_connection_are_stale_and_the_messages_come_again() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "quorum", &["a", "b", "c"]).await;
        let mut source = fixture.source(3);
        let held = [next(&mut source).await, next(&mut source).await, next(&mut source).await];

        fixture.proxy.cut(Cut::Reset);
        let again = next(&mut source).await;
        let [first, second, third] = held;

        assert!(ack(first).await.is_err());
        assert!(retry(second, Duration::ZERO).await.is_err());
        assert!(retry(third, Duration::from_secs(1)).await.is_err());
        assert!(again.message.redelivered);
        ack(again).await.unwrap();
        for _ in 0..2 {
            ack(next(&mut source).await).await.unwrap();
        }
        eventually("an empty queue", || async { fixture.ready().await == 0 }).await;
    }
}

#[tokio::test]
async fn acks_just_before_the_source_is_dropped_reach_the_broker() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "classic", &["a", "b"]).await;
        let mut source = fixture.source(2);
        let held = [next(&mut source).await, next(&mut source).await];
        source.stop().await;

        for delivery in held {
            ack(delivery).await.unwrap();
        }
        drop(source);

        let mut later = fixture.source(2);
        let nothing = tokio::time::timeout(Duration::from_millis(500), later.next()).await;
        assert!(nothing.is_err(), "a message came again");
        assert_eq!(fixture.ready().await, 0);
    }
}

/// `B84` (MassTransit/MassTransit#1478): a quorum queue's channel forgets acknowledgements that wait behind a burst of
/// returns when it closes, so nothing may be returned in a burst.
#[tokio::test]
async fn acks_just_before_the_source_is_closed_are_kept_although_much_goes_back_unseen() {
    const ROUNDS: u64 = 4;
    const TAKEN: u64 = 4;
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "quorum").await;
        let destination = fixture.destination().await;
        for number in 0..150 {
            let event = event(format!("e-{number}"), "{}");
            let _ = fixture.publish(&destination, Lane::Window, event, "bound").await;
        }
        let published = fixture.ready().await;

        for round in 1..=ROUNDS {
            let mut source = fixture.source(100);
            let mut held = Vec::new();
            for _ in 0..TAKEN {
                held.push(next(&mut source).await);
            }
            source.stop().await;
            for delivery in held {
                ack(delivery).await.unwrap();
            }
            source.close().await;

            let left = published - round * TAKEN;
            eventually("every other message in the queue", || async { fixture.ready().await == left }).await;
        }
    }
}

/// The broker cancels a consumer whose queue is deleted; the source waits for the queue and consumes again.
#[tokio::test]
async fn a_queue_that_was_deleted_is_consumed_again_when_it_is_back() {
    for server in Server::BOTH {
        let fixture = with_messages(server, "classic", &["before"]).await;
        let mut source = fixture.source(5);
        ack(next(&mut source).await).await.unwrap();
        fixture.side.queue_delete(&fixture.queue, false, false).await.unwrap();
        let gone = tokio::time::timeout(Duration::from_millis(500), source.next()).await;
        assert!(gone.is_err());

        let arguments = FieldTable::new().with("x-expires", 600_000);
        let declaration = consign_amqp::QueueDeclaration::durable(arguments);
        fixture.side.queue_declare(&fixture.queue, &declaration).await.unwrap();
        let exchange = consign_amqp::ExchangeDeclaration {
            auto_delete: true,
            ..consign_amqp::ExchangeDeclaration::durable("direct")
        };
        fixture.side.exchange_declare(&fixture.exchange, &exchange).await.unwrap();
        fixture.bind("bound").await;
        let destination = fixture.destination().await;
        let _ = fixture.publish(&destination, Lane::Window, event("after", "{}"), "bound").await;

        assert_eq!(next(&mut source).await.message.id.as_deref(), Some("after"));
    }
}

/// `B55` (pika/pika#1205): every header type the broker passes on is delivered, the consumer lives.
#[tokio::test]
async fn headers_of_every_type_are_delivered() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "classic").await;
        let headers = FieldTable::new()
            .with("text", "a")
            .with("number", 42)
            .with("truth", true)
            .with("nothing", FieldValue::Void)
            .with("bytes", bytes::Bytes::from_static(&[0xff, 0xfe]))
            .with("list", vec![FieldValue::Int(1), FieldValue::from("b")])
            .with("table", FieldTable::new().with("inner", 1.5));
        fixture.publish_raw(Properties { headers, ..Properties::default() }).await;

        let mut message = next(&mut fixture.source(1)).await.message;

        assert_eq!(message.undecodable, None);
        // RabbitMQ may give headers in another order than they were published in.
        message.headers.sort();
        let expected = [("number", "42"), ("text", "a"), ("truth", "true")];
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(message.headers, expected);
    }
}

/// A stream keeps no position for a consumer: consuming from it would process everything again, or miss messages.
#[tokio::test]
async fn a_stream_is_not_consumed() {
    for server in Server::BOTH {
        let fixture = Fixture::new(server, "stream").await;
        let mut source = fixture.source(5);
        let destination = fixture.destination().await;
        let consuming = tokio::time::timeout(Duration::from_secs(2), source.next());
        let publishing = async {
            for number in 0..10 {
                let _ = fixture
                    .publish(&destination, Lane::Window, event(number.to_string(), "{}"), "bound")
                    .await;
            }
        };

        let (delivery, ()) = tokio::join!(consuming, publishing);

        assert!(delivery.is_err(), "a delivery of a stream came through");
    }
}

/// A shovel from a stream into a queue keeps the stream's header; such a message must not stop the consumer.
#[tokio::test]
async fn a_message_with_a_streams_header_is_delivered_from_any_other_queue() {
    for server in Server::BOTH {
        for kind in ["classic", "quorum"] {
            let fixture = Fixture::new(server, kind).await;
            let headers = FieldTable::new().with("x-stream-offset", 7);
            for _ in 0..2 {
                fixture.publish_raw(Properties { headers: headers.clone(), ..Properties::default() }).await;
            }
            let mut source = fixture.source(1);

            for _ in 0..2 {
                let delivery = next(&mut source).await;
                assert!(!delivery.message.redelivered, "{server:?} {kind}: it went back first");
                ack(delivery).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn stopping_before_the_broker_was_ever_reached_ends_the_source() {
    let fixture = Fixture::new(Server::V4, "classic").await;
    fixture.proxy.refuse();
    let mut source = fixture.source(1);
    let waiting = tokio::time::timeout(Duration::from_millis(200), source.next()).await;
    assert!(waiting.is_err());

    source.stop().await;

    assert!(source.next().await.is_none());
}
