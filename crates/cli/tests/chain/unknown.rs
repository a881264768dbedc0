//! The broker has the message and its answer gets lost: Unknown, published again under the same event id, applied once.

use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow};

use crate::harness::audit::{by_event, repeats};
use crate::harness::{Child, World};

const DEADLINE: Duration = Duration::from_mins(1);

/// B20 (OpenSDN-io/community#129, rabbitmq/rabbitmq-dotnet-client#1928, amqp-node/amqplib#530): confirms that never
/// come end by their deadline.
#[tokio::test(flavor = "multi_thread")]
async fn withheld_confirms_lead_to_repeats_that_take_effect_once() {
    const ORDERS: u32 = 20;
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let direct = world.prepare(world.config());
    let proxied = world.config().broker(through).write("proxied.toml");
    let _consumers = Child::start("consume", &direct, &[]);
    let relay = Child::start("relay", &proxied, &[]);
    let connected = async || relay.log().contains("destination is available");
    world.eventually(DEADLINE, "the relay is connected", connected).await;

    proxy.set(Direction::ToClient, Flow::Swallow);
    world.insert_many(ORDERS).await;
    let doubted = "SELECT COUNT(*) FROM outbox_event WHERE last_error LIKE 'unknown%'";
    let unknown = async || world.number(doubted).await == i64::from(ORDERS);
    world.eventually(DEADLINE, "every publish ends as unknown", unknown).await;
    assert_eq!(world.count("SENT").await, 0, "nothing is SENT without a proof");
    let published = by_event(world.audit().await).len();
    assert!(published > 0, "the broker had messages all the while");
    proxy.heal();

    world.eventually_finished(DEADLINE, ORDERS).await;
    let copies = world.assert_whole(ORDERS).await;
    assert!(repeats(&copies) >= published, "every event in doubt was published again");
}

/// B20, with the connection reset in the middle of a window, several times.
#[tokio::test(flavor = "multi_thread")]
async fn connection_that_is_reset_under_load_loses_nothing() {
    const ORDERS: u32 = 3_000;
    const CUTS: i64 = 4;
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    let direct = world.prepare(world.config());
    // A lease that ends on a slow machine counts an attempt, and is not what this is about.
    let unhurried = world
        .config()
        .set("relay.lease_seconds", "60")
        .set("relay.publish_deadline_seconds", "40")
        .set("relay.margin_seconds", "5");
    let proxied = unhurried.set("relay.window", "200").broker(through).write("proxied.toml");
    let _consumers = Child::start("consume", &direct, &[]);
    world.insert_many(ORDERS).await;
    let _relay = Child::start("relay", &proxied, &[]);

    for cut in 1..=CUTS {
        let further = async || world.count("SENT").await > cut * 400;
        world.eventually(DEADLINE, "the relay is busy", further).await;
        proxy.cut(Cut::Reset);
    }

    world.eventually_finished(2 * DEADLINE, ORDERS).await;
    assert!(proxy.connections() > 1, "the relay came back through the proxy");
    assert_eq!(world.number("SELECT MAX(attempts) FROM outbox_event").await, 1, "no row is to blame");
    world.assert_whole(ORDERS).await;
}

/// B20: a broker that is away for a while costs time, and no attempts.
#[tokio::test(flavor = "multi_thread")]
async fn outage_of_the_broker_burns_no_attempts() {
    const ORDERS: u32 = 100;
    const TRIES: u64 = 5;
    let world = World::migrated().await;
    let (proxy, through) = world.proxy().await;
    world.prepare(world.config());
    let proxied = world.config().broker(through).write("proxied.toml");
    let _chain = Child::start("run", &proxied, &[]);
    world.insert_many(ORDERS / 2).await;
    let half = async || world.count("SENT").await == i64::from(ORDERS / 2);
    world.eventually(DEADLINE, "the first half is SENT", half).await;

    proxy.refuse();
    proxy.cut(Cut::Reset);
    for order in ORDERS / 2 + 1..=ORDERS {
        world.purchase(order).await.unwrap();
    }
    let tried = async || proxy.refused() >= TRIES;
    world.eventually(DEADLINE, "the program keeps trying to connect", tried).await;
    assert_eq!(world.count("SENT").await, i64::from(ORDERS / 2));
    proxy.heal();

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert_eq!(world.number("SELECT MAX(attempts) FROM outbox_event").await, 1);
    world.assert_whole(ORDERS).await;
}
