//! Sending to a real broker.

use std::time::{Duration, SystemTime};

use consign_rocketmq::{Address, CallError, Code, Handle, Kind, Message, Producer, Readiness, TopicKind};
use tokio::time::Instant;

use super::{consumer, message, options, producer, receive, soon, topic, unique};

/// What the broker answered, with the words.
fn code(result: Result<impl std::fmt::Debug, CallError>) -> (Code, String) {
    match result {
        Err(CallError::Answered { code, message }) => (code, message),
        other => panic!("{other:?} is no answer"),
    }
}

#[tokio::test]
async fn message_arrives_as_it_was_sent_and_is_acknowledged_once() {
    let topic = topic("whole", TopicKind::Normal).await;
    let consumer = consumer(&topic, &unique("whole_group"), false).await;
    let producer = producer(&topic).await;
    let born_at = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    let sent = Message {
        tag: Some("order.paid".to_owned()),
        keys: vec!["k-1".to_owned(), "order-7".to_owned()],
        properties: [("aggregate".to_owned(), "order:7".to_owned())].into(),
        born_at: Some(born_at),
        trace_context: Some("00-ab-cd-01".to_owned()),
        ..message(&topic, "event-1")
    };

    let receipt = producer.send(sent.clone(), soon()).await.unwrap();
    let received = receive(&consumer, 1).await.remove(0);

    assert_eq!(receipt.message_id, "event-1");
    assert_eq!(Address::new("127.0.0.1", options().addresses[0].port), receipt.endpoint);
    assert_eq!((received.topic.as_str(), received.message_id.as_str()), (topic.as_str(), "event-1"));
    assert_eq!((&received.tag, &received.keys), (&sent.tag, &sent.keys));
    assert_eq!(received.properties.get("aggregate"), sent.properties.get("aggregate"));
    assert_eq!((&received.trace_context, received.born_at), (&sent.trace_context, Some(born_at)));
    assert_eq!((received.body.as_ref(), received.undecodable), (b"{}".as_slice(), None));
    assert_eq!((received.delivery_attempt, received.offset), (1, receipt.offset));
    consumer.ack(received.handle, soon()).await.unwrap();
    consumer.close().await;
    producer.close().await;
    assert_eq!(*producer.readiness().borrow(), Readiness::Closed);
}

#[tokio::test]
async fn batch_is_answered_for_each_message_under_its_own_id() {
    let topic = topic("batch", TopicKind::Normal).await;
    let consumer = consumer(&topic, &unique("batch_group"), false).await;
    let producer = producer(&topic).await;
    let ids: Vec<String> = (0..5).map(|number| format!("b-{number}")).collect();

    let receipts = producer.send_many(ids.iter().map(|id| message(&topic, id)).collect(), soon()).await;
    let mut received = receive(&consumer, 5).await;

    let receipts: Vec<_> = receipts.into_iter().map(Result::unwrap).collect();
    assert_eq!(receipts.iter().map(|receipt| receipt.message_id.clone()).collect::<Vec<_>>(), ids);
    received.sort_by_key(|received| received.offset);
    for (receipt, received) in receipts.iter().zip(&received) {
        assert_eq!((&receipt.message_id, receipt.offset), (&received.message_id, received.offset));
    }
    let handles: Vec<Handle> = received.into_iter().map(|received| received.handle).collect();
    for acked in consumer.ack_many(handles, soon()).await {
        acked.unwrap();
    }
}

#[tokio::test]
async fn messages_of_a_group_arrive_in_their_order() {
    let topic = topic("fifo", TopicKind::Fifo).await;
    let consumer = consumer(&topic, &unique("fifo_group"), true).await;
    let producer = producer(&topic).await;
    for number in 0..30 {
        let group = format!("aggregate-{}", number % 3);
        let message = Message { kind: Kind::Fifo { group }, ..message(&topic, &format!("{number:02}")) };
        producer.send(message, soon()).await.unwrap();
    }

    let mut seen: Vec<(String, String)> = Vec::new();
    while seen.len() < 30 {
        // An ordered queue gives more only when what it gave is settled.
        for received in receive(&consumer, 1).await {
            seen.push((received.group.unwrap(), received.message_id));
            consumer.ack(received.handle, soon()).await.unwrap();
        }
    }

    assert_eq!(consumer.settings().borrow().unwrap().fifo, Some(true));
    for group in 0..3 {
        let wanted: Vec<String> =
            (0..30).filter(|number| number % 3 == group).map(|number| format!("{number:02}")).collect();
        let name = format!("aggregate-{group}");
        let ids = seen.iter().filter(|(group, _)| *group == name).map(|(_, id)| id.clone());
        assert_eq!(ids.collect::<Vec<_>>(), wanted, "{name}");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the delivery time of a message is a date")]
async fn delayed_message_waits_for_its_time() {
    let topic = topic("delay", TopicKind::Delay).await;
    let consumer = consumer(&topic, &unique("delay_group"), false).await;
    let producer = producer(&topic).await;
    let started = Instant::now();
    let deliver_at = SystemTime::now() + Duration::from_secs(3);

    let sent = Message { kind: Kind::Delay { deliver_at }, ..message(&topic, "later") };
    let receipt = producer.send(sent, soon()).await.unwrap();
    let received = receive(&consumer, 1).await.remove(0);

    assert!(receipt.recall_handle.is_some());
    assert_eq!(received.message_id, "later");
    // The broker rounds to its precision, a second at most.
    assert!(started.elapsed() > Duration::from_secs(2), "it came after {:?}", started.elapsed());
    consumer.ack(received.handle, soon()).await.unwrap();
}

#[tokio::test]
async fn what_the_proxy_refuses_has_its_code() {
    let normal = topic("refused", TopicKind::Normal).await;
    let fifo = topic("refused_fifo", TopicKind::Fifo).await;
    let producer = producer(&normal).await;
    let missing = unique("missing");
    let group = |group: &str| Kind::Fifo { group: group.to_owned() };

    let of_missing = code(producer.send(message(&missing, "1"), soon()).await);
    let of_wrong_kind = code(producer.send(message(&fifo, "2"), soon()).await);
    let large = Message { body: vec![b'x'; (4 << 20) + 1].into(), ..message(&normal, "3") };
    let of_large = code(producer.send(large, soon()).await);
    let of_empty = code(producer.send(Message { body: "".into(), ..message(&normal, "4") }, soon()).await);
    let of_blank_id = code(producer.send(message(&normal, " "), soon()).await);
    let long_group = Message { kind: group(&"g".repeat(64)), ..message(&fifo, "5") };
    let of_long_group = code(producer.send(long_group, soon()).await);
    let reserved =
        Message { properties: [("KEYS".to_owned(), "x".to_owned())].into(), ..message(&normal, "6") };
    let of_reserved = code(producer.send(reserved, soon()).await);
    let tag = Message { tag: Some("a|b".to_owned()), ..message(&normal, "7") };
    let of_tag = code(producer.send(tag, soon()).await);
    let accepted = Message { kind: group(&"g".repeat(63)), ..message(&fifo, "8") };
    let of_accepted = producer.send(accepted, soon()).await;

    assert_eq!(of_missing.0, Code::TOPIC_NOT_FOUND, "{}", of_missing.1);
    assert_eq!(of_wrong_kind.0, Code::MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "{}", of_wrong_kind.1);
    assert_eq!(of_large.0, Code::MESSAGE_BODY_TOO_LARGE, "{}", of_large.1);
    assert_eq!(of_empty.0, Code::MESSAGE_BODY_EMPTY, "{}", of_empty.1);
    assert_eq!(of_blank_id.0, Code::ILLEGAL_MESSAGE_ID, "{}", of_blank_id.1);
    assert_eq!(of_long_group.0, Code::ILLEGAL_MESSAGE_GROUP, "{}", of_long_group.1);
    assert_eq!(of_reserved.0, Code::ILLEGAL_MESSAGE_PROPERTY_KEY, "{}", of_reserved.1);
    assert_eq!(of_tag.0, Code::ILLEGAL_MESSAGE_TAG, "{}", of_tag.1);
    assert!(of_accepted.is_ok(), "{of_accepted:?}");
}

#[tokio::test]
async fn access_point_that_is_down_does_not_prevent_the_start() {
    let topic = topic("one_down", TopicKind::Normal).await;
    let mut options = options();
    // Nothing listens on port 1.
    options.addresses.insert(0, Address::new("127.0.0.1", 1));
    let producer = Producer::start(&options, [topic.clone()]).await.unwrap();

    let receipt = producer.send(message(&topic, "1"), soon()).await.unwrap();

    assert_eq!(receipt.endpoint, options.addresses[1]);
}
