//! Faults that users of other systems reported, as far as no other file here has them.

use std::path::PathBuf;
use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow};
use sqlx::{MySql, Transaction};

use crate::harness::audit::{by_event, repeats};
use crate::harness::{Broker, Child, Config, World, url};
use crate::post::Post;

const DEADLINE: Duration = Duration::from_mins(1);
const LOUD: &[(&str, &str)] = &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")];

/// Holds every user's points, so that the consumer's transactions stand still between marker and commit.
async fn hold_accounts(world: &World) -> Transaction<'static, MySql> {
    let mut tx = world.pool.begin().await.unwrap();
    sqlx::query("SELECT points FROM points_account FOR UPDATE").fetch_all(&mut *tx).await.unwrap();
    tx
}

/// Returns when a consumer's transaction waits for the accounts.
async fn standing_still(world: &World) {
    // Not the view of InnoDB's transactions: it stays as it is for as long as somebody keeps looking.
    let waiting = format!(
        "SELECT COUNT(*) FROM information_schema.processlist
         WHERE db = '{}' AND info LIKE 'UPDATE %points_account%'",
        world.name
    );
    let waits = async || world.number(&waiting).await > 0;
    world.eventually(DEADLINE, "a transaction waits for the accounts", waits).await;
}

async fn points(world: &World, user: u32) -> i64 {
    world.number(&format!("SELECT points FROM points_account WHERE user_id = {user}")).await
}

async fn markers(world: &World) -> i64 {
    world.number("SELECT COUNT(*) FROM consumed_operation WHERE consumer_name = 'points-award'").await
}

/// What the consumer of the points said when it had drained.
fn farewell(consumer: &Child) -> String {
    let log = consumer.log();
    let line = log.lines().find(|line| line.contains("consumer drained") && line.contains("points-award"));
    line.unwrap_or_else(|| panic!("no farewell in {log}")).to_owned()
}

/// B39 (soterika/aura-vault-protocol#581, CERT-Polska/Artemis#2677): a claim on the key that outlives a crash before
/// the commit would make the retry a duplicate, and the effect would be lost.
#[tokio::test(flavor = "multi_thread")]
async fn consumer_that_dies_before_its_commit_leaves_no_marker_and_the_effect_comes_later() {
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    let _relay = Child::start("relay", &config, &[]);
    let mut consumer = Child::start("consume", &config, &[]);
    let accounts = hold_accounts(&world).await;
    world.purchase(1).await.unwrap();
    standing_still(&world).await;

    consumer.kill();
    assert_eq!(markers(&world).await, 0, "the marker is part of the transaction that died");
    accounts.rollback().await.unwrap();
    let _next = Child::start("consume", &config, &[]);

    world.eventually_finished(DEADLINE, 1).await;
    world.assert_whole(1).await;
}

/// B44 (ruby-amqp/hutch#364): an acknowledgement that fails after the commit is no failure of the handler. Nothing is
/// refused, the repeat finds the marker, and the consumer goes on.
#[tokio::test(flavor = "multi_thread")]
async fn acknowledgement_that_is_lost_after_the_commit_leads_to_a_duplicate_and_no_more() {
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let direct = world.prepare(world.config());
    let proxied = world.config().broker(through).write("proxied.toml");
    let _relay = Child::start("relay", &direct, &[]);
    let mut consumer = Child::start("consume", &proxied, LOUD);
    let accounts = hold_accounts(&world).await;
    world.purchase(1).await.unwrap();
    standing_still(&world).await;

    proxy.cut(Cut::Reset);
    let noticed = async || consumer.log().contains("not consuming");
    world.eventually(DEADLINE, "the consumer knows that its channel is gone", noticed).await;
    accounts.rollback().await.unwrap();

    let repeated = async || consumer.log().contains("processed=Duplicate");
    world.eventually(DEADLINE, "the repeat is a duplicate", repeated).await;
    world.purchase(2).await.unwrap();
    world.eventually_finished(DEADLINE, 2).await;
    consumer.terminate();
    assert!(consumer.wait(DEADLINE).await.success(), "{}", consumer.log());
    let farewell = farewell(&consumer);
    assert!(farewell.contains("receipts_lost: 1"), "{farewell}");
    assert!(farewell.contains("retried: 0") && farewell.contains("dead: 0"), "{farewell}");
    world.assert_whole(2).await;
    let post = Post::open(Broker::RabbitMq).await;
    assert_eq!(post.ready(&format!("{}-points", world.name)).await, 0, "every delivery was acknowledged");
}

/// B59 (ThreeDotsLabs/watermill#311, SQLStreamStore/SQLStreamStore#121, NEventStore/NEventStore#425): ids are taken
/// before the commit, so a reader that only looks ahead jumps over a row that becomes visible late.
#[tokio::test(flavor = "multi_thread")]
async fn row_that_is_committed_after_later_ones_were_sent_is_sent_too() {
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    let _chain = Child::start("run", &config, &[]);
    let mut late = world.pool.begin().await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at)
         VALUES ('e-000001', 1, 'OrderPaid', '{\"orderId\": 1, \"userId\": 8, \"amount\": 10}', 'NEW', NOW(6), NOW(6))",
    )
    .execute(&mut *late)
    .await
    .unwrap();
    for order in 2..=20 {
        world.purchase(order).await.unwrap();
    }
    let others = async || world.count("SENT").await == 19;
    world.eventually(DEADLINE, "the rows behind it are SENT", others).await;

    late.commit().await.unwrap();

    world.eventually_finished(DEADLINE, 20).await;
    let first = "SELECT event_id = 'e-000001' FROM outbox_event ORDER BY sequence LIMIT 1";
    assert_eq!(world.number(first).await, 1, "the late row has the lowest number");
    world.assert_whole(20).await;
}

/// B84 (MassTransit/MassTransit#1478, redpanda-data/connect#173): a drain waits for confirms that are on their way.
#[tokio::test(flavor = "multi_thread")]
async fn drain_waits_for_confirms_that_come_late() {
    const ROWS: u32 = 200;
    const LATE: Duration = Duration::from_secs(3);
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let slow = |config: Config| {
        config
            .set("relay.lease_seconds", "40")
            .set("relay.publish_deadline_seconds", "30")
            .set("relay.drain_seconds", "30")
    };
    world.prepare(slow(world.config()));
    let proxied = slow(world.config()).broker(through).write("proxied.toml");
    let mut relay = Child::start("relay", &proxied, &[]);
    let connected = async || relay.log().contains("destination is available");
    world.eventually(DEADLINE, "the relay is connected", connected).await;
    proxy.set(Direction::ToClient, Flow::Delay(LATE));
    world.insert_many(ROWS).await;
    let published = async || !world.audit().await.is_empty();
    world.eventually(DEADLINE, "the broker has messages", published).await;
    assert_eq!(world.count("SENT").await, 0, "no confirm has come yet");

    relay.terminate();

    let status = relay.wait(DEADLINE).await;
    assert_eq!(status.code(), Some(0), "{}", relay.log());
    let (sent, left) = (world.count("SENT").await, world.count("NEW").await);
    assert!(sent > 0, "the confirms of what was in flight were waited for");
    assert_eq!(sent + left, i64::from(ROWS), "no row is left SENDING");
    let published = by_event(world.audit().await);
    assert_eq!(i64::try_from(published.len()).unwrap(), sent, "what was published was settled");
    assert_eq!(repeats(&published), 0);
}

/// B84, B33 (rabbitmq/rabbitmq-server#1399, ruby-amqp/bunny#350): confirms that do not come within the grace are not
/// waited for, and without them nothing is SENT.
#[tokio::test(flavor = "multi_thread")]
async fn drain_gives_back_what_is_unconfirmed_when_its_time_is_over() {
    const ROWS: u32 = 50;
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let patient = |config: Config| {
        config
            .set("relay.lease_seconds", "60")
            .set("relay.publish_deadline_seconds", "50")
            .set("relay.drain_seconds", "1")
    };
    let direct = world.prepare(patient(world.config()));
    let proxied = patient(world.config()).broker(through).write("proxied.toml");
    let mut relay = Child::start("relay", &proxied, &[]);
    let connected = async || relay.log().contains("destination is available");
    world.eventually(DEADLINE, "the relay is connected", connected).await;
    proxy.set(Direction::ToClient, Flow::Swallow);
    world.insert_many(ROWS).await;
    let published = async || world.audit().await.len() == ROWS as usize;
    world.eventually(DEADLINE, "the broker has the messages", published).await;

    relay.terminate();

    let status = relay.wait(DEADLINE).await;
    assert_eq!(status.code(), Some(0), "{}", relay.log());
    assert_eq!(
        world.count("NEW").await,
        i64::from(ROWS),
        "given back under their tokens, and not one is SENT"
    );
    let _next = Child::start("run", &direct, &[]);
    world.eventually_finished(DEADLINE, ROWS).await;
    let copies = world.assert_whole(ROWS).await;
    assert_eq!(repeats(&copies), ROWS as usize, "every row was published once more, under its own id");
}

/// B84, B85 (dapr/dapr#7653, ag2ai/faststream#1648): a drain lets the handler in hand come to its end. What was not
/// begun goes back to the queue.
#[tokio::test(flavor = "multi_thread")]
async fn consumer_that_drains_commits_and_acknowledges_what_it_has_begun() {
    const ORDERS: u32 = 30;
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    let mut consumer = Child::start("consume", &config, LOUD);
    let accounts = hold_accounts(&world).await;
    world.insert_many(ORDERS).await;
    let _relay = Child::start("relay", &config, &[]);
    standing_still(&world).await;

    consumer.terminate();
    let draining = async || consumer.log().contains("draining");
    world.eventually(DEADLINE, "the consumer drains", draining).await;
    assert!(consumer.is_running(), "a transaction is open");
    accounts.rollback().await.unwrap();

    let status = consumer.wait(DEADLINE).await;
    assert_eq!(status.code(), Some(0), "{}", consumer.log());
    world.eventually(DEADLINE, "every row is SENT", async || world.is_sent(ORDERS).await).await;
    let post = Post::open(Broker::RabbitMq).await;
    let done = markers(&world).await;
    let queue = format!("{}-points", world.name);
    let whole = async || done + i64::from(post.ready(&queue).await) == i64::from(ORDERS);
    world.eventually(DEADLINE, "every delivery is either done or back in the queue", whole).await;
    let awarded = points(&world, 7).await + points(&world, 8).await + points(&world, 9).await;
    assert_eq!(awarded, 10 * done, "points and markers were committed together");
    let _next = Child::start("consume", &config, &[]);
    world.eventually_finished(DEADLINE, ORDERS).await;
    world.assert_whole(ORDERS).await;
}

/// B84: on a quorum queue, acknowledgements behind a burst of returns were forgotten by the broker when the channel
/// closed, and every drain under load caused repeats.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_that_drain_under_load_cause_no_repeats() {
    const ORDERS: u32 = 1_000;
    const DRAINS: i64 = 5;
    let world = World::migrated().await;
    // Small batches, so that a drain finds deliveries that were not begun.
    let config = world.config().set("consumer.0.batch", "4").set("consumer.1.batch", "4");
    let config = world.prepare(config);
    world.insert_many(ORDERS).await;
    let _relay = Child::start("relay", &config, &[]);
    world.eventually(DEADLINE, "every row is SENT", async || world.is_sent(ORDERS).await).await;
    let post = Post::open(Broker::RabbitMq).await;
    let queue = format!("{}-points", world.name);

    for drain in 1..=DRAINS {
        let before = markers(&world).await;
        let mut consumer = Child::start("consume", &config, LOUD);
        let busy = async || markers(&world).await > before + 8;
        world.eventually(DEADLINE, "the consumer is busy", busy).await;
        consumer.terminate();
        assert!(consumer.wait(DEADLINE).await.success(), "{}", consumer.log());

        let done = markers(&world).await;
        let whole = async || done + i64::from(post.ready(&queue).await) == i64::from(ORDERS);
        world.eventually(DEADLINE, &format!("drain {drain} left what it had not done"), whole).await;
        assert!(!consumer.log().contains("processed=Duplicate"), "{}", consumer.log());
    }
    assert!(markers(&world).await < i64::from(ORDERS), "every drain came in the middle of the work");
    let _last = Child::start("consume", &config, &[]);
    world.eventually_finished(DEADLINE, ORDERS).await;
    world.assert_whole(ORDERS).await;
}

/// The world's config with a second broker, which gets `OrderCreated`.
fn two_brokers(world: &World) -> Config {
    let name = &world.name;
    world.config().set("route.0.event_type", "\"OrderPaid\"").raw(&format!(
        "
[destination.second]
type = \"rabbitmq\"
url = \"{}\"
exchange = {{ name = \"{name}\" }}

[[destination.second.queue]]
name = \"{name}-second\"
bindings = [\"#\"]

[[route]]
event_type = \"OrderCreated\"
destination = \"second\"
",
        url(Broker::RabbitMq4)
    ))
}

/// B07 (JasperFx/wolverine#2361): with two brokers every row is settled by its own destination's answer, and an outage
/// of one does not hold up the other.
#[tokio::test(flavor = "multi_thread")]
async fn outage_of_one_broker_does_not_hold_up_the_rows_of_another() {
    const EACH: u32 = 40;
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    world.prepare(two_brokers(&world));
    let proxied: PathBuf = two_brokers(&world).broker(through).write("proxied.toml");
    proxy.refuse();
    let relay = Child::start("relay", &proxied, &[]);

    world.insert_many(EACH).await;
    for order in 1..=EACH {
        world.insert(&format!("c-{order:06}"), "OrderCreated", &format!("{{\"orderId\": {order}}}")).await;
    }

    let created = "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'OrderCreated' AND status = 'SENT'";
    let through_second = async || world.number(created).await == i64::from(EACH);
    world.eventually(DEADLINE, "the rows of the second broker are SENT", through_second).await;
    assert_eq!(world.count("SENT").await, i64::from(EACH), "the first broker has answered nothing");
    assert!(proxy.refused() > 0, "the relay tries to connect to the first broker");
    proxy.heal();
    world.eventually(DEADLINE, "every row is SENT", async || world.is_sent(2 * EACH).await).await;
    assert_eq!(world.number("SELECT MAX(attempts) FROM outbox_event").await, 1, "an outage burns no attempt");
    let audited = by_event(world.audit().await);
    assert!(audited.keys().all(|id| id.starts_with("e-")) && audited.len() == EACH as usize, "{audited:?}");
    let post = Post::open(Broker::RabbitMq4).await;
    let second = post.take_all(&format!("{}-second", world.name)).await;
    assert!(second.iter().all(|message| message.id.starts_with("c-")) && second.len() == EACH as usize);
    drop(relay);
    post.delete(&[format!("{}-second", world.name)], std::slice::from_ref(&world.name)).await;
}
