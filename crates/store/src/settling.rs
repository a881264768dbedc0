//! Settlements grouped into as few statements as possible, in a fixed order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::settle::{SettleBatch, Settlement, Transition};

/// What a group of rows has in common: one statement settles them all.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// To SENT.
    Sent,
    /// To NEW after this many microseconds; the attempt counts.
    Retry {
        /// The delay.
        delay_micros: i64,
        /// For `last_error`.
        why: String,
    },
    /// To NEW after this many microseconds; the attempt is given back.
    Release {
        /// The delay.
        delay_micros: i64,
        /// For `last_error`.
        why: String,
    },
    /// To DEAD.
    Dead {
        /// For `last_error`.
        reason: String,
    },
}

/// Where a settlement leaves its row, to recognise a settlement that was applied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destined {
    /// The status.
    pub status: &'static str,
    /// The word in `last_outcome`.
    pub outcome: &'static str,
}

/// One settlement, free of the batch it came in, so that a task of its own can carry it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The row.
    pub id: String,
    /// The token it must carry, as stored.
    pub token: String,
    /// What happens to it.
    pub change: Change,
    /// Where it ends up.
    pub destined: Destined,
}

/// The batch as orders, in its order.
pub fn orders(batch: &SettleBatch) -> Vec<Order> {
    let order = |settlement: &Settlement| Order {
        id: settlement.id().as_str().into(),
        token: settlement.token().to_hex(),
        change: change(settlement.to()),
        destined: destined(settlement.to()),
    };
    batch.settlements.iter().map(order).collect()
}

/// Rows that one statement settles: their common token and change, and their ids in ascending order, each once.
pub type Groups<'a> = BTreeMap<(&'a str, &'a Change), BTreeSet<&'a str>>;

/// Groups orders by statement.
pub fn groups<'a>(orders: impl IntoIterator<Item = &'a Order>) -> Groups<'a> {
    let mut groups = Groups::new();
    for order in orders {
        groups.entry((&order.token, &order.change)).or_default().insert(&order.id);
    }
    groups
}

fn destined(to: &Transition) -> Destined {
    let status = match to {
        Transition::Sent(_) => "SENT",
        Transition::Retry { .. } | Transition::Release { .. } => "NEW",
        Transition::Dead { .. } => "DEAD",
    };
    Destined { status, outcome: to.word() }
}

/// A delay as SQL takes it; saturates at about 31 years, which any sane delay is far below.
pub fn micros(delay: Duration) -> i64 {
    const CENTURIES: i64 = 1_000_000_000_000_000;
    i64::try_from(delay.as_micros()).unwrap_or(CENTURIES).min(CENTURIES)
}

fn change(to: &Transition) -> Change {
    match to {
        Transition::Sent(_) => Change::Sent,
        Transition::Retry { delay, why } => Change::Retry { delay_micros: micros(*delay), why: why.clone() },
        Transition::Release { delay, why } => {
            Change::Release { delay_micros: micros(*delay), why: why.clone() }
        }
        Transition::Dead { reason } => Change::Dead { reason: reason.clone() },
    }
}
