//! Servers that are away or refuse: clear messages, exit codes, patience, and no secrets anywhere.

use std::time::Duration;

use super::{findings, json, points};
use crate::harness::{Broker, Child, World, url};
use crate::post::{SOON, catch_all, must, run, store_url, write};

/// A port on which nothing listens: bound once and given back.
fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// B88 (wagslane/go-rabbitmq#190, redpanda-data/connect#111): urls with passwords in error messages.
#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_in_no_output_whatever_goes_wrong() {
    const PASSWORDS: [&str; 4] = ["s3cr3t", "hunter%2", "hunter2", "t0psecret"];
    let world = World::unmigrated().await;
    let port = closed_port();
    let store = store_url(&world);
    let broker = url(Broker::RabbitMq);
    let at = |url: &str| url.split_once('@').unwrap().1.to_owned();
    let (store_at, broker_at) = (at(&store), at(&broker));
    let urls = [
        // A wrong port, a wrong password, and a password that breaks the url.
        (format!("mysql://app:s3cr3t%40x@127.0.0.1:{port}/points"), broker.clone()),
        (format!("mysql://app:s3cr3t%40x@{store_at}"), broker.clone()),
        (format!("mysql://app:s3cr3t/hunter2@{store_at}"), broker.clone()),
        (format!("mysql://app:hunter%2@{store_at}"), broker.clone()),
        (store.clone(), format!("amqp://app:s3cr3t%40x@127.0.0.1:{port}/%2f")),
        (store.clone(), format!("amqp://guest:s3cr3t%40x@{broker_at}")),
        (store.clone(), format!("amqp://guest:s3cr3t?hunter2=t0psecret@{broker_at}")),
        (store.clone(), format!("amqp://guest:s3cr3t@{broker_at}?t0psecret=hunter2")),
    ];
    for (case, (store, broker)) in urls.iter().enumerate() {
        let text = points(&world, broker).replace(&store_url(&world), store);
        let config = write(&world, &format!("secret-{case}.toml"), &text);
        for command in [
            &["status", "--json"] as &[&str],
            &["migrate"],
            &["doctor"],
            &["doctor", "--json"],
            &["topology", "check"],
            &["topology", "apply"],
        ] {
            let output = run(command, &config);
            let said = format!("{}{}", output.stdout, output.stderr);
            for password in PASSWORDS {
                assert!(!said.contains(password), "{password} in {command:?} of case {case}: {said}");
            }
        }
        // The long-running commands say it in their logs, at the most talkative level too.
        let mut child = Child::start("run", &config, &[("CONSIGN_LOG", "debug")]);
        let trouble = ["connecting failed", "refuses this user", "cannot connect", "problems", "error"];
        world
            .eventually(SOON, "the trouble is in the log", async || {
                let log = child.log();
                !child.is_running() || trouble.iter().any(|word| log.contains(word))
            })
            .await;
        child.kill();
        let log = child.log();
        for password in PASSWORDS {
            assert!(!log.contains(password), "{password} in the log of case {case}: {log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_is_said_clearly_and_fails_the_command() {
    let world = World::unmigrated().await;
    let port = closed_port();
    let text = points(&world, &url(Broker::RabbitMq))
        .replace(&store_url(&world), &format!("mysql://root@127.0.0.1:{port}/points"));
    let config = write(&world, "away.toml", &text);

    for command in [&["status"] as &[&str], &["status", "--json"], &["migrate"]] {
        let output = run(command, &config);
        assert_eq!(output.code, 1, "{command:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{command:?}");
        assert!(output.stderr.contains("cannot connect to the store"), "{}", output.stderr);
    }
    // Doctor goes on with the rest.
    let output = run(&["doctor", "--json"], &config);
    assert_eq!(output.code, 1);
    assert_eq!(findings(&json(&output), "store-unavailable").len(), 1);
    assert_eq!(findings(&json(&output), "broker-version").len(), 1);

    // A database that does not exist, and tables that do not.
    let absent = points(&world, &url(Broker::RabbitMq))
        .replace(&store_url(&world), &format!("{}_absent", store_url(&world)));
    let output = run(&["status"], &write(&world, "absent.toml", &absent));
    assert_eq!(output.code, 1);
    assert!(output.stderr.contains(&format!("{}_absent", world.name)), "{}", output.stderr);
    world.run("DROP TABLE outbox_event").await;
    let output = run(&["status"], &write(&world, "bare.toml", &points(&world, &url(Broker::RabbitMq))));
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("outbox_event") && output.stderr.contains("consign migrate"),
        "{}",
        output.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_fails_checks_but_not_the_status_of_the_tables() {
    let world = World::migrated().await;
    let port = closed_port();
    let config =
        write(&world, "away.toml", &points(&world, &format!("amqp://guest:guest@127.0.0.1:{port}/%2f")));
    must(&["migrate"], &config);

    let check = run(&["topology", "check"], &config);
    assert_eq!(check.code, 3, "{}", check.stderr);
    assert!(
        check.stdout.contains("[broker-unreachable]") && check.stdout.contains("fix: start the broker"),
        "{}",
        check.stdout
    );
    let apply = run(&["topology", "apply"], &config);
    assert_eq!(apply.code, 1);
    assert!(
        apply.stderr.contains("destination main") && apply.stderr.contains("unavailable"),
        "{}",
        apply.stderr
    );
    assert_eq!(run(&["doctor"], &config).code, 1);
    assert_eq!(run(&["status"], &config).code, 0, "status is about the tables");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_without_its_broker_waits_loudly_and_burns_no_attempt() {
    let world = World::migrated().await;
    let port = closed_port();
    let away = write(
        &world,
        "away.toml",
        &catch_all(&world, &format!("amqp://guest:guest@127.0.0.1:{port}/%2f"), ""),
    );
    let there = write(&world, "there.toml", &catch_all(&world, &url(Broker::RabbitMq), ""));
    must(&["topology", "apply"], &there);
    for row in 0..5 {
        world.insert(&format!("e-{row}"), "OrderPaid", "{}").await;
    }

    let mut relay = Child::start("relay", &away, &[]);
    world
        .eventually(SOON, "the relay says what it waits for", async || {
            let log = relay.log();
            log.contains("connecting failed")
                && log.contains(&port.to_string())
                && log.contains("claims pause")
        })
        .await;
    // For a while, longer than several polls and sweeps, nothing may change.
    let until = tokio::time::Instant::now() + Duration::from_secs(3);
    while tokio::time::Instant::now() < until {
        assert!(relay.is_running(), "{}", relay.log());
        let touched = "SELECT COUNT(*) FROM outbox_event WHERE status <> 'NEW' OR attempts <> 0";
        assert_eq!(world.number(touched).await, 0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let first = relay.log().matches("connecting failed").count();
    assert_eq!(first, 1, "an outage is one line, not one a second: {}", relay.log());
    relay.terminate();
    assert!(relay.wait(SOON).await.success(), "{}", relay.log());

    let relay = Child::start("relay", &there, &[]);
    world.eventually(SOON, "every row is SENT", async || world.count("SENT").await == 5).await;
    assert_eq!(world.number("SELECT CAST(MAX(attempts) AS SIGNED) FROM outbox_event").await, 1);
    drop(relay);
}
