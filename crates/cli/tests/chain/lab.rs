//! `consign lab` on real servers: every window on MySQL and RabbitMQ, and the one that needs Redis.

use std::process::Command;

use serde_json::Value;

use crate::harness::{Broker, url};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests with cargo xtask test"))
}

fn lab(broker: Broker) -> (Vec<Value>, bool) {
    let output = Command::new(env!("CARGO_BIN_EXE_consign"))
        .args(["lab", "--json", "--only", "rabbitmq", "--only", "redis"])
        .args(["--mysql", &variable("CONSIGN_TEST_MYSQL_URL"), "--rabbitmq", &url(broker)])
        .args(["--redis", &variable("CONSIGN_TEST_REDIS_URL")])
        .output()
        .expect("consign starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no document: {errors}"));
    assert_eq!(output.status.success(), document["passed"] == true, "{errors}");
    (document["scenarios"].as_array().unwrap().clone(), output.status.success())
}

fn every_window_opens_and_consign_closes_it(broker: Broker) {
    let (scenarios, passed) = lab(broker);

    assert!(passed, "{scenarios:#?}");
    assert_eq!(scenarios.len(), 19);
    let on_redis: Vec<&Value> = scenarios.iter().filter(|scenario| scenario["backend"] == "redis").collect();
    assert_eq!(on_redis.len(), 1);
    assert_eq!(on_redis[0]["id"], "redis-setnx-alone");
    // The window in front of the effect loses, and the one behind it doubles.
    assert_eq!((&on_redis[0]["naive"]["lost"], &on_redis[0]["naive"]["doubled"]), (&1.into(), &1.into()));
}

#[test]
fn every_window_of_the_lab_opens_on_rabbitmq_3_and_consign_closes_it() {
    every_window_opens_and_consign_closes_it(Broker::RabbitMq);
}

#[test]
fn every_window_of_the_lab_opens_on_rabbitmq_4_and_consign_closes_it() {
    every_window_opens_and_consign_closes_it(Broker::RabbitMq4);
}
