//! A new config while the relay runs, and wake-ups by packets, as a user has them.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tokio::time::Instant;

use crate::harness::{Child, World};
use crate::post::SOON;

async fn sent(world: &World, rows: i64) {
    world.eventually(SOON, "rows are SENT", async || world.count("SENT").await == rows).await;
}

async fn logged(world: &World, relay: &Child, text: &str) {
    let what = format!("the relay logs {text:?}");
    world.eventually(SOON, &what, async || relay.log().contains(text)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_route_takes_effect_without_a_restart_and_nothing_is_lost_meanwhile() {
    const ORDERS: u32 = 400;
    const RELOADS: u32 = 20;
    let world = World::migrated().await;
    let config = world.prepare(world.config().set("route.0.event_type", "\"OrderPaid\""));
    let mut relay = Child::start("relay", &config, &[]);
    relay.ready().await;
    world.insert("n-1", "OrderCreated", r#"{"orderId":1,"userId":7}"#).await;
    logged(&world, &relay, "event has no route and waits").await;

    for reload in 0..RELOADS {
        for order in 0..ORDERS / RELOADS {
            world.purchase(reload * ORDERS / RELOADS + order).await.unwrap();
        }
        let window = 100 + reload;
        world.config().set("relay.window", &window.to_string()).write("consign.toml");
        relay.hang_up();
        logged(&world, &relay, &format!("-> {window}")).await;
    }
    world.insert("n-2", "OrderCreated", r#"{"orderId":2,"userId":7}"#).await;

    sent(&world, i64::from(ORDERS) + 1).await;
    assert!(
        relay.log().contains("reloaded: relay.window 256 -> 100, route[0].event_type \"OrderPaid\" -> \"*\""),
        "{}",
        relay.log()
    );
    let audit = world.audit().await;
    let ids: std::collections::BTreeSet<&str> = audit.iter().map(|copy| copy.event_id.as_str()).collect();
    assert_eq!(ids.len(), ORDERS as usize + 1);
    assert!(ids.contains("n-2") && !ids.contains("n-1"), "a row without a route waits for its time");
    assert!(relay.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_config_and_one_that_needs_a_restart_are_refused_and_the_old_one_goes_on() {
    let world = World::migrated().await;
    let config = world.prepare(world.config());
    let mut relay = Child::start("relay", &config, &[]);
    relay.ready().await;

    world.config().set("relay.window", "0").set("route.0.destination", "\"nowhere\"").write("consign.toml");
    relay.hang_up();
    logged(&world, &relay, "reload refused, the old config goes on").await;
    let log = relay.log();
    assert!(log.contains("relay.window: 0 is out of range: use 1 to 100000"), "{log}");
    assert!(log.contains("route[0].destination: \"nowhere\" is unknown"), "{log}");

    let elsewhere = world.config().set("relay.window", "9").set("relay.name", "\"other\"");
    elsewhere.broker("amqp://guest:s3cr3t@127.0.0.1:1/%2f").write("consign.toml");
    relay.hang_up();
    logged(&world, &relay, "destination.main.url, relay.name cannot change while it runs").await;
    assert!(!relay.log().contains("s3cr3t") && !relay.log().contains("reloaded:"), "{}", relay.log());

    world.purchase(1).await.unwrap();
    sent(&world, 1).await;

    world.config().write("consign.toml");
    relay.hang_up();
    logged(&world, &relay, "reloaded: nothing changed").await;
    assert!(relay.is_running());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_from_anybody_makes_an_idle_relay_claim_at_once() {
    const PAUSE: &str = "30000";
    let world = World::migrated().await;
    let config = world.prepare(
        world
            .config()
            .set("relay.poll_min_milliseconds", PAUSE)
            .set("relay.poll_max_milliseconds", PAUSE)
            .set("relay.wakeup", "\"unix:wakeup.sock\""),
    );
    let mut relay = Child::start("relay", &config, &[]);
    relay.ready().await;
    world.purchase(1).await.unwrap();
    let started = Instant::now();

    let socket = UnixDatagram::unbound().unwrap();
    let path = config.with_file_name("wakeup.sock");
    // The relay may be in the middle of its first claim or the broker's connection when the first packet comes.
    world
        .eventually(SOON, "the event is SENT", async || {
            socket.send_to(b"", &path).unwrap();
            world.count("SENT").await == 1
        })
        .await;

    assert!(started.elapsed() < Duration::from_secs(20), "a poll found it: {:?}", started.elapsed());
    world.purchase(2).await.unwrap();
    let again = Instant::now();
    socket.send_to(b"outbox\n", &path).unwrap();
    sent(&world, 2).await;
    assert!(again.elapsed() < Duration::from_secs(20), "a poll found it: {:?}", again.elapsed());
    relay.terminate();
    assert!(relay.wait(SOON).await.success());
    assert!(!path.exists(), "the socket goes with its relay");
}
