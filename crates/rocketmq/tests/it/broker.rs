//! Against a real Apache RocketMQ, named by the environment. Without it these tests fail: a test that passes because it
//! did not run proves nothing.

use std::time::Duration;

use consign_rocketmq::admin::{Admin, AdminOptions};
use consign_rocketmq::{
    Consumer, Filter, Message, Options, Producer, Readiness, Received, Subscription, TopicKind,
};
use tokio::time::{Instant, timeout};

mod consuming;
mod secure;
mod sending;
mod transactions;

const URL: &str = "CONSIGN_TEST_ROCKETMQ_URL";
const NAME_SERVERS: &str = "CONSIGN_TEST_ROCKETMQ_NAMESRV";

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_mins(1);
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

fn admin() -> Admin {
    Admin::new(AdminOptions::new(&environment(NAME_SERVERS)).unwrap())
}

/// A name of this test run.
fn unique(purpose: &str) -> String {
    format!("consign_client_{purpose}_{}", std::process::id())
}

/// A fresh topic that every proxy can see.
async fn topic(purpose: &str, kind: TopicKind) -> String {
    let name = unique(purpose);
    admin().create_topic(&name, kind.clone(), 4).await.unwrap();
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
    admin().create_group(group, ordered, 3).await.unwrap();
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
