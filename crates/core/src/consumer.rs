//! The consumer: what becomes of deliveries around the inbox. Which share a transaction, which wait in the database, which
//! are given up, and when each is acknowledged.
//!
//! ```text
//! source ─┐                          ┌ applied, duplicate, stale ─► ack
//!         ├─► Lanes ─► Batch ─► Worker ─┼ conflict ─► recorded, then by policy
//! parked ─┘                          ├ refused, too early ─► parked in the database, then ack
//!                                    ├ refused, and its broker keeps it ─► handed back
//!                                    └ refused too often ─► dead letter, then ack or put aside
//! ```
//!
//! It has no runtime: a process drives the futures and brings [`Surroundings`].

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::inbox::{ProcessError, Processed};
use crate::operation::Operation;
use crate::ports::{ParkReason, StoreError};
use crate::route::Route;
use crate::time::Monotonic;

mod attempts;
mod lanes;
mod parked;
mod worker;

pub use lanes::{Batch, Bounds, Course, Lanes};
pub use parked::{AnyReceipt, ParkedReceipt, Wait};
pub use worker::{Report, Worker};

/// What follows a recorded conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// It is acknowledged: people look at the record.
    #[default]
    RecordAndAck,
    /// It goes to the dead letters as well.
    DeadLetter,
    /// It is handed back, and the consumer stops.
    Stop,
}

/// How one consumer runs.
#[derive(Clone, Debug)]
pub struct ConsumerSettings {
    /// Transactions side by side. An aggregate's deliveries follow each other in one of them.
    pub workers: usize,
    /// Deliveries that share a transaction at most.
    pub batch: usize,
    /// Payload bytes that share a transaction at most, though always one delivery.
    pub batch_bytes: usize,
    /// How long a delivery waits for company while its lane is free.
    pub linger: Duration,
    /// A delivery refused this often goes to the dead letters.
    pub attempts_max: u32,
    /// The first pause before a refused delivery is tried again; it doubles with every attempt, up to a minute.
    pub retry_delay: Duration,
    /// How long a delivery waits for the step of its aggregate before it.
    pub gap_wait: Duration,
    /// What follows a recorded conflict.
    pub on_conflict: ConflictPolicy,
    /// How long a dead-letter publish may take.
    pub publish_deadline: Duration,
}

/// Where deliveries go that cannot be processed.
#[derive(Debug)]
pub enum DeadLetters<D> {
    /// Published with proof to a destination under a route.
    Destination(Arc<D>, Route),
    /// Recorded in the consumer's own database.
    Table,
}

/// Totals of one consumer since its start, for logs. Audits query the database instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerTotals {
    /// Effects committed.
    pub applied: u64,
    /// Repeats of applied operations.
    pub duplicates: u64,
    /// Recorded conflicts.
    pub conflicts: u64,
    /// Old versions, nothing changed.
    pub stale: u64,
    /// Deliveries parked in the database.
    pub parked: u64,
    /// Deliveries handed back.
    pub retried: u64,
    /// Deliveries put aside.
    pub dead: u64,
    /// Acknowledgements that found their channel or lease gone.
    pub receipts_lost: u64,
    /// Batches processed.
    pub batches: u64,
}

impl std::ops::AddAssign for ConsumerTotals {
    fn add_assign(&mut self, other: Self) {
        self.applied += other.applied;
        self.duplicates += other.duplicates;
        self.conflicts += other.conflicts;
        self.stale += other.stale;
        self.parked += other.parked;
        self.retried += other.retried;
        self.dead += other.dead;
        self.receipts_lost += other.receipts_lost;
        self.batches += other.batches;
    }
}

/// What a worker needs of the process around it.
pub trait Surroundings: Send + Sync {
    /// Waits; `false` when the process is asked to stop before the span is over.
    fn pause(&self, span: Duration) -> impl Future<Output = bool> + Send;

    /// The reading of the process's clock.
    fn now(&self) -> Monotonic;

    /// A number drawn evenly from `0.0..1.0`, for jitter.
    fn fraction(&self) -> f64;

    /// An id that nothing else has, for a dead letter whose message has none.
    fn fresh_id(&self) -> String;

    /// A parked delivery may have become due.
    fn wake_parked(&self);

    /// The consumer must stop, for this reason.
    fn halt(&self, reason: String);

    /// Something happened. Called between a commit and its acknowledgement: it must not block.
    fn tell(&self, news: &News<'_>);
}

/// What happens to deliveries, for tracing and metrics.
#[derive(Clone, Copy, Debug)]
pub enum News<'a> {
    /// A result is committed, and its delivery not acknowledged yet.
    Processed {
        /// What was asked for.
        operation: &'a Operation,
        /// What it came to.
        processed: Processed,
    },
    /// A delivery is acknowledged.
    Acknowledged {
        /// What it asked for.
        operation: &'a Operation,
    },
    /// A delivery was refused or came too early; what follows is told next.
    Refused {
        /// What was asked for.
        operation: &'a Operation,
        /// Why.
        error: &'a ProcessError,
    },
    /// The store failed: the deliveries stay in hand.
    InHand {
        /// The first of them.
        operation: &'a Operation,
        /// What happened to it.
        error: &'a ProcessError,
        /// How many there are.
        rows: usize,
        /// How often it happened in a row.
        tries: u32,
    },
    /// A delivery is about to be parked.
    Parking {
        /// What was asked for.
        operation: &'a Operation,
        /// Why it has to wait.
        reason: ParkReason,
        /// The same in words.
        detail: &'a str,
        /// Which attempt this was, from 1.
        attempt: u32,
    },
    /// A delivery could not be parked: it is handed back.
    NotParked {
        /// What was asked for.
        operation: &'a Operation,
        /// Why.
        error: &'a StoreError,
    },
    /// A delivery was put aside as dead.
    Dead {
        /// Its key, when it could be computed.
        key: Option<&'a str>,
        /// Why.
        reason: &'a str,
    },
    /// A delivery could not be put aside: it is handed back.
    NotDead {
        /// Its key, when it could be computed.
        key: Option<&'a str>,
        /// What the dead letters' place said.
        why: &'a str,
    },
}
