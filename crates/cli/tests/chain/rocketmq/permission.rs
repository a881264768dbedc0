//! Rights on a topic that are taken away while the program runs, and given back.

use consign_rocketmq::admin::TopicConfig;

use super::DEADLINE;
use crate::harness::Child;
use crate::harness::rocketmq::Site;

/// The bits of a topic's permission.
const READ: u32 = 4;
const WRITE: u32 = 2;

/// Says what may be done with the site's topic.
async fn permit(site: &Site, permission: u32) {
    for broker in site.admin.masters().await.unwrap() {
        let topic = site.admin.topic(&broker.address, &site.topic()).await.unwrap().unwrap();
        site.admin.put_topic(&broker.address, &TopicConfig { permission, ..topic }).await.unwrap();
    }
}

/// A relay and consumers that have sent and consumed the orders from 1 to `orders`.
async fn at_work(site: &Site, orders: u32) -> [Child; 2] {
    let children = ["relay", "consume"].map(|command| Child::start(command, &site.config, &[]));
    site.world.insert_many(orders).await;
    site.world.eventually_finished(DEADLINE, orders).await;
    children
}

async fn buy(site: &Site, orders: std::ops::RangeInclusive<u32>) {
    for order in orders {
        site.world.purchase(order).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_for_a_topic_that_may_not_be_written_wait_until_it_may_and_burn_no_attempt() {
    const FIRST: u32 = 20;
    const ORDERS: u32 = 60;
    let site = Site::prepared().await;
    let [mut relay, mut consumers] = at_work(&site, FIRST).await;

    permit(&site, READ).await;
    buy(&site, FIRST + 1..=ORDERS).await;
    let forbidden =
        "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND LOWER(last_error) LIKE '%forbidden%'";
    let refused = async || site.world.number(forbidden).await > 0 && site.world.count("SENDING").await == 0;
    site.world.eventually(DEADLINE, "rows are refused", refused).await;
    assert_eq!(site.world.count("SENT").await, i64::from(FIRST));
    permit(&site, READ | WRITE).await;

    site.world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    assert_eq!(site.world.number("SELECT MAX(attempts) FROM outbox_event").await, 1);
    assert_eq!(site.assert_whole(ORDERS).await, 0, "what was refused was not stored");
    site.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_topic_that_may_not_be_read_are_received_as_soon_as_it_may() {
    const FIRST: u32 = 20;
    const ORDERS: u32 = 60;
    let site = Site::prepared().await;
    let [mut relay, mut consumers] = at_work(&site, FIRST).await;

    permit(&site, WRITE).await;
    buy(&site, FIRST + 1..=ORDERS).await;
    let sent = async || site.world.is_sent(ORDERS).await;
    site.world.eventually(DEADLINE, "the relay goes on", sent).await;
    let told = async || consumers.log().contains("not receiving");
    site.world.eventually(DEADLINE, "the consumers say that they do not receive", told).await;
    assert!(!site.world.is_consumed(ORDERS).await, "nobody reads the topic");
    permit(&site, READ | WRITE).await;

    site.world.eventually_finished(DEADLINE, ORDERS).await;
    assert!(relay.is_running() && consumers.is_running());
    site.assert_whole(ORDERS).await;
    site.clean().await;
}
