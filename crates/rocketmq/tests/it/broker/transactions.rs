//! Half messages at a real broker.

use std::time::Duration;

use consign_rocketmq::{CallError, Kind, Message, Orphan, Orphans, Resolution, TopicKind};
use tokio::time::timeout;

use super::{PATIENCE, consumer, message, producer, receive, soon, topic, unique};

/// The next check of this message.
async fn check(orphans: &Orphans, id: &str) -> Orphan {
    let checked = async {
        loop {
            let orphan = orphans.next().await.expect("the producer is open");
            if orphan.message_id == id {
                return orphan;
            }
        }
    };
    timeout(PATIENCE, checked).await.unwrap_or_else(|_| panic!("no check of {id}"))
}

#[tokio::test]
async fn committed_half_message_arrives_and_rolled_back_one_does_not() {
    let topic = topic("ended", TopicKind::Transaction).await;
    let consumer = consumer(&topic, &unique("ended_group"), false).await;
    let producer = producer(&topic).await;

    let back = producer.send_half(message(&topic, "back"), soon()).await.unwrap();
    producer.end(back, Resolution::Rollback, soon()).await.unwrap();
    let through = producer.send_half(message(&topic, "through"), soon()).await.unwrap();
    assert_eq!((through.receipt().message_id.as_str(), through.topic()), ("through", topic.as_str()));
    producer.end(through, Resolution::Commit, soon()).await.unwrap();

    // The one rolled back was first, so it would have come by now.
    let received = receive(&consumer, 1).await;
    let ids: Vec<_> = received.iter().map(|received| received.message_id.as_str()).collect();
    assert_eq!(ids, ["through"]);
}

#[tokio::test]
async fn half_message_nobody_ends_is_asked_for_until_it_is_answered() {
    let topic = topic("checked", TopicKind::Transaction).await;
    let consumer = consumer(&topic, &unique("checked_group"), false).await;
    let producer = producer(&topic).await;
    let orphans = producer.orphans();
    let sent = Message {
        properties: [("marker".to_owned(), "m-1".to_owned())].into(),
        ..message(&topic, "checked")
    };
    let half = producer.send_half(sent, soon()).await.unwrap();
    let transaction_id = half.transaction_id().to_owned();
    drop(half);

    let first = check(&orphans, "checked").await;
    // No answer: it comes again.
    let second = check(&orphans, "checked").await;
    second.answer(Resolution::Commit, soon()).await.unwrap();

    assert_eq!(
        (first.topic.as_str(), first.transaction_id.as_str()),
        (topic.as_str(), transaction_id.as_str())
    );
    assert_eq!(first.properties.get("marker").map(String::as_str), Some("m-1"));
    assert_eq!(first.body, "{}");
    assert_eq!(receive(&consumer, 1).await[0].message_id, "checked");
}

#[tokio::test]
async fn check_answered_with_rollback_comes_no_more() {
    let topic = topic("undone", TopicKind::Transaction).await;
    let consumer = consumer(&topic, &unique("undone_group"), false).await;
    let producer = producer(&topic).await;
    let orphans = producer.orphans();
    drop(producer.send_half(message(&topic, "undone"), soon()).await.unwrap());

    check(&orphans, "undone").await.answer(Resolution::Rollback, soon()).await.unwrap();

    // Another one is asked for later, and the first is neither delivered nor asked for beside it.
    drop(producer.send_half(message(&topic, "after"), soon()).await.unwrap());
    let mut undone = 0;
    let mut answered = false;
    while !answered {
        let orphan = timeout(PATIENCE, orphans.next()).await.unwrap().unwrap();
        undone += usize::from(orphan.message_id == "undone");
        if orphan.message_id == "after" {
            orphan.answer(Resolution::Commit, soon()).await.unwrap();
            answered = true;
        }
    }
    // A check that was under way when the answer came is allowed.
    assert!(undone <= 2, "asked {undone} times");
    assert_eq!(receive(&consumer, 1).await[0].message_id, "after");
}

/// apache/rocketmq#9431: the proxy's record of the half message is in its memory, and goes with the first end.
#[tokio::test]
async fn check_is_answered_by_another_producer_of_the_topic() {
    let topic = topic("other", TopicKind::Transaction).await;
    let consumer = consumer(&topic, &unique("other_group"), false).await;
    let first = producer(&topic).await;
    drop(first.send_half(message(&topic, "left"), soon()).await.unwrap());
    first.close().await;
    let second = producer(&topic).await;

    check(&second.orphans(), "left").await.answer(Resolution::Commit, soon()).await.unwrap();

    assert_eq!(receive(&consumer, 1).await[0].message_id, "left");
}

#[tokio::test]
async fn half_message_with_a_group_is_not_sent() {
    let topic = topic("half_group", TopicKind::Transaction).await;
    let producer = producer(&topic).await;
    let kind = Kind::Fifo { group: "g".to_owned() };

    let refused = producer.send_half(Message { kind, ..message(&topic, "1") }, soon()).await.unwrap_err();

    assert!(matches!(refused, CallError::NotSent { .. }), "{refused}");
    assert!(timeout(Duration::from_millis(1), producer.orphans().next()).await.is_err());
}
