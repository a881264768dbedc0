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

/// Rows that one statement settles: their common token and change, and their ids in ascending order, each once.
pub type Groups<'a> = BTreeMap<(String, Change), BTreeSet<&'a str>>;

/// Groups the settlements at `chosen` positions of the batch.
pub fn groups<'a>(batch: &'a SettleBatch, chosen: impl Iterator<Item = usize>) -> Groups<'a> {
    let mut groups = Groups::new();
    for index in chosen {
        let settlement = &batch.settlements[index];
        let key = (settlement.token().to_hex(), change(settlement.to()));
        groups.entry(key).or_default().insert(settlement.id().as_str());
    }
    groups
}

/// Where `settlement` puts its row.
pub fn destined(settlement: &Settlement) -> Destined {
    let outcome = settlement.to().word();
    let status = match settlement.to() {
        Transition::Sent(_) => "SENT",
        Transition::Retry { .. } | Transition::Release { .. } => "NEW",
        Transition::Dead { .. } => "DEAD",
    };
    Destined { status, outcome }
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
