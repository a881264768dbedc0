//! Receiving from a real broker.

use std::time::Duration;

use consign_rocketmq::{Code, Consumer, Filter, Subscription, TopicKind};

use super::{
    INVISIBLE, connected, consumer, eventually, message, options, producer, receive, soon, topic, unique,
};

#[tokio::test]
async fn changed_invisible_time_makes_a_new_handle_and_the_old_one_is_good_for_nothing() {
    let topic = topic("invisible", TopicKind::Normal).await;
    let consumer = consumer(&topic, &unique("invisible_group"), false).await;
    producer(&topic).await.send(message(&topic, "1"), soon()).await.unwrap();
    let first = receive(&consumer, 1).await.remove(0);
    let old = first.handle.as_str().to_owned();

    let changed = consumer.change_invisible(first.handle, Duration::from_secs(2), soon()).await.unwrap();
    assert_ne!(changed.as_str(), old);
    let again = receive(&consumer, 1).await.remove(0);
    let late = consumer.ack(changed, soon()).await.unwrap_err();

    assert_eq!((again.message_id.as_str(), again.delivery_attempt), ("1", 2));
    assert_eq!(late.error.code(), Some(Code::INVALID_RECEIPT_HANDLE), "{late}");
    assert_eq!(late.handle.message_id(), "1");
    consumer.ack(again.handle, soon()).await.unwrap();
}

#[tokio::test]
async fn forwarded_message_is_found_in_the_dead_letter_topic() {
    let topic = topic("dead", TopicKind::Normal).await;
    let group = unique("dead_group");
    let consumer = consumer(&topic, &group, false).await;
    producer(&topic).await.send(message(&topic, "1"), soon()).await.unwrap();
    let received = receive(&consumer, 1).await.remove(0);

    consumer.forward_to_dead_letter(received.handle, 1, 4, soon()).await.unwrap();

    let admin = super::admin();
    let dead = format!("%DLQ%{group}");
    let broker = admin.masters().await.unwrap().remove(0).address;
    let found = eventually("the dead letter", async || {
        admin.pull(&broker, &group, &dead, 0, 0, 10).await.ok().filter(|pulled| !pulled.messages.is_empty())
    });
    let found = found.await;
    assert_eq!(found.messages[0].message_id(), Some("1"));
    assert_eq!(consumer.settings().borrow().unwrap().max_attempts, Some(4));
}

#[tokio::test]
async fn filter_lets_only_its_tags_through() {
    let topic = topic("filter", TopicKind::Normal).await;
    let group = unique("filter_group");
    super::admin().create_group(&group, false, 3).await.unwrap();
    let filter = Filter::Tag("a || b".to_owned());
    let subscription = Subscription { topic: topic.clone(), filter };
    let consumer = Consumer::start(&options(), &group, vec![subscription]).await.unwrap();
    connected(consumer.readiness()).await;
    assert!(consumer.receive(1, INVISIBLE, Duration::from_secs(1)).await.unwrap().is_empty());
    let producer = producer(&topic).await;
    for (id, tag) in [("1", "a"), ("2", "c"), ("3", "b")] {
        let mut message = message(&topic, id);
        message.tag = Some(tag.to_owned());
        producer.send(message, soon()).await.unwrap();
    }

    let mut ids: Vec<_> =
        receive(&consumer, 2).await.into_iter().map(|received| received.message_id).collect();

    ids.sort();
    assert_eq!(ids, ["1", "3"]);
    assert_eq!(consumer.lanes(soon()).await.unwrap(), 1);
}
