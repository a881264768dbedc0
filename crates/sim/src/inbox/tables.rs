//! The consumers' database: what is committed, and what open transactions have written.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::guard::Progress;
use consign_core::operation::StoredMarker;
use consign_core::ports::{ParkDelivery, ParkReason, ParkedDelivery};
use consign_core::time::Monotonic;

use super::locks::Locks;

/// An entry of the business table that remembers every effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The order.
    pub order: i64,
    /// Whose points.
    pub user: i64,
    /// How many.
    pub amount: i64,
    /// What the order belongs to.
    pub stream: i64,
    /// Its place there.
    pub version: i64,
}

/// A conflict as recorded.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The consumer.
    pub consumer: String,
    /// The business key.
    pub key: String,
    /// How often this content came.
    pub count: u64,
    /// The message's id.
    pub message_id: Option<String>,
}

/// A dead delivery as recorded.
#[derive(Clone, Debug)]
pub struct Dead {
    /// The consumer.
    pub consumer: String,
    /// The message's id.
    pub message_id: Option<String>,
}

/// A parked delivery.
#[derive(Clone, Debug)]
pub struct Parked {
    /// The row.
    pub id: i64,
    /// The consumer.
    pub consumer: String,
    /// The message, whole.
    pub message: Message,
    /// Why it waits.
    pub reason: ParkReason,
    /// How often it was refused.
    pub attempts: u32,
    /// The step it waits to take.
    pub step: Option<(String, i64)>,
    /// When its time has come.
    pub due_at: Monotonic,
    /// Who has it, and until when.
    pub lease: Option<(String, Monotonic)>,
}

/// What an open transaction has written.
#[derive(Debug, Default)]
pub struct Open {
    /// Markers by consumer and key.
    pub markers: Vec<(String, StoredMarker)>,
    /// Progress by consumer and aggregate.
    pub progress: Vec<(String, Progress)>,
    /// Points by account.
    pub points: Vec<(i64, i64)>,
    /// Entries.
    pub entries: Vec<Entry>,
    /// Whose it is; a process of the simulation and its incarnation.
    pub owner: (usize, u64),
    /// It was rolled back from outside, for this reason.
    pub broken: Option<Broken>,
    /// Its client is gone, and the server has not noticed.
    pub orphan: bool,
}

/// Why a transaction was rolled back from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// It was the victim of a deadlock.
    Deadlock,
    /// Its connection broke.
    Connection,
}

/// The whole database.
#[derive(Debug, Default)]
pub struct Tables {
    /// Committed markers by consumer and key.
    pub markers: BTreeMap<String, StoredMarker>,
    /// Committed progress by consumer and aggregate.
    pub progress: BTreeMap<String, Progress>,
    /// Committed points by account.
    pub accounts: BTreeMap<i64, i64>,
    /// Committed entries by order.
    pub entries: BTreeMap<i64, Vec<Entry>>,
    /// Conflicts by consumer, key and content.
    pub conflicts: BTreeMap<(String, String), Conflict>,
    /// Dead deliveries.
    pub dead: Vec<Dead>,
    /// Parked deliveries, in the order of their ids.
    pub parked: Vec<Parked>,
    /// Open transactions by their number; ended ones leave a hole.
    pub open: Vec<Option<Open>>,
    /// Who has locked what.
    pub locks: Locks,
    parked_ids: i64,
    lease_tokens: u64,
}

/// The key of a marker or a progress row: consumer and name, which hold no zero byte in the simulation.
pub fn place(consumer: &str, name: &str) -> String {
    let mut place = String::with_capacity(consumer.len() + 1 + name.len());
    place.push_str(consumer);
    place.push('\0');
    place.push_str(name);
    place
}

impl Tables {
    /// Opens a transaction.
    pub fn begin(&mut self, owner: (usize, u64)) -> usize {
        let open = Open { owner, ..Open::default() };
        if let Some(hole) = self.open.iter().position(Option::is_none) {
            self.open[hole] = Some(open);
            return hole;
        }
        self.open.push(Some(open));
        self.open.len() - 1
    }

    /// An open transaction.
    ///
    /// # Panics
    /// It has ended.
    pub fn transaction(&mut self, number: usize) -> &mut Open {
        self.open[number].as_mut().expect("a transaction is asked for while it is open")
    }

    /// How many transactions are open and not rolled back.
    pub fn open_transactions(&self) -> usize {
        self.open.iter().flatten().filter(|open| open.broken.is_none()).count()
    }

    /// Makes what a transaction has written visible.
    pub fn apply(&mut self, open: Open) {
        self.markers.extend(open.markers);
        self.progress.extend(open.progress);
        for (user, points) in open.points {
            *self.accounts.entry(user).or_default() += points;
        }
        for entry in open.entries {
            self.entries.entry(entry.order).or_default().push(entry);
        }
    }

    /// Parks a message, which ends a lease on it; `true` when it was parked already.
    pub fn park(&mut self, parked: &ParkDelivery<'_>, now: Monotonic, ends_lease: bool) -> bool {
        let same = |row: &&mut Parked| {
            row.consumer == parked.consumer
                && row.message.id == parked.message.id
                && row.message.body == parked.message.body
        };
        let step = parked.step.map(|(aggregate, version)| (place(parked.consumer, aggregate), version));
        let due_at = now.plus(parked.delay);
        if let Some(row) = self.parked.iter_mut().find(same) {
            (row.reason, row.attempts, row.step, row.due_at) = (parked.reason, parked.attempts, step, due_at);
            if ends_lease {
                row.lease = None;
            }
            return true;
        }
        self.parked_ids += 1;
        self.parked.push(Parked {
            id: self.parked_ids,
            consumer: parked.consumer.to_owned(),
            message: parked.message.clone(),
            reason: parked.reason,
            attempts: parked.attempts,
            step,
            due_at,
            lease: None,
        });
        false
    }

    /// Leases parked deliveries that are due.
    pub fn due(
        &mut self,
        consumer: &str,
        limit: u32,
        lease: Duration,
        now: Monotonic,
    ) -> Vec<ParkedDelivery> {
        let free = |row: &Parked| row.lease.as_ref().is_none_or(|(_, until)| *until <= now);
        let next = |row: &Parked| {
            let step = row.step.as_ref().filter(|_| row.reason == ParkReason::Gap);
            step.is_some_and(|(aggregate, version)| {
                let applied = self.progress.get(aggregate).and_then(|progress| progress.version);
                applied.is_some_and(|applied| applied >= version - 1)
            })
        };
        let mut found: Vec<usize> = (0..self.parked.len())
            .filter(|place| {
                let row = &self.parked[*place];
                row.consumer == consumer && free(row) && (row.due_at <= now || next(row))
            })
            .collect();
        found.sort_by_key(|place| (self.parked[*place].due_at, self.parked[*place].id));
        found.truncate(limit as usize);
        let mut deliveries = Vec::with_capacity(found.len());
        for place in found {
            self.lease_tokens += 1;
            let token = self.lease_tokens.to_string();
            let row = &mut self.parked[place];
            row.lease = Some((token.clone(), now.plus(lease)));
            let mut message = row.message.clone();
            message.delivery_count = row.attempts + 1;
            deliveries.push(ParkedDelivery {
                id: row.id,
                lease_token: token,
                reason: row.reason,
                overdue: row.due_at <= now,
                message,
            });
        }
        deliveries
    }

    /// Removes a parked delivery, if the lease is still this one, or nobody asks.
    pub fn unpark(&mut self, id: i64, lease_token: &str, asks: bool) -> Option<Parked> {
        let held = |row: &Parked| !asks || row.lease.as_ref().is_some_and(|(token, _)| token == lease_token);
        let at = self.parked.iter().position(|row| row.id == id && held(row))?;
        Some(self.parked.remove(at))
    }
}
