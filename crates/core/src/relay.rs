//! The relay engine: takes inputs, gives commands; no I/O, no clock, no randomness of its own.
//!
//! It claims while there is room, publishes within a window per destination, and settles in batches. Everything
//! it holds is bounded by rows and by bytes, so a slow broker stops the claims.

mod brake;
mod circuit;
mod claimer;
mod drain;
mod judge;
mod outlet;
mod publisher;
mod report;
mod settings;
mod settler;
mod sweeper;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::lease::{Claim, ClaimRequest, Publish, PublishId};
use crate::outcome::Outcome;
use crate::ports::{Claimed, Lane, Readiness, StoreError};
use crate::route::{DestinationName, Route, RouteTable};
use crate::settle::{SettleBatch, Settled, Settlement, Swept};
use crate::time::{Draw, Monotonic};

pub use report::{Report, Totals};
pub use settings::RelaySettings;

use brake::Brake;
use outlet::Outlet;

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A claim committed.
    Claimed(Claimed),
    /// A claim failed, or its COMMIT got no answer: nothing is owned.
    ClaimFailed(StoreError),
    /// A publish came to its end.
    Outcome(PublishId, Outcome),
    /// A batch was settled; answers in its order.
    Settled(SettleBatch, Vec<Settled>),
    /// A batch was not settled, or nobody knows.
    SettleFailed(SettleBatch, StoreError),
    /// A sweep committed.
    Swept(Swept),
    /// A sweep failed; another one follows.
    SweepFailed(StoreError),
    /// A destination's readiness changed.
    Readiness(DestinationName, Readiness),
    /// A producer says that there is something to claim.
    Wakeup,
    /// The moment of [`Relay::next_timer`] has come.
    Timer,
    /// Stop claiming, wait for what is in flight, settle, release the rest.
    Drain,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Claim rows; answer with [`Input::Claimed`] or [`Input::ClaimFailed`].
    Claim(ClaimRequest),
    /// Publish; answer with [`Input::Outcome`] under the same id.
    Publish(PublishId, Lane, Publish),
    /// Settle; answer with [`Input::Settled`] or [`Input::SettleFailed`].
    Settle(SettleBatch),
    /// Sweep; answer with [`Input::Swept`] or [`Input::SweepFailed`].
    Sweep {
        /// Rows at most.
        limit: u32,
        /// How long a swept row waits.
        delay: Duration,
        /// The attempts cap.
        attempts_max: u32,
    },
    /// Tell people.
    Report(Report),
    /// The drain is over; nothing is held any more.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    Draining {
        until: Monotonic,
    },
    /// The drain's deadline has passed: only the store is still waited for.
    Abandoning,
    Stopped,
}

/// The engine of one relay over one outbox.
#[derive(Debug)]
pub struct Relay<D> {
    settings: RelaySettings,
    routes: RouteTable,
    draw: D,
    phase: Phase,
    outlets: BTreeMap<DestinationName, Outlet>,
    /// A twice-swept row: published only while nothing else is held.
    alone: Option<(Claim, Route)>,
    settlements: Vec<Settlement>,
    settle_due: Option<Monotonic>,
    unsettled: Option<SettleBatch>,
    settling: usize,
    claiming: bool,
    claim_due: Monotonic,
    poll: Duration,
    store_pause: Duration,
    sweeping: bool,
    sweep_due: Monotonic,
    brake: Brake,
    next_id: u64,
    commands: VecDeque<Command>,
    totals: Totals,
}

/// The first pause after a store failure; it doubles up to [`STORE_PAUSE_MAX`].
const STORE_PAUSE_MIN: Duration = Duration::from_millis(100);
const STORE_PAUSE_MAX: Duration = Duration::from_secs(5);

impl<D: Draw> Relay<D> {
    /// An engine that starts by sweeping and claiming at `now`.
    pub fn new(settings: RelaySettings, routes: RouteTable, draw: D, now: Monotonic) -> Self {
        let outlets = routes.destinations().iter().map(|name| (name.clone(), Outlet::new())).collect();
        let poll = settings.poll_min;
        let mut relay = Self {
            settings,
            routes,
            draw,
            phase: Phase::Running,
            outlets,
            alone: None,
            settlements: Vec::new(),
            settle_due: None,
            unsettled: None,
            settling: 0,
            claiming: false,
            claim_due: now,
            poll,
            store_pause: STORE_PAUSE_MIN,
            sweeping: false,
            sweep_due: now,
            brake: Brake::default(),
            next_id: 0,
            commands: VecDeque::new(),
            totals: Totals::default(),
        };
        relay.advance(now);
        relay
    }

    /// Takes one input and works out what follows.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        match input {
            Input::Claimed(claimed) => self.claimed(now, claimed),
            Input::ClaimFailed(error) => {
                self.claiming = false;
                self.claim_due = now.plus(self.store_failed("claim", error));
            }
            Input::Outcome(id, outcome) => self.landed(now, id, outcome),
            Input::Settled(batch, answers) => self.settled(&batch, &answers),
            Input::SettleFailed(batch, error) => self.settle_failed(now, batch, error),
            Input::Swept(swept) => self.swept(now, swept),
            Input::SweepFailed(error) => {
                self.sweeping = false;
                self.sweep_due = now.plus(self.store_failed("sweep", error).max(self.settings.sweep_every));
            }
            Input::Readiness(name, readiness) => self.readiness(now, name, readiness),
            Input::Wakeup => {
                self.poll = self.settings.poll_min;
                if self.store_pause == STORE_PAUSE_MIN {
                    self.claim_due = now;
                }
            }
            Input::Timer => {}
            Input::Drain => self.drain(now),
        }
        self.advance(now);
    }

    /// The next command, if any.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When [`Input::Timer`] is wanted next, if ever.
    pub fn next_timer(&self) -> Option<Monotonic> {
        let probe = self.outlets.values().filter_map(|outlet| outlet.circuit.probe_at()).min();
        let claim = match self.claim_size(self.claim_due) {
            Some(_) => Some(self.claim_due),
            None if self.has_room() => probe.map(|at| at.max(self.claim_due)),
            None => None,
        };
        let drain = match self.phase {
            Phase::Draining { until } => Some(until),
            Phase::Running | Phase::Abandoning | Phase::Stopped => None,
        };
        let running = self.phase == Phase::Running;
        let sweep = (running && !self.sweeping).then_some(self.sweep_due);
        let settle = if self.settling == 0 { self.settle_due } else { None };
        [claim.filter(|_| running), sweep, settle, drain].into_iter().flatten().min()
    }

    /// Totals since start.
    pub const fn totals(&self) -> Totals {
        self.totals
    }

    /// Rows the relay holds a lease on at this moment, as far as it knows.
    pub fn held(&self) -> usize {
        self.publishing() + self.settlements.len() + self.settling + self.unsettled_rows()
    }

    fn unsettled_rows(&self) -> usize {
        self.unsettled.as_ref().map_or(0, |batch| batch.settlements.len())
    }

    fn publishing(&self) -> usize {
        self.outlets.values().map(Outlet::held).sum::<usize>() + usize::from(self.alone.is_some())
    }

    fn advance(&mut self, now: Monotonic) {
        if self.phase == Phase::Stopped {
            return;
        }
        self.give_up_drain(now);
        self.pump(now);
        self.settle(now);
        self.sweep(now);
        self.claim(now);
        let busy = self.claiming || self.sweeping || self.held() > 0;
        if self.phase != Phase::Running && !busy {
            self.phase = Phase::Stopped;
            self.commands.push_back(Command::Stopped);
        }
    }

    fn report(&mut self, report: Report) {
        self.commands.push_back(Command::Report(report));
    }
}
