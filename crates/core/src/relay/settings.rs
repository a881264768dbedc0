//! How the relay works: the numbers people may set.

use std::time::Duration;

use crate::lease::PublishLimits;
use crate::retry::RetryPolicy;

/// How the relay works. Every number has a key in the config.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Rows per claim at most.
    pub batch_rows: u32,
    /// Payload bytes per claim at most, though always at least one row.
    pub batch_bytes: usize,
    /// Publishes in flight per destination at most.
    pub window: usize,
    /// Payload bytes in flight per destination at most, though always at least one publish.
    pub window_bytes: usize,
    /// Rows held in all at most before claims stop, though always room for two batches: one that is published and
    /// settled while the next one is claimed.
    pub held_rows: usize,
    /// Payload bytes held in all at most before claims stop.
    pub held_bytes: usize,
    /// The length of a lease.
    pub lease: Duration,
    /// How long a publish may take and what must be left of the lease after it.
    pub publish: PublishLimits,
    /// The shortest pause between claims that found less than a full batch.
    pub poll_min: Duration,
    /// The longest pause between claims while idle.
    pub poll_max: Duration,
    /// How long settlements wait for company.
    pub settle_linger: Duration,
    /// How often expired leases are swept.
    pub sweep_every: Duration,
    /// Rows per sweep at most.
    pub sweep_rows: u32,
    /// How long a swept row waits before it may be claimed again.
    pub sweep_delay: Duration,
    /// How long a drain waits for outcomes.
    pub drain: Duration,
    /// When and how failed publishes are retried.
    pub retry: RetryPolicy,
    /// Which order events are published in.
    pub order: Order,
}

/// Which order events are published in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// None: as fast as it goes.
    #[default]
    Competing,
    /// The events of one aggregate strictly one after the other: the next one is published only after the previous
    /// one is SENT. The store must claim in this order too.
    PerAggregate {
        /// What follows for the events behind one that went DEAD.
        dead: DeadHead,
    },
}

/// What a DEAD event means for the events of its aggregate behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeadHead {
    /// They wait until somebody requeues or discards it.
    #[default]
    Block,
    /// They go on without it.
    Skip,
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            batch_rows: 500,
            batch_bytes: 4 << 20,
            window: 256,
            window_bytes: 8 << 20,
            held_rows: 1000,
            held_bytes: 16 << 20,
            lease: Duration::from_secs(30),
            publish: PublishLimits { deadline: Duration::from_secs(15), margin: Duration::from_secs(5) },
            poll_min: Duration::from_millis(5),
            poll_max: Duration::from_secs(1),
            settle_linger: Duration::from_millis(5),
            sweep_every: Duration::from_secs(2),
            sweep_rows: 500,
            sweep_delay: Duration::from_secs(10),
            drain: Duration::from_secs(20),
            retry: RetryPolicy::default(),
            order: Order::default(),
        }
    }
}
