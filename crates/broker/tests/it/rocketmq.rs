//! RocketMQ, found by `CONSIGN_TEST_ROCKETMQ_URL` (a proxy) and `CONSIGN_TEST_ROCKETMQ_NAMESRV` (host:port of the name
//! server).

mod consumer;
mod destination;
mod fixture;
mod suite;
mod topology;

use std::time::Duration;

use consign_broker::rocketmq::{Admin, AdminOptions};

/// How to administrate the test cluster.
fn admin() -> Admin {
    const VARIABLE: &str = "CONSIGN_TEST_ROCKETMQ_NAMESRV";
    let name_server = std::env::var(VARIABLE)
        .unwrap_or_else(|_| panic!("{VARIABLE} is not set: run the tests with cargo xtask test"));
    let options = AdminOptions::new(&name_server).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    Admin::new(AdminOptions { deadline: Duration::from_mins(1), ..options })
}

/// A name nobody else uses.
fn unique(what: &str) -> String {
    let mut bits = [0; 8];
    getrandom::fill(&mut bits).unwrap();
    format!("consign-test-{what}-{:016x}", u64::from_le_bytes(bits))
}
