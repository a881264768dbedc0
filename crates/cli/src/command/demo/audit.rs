//! The demo's reconciliation: every figure is a query over the databases.

use std::time::Duration;

use serde_json::json;
use sqlx::SqlitePool;

use crate::output::{self, Table};

use super::world::{TAP, World};

/// What the databases say at the end.
#[derive(Debug)]
pub struct Audit {
    /// Business rows.
    pub orders: i64,
    /// Outbox rows.
    pub events: i64,
    /// Outbox rows that are SENT.
    pub sent: i64,
    /// Outbox rows that are DEAD.
    pub dead: i64,
    /// Copies the broker took, and how many events they stand for.
    pub delivered: i64,
    delivered_events: i64,
    points: Consumed,
    sms: Consumed,
    balance_wrong: i64,
    /// Facts that did not arrive.
    pub lost: i64,
    /// Effects that happened more than once.
    pub doubled: i64,
}

#[derive(Debug)]
struct Consumed {
    applied: i64,
    duplicates: i64,
    conflicts: i64,
    lost: i64,
    doubled: i64,
}

impl Audit {
    /// Queries the databases of a chain at rest.
    pub async fn take(world: &World) -> anyhow::Result<Self> {
        let eye = world.eye();
        let count = async |sql: &'static str| number(eye, sql).await;
        let points = consumed(eye, "points-award", "points_entry").await?;
        let sms = consumed(eye, "sms", "sms_message").await?;
        let never_published = count(
            "SELECT COUNT(*) FROM outbox_event AS event WHERE NOT EXISTS
             (SELECT 1 FROM queue.consign_queue_message AS copy
              WHERE copy.queue = 'tap' AND copy.message_id = event.event_id)",
        )
        .await?;
        let balance_wrong = count(
            "SELECT COUNT(*) FROM points.points_account AS account WHERE points <>
             (SELECT COALESCE(SUM(amount), 0) FROM purchase_order WHERE user_id = account.user_id)",
        )
        .await?;
        Ok(Self {
            orders: count("SELECT COUNT(*) FROM purchase_order").await?,
            events: count("SELECT COUNT(*) FROM outbox_event").await?,
            sent: count("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'").await?,
            dead: count("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await?,
            delivered: count("SELECT COUNT(*) FROM queue.consign_queue_message WHERE queue = 'tap'").await?,
            delivered_events: count(
                "SELECT COUNT(DISTINCT message_id) FROM queue.consign_queue_message WHERE queue = 'tap'",
            )
            .await?,
            lost: never_published + points.lost + sms.lost,
            doubled: points.doubled + sms.doubled + balance_wrong,
            points,
            sms,
            balance_wrong,
        })
    }

    /// The audit as JSON.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "produced": self.events, "orders": self.orders, "events": self.events, "sent": self.sent,
            "dead": self.dead, "delivered": self.delivered,
            "applied": self.points.applied, "duplicates": self.points.duplicates,
            "conflicts": self.points.conflicts, "lost": self.lost, "doubled": self.doubled,
            "consumers": [self.points.json("points-award"), self.sms.json("sms")],
        })
    }

    /// The audit as one table per handoff.
    pub fn print(&self, kills: (u32, u32), elapsed: Duration) -> std::io::Result<()> {
        let mut committed = Table::new(["orders", "events", "sent", "dead"]);
        committed.row([self.orders, self.events, self.sent, self.dead].map(|number| number.to_string()));
        output::print(format!("Handoff 1: business commit to outbox\n{committed}\n"))?;

        let mut published = Table::new(["events with a copy", "copies", "repeated copies"]);
        let repeated = self.delivered - self.delivered_events;
        published.row([self.delivered_events, self.delivered, repeated].map(|number| number.to_string()));
        output::print(format!(
            "Handoff 2: outbox to broker, as kept in queue {TAP:?} for this audit\n{published}\n"
        ))?;

        let mut consumed = Table::new(["consumer", "applied", "duplicates", "conflicts", "lost", "doubled"]);
        for (name, figures) in [("points-award", &self.points), ("sms", &self.sms)] {
            let Consumed { applied, duplicates, conflicts, lost, doubled } = figures;
            let numbers = [applied, duplicates, conflicts, lost, doubled].map(i64::to_string);
            consumed.row(std::iter::once(name.to_owned()).chain(numbers));
        }
        output::print(format!("Handoff 3: broker to effects\n{consumed}\n"))?;

        output::print(format!(
            "{} relay kills, {} consumer kills, {:.1} s, accounts with a wrong balance {}\nlost {}, doubled {}\n",
            kills.0,
            kills.1,
            elapsed.as_secs_f64(),
            self.balance_wrong,
            self.lost,
            self.doubled
        ))
    }
}

impl Consumed {
    fn json(&self, name: &str) -> serde_json::Value {
        json!({
            "name": name, "applied": self.applied, "duplicates": self.duplicates,
            "conflicts": self.conflicts, "lost": self.lost, "doubled": self.doubled,
        })
    }
}

async fn number(eye: &SqlitePool, sql: &'static str) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar(sql).fetch_one(eye).await?)
}

/// One consumer's side. `effects` is a table of this file, never input.
async fn consumed(eye: &SqlitePool, consumer: &str, effects: &str) -> anyhow::Result<Consumed> {
    let ask = async |sql: String| -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(consumer).fetch_one(eye).await?)
    };
    let applied = ask(format!("SELECT COUNT(*) FROM points.{effects} WHERE ?1 <> ''")).await?;
    // Copies that carry what the marker carries; all but the one that was applied are duplicates.
    let same = ask("SELECT COUNT(*) FROM queue.consign_queue_message AS copy
         JOIN points.consumed_operation AS marker
           ON marker.business_key = 'order:' || json_extract(CAST(copy.body AS TEXT), '$.orderId') || ':paid'
         WHERE copy.queue = 'tap' AND marker.consumer_name = ?1
           AND marker.user_id = json_extract(CAST(copy.body AS TEXT), '$.userId')
           AND marker.amount = json_extract(CAST(copy.body AS TEXT), '$.amount')"
        .into())
    .await?;
    let conflicts =
        ask("SELECT COUNT(*) FROM points.consign_conflict WHERE consumer_name = ?1".into()).await?;
    let lost = ask(format!(
        "SELECT COUNT(*) FROM purchase_order AS purchase WHERE ?1 <> '' AND NOT EXISTS
         (SELECT 1 FROM points.{effects} AS effect WHERE effect.order_id = purchase.id)"
    ))
    .await?;
    let doubled = ask(format!(
        "SELECT COALESCE(SUM(times - 1), 0) FROM
         (SELECT COUNT(*) AS times FROM points.{effects} WHERE ?1 <> '' GROUP BY order_id) WHERE times > 1"
    ))
    .await?;
    Ok(Consumed { applied, duplicates: same - applied, conflicts, lost, doubled })
}
