//! Against a real Apache RocketMQ, named by the environment. Without it these tests fail: a test that passes because it
//! did not run proves nothing.

use std::time::{Duration, SystemTime};

use consign_rocketmq::admin::{Admin, AdminOptions};
use consign_rocketmq::{
    Address, CallError, Code, Consumer, Filter, Handle, Kind, Message, Options, Orphan, Producer, Readiness,
    Received, Resolution, Subscription, TopicKind,
};
use tokio::time::{Instant, timeout};

const URL: &str = "CONSIGN_TEST_ROCKETMQ_URL";
const NAME_SERVERS: &str = "CONSIGN_TEST_ROCKETMQ_NAMESRV";
const TLS_URL: &str = "CONSIGN_TEST_ROCKETMQ_TLS_URL";
const TLS_CA: &str = "CONSIGN_TEST_ROCKETMQ_TLS_CA";

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a message may stay unsettled in these tests.
const INVISIBLE: Duration = Duration::from_secs(30);

fn environment(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: start the test services and export their addresses")
    })
}

fn options() -> Options {
    environment(URL).parse().unwrap_or_else(|error| panic!("{URL}: {error}"))
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

/// A name of this test run.
fn unique(purpose: &str) -> String {
    format!("consign_client_{purpose}_{}", std::process::id())
}

/// A fresh topic that every proxy can see.
async fn topic(purpose: &str, kind: TopicKind) -> String {
    let name = unique(purpose);
    let admin = Admin::new(AdminOptions::new(&environment(NAME_SERVERS)).unwrap());
    admin.create_topic(&name, kind.clone(), 4).await.unwrap();
    let producer = Producer::start(&options(), [name.clone()]).await.unwrap();
    // The proxy caches "no such topic" for a while.
    eventually("the topic in a route", async || {
        producer.route(&name, soon()).await.ok().filter(|route| route.accepts == [kind.clone()])
    })
    .await;
    producer.close().await;
    name
}

async fn producer(topic: &str) -> Producer {
    let producer = Producer::start(&options(), [topic.to_owned()]).await.unwrap();
    connected(producer.readiness()).await;
    producer
}

async fn connected(mut readiness: tokio::sync::watch::Receiver<Readiness>) {
    let waited = timeout(PATIENCE, readiness.wait_for(|readiness| *readiness == Readiness::Connected)).await;
    waited.expect("a proxy takes the settings").unwrap();
}

/// A consumer that sees what is sent from now on: a new group begins at the end, and only once it has asked.
async fn consumer(topic: &str, group: &str, ordered: bool) -> Consumer {
    let admin = Admin::new(AdminOptions::new(&environment(NAME_SERVERS)).unwrap());
    admin.create_group(group, ordered, 3).await.unwrap();
    let subscription = Subscription { topic: topic.to_owned(), filter: Filter::All };
    let consumer = Consumer::start(&options(), group, vec![subscription]).await.unwrap();
    connected(consumer.readiness()).await;
    // Each of the queues must have been asked once; the broker asks all of them in one poll.
    let first = eventually("an empty poll", async || {
        consumer.receive(1, INVISIBLE, Duration::from_secs(1)).await.ok()
    });
    assert!(first.await.is_empty());
    consumer
}

/// Asks until there is an answer, with a pause too short to matter.
async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{what} did not come within {PATIENCE:?}"))
}

/// Receives until there are as many messages.
async fn receive(consumer: &Consumer, count: usize) -> Vec<Received> {
    let mut received = Vec::new();
    let enough = async {
        while received.len() < count {
            received.extend(consumer.receive(16, INVISIBLE, Duration::from_secs(5)).await.unwrap());
        }
    };
    timeout(PATIENCE, enough).await.unwrap_or_else(|_| panic!("{count} messages did not come"));
    received
}

fn message(topic: &str, id: &str) -> Message {
    Message { topic: topic.to_owned(), message_id: id.to_owned(), body: "{}".into(), ..Message::default() }
}

#[tokio::test]
async fn message_arrives_as_it_was_sent_and_is_acknowledged_once() {
    let topic = topic("whole", TopicKind::Normal).await;
    let consumer = consumer(&topic, &unique("whole_group"), false).await;
    let producer = producer(&topic).await;
    let born_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
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
