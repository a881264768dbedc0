//! What a seed decides before its walk begins. Each seed enables a random subset of the faults (swarm testing), which
//! meets more rare situations than all of them at once.

use std::fmt;
use std::time::Duration;

use consign_core::lease::PublishLimits;
use consign_core::relay::{DeadHead, Order, RelaySettings};
use consign_core::retry::{RetryPolicy, UnroutablePolicy};

use crate::draw::Seeded;
use crate::harness::{millis, seconds};

/// A kind of fault.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// Units of work fail before their COMMIT.
    StoreFailures,
    /// COMMITs get no answer, applied or not.
    LostCommits,
    /// Units of work take seconds.
    SlowStore,
    Crashes,
    /// A relay stands still, as under SIGSTOP.
    Pauses,
    /// A relay is told to drain, and another takes its place.
    Drains,
    Refusals,
    /// Confirms do not come, whether or not the message arrived.
    LostConfirms,
    /// Messages that kill their channel.
    Poison,
    LostConnections,
    /// A destination is unavailable to everybody.
    Outages,
    /// Rows that can never be delivered, each in its way.
    OddRows,
}

const ALL: [Fault; 12] = [
    Fault::StoreFailures,
    Fault::LostCommits,
    Fault::SlowStore,
    Fault::Crashes,
    Fault::Pauses,
    Fault::Drains,
    Fault::Refusals,
    Fault::LostConfirms,
    Fault::Poison,
    Fault::LostConnections,
    Fault::Outages,
    Fault::OddRows,
];

/// Which faults may happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Faults([bool; ALL.len()]);

impl Faults {
    pub const NONE: Self = Self([false; ALL.len()]);

    fn draw(draw: &mut Seeded) -> Self {
        if draw.chance(3) {
            return Self::NONE;
        }
        let percent = 15 + draw.below(45);
        Self(ALL.map(|_| draw.chance(percent)))
    }

    pub const fn may(&self, fault: Fault) -> bool {
        self.0[fault as usize]
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(ALL.iter().filter(|fault| self.may(**fault))).finish()
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub relays: usize,
    pub rows: usize,
    pub destinations: usize,
    /// Aggregates that the rows belong to, in ordered walks.
    pub aggregates: usize,
    /// When the faults stop.
    pub faults_end: Duration,
    pub faults: Faults,
    pub settings: RelaySettings,
}

impl Options {
    pub fn draw(seed: u64) -> Self {
        let mut draw = Seeded::new(seed);
        let faults = Faults::draw(&mut draw);
        Self {
            relays: 1 + draw.index(3),
            rows: 1 + draw.index(12),
            destinations: 1 + draw.index(2),
            aggregates: 1 + draw.index(4),
            faults_end: millis(1_000 + draw.below(8_000)),
            faults,
            settings: settings(&mut draw),
        }
    }
}

fn settings(draw: &mut Seeded) -> RelaySettings {
    let (lease, deadline, margin) = if draw.chance(10) { (30, 15, 5) } else { (6, 3, 1) };
    RelaySettings {
        batch_rows: 1 + u32::try_from(draw.below(5)).unwrap(),
        batch_bytes: 600 + draw.index(4_000),
        window: 1 + draw.index(4),
        window_bytes: 400 + draw.index(3_000),
        held_rows: draw.index(12),
        held_bytes: 800 + draw.index(6_000),
        lease: seconds(lease),
        publish: PublishLimits { deadline: seconds(deadline), margin: seconds(margin) },
        sweep_rows: 1 + u32::try_from(draw.below(6)).unwrap(),
        sweep_delay: seconds(1),
        drain: seconds(2 + draw.below(4)),
        retry: RetryPolicy {
            base: millis(200),
            cap: seconds(2),
            attempts_max: 3 + u32::try_from(draw.below(5)).unwrap(),
            min_age_before_dead: seconds(10),
            jitter: 1.0,
            max_age: None,
            unroutable: if draw.chance(20) { UnroutablePolicy::Dead } else { UnroutablePolicy::Retry },
        },
        order: match draw.below(5) {
            0 => Order::PerAggregate { dead: DeadHead::Block },
            1 => Order::PerAggregate { dead: DeadHead::Skip },
            _ => Order::Competing,
        },
        ..RelaySettings::default()
    }
}
