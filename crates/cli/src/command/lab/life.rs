//! One life of a side: the process that does the work, may die at the window, and is then started again.

use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::database::{Database, Transaction};
use super::mailbox::Mailbox;
use super::place::Place;
use super::record::{Actor, Step, What};
use super::scenario::Window;

/// The environment variable that tells a process its [`Place`].
pub const PLACE: &str = "CONSIGN_LAB_PLACE";
/// Whose account gets the points.
pub const USER: i64 = 7;
/// What an order is worth.
pub const AMOUNT: i64 = 100;

/// Which of the two ways a scenario goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// As it is often written.
    Naive,
    /// With consign.
    Consign,
}

impl Side {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Consign => "consign",
        }
    }
}

/// What `consign lab-life` is asked to do; the lab itself asks.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The scenario.
    #[arg(long)]
    scenario: Window,
    /// The side.
    #[arg(long)]
    side: Side,
    /// Which life of the side this is, from 1.
    #[arg(long)]
    number: u32,
}

/// A payment as its message tells it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paid {
    /// The order.
    pub order_id: i64,
    /// Who gets the points.
    pub user_id: i64,
    /// How many.
    pub amount: i64,
    /// The order's version.
    #[serde(default)]
    pub version: i64,
}

impl Paid {
    /// An order of the usual customer for the usual amount.
    pub const fn order(order_id: i64) -> Self {
        Self { order_id, user_id: USER, amount: AMOUNT, version: 1 }
    }

    /// A message's body.
    pub fn read(body: &[u8]) -> anyhow::Result<Self> {
        serde_json::from_slice(body).context("a message is not the lab's own")
    }

    /// The message's body.
    pub fn body(self) -> String {
        serde_json::to_string(&self).expect("a payment is plain data")
    }

    /// What a team calls the operation.
    pub fn key(self) -> String {
        format!("order:{}:paid", self.order_id)
    }
}

/// The process, and what it works on.
#[derive(Clone)]
pub struct Life {
    /// Which life of its side it is, from 1.
    pub number: u32,
    /// Where it is.
    pub place: Place,
    /// Its database.
    pub database: Database,
}

/// Lives one life.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let place =
        std::env::var(PLACE).with_context(|| format!("{PLACE} is not set: this is for `consign lab`"))?;
    let place: Place = serde_json::from_str(&place).with_context(|| format!("{PLACE} is not a place"))?;
    let database = Database::open(&place.store).await?;
    let life = Life { number: arguments.number, place, database };
    arguments.scenario.live(arguments.side, &life).await
}

impl Life {
    /// True in the first life, the one that meets its end.
    pub const fn first(&self) -> bool {
        self.number == 1
    }

    /// Tells what was done about an order.
    #[expect(clippy::unused_self, reason = "only a life has something to tell")]
    pub fn tell(&self, actor: Actor, what: What, order: impl Into<Option<i64>>) {
        Step { actor, what, order: order.into() }.tell();
    }

    /// Dies here and now, in the first life: no destructor runs, no connection is closed properly, nothing is flushed.
    pub fn die(&self, actor: Actor) {
        self.die_often(actor, 1);
    }

    /// Dies here and now, in so many lives.
    pub fn die_often(&self, actor: Actor, lives: u32) {
        if self.number <= lives {
            Step { actor, what: What::Died, order: None }.tell_last();
        }
    }

    /// Waits until a query gives a number above zero.
    pub async fn until(&self, sql: &'static str) -> anyhow::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let deadline = Instant::now() + PATIENCE;
        while self.database.number(sql, &[]).await? == 0 {
            anyhow::ensure!(Instant::now() < deadline, "it did not happen within {PATIENCE:?}: {sql}");
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
        Ok(())
    }

    /// The queue, for hand-written code.
    pub async fn mailbox(&self) -> anyhow::Result<Mailbox> {
        self.mailbox_through(None).await
    }

    /// The same by another way to the broker than the straight one.
    pub async fn mailbox_through(&self, through: Option<u16>) -> anyhow::Result<Mailbox> {
        Mailbox::open(&self.place, &self.database, through).await
    }
}

/// Writes a paid order.
pub async fn insert_order(tx: &mut Transaction, paid: Paid) -> anyhow::Result<()> {
    let sql = "INSERT INTO purchase_order (id, user_id, amount, version, status) VALUES (?, ?, ?, ?, 'PAID')";
    let values = [paid.order_id, paid.user_id, paid.amount, paid.version].map(Into::into);
    tx.execute(sql, &values).await.map(drop)
}

/// Awards the points of an order.
pub async fn award(tx: &mut Transaction, paid: Paid) -> anyhow::Result<()> {
    let values = [paid.amount.into(), paid.user_id.into()];
    let rows = tx.execute("UPDATE points_account SET points = points + ? WHERE user_id = ?", &values).await?;
    anyhow::ensure!(rows == 1, "user {} has no account", paid.user_id);
    let sql = "INSERT INTO points_entry (order_id, user_id, amount) VALUES (?, ?, ?)";
    tx.execute(sql, &[paid.order_id, paid.user_id, paid.amount].map(Into::into)).await.map(drop)
}
