//! Outages of what consumers lean on: the filter of repeats, and a database that stops taking writes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use consign_amqp::{Properties, Publication, Verdict};
use tokio::time::Instant;

use crate::DEADLINE;
use crate::harness::{Broker, Child, connect, text};
use crate::servers::Scene;

pub const REDIS: &str = "redis";

/// Puts a true copy of some events behind the others, as a broker does that lost acknowledgements.
async fn repeat(scene: &Scene, orders: std::ops::RangeInclusive<u32>) {
    let connection = connect(Broker::RabbitMq4).await;
    let publisher = connection.open_publisher().await.unwrap();
    for order in orders {
        let publication = Publication {
            exchange: String::new(),
            routing_key: format!("{}-points", scene.place.name),
            properties: Properties {
                message_id: Some(format!("e-{order:06}")),
                kind: Some("OrderPaid".into()),
                delivery_mode: Some(2),
                ..Properties::default()
            },
            body: format!(r#"{{"orderId":{order},"userId":{},"amount":10}}"#, 7 + order % 3).into(),
        };
        let verdict = publisher.publish(publication, Instant::now() + DEADLINE).await;
        assert!(matches!(verdict, Verdict::Acked { .. }), "{verdict:?}");
    }
    connection.close(Duration::from_secs(5)).await;
}

/// Sends one command and gives the answer's first bytes.
fn redis(command: &[&str]) -> String {
    let url = std::env::var("CONSIGN_TEST_REDIS_URL").expect("CONSIGN_TEST_REDIS_URL is set");
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address).expect("Redis listens");
    let mut request = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        write!(request, "${}\r\n{word}\r\n", word.len()).unwrap();
    }
    stream.write_all(&request).unwrap();
    let mut answer = [0; 64];
    let read = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// The filter only hints: flushed, filled with lies and dead, it costs no effect and doubles none.
#[tokio::test(flavor = "multi_thread")]
async fn filter_that_is_flushed_lies_and_dies_costs_no_effect() {
    const FIRST: u32 = 400;
    const SECOND: u32 = 800;
    const ORDERS: u32 = 1_200;
    const LIE: &str = "for _,k in ipairs(redis.call('KEYS','*')) do redis.call('SET',k,string.rep('f',64)) end return #redis.call('KEYS','*')";
    let scene = Scene::set().await;
    let world = &scene.place;
    scene.control(&["up", REDIS]);
    redis(&["FLUSHALL"]);
    let url = std::env::var("CONSIGN_TEST_REDIS_URL").expect("CONSIGN_TEST_REDIS_URL is set");
    let config = world.prepare(world.config().raw(&format!("[filter]\ntype = \"redis\"\nurl = \"{url}\"\n")));
    let mut chain = Child::start("run", &config, &[("CONSIGN_LOG", "info")]);
    world.insert_many(FIRST).await;
    world.eventually_finished(DEADLINE, FIRST).await;
    let remembered = async || redis(&["DBSIZE"]).trim() != ":0";
    world.eventually(DEADLINE, "operations are remembered", remembered).await;

    redis(&["FLUSHALL"]);
    repeat(&scene, 1..=100).await;
    for order in FIRST + 1..=SECOND {
        world.purchase(order).await.unwrap();
    }
    world.eventually_finished(DEADLINE, SECOND).await;
    let lies = redis(&["EVAL", LIE, "0"]);
    assert!(lies.starts_with(':') && lies.trim() != ":0", "some operations were remembered: {lies:?}");
    repeat(&scene, 1..=SECOND).await;
    scene.control(&["kill", REDIS]);
    for order in SECOND + 1..=ORDERS {
        world.purchase(order).await.unwrap();
    }
    world.eventually_finished(DEADLINE, ORDERS).await;
    scene.control(&["up", REDIS]);
    repeat(&scene, 1..=100).await;

    let drained = async || {
        let connection = connect(Broker::RabbitMq4).await;
        let channel = connection.open_channel().await.unwrap();
        let queue = channel.queue_declare_passive(&format!("{}-points", world.name)).await.unwrap();
        connection.close(Duration::from_secs(5)).await;
        queue.messages == 0
    };
    world.eventually(DEADLINE, "every repeat is taken", drained).await;
    chain.terminate();
    assert!(chain.wait(DEADLINE).await.success(), "{}", chain.log());
    assert_eq!(world.number("SELECT COUNT(*) FROM consign_conflict").await, 0, "a lie is no conflict");
    world.assert_effects_once(ORDERS).await;
}

/// A primary that turns read-only in the middle (1290) is waited for: nothing is dead-lettered, nothing is lost (B13).
#[tokio::test(flavor = "multi_thread")]
async fn database_that_turns_read_only_is_waited_for() {
    const ORDERS: u32 = 600;
    let scene = Scene::set().await;
    let world = &scene.place;
    let config = world.prepare(world.config());
    world.insert_many(ORDERS).await;
    let mut relay = Child::start("relay", &config, &[]);
    world.eventually(DEADLINE, "all is sent", async || world.is_sent(ORDERS).await).await;
    relay.terminate();
    assert!(relay.wait(DEADLINE).await.success());
    let mut consumers = Child::start("consume", &config, &[]);
    let some = async || world.number("SELECT COUNT(*) FROM consumed_operation").await > 50;
    world.eventually(DEADLINE, "consumers are busy", some).await;

    world.run("SET GLOBAL super_read_only = 1").await;
    repeat(&scene, 1..=ORDERS).await;
    let waits = async || consumers.log().contains("stay in hand");
    world.eventually(DEADLINE, "the consumers wait in hand", waits).await;
    world.run("SET GLOBAL super_read_only = 0; SET GLOBAL read_only = 0").await;

    world.eventually(DEADLINE, "everything is consumed", async || world.is_consumed(ORDERS).await).await;
    consumers.terminate();
    assert!(consumers.wait(DEADLINE).await.success(), "{}", text(&config));
    for table in ["consign_dead_delivery", "consign_conflict"] {
        assert_eq!(world.number(&format!("SELECT COUNT(*) FROM {table}")).await, 0, "{table}");
    }
    world.assert_effects_once(ORDERS).await;
}
