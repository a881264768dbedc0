//! The final audit: what the database and the audit queue say, never what a process says about itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{AMOUNT, Copy, World};

impl World {
    /// Every order from 1 to `orders` had its event sent at least once and took effect once at each consumer; every
    /// repeat is a true copy. Gives the copies by event id.
    pub async fn assert_whole(&self, orders: u32) -> BTreeMap<String, Vec<Copy>> {
        let copies = self.assert_sent(orders).await;
        self.assert_effects_once(orders).await;
        copies
    }

    /// The relay's half: every row SENT, every event published at least once, every repeat a true copy.
    pub async fn assert_sent(&self, orders: u32) -> BTreeMap<String, Vec<Copy>> {
        let rows = i64::from(orders);
        assert_eq!(self.count("SENT").await, rows, "rows SENT");
        assert_eq!(self.number("SELECT COUNT(*) FROM outbox_event").await, rows, "rows at all");
        let rows = self.payloads().await;
        let copies = by_event(self.audit().await);
        let lost: Vec<&String> = rows.keys().filter(|id| !copies.contains_key(*id)).collect();
        let strange: Vec<&String> = copies.keys().filter(|id| !rows.contains_key(*id)).collect();
        assert!(lost.is_empty(), "{} events never reached the audit queue: {lost:?}", lost.len());
        assert!(strange.is_empty(), "{} messages belong to no event: {strange:?}", strange.len());
        for (id, copies) in &copies {
            let row: Value = serde_json::from_str(&rows[id]).unwrap();
            let published: Value = serde_json::from_str(&copies[0].payload).unwrap();
            assert_eq!(published, row, "{id} was published as it stands in the outbox");
            assert!(
                copies.iter().all(|copy| *copy == copies[0]),
                "{id} was repeated differently: {copies:#?}"
            );
        }
        copies
    }

    /// The consumers' half: points and text messages exactly once for each order from 1 to `orders`.
    pub async fn assert_effects_once(&self, orders: u32) {
        for user in 7..10 {
            let mine = (1..=orders).filter(|order| 7 + order % 3 == user).count();
            let points = format!("SELECT points FROM points_account WHERE user_id = {user}");
            assert_eq!(
                self.number(&points).await,
                AMOUNT * i64::try_from(mine).unwrap(),
                "points of user {user}"
            );
        }
        for consumer in ["points-award", "sms"] {
            let markers =
                format!("SELECT COUNT(*) FROM consumed_operation WHERE consumer_name = '{consumer}'");
            assert_eq!(self.number(&markers).await, i64::from(orders), "markers of {consumer}");
        }
        assert_eq!(self.number("SELECT COUNT(*) FROM sms_message").await, i64::from(orders), "text messages");
        let told = "SELECT COUNT(DISTINCT order_id) FROM sms_message";
        assert_eq!(self.number(told).await, i64::from(orders), "orders told about");
    }

    /// Whether this many rows are SENT.
    pub async fn is_sent(&self, rows: u32) -> bool {
        self.count("SENT").await == i64::from(rows)
    }

    /// Whether every order took effect at both consumers, as far as counts tell.
    pub async fn is_consumed(&self, orders: u32) -> bool {
        self.number("SELECT COUNT(*) FROM consumed_operation").await >= 2 * i64::from(orders)
    }

    /// Returns when relay and consumers are through.
    pub async fn eventually_finished(&self, deadline: Duration, orders: u32) {
        self.eventually(deadline, "everything is sent and consumed", async || {
            self.is_sent(orders).await && self.is_consumed(orders).await
        })
        .await;
    }
}

/// Copies by event id, in the order they came.
pub fn by_event(copies: Vec<Copy>) -> BTreeMap<String, Vec<Copy>> {
    let mut events: BTreeMap<String, Vec<Copy>> = BTreeMap::new();
    for copy in copies {
        events.entry(copy.event_id.clone()).or_default().push(copy);
    }
    events
}

/// How many copies are repeats.
pub fn repeats(copies: &BTreeMap<String, Vec<Copy>>) -> usize {
    copies.values().map(|copies| copies.len() - 1).sum()
}
