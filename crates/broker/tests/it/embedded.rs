//! The embedded queue: one process, several handles, several processes that are killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use consign_broker::embedded::{EmbeddedSource, Queue, QueueCounts, SourceOptions};
use consign_core::outcome::{Outcome, Proof};
use consign_core::ports::{Destination, Lane, Readiness, Source};
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::events::{PATIENCE, ack, event, eventually, next, publish, retry, within};

const LEASE: Duration = Duration::from_secs(20);

struct Fixture {
    directory: tempfile::TempDir,
    queue: Queue,
    origin: Instant,
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let queue = Queue::open(directory.path().join("queue.db")).await.unwrap();
        Self { directory, queue, origin: Instant::now() }
    }

    /// Another writer on the same file, as another process would have.
    async fn other(&self) -> Queue {
        Queue::open(self.queue.path()).await.unwrap()
    }

    async fn publish(&self, id: impl Into<String>, key: &str) -> Outcome {
        publish_to(&self.queue, self.origin, id, key).await
    }

    async fn counts(&self, name: &str) -> QueueCounts {
        let counts = self.queue.counts().await.unwrap();
        counts.into_iter().find(|counts| counts.queue == name).expect("the queue is declared")
    }
}

async fn publish_to(queue: &Queue, origin: Instant, id: impl Into<String>, key: &str) -> Outcome {
    let destination = queue.destination(origin, "test");
    destination.publish(Lane::Window, publish(event(id, "{\"amount\":5}"), key, origin, PATIENCE)).await
}

fn source(queue: &Queue, name: &str, prefetch: u16, lease: Duration) -> EmbeddedSource {
    queue.source(SourceOptions { queue: name.to_owned(), prefetch, lease })
}

fn confirmed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Confirmed(Proof::Appended { .. }))
}

#[tokio::test]
async fn a_message_reaches_every_queue_bound_to_its_topic_once() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid", "order.*"]).await.unwrap();
    fixture.queue.declare("audit", &["*"]).await.unwrap();
    fixture.queue.declare("other", &["order.paid.late", "Order.*", "order_*"]).await.unwrap();

    let outcome = fixture.publish("e-1", "order.paid").await;

    assert!(confirmed(&outcome), "{outcome:?}");
    assert_eq!(fixture.counts("points").await.ready, 1);
    assert_eq!(fixture.counts("audit").await.ready, 1);
    assert_eq!(fixture.counts("other").await.ready, 0);
}

#[tokio::test]
async fn a_topic_without_a_queue_is_unroutable() {
    let fixture = Fixture::new().await;

    let outcome = fixture.publish("e-1", "order.paid").await;

    assert!(matches!(outcome, Outcome::Unroutable { code: 312, .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_delivery_carries_id_type_headers_and_the_payload_unchanged() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let mut source = source(&fixture.queue, "points", 1, LEASE);
    let payload: Vec<u8> = (0..=255).collect();
    let destination = fixture.queue.destination(fixture.origin, "test");
    let publish = publish(event("e-1", payload.clone()), "order.paid", fixture.origin, PATIENCE);
    assert!(confirmed(&destination.publish(Lane::Quarantine, publish).await));

    let message = next(&mut source).await.message;

    assert_eq!(message.id.as_deref(), Some("e-1"));
    assert_eq!(message.message_type.as_deref(), Some("OrderPaid"));
    assert_eq!(&message.body[..], &payload[..]);
    assert_eq!((message.redelivered, message.delivery_count), (false, 1));
    assert_eq!(message.source, "points");
    assert_eq!(message.undecodable, None);
    let header =
        |name: &str| message.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
    assert_eq!(header("consign-business-key"), Some("order:42:paid"));
    assert_eq!(header("cloudEvents:id"), Some("e-1"));
    assert!(header("traceparent").is_some());
}

#[tokio::test]
async fn an_acknowledged_message_is_gone_and_a_retried_one_comes_again_after_its_delay() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let mut source = source(&fixture.queue, "points", 1, LEASE);
    assert!(confirmed(&fixture.publish("e-1", "order.paid").await));
    let retried_at = Instant::now();
    retry(next(&mut source).await, Duration::from_millis(300)).await.unwrap();

    let again = next(&mut source).await;

    assert!(retried_at.elapsed() >= Duration::from_millis(290), "it came after {:?}", retried_at.elapsed());
    assert_eq!((again.message.redelivered, again.message.delivery_count), (true, 2));
    ack(again).await.unwrap();
    let counts = fixture.counts("points").await;
    assert_eq!((counts.ready, counts.delayed, counts.leased), (0, 0, 0));
}

#[tokio::test]
async fn an_ack_after_another_consumer_took_the_message_is_a_lost_receipt_and_deletes_nothing() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    assert!(confirmed(&fixture.publish("e-1", "order.paid").await));
    let other = fixture.other().await;
    let mut slow = source(&fixture.queue, "points", 1, Duration::from_millis(200));
    let mut fast = source(&other, "points", 1, LEASE);
    let late = next(&mut slow).await;

    let taken = next(&mut fast).await;
    let lost = ack(late).await;

    assert!(lost.is_err());
    assert_eq!((taken.message.redelivered, taken.message.delivery_count), (true, 2));
    assert_eq!(fixture.counts("points").await.leased, 1);
    ack(taken).await.unwrap();
}

#[tokio::test]
async fn unsettled_deliveries_never_exceed_the_prefetch() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    for number in 0..5 {
        assert!(confirmed(&fixture.publish(format!("e-{number}"), "order.paid").await));
    }
    let mut source = source(&fixture.queue, "points", 2, LEASE);
    let first = next(&mut source).await;
    let _second = next(&mut source).await;

    let third = tokio::time::timeout(Duration::from_millis(100), source.next()).await;

    assert!(third.is_err(), "a third delivery came with two unsettled");
    assert_eq!(fixture.counts("points").await.leased, 2);
    ack(first).await.unwrap();
    assert_eq!(next(&mut source).await.message.id.as_deref(), Some("e-2"));
}

#[tokio::test]
async fn stopping_hands_back_what_no_consumer_has_seen_and_leaves_receipts_valid() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    for number in 0..3 {
        assert!(confirmed(&fixture.publish(format!("e-{number}"), "order.paid").await));
    }
    let mut stopping = source(&fixture.queue, "points", 10, LEASE);
    let held = next(&mut stopping).await;

    within("the stop", stopping.stop()).await;

    assert!(stopping.next().await.is_none());
    let counts = fixture.counts("points").await;
    assert_eq!((counts.ready, counts.leased), (2, 1));
    ack(held).await.unwrap();
    let mut later = source(&fixture.queue, "points", 10, LEASE);
    let handed_back = next(&mut later).await.message;
    assert_eq!((handed_back.delivery_count, handed_back.redelivered), (1, false));
}

#[tokio::test]
async fn a_buffered_delivery_whose_lease_is_half_gone_is_claimed_again_instead_of_handed_out() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    for number in 0..2 {
        assert!(confirmed(&fixture.publish(format!("e-{number}"), "order.paid").await));
    }
    let lease = Duration::from_millis(600);
    let mut source = source(&fixture.queue, "points", 2, lease);
    ack(next(&mut source).await).await.unwrap();
    let claimed = Instant::now();
    eventually("half of the lease", || async { claimed.elapsed() > lease / 2 }).await;

    let second = next(&mut source).await;

    assert_eq!(second.message.delivery_count, 1, "the buffered delivery was not counted");
    eventually("the end of the first lease", || async { claimed.elapsed() > lease }).await;
    ack(second).await.expect("its lease was fresh");
}

#[tokio::test]
async fn dropping_the_future_of_next_loses_no_message() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let mut source = source(&fixture.queue, "points", 4, LEASE);
    for number in 0..50 {
        assert!(confirmed(&fixture.publish(format!("e-{number}"), "order.paid").await));
    }
    let mut seen = 0;
    let mut dropped = 0;

    while seen < 50 {
        match tokio::time::timeout(Duration::from_micros(50), source.next()).await {
            Ok(delivery) => {
                let delivery = delivery.expect("the source is not stopped");
                assert_eq!(delivery.message.delivery_count, 1);
                ack(delivery).await.unwrap();
                seen += 1;
            }
            Err(_) => dropped += 1,
        }
    }

    assert!(dropped > 0, "no future was dropped");
}

#[tokio::test]
async fn a_publish_whose_deadline_comes_while_the_file_is_locked_is_refused_and_leaves_nothing() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let destination = fixture.queue.destination(fixture.origin, "test");
    let mut rival = rival(&fixture).await;
    run(&mut rival, "BEGIN IMMEDIATE").await;
    let late = publish(event("e-1", "{}"), "order.paid", fixture.origin, Duration::from_millis(200));

    let outcome = within("the outcome", destination.publish(Lane::Window, late)).await;
    run(&mut rival, "ROLLBACK").await;

    assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    // The writer takes commands in order: this publish ends after the late one was looked at.
    assert!(confirmed(&fixture.publish("e-2", "order.paid").await));
    assert_eq!(fixture.counts("points").await.ready, 1);
}

#[tokio::test]
async fn names_that_cannot_be_used_are_refused_with_the_reason() {
    let fixture = Fixture::new().await;

    let empty = fixture.queue.declare("", &[]).await.unwrap_err();
    let middle = fixture.queue.declare("points", &["order.*.paid"]).await.unwrap_err();

    assert_eq!(empty.to_string(), "queue \"\" is empty: give it a name");
    assert!(middle.to_string().contains("order.*.paid"), "{middle}");
    assert_eq!(fixture.queue.counts().await.unwrap(), []);
}

/// A file that cannot be written is the destination's fault: nothing is lost and publishing goes on afterwards.
#[tokio::test]
async fn an_unwritable_file_refuses_and_announces_itself_until_it_is_back() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let destination = fixture.queue.destination(fixture.origin, "test");
    let mut rival = rival(&fixture).await;
    run(&mut rival, "ALTER TABLE consign_queue_message RENAME TO hidden").await;

    let refused = fixture.publish("e-1", "order.paid").await;
    let down = within("the readiness", destination.readiness_after(&Readiness::Accepting)).await;
    run(&mut rival, "DROP TABLE IF EXISTS consign_queue_message").await;
    run(&mut rival, "ALTER TABLE hidden RENAME TO consign_queue_message").await;
    let up = within("the recovery", destination.readiness_after(&down)).await;

    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    assert!(matches!(down, Readiness::Unavailable(_)));
    assert_eq!(up, Readiness::Accepting);
    assert!(confirmed(&fixture.publish("e-2", "order.paid").await));
}

/// A connection as another program would have it.
async fn rival(fixture: &Fixture) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(fixture.queue.path()).busy_timeout(PATIENCE);
    options.connect().await.unwrap()
}

async fn run(rival: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(rival).await.unwrap();
}

/// `B75` (Dictionarry-Hub/profilarr#519, vjt/grappa-irc#524): several writers on one file never see SQLITE_BUSY.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_consumers_on_one_file_lose_and_double_nothing() {
    const WRITERS: usize = 8;
    const EACH: usize = 50;
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let mut publishers = JoinSet::new();
    let mut consumers = JoinSet::new();

    for writer in 0..WRITERS {
        let (queue, origin) = (fixture.other().await, fixture.origin);
        let reader = queue.clone();
        publishers.spawn(async move {
            for number in 0..EACH {
                let outcome = publish_to(&queue, origin, format!("e-{writer}-{number}"), "order.paid").await;
                assert!(confirmed(&outcome), "{outcome:?}");
            }
        });
        consumers.spawn(async move {
            let mut source = source(&reader, "points", 4, LEASE);
            let mut ids = Vec::new();
            while let Ok(delivery) = tokio::time::timeout(Duration::from_secs(2), source.next()).await {
                let delivery = delivery.expect("the source is not stopped");
                assert_eq!(delivery.message.delivery_count, 1);
                ids.push(delivery.message.id.clone().expect("it has an id"));
                ack(delivery).await.unwrap();
            }
            ids
        });
    }
    while let Some(joined) = publishers.join_next().await {
        joined.unwrap();
    }
    let mut ids: Vec<_> = consumers.join_all().await.into_iter().flatten().collect();

    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), WRITERS * EACH);
    assert_eq!(fixture.counts("points").await.leased, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishes_share_transactions() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let mut publishes = JoinSet::new();

    for number in 0..500 {
        let (queue, origin) = (fixture.queue.clone(), fixture.origin);
        publishes.spawn(async move { publish_to(&queue, origin, format!("e-{number}"), "order.paid").await });
    }
    let outcomes = publishes.join_all().await;

    assert!(outcomes.iter().all(confirmed));
    assert_eq!(fixture.counts("points").await.ready, 500);
    let frames = std::fs::metadata(fixture.directory.path().join("queue.db-wal")).unwrap().len() / 4096;
    // One transaction each would write at least three pages (table, index, sequence) per message.
    assert!(frames < 500 * 3, "{frames} pages were written");
}

/// How many messages a second go in and out of one file, a window of 256 each way. Prints; asserts only that all
/// arrive once. Run with `--release -- --nocapture rate_of`.
#[tokio::test(flavor = "multi_thread")]
async fn rate_of_publishing_and_acknowledging_with_a_window_of_256() {
    const WINDOW: u16 = 256;
    const MESSAGES: u32 = 5_000;
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let rate = |started: Instant| f64::from(MESSAGES) / started.elapsed().as_secs_f64();

    let started = Instant::now();
    let mut flights: JoinSet<Outcome> = JoinSet::new();
    for number in 0..MESSAGES {
        if flights.len() >= usize::from(WINDOW) {
            assert!(confirmed(&flights.join_next().await.unwrap().unwrap()));
        }
        let (queue, origin) = (fixture.queue.clone(), fixture.origin);
        flights.spawn(async move { publish_to(&queue, origin, format!("e-{number}"), "order.paid").await });
    }
    assert!(flights.join_all().await.iter().all(confirmed));
    println!("{:.0} confirmed publishes a second", rate(started));

    let started = Instant::now();
    let mut source = source(&fixture.queue, "points", WINDOW, LEASE);
    let mut acks = JoinSet::new();
    for _ in 0..MESSAGES {
        let delivery = next(&mut source).await;
        assert_eq!(delivery.message.delivery_count, 1);
        acks.spawn(ack(delivery));
    }
    assert!(acks.join_all().await.iter().all(Result::is_ok));
    println!("{:.0} deliveries acknowledged a second", rate(started));
    assert_eq!(fixture.counts("points").await.ready, 0);
}

/// Runs a function of this binary in a process of its own.
fn child(function: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("embedded::{function}"), "--nocapture"])
        .env("CONSIGN_TEST_CHILD_FILE", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads lines that begin with `told ` from a child until there are `count`, then kills it with SIGKILL.
fn listen_and_kill(mut child: Child, count: usize) -> Vec<String> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split_once("told ").map(|(_, id)| id.to_owned()))
        .take(count)
        .collect::<Vec<_>>();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(told.len(), count, "the child ended by itself");
    told
}

#[tokio::test]
async fn what_a_killed_process_had_confirmed_is_in_the_queue() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    let path = fixture.queue.path().to_owned();

    let process = child("publishing_process", &path);
    let told = tokio::task::spawn_blocking(|| listen_and_kill(process, 100)).await.unwrap();

    let mut source = source(&fixture.queue, "points", 1000, LEASE);
    let mut found = Vec::new();
    while found.len() < told.len() {
        let delivery = next(&mut source).await;
        found.push(delivery.message.id.clone().unwrap());
        ack(delivery).await.unwrap();
    }
    assert!(told.iter().all(|id| found.contains(id)), "told {told:?}, found {found:?}");
}

#[tokio::test]
async fn what_a_killed_process_had_leased_is_delivered_again() {
    let fixture = Fixture::new().await;
    fixture.queue.declare("points", &["order.paid"]).await.unwrap();
    assert!(confirmed(&fixture.publish("e-1", "order.paid").await));
    let path = fixture.queue.path().to_owned();

    let process = child("consuming_process", &path);
    let told = tokio::task::spawn_blocking(|| listen_and_kill(process, 1)).await.unwrap();

    let again = next(&mut source(&fixture.queue, "points", 1, LEASE)).await;
    assert_eq!(again.message.id.as_deref(), Some(told[0].as_str()));
    assert_eq!((again.message.redelivered, again.message.delivery_count), (true, 2));
}

/// Not a test by itself: the process that the test above kills.
#[tokio::test]
async fn publishing_process() {
    let Some(path) = std::env::var_os("CONSIGN_TEST_CHILD_FILE") else { return };
    let queue = Queue::open(path).await.unwrap();
    let origin = Instant::now();
    for number in 0.. {
        let id = format!("e-{number}");
        assert!(confirmed(&publish_to(&queue, origin, id.clone(), "order.paid").await));
        println!("told {id}");
    }
}

/// Not a test by itself: the process that the test above kills.
#[tokio::test]
async fn consuming_process() {
    let Some(path) = std::env::var_os("CONSIGN_TEST_CHILD_FILE") else { return };
    let queue = Queue::open(path).await.unwrap();
    let mut source = source(&queue, "points", 10, Duration::from_millis(500));
    let held = next(&mut source).await;
    println!("told {}", held.message.id.unwrap());
    std::future::pending::<()>().await;
}
