//! Outages of the servers themselves: killed, frozen, out of memory. Nothing is lost, effects happen once, and the
//! program goes on by itself.
//!
//! The servers behind `CONSIGN_TEST_MYSQL_URL`, `CONSIGN_TEST_RABBITMQ4_URL`, `CONSIGN_TEST_ROCKETMQ_URL` and
//! `CONSIGN_TEST_REDIS_URL` must be those that `cargo xtask services` runs, and nobody else may use them meanwhile.
//! `cargo xtask test` sees to it; to run these tests alone, export `CONSIGN_XTASK`, the path of the task runner, and the
//! urls.

#[path = "../chain/harness.rs"]
mod harness;
mod inbox;
mod rocketmq;
mod servers;

use std::time::Duration;

use harness::Child;
use servers::Scene;

const DEADLINE: Duration = Duration::from_secs(90);
const MYSQL: &str = "mysql";
const RABBITMQ: &str = "rabbitmq4";

/// B22 (rabbitmq/rabbitmq-server#23, amqp-rs/lapin#192): while the broker blocks publishers, claims pause; no attempt
/// is counted and no row dies, and the relay goes on as soon as it may.
#[tokio::test(flavor = "multi_thread")]
async fn memory_alarm_pauses_the_relay_and_burns_no_attempts() {
    const ORDERS: u32 = 150;
    const BEFORE: u32 = 50;
    const RESUMES_WITHIN: Duration = Duration::from_secs(15);
    let scene = Scene::set().await;
    let world = &scene.place;
    let config = world.prepare(world.config());
    let mut chain = Child::start("run", &config, &[]);
    world.insert_many(BEFORE).await;
    world.eventually_finished(DEADLINE, BEFORE).await;

    scene.control(&["ctl", RABBITMQ, "set_vm_memory_high_watermark", "0.0000001"]);
    // The broker tells a publisher only when it publishes; that one row is alone, so all the blame could fall on it.
    world.purchase(BEFORE + 1).await.unwrap();
    let blocked = async || chain.log().contains("blocked by the broker");
    world.eventually(DEADLINE, "the broker blocks the relay", blocked).await;
    for order in BEFORE + 2..ORDERS {
        world.purchase(order).await.unwrap();
    }
    let waiting = async || world.count("NEW").await == i64::from(ORDERS - 1 - BEFORE);
    world.eventually(DEADLINE, "every row was released", waiting).await;
    let claimed = "SELECT SUM(attempts) FROM outbox_event";
    let before = world.number(claimed).await;
    // A row that is due from now on, and other people's time to claim it: a second sight of an idle outbox.
    world.purchase(ORDERS).await.unwrap();
    let due = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND available_at < NOW(6) - INTERVAL 2 SECOND";
    let all_due = async || world.number(due).await == i64::from(ORDERS - BEFORE);
    world.eventually(DEADLINE, "every row has been due for two seconds", all_due).await;
    assert_eq!(world.number(claimed).await, before, "nothing is claimed while the broker blocks");
    assert_eq!(world.count("SENT").await, i64::from(BEFORE));

    scene.calm();

    let all_sent = async || world.is_sent(ORDERS).await;
    world.eventually(RESUMES_WITHIN, "the relay goes on by itself", all_sent).await;
    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(chain.is_running());
    assert_eq!(world.number("SELECT MAX(attempts) FROM outbox_event").await, 1);
    world.assert_whole(ORDERS).await;
}

/// B20: the broker dies with publishes and acknowledgements under way.
#[tokio::test(flavor = "multi_thread")]
async fn broker_that_is_killed_under_load_loses_nothing() {
    const WAITING: u32 = 3_000;
    const ORDERS: u32 = WAITING + 50;
    let scene = Scene::set().await;
    let world = &scene.place;
    let config = world.prepare(world.config());
    world.insert_many(WAITING).await;
    let mut relay = Child::start("relay", &config, &[]);
    let mut consumers = Child::start("consume", &config, &[]);
    let busy = async || world.count("SENT").await > 300;
    world.eventually(DEADLINE, "the relay is busy", busy).await;

    scene.control(&["kill", RABBITMQ]);
    assert!(world.count("SENT").await < i64::from(WAITING), "the broker died in the middle of the work");
    for order in WAITING + 1..=ORDERS {
        world.purchase(order).await.unwrap();
    }
    let noticed = async || relay.log().contains("destination is unavailable");
    world.eventually(DEADLINE, "the relay notices", noticed).await;
    scene.control(&["up", RABBITMQ]);

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    // The end of a connection counts for nobody. A machine that stands still for a second lets deadlines pass, which do count.
    let counted = "SELECT COUNT(*) FROM outbox_event e WHERE e.attempts > 1 + (
                   SELECT COUNT(*) FROM consign_attempt a WHERE a.event_id = e.event_id
                   AND a.detail LIKE '%no confirm before the publish deadline%')";
    assert_eq!(world.number(counted).await, 0);
    world.assert_whole(ORDERS).await;
}

/// B20: the broker freezes with its sockets open, so that only deadlines tell.
#[tokio::test(flavor = "multi_thread")]
async fn broker_that_is_frozen_past_the_publish_deadline_loses_nothing() {
    const ORDERS: u32 = 2_000;
    let scene = Scene::set().await;
    let world = &scene.place;
    let config = world.prepare(world.config());
    world.insert_many(ORDERS).await;
    let mut relay = Child::start("relay", &config, &[]);
    let mut consumers = Child::start("consume", &config, &[]);
    let busy = async || world.count("SENT").await > 200;
    world.eventually(DEADLINE, "the relay is busy", busy).await;

    scene.control(&["pause", RABBITMQ]);
    let doubted = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND last_error LIKE 'unknown%'";
    let unknown = async || world.number(doubted).await > 0 && world.count("SENDING").await == 0;
    world.eventually(DEADLINE, "the publishes in flight end as unknown", unknown).await;
    scene.control(&["resume", RABBITMQ]);

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    world.assert_whole(ORDERS).await;
}

/// B86, with the database as the one that dies: claims, settles, markers and purchases whose COMMIT got no answer.
#[tokio::test(flavor = "multi_thread")]
async fn database_that_is_killed_under_load_loses_nothing() {
    const WAITING: u32 = 1_500;
    const ORDERS: u32 = WAITING + 300;
    let scene = Scene::set().await;
    let world = &scene.place;
    let config = world.prepare(world.config());
    world.insert_many(WAITING).await;
    let mut relay = Child::start("relay", &config, &[]);
    let mut consumers = Child::start("consume", &config, &[]);
    let busy = async || world.count("SENT").await > 200;
    world.eventually(DEADLINE, "the relay is busy", busy).await;

    let buyer = async {
        for order in WAITING + 1..=ORDERS {
            scene.buy(order).await;
        }
    };
    let outage = async {
        let bought = format!("SELECT COUNT(*) FROM purchase_order WHERE id > {WAITING}");
        let some = async || world.number(&bought).await > 20;
        world.eventually(DEADLINE, "people buy", some).await;
        scene.control_aside(&["kill", MYSQL]).await;
        let noticed = async || relay.log().contains("store failed");
        world.eventually(DEADLINE, "the relay notices", noticed).await;
        scene.control_aside(&["up", MYSQL]).await;
    };
    tokio::join!(buyer, outage);

    world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    let orders = "SELECT COUNT(*) FROM purchase_order";
    assert_eq!(world.number(orders).await, i64::from(ORDERS - WAITING));
    world.assert_whole(ORDERS).await;
}
