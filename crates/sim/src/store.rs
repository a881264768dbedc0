//! The database: a table of events in memory, as the contract describes it. It checks every change of a row.

mod claim;
mod operate;
mod row;
mod settle;

use std::collections::HashSet;
use std::time::Duration;

use consign_core::event::EventId;
use consign_core::relay::{DeadHead, Order, RelaySettings};
use consign_core::time::Monotonic;

use crate::guard::StoreGuard;

pub use row::{Nature, Row, Status};

/// A row swept this often is claimed alone.
const SWEEPS_TO_SUSPECT: u32 = 2;

/// The row an event id names: ids are row numbers.
pub fn number(id: &EventId) -> usize {
    id.as_str().parse().unwrap_or(usize::MAX)
}

/// A table of events and the database's clock.
#[derive(Debug)]
pub struct SimStore {
    rows: Vec<Row>,
    attempts_max: u32,
    age_min: Duration,
    order: Order,
    tokens: HashSet<u128>,
    /// How far the database's clock is ahead of the world's.
    ahead: Duration,
    /// True once the clock has jumped: the ends of leases then prove nothing.
    jumped: bool,
    /// A guard that a mutant has taken away.
    missing: Option<StoreGuard>,
}

impl SimStore {
    /// An empty table. The database's clock starts ten minutes ahead, so that it can jump both ways.
    pub fn new(settings: &RelaySettings, missing: Option<StoreGuard>) -> Self {
        const AHEAD: Duration = Duration::from_mins(10);
        Self {
            rows: Vec::new(),
            attempts_max: settings.retry.attempts_max,
            age_min: settings.retry.min_age_before_dead,
            order: settings.order,
            tokens: HashSet::new(),
            ahead: AHEAD,
            jumped: false,
            missing,
        }
    }

    fn guards(&self, guard: StoreGuard) -> bool {
        self.missing != Some(guard)
    }

    /// The rows, in the order they were inserted.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The row with this id.
    pub fn find(&self, id: &EventId) -> Option<usize> {
        let own = self.rows.get(number(id)).filter(|row| row.given.is_none()).map(|row| row.number);
        let given = |row: &Row| row.given.as_ref().is_some_and(|event| event.id == *id);
        own.or_else(|| self.rows.iter().position(given))
    }

    /// A row.
    pub fn row(&self, number: usize) -> &Row {
        &self.rows[number]
    }

    /// A row, to write down what the world knows of it.
    pub fn row_mut(&mut self, number: usize) -> &mut Row {
        &mut self.rows[number]
    }

    /// What the database's clock shows.
    pub fn clock(&self, now: Monotonic) -> Monotonic {
        now.plus(self.ahead)
    }

    /// The database's clock jumps.
    pub fn jump(&mut self, forwards: bool, span: Duration) {
        self.jumped = true;
        self.ahead = if forwards { self.ahead + span } else { self.ahead.saturating_sub(span) };
    }

    /// No other session locks anything any more.
    pub fn unlock_all(&mut self) {
        for row in &mut self.rows {
            row.locked = false;
        }
    }

    /// True once the clock has jumped.
    pub fn jumped(&self) -> bool {
        self.jumped
    }

    /// True when the events behind the row in its aggregate need not wait for it.
    pub fn passed(&self, row: &Row) -> bool {
        let skips = self.order == Order::PerAggregate { dead: DeadHead::Skip };
        match row.status {
            Status::Sent | Status::Discarded | Status::Purged | Status::Absent => true,
            Status::Dead => skips,
            Status::New | Status::Sending => false,
        }
    }

    /// The rows before `number` in its aggregate.
    pub fn before(&self, number: usize) -> impl Iterator<Item = &Row> {
        let aggregate = self.rows[number].aggregate;
        let ordered = self.order != Order::Competing && aggregate.is_some();
        let before = if ordered { number } else { 0 };
        self.rows[..before].iter().filter(move |row| row.aggregate == aggregate)
    }

    /// True when nothing more can become of the row, unless somebody interferes.
    pub fn ended(&self, number: usize) -> bool {
        let row = &self.rows[number];
        row.ended()
            || (row.status == Status::New && self.before(number).any(|row| row.ended() && !self.passed(row)))
    }
}
