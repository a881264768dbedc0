//! Against real brokers, named by the environment. Without them these tests fail: a test that passes
//! because it did not run proves nothing.

use std::num::NonZeroU16;
use std::time::Duration;

use bytes::Bytes;
use consign_amqp::{
    Channel, ChannelError, ConnectError, ConnectOptions, Connection, ConsumeOptions, ExchangeDeclaration,
    FieldTable, FieldValue, Properties, Publication, QueueDeclaration, Verdict,
};

use crate::peer::{far, soon};

const BROKERS: [&str; 2] = ["CONSIGN_TEST_RABBITMQ_URL", "CONSIGN_TEST_RABBITMQ4_URL"];

fn environment(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: start the test services and export their addresses")
    })
}

fn options(variable: &str) -> ConnectOptions {
    environment(variable).parse().unwrap_or_else(|error| panic!("{variable}: {error}"))
}

async fn connect(variable: &str) -> Connection {
    Connection::open(&options(variable)).await.unwrap_or_else(|error| panic!("{variable}: {error}"))
}

/// A quorum queue of this test run.
async fn quorum_queue(channel: &Channel, purpose: &str) -> String {
    queue_of_type(channel, "quorum", purpose).await
}

async fn queue_of_type(channel: &Channel, kind: &str, purpose: &str) -> String {
    let name = format!("consign-amqp-test.{purpose}.{}", std::process::id());
    let arguments = FieldTable::new().with("x-queue-type", kind);
    let status = channel.queue_declare(&name, &QueueDeclaration::durable(arguments)).await.unwrap();
    assert_eq!((status.name.as_str(), status.messages, status.consumers), (name.as_str(), 0, 0));
    name
}

fn to_queue(queue: &str, id: &str, body: impl Into<Bytes>) -> Publication {
    let properties =
        Properties { message_id: Some(id.to_owned()), delivery_mode: Some(2), ..Properties::default() };
    Publication { exchange: String::new(), routing_key: queue.to_owned(), properties, body: body.into() }
}

#[tokio::test]
async fn routed_is_acked_and_unrouted_is_returned_in_one_window() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        assert_eq!(connection.server().product, "RabbitMQ");
        assert!(connection.server().capabilities.contains("publisher_confirms"));
        let channel = connection.open_channel().await.unwrap();
        let queue = quorum_queue(&channel, "window").await;
        let publisher = connection.open_publisher().await.unwrap();
        let waiting: Vec<_> = (0..1000)
            .map(|number| {
                let key = if number % 7 == 0 { "consign-amqp-test.nowhere" } else { &queue };
                publisher.publish(to_queue(key, &format!("m{number}"), "x"), far())
            })
            .collect();
        for (number, verdict) in waiting.into_iter().enumerate() {
            match (number % 7, soon("a verdict", verdict).await) {
                (0, Verdict::Returned { code: 312, text }) => assert_eq!(text, "NO_ROUTE"),
                (1.., Verdict::Acked { tag }) => assert_eq!(tag.get(), number as u64 + 1),
                (_, verdict) => panic!("{broker}: m{number} {verdict:?}"),
            }
        }
        assert_eq!(channel.queue_delete(&queue, false, false).await.unwrap(), 857);
        soon("the end", connection.close(Duration::from_secs(5))).await;
    }
}

#[tokio::test]
async fn full_queue_that_rejects_nacks() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let arguments = FieldTable::new()
            .with("x-max-length", 0)
            .with("x-overflow", "reject-publish")
            .with("x-expires", 60_000);
        let declaration = QueueDeclaration::durable(arguments);
        let queue = channel.queue_declare("", &declaration).await.unwrap().name;
        let publisher = connection.open_publisher().await.unwrap();
        let verdict = publisher.publish(to_queue(&queue, "m", "x"), far());
        assert_eq!(soon("a verdict", verdict).await, Verdict::Nacked, "{broker}");
        channel.queue_delete(&queue, false, false).await.unwrap();
    }
}

#[tokio::test]
async fn missing_exchange_closes_the_channel_with_404() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let publisher = connection.open_publisher().await.unwrap();
        let publication =
            Publication { exchange: "consign-amqp-test.nope".into(), ..to_queue("k", "m", "x") };
        match soon("a verdict", publisher.publish(publication, far())).await {
            Verdict::ChannelClosed { code: 404, text, in_flight: 1 } => {
                assert!(text.contains("nope"), "{text}");
            }
            verdict => panic!("{broker}: {verdict:?}"),
        }
        assert!(connection.is_open());
        let channel = connection.open_channel().await.unwrap();
        let missing = channel.exchange_declare_passive("consign-amqp-test.nope").await.unwrap_err();
        assert_eq!(missing.code(), Some(404));
        let channel = connection.open_channel().await.unwrap();
        let missing = channel.queue_declare_passive("consign-amqp-test.nope").await.unwrap_err();
        assert!(matches!(missing, ChannelError::Closed { code: 404, .. }));
    }
}

/// The default limit is 16 MiB from 4.0 on, and 128 MiB before.
#[tokio::test]
async fn oversized_message_closes_the_channel_with_406() {
    let connection = connect("CONSIGN_TEST_RABBITMQ4_URL").await;
    let channel = connection.open_channel().await.unwrap();
    let queue = quorum_queue(&channel, "oversize").await;
    let publisher = connection.open_publisher().await.unwrap();
    let verdict = publisher.publish(to_queue(&queue, "m", vec![0; 17 << 20]), far());
    let verdict = soon("a verdict", verdict).await;
    assert!(matches!(verdict, Verdict::ChannelClosed { code: 406, in_flight: 1, .. }), "{verdict:?}");
    assert_eq!(channel.queue_delete(&queue, false, false).await.unwrap(), 0);
}

#[tokio::test]
async fn declarations_differ_with_406_and_bindings_route() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = quorum_queue(&channel, "topology").await;
        let (outer, inner) = (format!("{queue}.outer"), format!("{queue}.inner"));
        let topic = ExchangeDeclaration::durable("topic");
        let none = FieldTable::new();
        channel.exchange_declare(&outer, &topic).await.unwrap();
        channel.exchange_declare(&inner, &topic).await.unwrap();
        channel.exchange_declare_passive(&outer).await.unwrap();
        channel.exchange_bind(&inner, &outer, "order.#", &none).await.unwrap();
        channel.queue_bind(&queue, &inner, "#.paid", &none).await.unwrap();
        let publisher = connection.open_publisher().await.unwrap();
        let publication = Publication { exchange: outer.clone(), ..to_queue("order.7.paid", "m", "x") };
        assert!(matches!(publisher.publish(publication.clone(), far()).await, Verdict::Acked { .. }));
        let fetched = channel.get(&queue).await.unwrap().unwrap();
        assert_eq!(
            (fetched.exchange.as_str(), fetched.routing_key.as_str()),
            (outer.as_str(), "order.7.paid")
        );
        fetched.handle.nack(true).unwrap();
        channel.queue_unbind(&queue, &inner, "#.paid", &none).await.unwrap();
        channel.exchange_unbind(&inner, &outer, "order.#", &none).await.unwrap();
        assert!(matches!(publisher.publish(publication, far()).await, Verdict::Returned { code: 312, .. }));
        assert_eq!(channel.queue_purge(&queue).await.unwrap(), 1);
        assert!(channel.get(&queue).await.unwrap().is_none());

        let other = connection.open_channel().await.unwrap();
        let differs = other.exchange_declare(&outer, &ExchangeDeclaration::durable("fanout")).await;
        assert_eq!(differs.unwrap_err().code(), Some(406));
        channel.exchange_delete(&inner, true).await.unwrap();
        channel.exchange_delete(&outer, true).await.unwrap();
        channel.queue_delete(&queue, false, false).await.unwrap();
    }
}

/// Header keys are in the order of the alphabet, into which the broker brings them.
fn rich_properties() -> Properties {
    let inner = FieldTable::new().with("k", "v");
    let list = vec![FieldValue::Int(1), FieldValue::Text("two".to_owned()), FieldValue::Void];
    Properties {
        content_type: Some("application/json".to_owned()),
        content_encoding: Some("identity".to_owned()),
        headers: FieldTable::new()
            .with("bytes", Bytes::from_static(&[0, 255, 1]))
            .with("decimal", FieldValue::Decimal { scale: 2, value: 1234 })
            .with("float", -0.25)
            .with("int", i64::MIN)
            .with("list", list)
            .with("nothing", FieldValue::Void)
            .with("table", inner)
            .with("text", "grüße")
            .with("when", FieldValue::Timestamp(1_700_000_000))
            .with("yes", true),
        delivery_mode: Some(2),
        priority: Some(3),
        correlation_id: Some("c".to_owned()),
        reply_to: Some("r".to_owned()),
        expiration: Some("60000".to_owned()),
        message_id: Some("m".to_owned()),
        timestamp: Some(1_700_000_000),
        kind: Some("OrderPaid".to_owned()),
        user_id: None,
        app_id: Some("consign".to_owned()),
    }
}

#[tokio::test]
async fn message_comes_back_as_it_was_sent_and_again_until_acked() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = quorum_queue(&channel, "round").await;
        let publisher = connection.open_publisher().await.unwrap();
        let body: Bytes = (0..8_u32 << 20).map(|index| index.to_le_bytes()[1]).collect();
        let publication =
            Publication { properties: rich_properties(), body: body.clone(), ..to_queue(&queue, "m", "") };
        assert!(matches!(publisher.publish(publication, far()).await, Verdict::Acked { .. }));

        let one = ConsumeOptions::new(NonZeroU16::MIN);
        let mut consumer = connection.open_consumer(&queue, one.clone()).await.unwrap();
        let first = soon("a delivery", consumer.next()).await.unwrap();
        assert_eq!(first.properties.as_ref().unwrap(), &rich_properties());
        assert!(first.body == body && !first.redelivered);
        first.handle.nack(true).unwrap();
        let second = soon("a delivery", consumer.next()).await.unwrap();
        assert!(second.redelivered);
        // Neither settled nor cancelled: dropping both closes the channel and gives it back.
        drop((second, consumer));
        let mut consumer = connection.open_consumer(&queue, one).await.unwrap();
        let third = soon("a delivery", consumer.next()).await.unwrap();
        assert!(third.redelivered);
        third.handle.ack().unwrap();
        consumer.cancel().await.unwrap();
        drop(consumer);
        assert!(channel.get(&queue).await.unwrap().is_none(), "{broker}: the ack was lost");
        channel.queue_delete(&queue, false, false).await.unwrap();
        soon("the end", connection.close(Duration::from_secs(5))).await;
    }
}

#[tokio::test]
async fn many_messages_pass_through_a_small_prefetch_in_order() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = quorum_queue(&channel, "many").await;
        let publisher = connection.open_publisher().await.unwrap();
        let options = ConsumeOptions::new(NonZeroU16::new(20).unwrap());
        let mut consumer = connection.open_consumer(&queue, options).await.unwrap();
        let waiting: Vec<_> = (0..2000)
            .map(|number| publisher.publish(to_queue(&queue, &number.to_string(), "x"), far()))
            .collect();
        for number in 0..2000 {
            let delivery = soon("a delivery", consumer.next()).await.unwrap();
            assert_eq!(delivery.properties.unwrap().message_id, Some(number.to_string()));
            delivery.handle.ack().unwrap();
        }
        for verdict in waiting {
            assert!(matches!(verdict.await, Verdict::Acked { .. }));
        }
        consumer.cancel().await.unwrap();
        channel.queue_delete(&queue, false, false).await.unwrap();
    }
}

/// What a test does with message `number`: acks in order with some returns between them, then in disorder with
/// deliveries that stay held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Acked,
    Returned,
    Dropped,
    Held,
}

fn fate(number: usize) -> Fate {
    match (number, number % 10) {
        (_, 0) => Fate::Returned,
        (200.., 1) => Fate::Held,
        (_, 2) => Fate::Dropped,
        _ => Fate::Acked,
    }
}

async fn ready_becomes(channel: &Channel, queue: &str, count: u32) {
    soon(&format!("{count} ready messages"), async {
        while channel.queue_declare_passive(queue).await.unwrap().messages != count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn queue_holds_exactly_what_was_not_acked_after_mixed_settlements() {
    const MESSAGES: usize = 400;
    for (broker, kind) in BROKERS.into_iter().flat_map(|broker| [(broker, "classic"), (broker, "quorum")]) {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = queue_of_type(&channel, kind, &format!("settle-{kind}")).await;
        let publisher = connection.open_publisher().await.unwrap();
        let publish = |number: usize| publisher.publish(to_queue(&queue, &number.to_string(), "x"), far());
        for verdict in (0..MESSAGES).map(publish).collect::<Vec<_>>() {
            assert!(matches!(soon("a verdict", verdict).await, Verdict::Acked { .. }));
        }
        let options = ConsumeOptions::new(NonZeroU16::new(400).unwrap());
        let mut consumer = connection.open_consumer(&queue, options).await.unwrap();
        let mut handles = Vec::new();
        for _ in 0..MESSAGES {
            handles.push(Some(soon("a delivery", consumer.next()).await.unwrap().handle));
        }

        let mut held = Vec::new();
        let disorder = (0..MESSAGES / 2).map(|step| MESSAGES / 2 + step * 149 % (MESSAGES / 2));
        for (step, number) in (0..MESSAGES / 2).chain(disorder).enumerate() {
            let handle = handles[number].take().unwrap();
            match fate(number) {
                Fate::Acked => handle.ack().unwrap(),
                Fate::Returned => handle.nack(true).unwrap(),
                Fate::Dropped => handle.reject(false).unwrap(),
                Fate::Held => held.push(handle),
            }
            if step % 25 == 0 {
                tokio::task::yield_now().await;
            }
        }

        // The broker answers behind all settlements; over one it does not know it would have closed the channel.
        consumer.cancel().await.unwrap();
        ready_becomes(&channel, &queue, 40).await;
        assert!(
            held.len() == 20 && held.iter().all(consign_amqp::DeliveryHandle::is_valid),
            "{broker} {kind}"
        );
        drop((held, consumer));
        ready_becomes(&channel, &queue, 60).await;
        let mut left = Vec::new();
        while let Some(delivery) = channel.get(&queue).await.unwrap() {
            left.push(delivery.properties.unwrap().message_id.unwrap().parse::<usize>().unwrap());
            delivery.handle.ack().unwrap();
        }
        left.sort_unstable();
        let kept = (0..MESSAGES).filter(|number| matches!(fate(*number), Fate::Returned | Fate::Held));
        assert_eq!(left, kept.collect::<Vec<_>>(), "{broker} {kind}");
        assert_eq!(channel.queue_delete(&queue, false, false).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn deleted_queue_ends_its_consumer() {
    for broker in BROKERS {
        let connection = connect(broker).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = quorum_queue(&channel, "deleted").await;
        let options = ConsumeOptions::new(NonZeroU16::MIN);
        let mut consumer = connection.open_consumer(&queue, options).await.unwrap();
        channel.queue_delete(&queue, false, false).await.unwrap();
        assert!(soon("the end", consumer.next()).await.is_none());
        assert_eq!(consumer.ended(), Some(consign_amqp::ConsumerEnd::CancelledByServer), "{broker}");
    }
}

#[tokio::test]
async fn wrong_password_and_missing_virtual_host_are_told_apart() {
    for broker in BROKERS {
        let wrong = ConnectOptions { password: "not-the-password".to_owned(), ..options(broker) };
        let error = Connection::open(&wrong).await.unwrap_err();
        assert!(matches!(error, ConnectError::AuthenticationRefused { .. }), "{broker}: {error:?}");
        let missing = ConnectOptions { virtual_host: "consign-amqp-nope".to_owned(), ..options(broker) };
        let error = Connection::open(&missing).await.unwrap_err();
        assert!(matches!(error, ConnectError::VirtualHostRefused { .. }), "{broker}: {error:?}");
    }
}

#[tokio::test]
async fn tls_connects_with_the_right_authority_only() {
    let mut options = options("CONSIGN_TEST_RABBITMQ4_TLS_URL");
    let mut tls = options.tls.take().expect("CONSIGN_TEST_RABBITMQ4_TLS_URL must be an amqps uri");
    tls.ca_file = Some(environment("CONSIGN_TEST_TLS_CA").into());
    let good = ConnectOptions { tls: Some(tls.clone()), ..options.clone() };
    let connection = Connection::open(&good).await.unwrap();
    let channel = connection.open_channel().await.unwrap();
    let queue = quorum_queue(&channel, "tls").await;
    let publisher = connection.open_publisher().await.unwrap();
    let waiting: Vec<_> = (0..8)
        .map(|number| publisher.publish(to_queue(&queue, &number.to_string(), vec![7; 1 << 20]), far()))
        .collect();
    for verdict in waiting {
        let verdict = soon("a verdict", verdict).await;
        assert!(matches!(verdict, Verdict::Acked { .. }), "{verdict:?}");
    }
    assert_eq!(channel.queue_delete(&queue, false, false).await.unwrap(), 8);
    soon("the end", connection.close(Duration::from_secs(5))).await;

    let stranger = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stranger-ca.pem");
    let mut wrong = good.clone();
    wrong.tls.as_mut().unwrap().ca_file = Some(stranger.into());
    let error = Connection::open(&wrong).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
    let mut misnamed = good.clone();
    misnamed.tls.as_mut().unwrap().server_name = Some("someone-else.example".to_owned());
    let error = Connection::open(&misnamed).await.unwrap_err();
    assert!(matches!(error, ConnectError::Tls(_)), "{error:?}");
}
