//! The points story over RocketMQ, from its example: nothing is lost, and effects happen once, whoever is killed.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use consign_conformance::proxy::{Cut, Direction, Flow};
use serde_json::Value as Json;

use crate::harness::rocketmq::{Site, entry};
use crate::harness::{Child, environment, proxied, require_failpoints};
use crate::post::run;

mod benches;
mod permission;
mod transactions;

/// Long enough for deliveries of a killed consumer to come again, several times.
const DEADLINE: Duration = Duration::from_mins(3);

/// The event of an order.
fn event(order: u32) -> String {
    format!("e-{order:06}")
}

/// Starts the program so that it dies at `point`, and returns when it did.
async fn crash(command: &'static str, site: &Site, point: &str) {
    const SIGABRT: i32 = 6;
    let mut doomed = Child::start(command, &site.config, &[("CONSIGN_FAILPOINTS", point)]);
    let status = doomed.wait(DEADLINE).await;
    assert_eq!(status.signal(), Some(SIGABRT), "{point} ends the process, its log:\n{}", doomed.log());
}

/// B86 over RocketMQ: SIGKILL for relays and consumers, again and again, while people buy.
#[tokio::test(flavor = "multi_thread")]
async fn purchases_over_rocketmq_survive_relays_and_consumers_that_are_killed() {
    const PURCHASES: u32 = 200;
    const KILL_EVERY: u32 = 20;
    let site = Site::prepared().await;
    let commands = ["relay", "consume", "relay", "consume"];
    let mut children = commands.map(|command| Child::start(command, &site.config, &[]));
    for child in &mut children {
        child.ready().await;
    }

    for order in 1..=PURCHASES {
        site.world.purchase(order).await.unwrap();
        if order % KILL_EVERY == 0 {
            let victim = (order / KILL_EVERY) as usize % commands.len();
            children[victim].kill();
            children[victim] = Child::start(commands[victim], &site.config, &[]);
        }
    }

    site.world.eventually_finished(DEADLINE, PURCHASES).await;
    site.assert_whole(PURCHASES).await;
    for child in &mut children {
        child.terminate();
        assert!(child.wait(DEADLINE).await.success(), "{}", child.log());
    }
    site.clean().await;
}

/// B86: what the broker confirmed and nobody settled is sent again, under the same message id.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_dies_after_a_confirm_repeats_the_same_message_ids() {
    const ORDERS: u32 = 30;
    require_failpoints();
    let site = Site::prepared().await;
    site.world.insert_many(ORDERS).await;

    crash("relay", &site, "publish.after_outcome=abort").await;

    assert_eq!(site.world.count("SENT").await, 0);
    let _relay = Child::start("relay", &site.config, &[]);
    let _consumers = Child::start("consume", &site.config, &[]);
    site.world.eventually_finished(DEADLINE, ORDERS).await;
    let repeats = site.assert_whole(ORDERS).await;
    assert!(repeats > 0, "a confirmed message is sent again");
    site.clean().await;
}

/// B86: the effect is committed and the acknowledgement never sent. The message comes again and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_dies_between_commit_and_ack_applies_each_effect_once() {
    const ORDERS: u32 = 30;
    require_failpoints();
    let site = Site::prepared().await;
    let _relay = Child::start("relay", &site.config, &[]);
    site.world.insert_many(ORDERS).await;

    crash("consume", &site, "consume.after_commit=abort@5").await;

    let committed = site.world.number("SELECT COUNT(*) FROM consumed_operation").await;
    assert!(committed >= 5, "five operations were committed before the end, not {committed}");
    let _second = Child::start("consume", &site.config, &[("CONSIGN_LOG", "info,consign=debug,sqlx=off")]);
    site.world.eventually_finished(DEADLINE, ORDERS).await;
    site.assert_whole(ORDERS).await;
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_topology_is_checked_made_and_found_as_configured() {
    let site = Site::new().await;

    let before = run(&["topology", "check", "--json"], &site.config);
    let first = run(&["topology", "apply"], &site.config);
    let second = run(&["topology", "apply"], &site.config);
    let after = run(&["topology", "check", "--json"], &site.config);

    let codes = |text: &str| -> Vec<String> {
        let document: Json = serde_json::from_str(text).unwrap();
        let findings = document["findings"].as_array().unwrap().iter();
        findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
    };
    let (found, made) = (codes(&before.stdout), codes(&after.stdout));
    assert_eq!(before.code, 3, "{}", before.stdout);
    assert_eq!(found.iter().filter(|code| *code == "topic-missing").count(), 3, "{found:?}");
    assert_eq!(found.iter().filter(|code| *code == "group-missing").count(), 2, "{found:?}");
    assert_eq!((first.code, second.code), (0, 0), "{} {}", first.stderr, second.stderr);
    assert!(
        first.stderr.contains("3 topics and 2 groups are as configured, 3 and 2 of them new"),
        "{}",
        first.stderr
    );
    assert!(second.stderr.contains("0 and 0 of them new"), "{}", second.stderr);
    assert!(!made.iter().any(|code| code.ends_with("-missing")), "{made:?}");
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_name_server_says_what_cannot_be_seen() {
    let site = Site::changed(|table| {
        entry(entry(table, "destination"), "points").remove("name_servers");
    })
    .await;

    let check = run(&["topology", "check"], &site.config);
    let apply = run(&["topology", "apply"], &site.config);

    assert_eq!(check.code, 0, "{}", check.stdout);
    assert!(check.stdout.contains("no name server is configured"), "{}", check.stdout);
    assert_eq!(apply.code, 1);
    assert!(apply.stderr.contains("destination points has no name_servers: add them"), "{}", apply.stderr);
}

/// A proxy acknowledges, for the whole group, what a member's own tags do not match: members with different tags lose
/// each other's messages. So the second does not join.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_other_tags_does_not_join_its_group() {
    const CODE: &str = "group-subscription-differs";
    let site = Site::prepared().await;
    let _first = Child::start("consume", &site.config, &[]);
    let other = site.rewritten("other.toml", |table| {
        let groups = entry(entry(table, "destination"), "points")["group"].as_array_mut().unwrap();
        groups[0].as_table_mut().unwrap().insert("tags".into(), vec!["OrderCreated"].into());
    });
    let reported = async || run(&["topology", "check", "--json"], &other).stdout.contains(CODE);
    site.world.eventually(DEADLINE, "the broker knows the first member", reported).await;

    let mut second = Child::start("consume", &other, &[]);
    let ended = second.wait(DEADLINE).await;

    assert_eq!(ended.code(), Some(1), "{}", second.log());
    let log = second.log();
    for part in ["does not join group", "OrderPaid", "give this consumer a group of its own"] {
        assert!(log.contains(part), "{part:?} is missing in {log}");
    }
    assert!(!run(&["topology", "check", "--json"], &site.config).stdout.contains(CODE));
    site.clean().await;
}

/// The broker has every event, and not one of its answers arrives: nothing is SENT, all is sent again under the same ids.
#[tokio::test(flavor = "multi_thread")]
async fn sends_whose_answers_are_lost_are_repeated_and_take_effect_once() {
    const ORDERS: u32 = 20;
    let (proxy, through) = proxied(&environment("CONSIGN_TEST_ROCKETMQ_URL")).await;
    let site = Site::prepared().await;
    let direct = site.config.clone();
    let relayed = site.rewritten("relayed.toml", |table| {
        entry(entry(table, "destination"), "points")
            .insert("url".into(), format!("{through}?access_points_only=true").into());
    });
    let relay = Child::start("relay", &relayed, &[]);
    let available = async || relay.log().contains("destination is available");
    site.world.eventually(DEADLINE, "the relay is connected", available).await;

    proxy.set(Direction::ToClient, Flow::Swallow);
    site.world.insert_many(ORDERS).await;
    let stored = async || {
        for order in 1..=ORDERS {
            if site.copies_in(&site.topic(), &event(order)).await == 0 {
                return false;
            }
        }
        true
    };
    site.world.eventually(DEADLINE, "the broker has all events", stored).await;
    assert_eq!(site.world.count("SENT").await, 0, "nothing is SENT without an answer");
    proxy.heal();
    // What was swallowed is missing in the stream.
    proxy.cut(Cut::Reset);

    let _consumers = Child::start("consume", &direct, &[]);
    site.world.eventually_finished(DEADLINE, ORDERS).await;
    site.assert_whole(ORDERS).await;
    for order in 1..=ORDERS {
        let copies = site.copies_in(&site.topic(), &event(order)).await;
        assert!(copies > 1, "order {order} was sent again, there are {copies} copies");
    }
    site.clean().await;
}

/// A consumer freezes in a transaction for longer than its deliveries are hidden. Another gets them again, and waits.
/// Then the first goes on, and commits, with handles that are worth nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn handles_that_expire_in_a_slow_handler_cost_no_effect_and_double_none() {
    const ORDERS: u32 = 12;
    let site = Site::prepared().await;
    // What the example sets up before it consumes would wait for the locks of the frozen.
    let consuming = site.rewritten("consuming.toml", |table| {
        table.remove("setup");
    });
    let waits = |table: &str| {
        format!(
            "SELECT COUNT(*) FROM performance_schema.data_locks
             WHERE lock_status = 'WAITING' AND object_schema = '{}' AND object_name = '{table}'",
            site.world.name
        )
    };
    let mut frozen = Child::start("consume", &site.config, &[]);
    let mut relay = Child::start("relay", &site.config, &[]);
    frozen.ready().await;
    relay.ready().await;
    let mut accounts = site.world.pool.begin().await.unwrap();
    sqlx::query("SELECT points FROM points_account FOR UPDATE").fetch_all(&mut *accounts).await.unwrap();
    site.world.insert_many(ORDERS).await;
    let working = async || site.world.number(&waits("points_account")).await > 0;
    site.world.eventually(DEADLINE, "the first consumer has an effect under way", working).await;
    frozen.stop();
    accounts.rollback().await.unwrap();

    let _second = Child::start("consume", &consuming, &[]);
    // Only the same order has the same marker.
    let waiting = async || site.world.number(&waits("consumed_operation")).await > 0;
    site.world.eventually(DEADLINE, "the second gets what the first has, and waits for it", waiting).await;
    frozen.go_on();

    site.world.eventually_finished(DEADLINE, ORDERS).await;
    frozen.terminate();
    assert!(frozen.wait(DEADLINE).await.success(), "an expired handle is no failure: {}", frozen.log());
    site.assert_whole(ORDERS).await;
    site.clean().await;
}
