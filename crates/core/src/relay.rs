//! The relay engine: takes inputs, gives commands; no I/O, no clock, no randomness of its own.
//!
//! It claims while there is room, publishes within a window per destination, and settles in batches. Everything
//! it holds is bounded by rows and by bytes, so a slow broker stops the claims.

mod backoff;
mod brake;
mod chains;
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
pub use settings::{DeadHead, Order, RelaySettings};

use backoff::Backoff;
use brake::Brake;
use chains::Chains;
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
    /// New settings and routes from now on; the routes' destinations must be those the engine was made with.
    Reconfigure(Box<RelaySettings>, RouteTable),
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
    /// Claimed rows that wait for an earlier event of their aggregate.
    chains: Chains,
    /// A twice-swept row: published only while nothing else is held.
    alone: Option<(Claim, Route)>,
    /// The publish of a twice-swept row: nothing else is claimed while it is in flight.
    alone_flight: Option<PublishId>,
    settlements: Vec<Settlement>,
    settle_due: Option<Monotonic>,
    settle_backoff: Backoff,
    /// Batches that failed and go out again before anything else is settled.
    unsettled: VecDeque<SettleBatch>,
    settling: usize,
    claiming: bool,
    claim_due: Monotonic,
    claim_backoff: Backoff,
    poll: Duration,
    sweeping: bool,
    sweep_due: Monotonic,
    sweep_backoff: Backoff,
    brake: Brake,
    next_id: u64,
    commands: VecDeque<Command>,
    totals: Totals,
}

impl<D: Draw> Relay<D> {
    /// An engine that starts by sweeping and claiming at `now`.
    pub fn new(settings: RelaySettings, routes: RouteTable, draw: D, now: Monotonic) -> Self {
        let outlets = routes.destinations().iter().map(|name| (name.clone(), Outlet::new(now))).collect();
        let poll = settings.poll_min;
        let chains = Chains::new(settings.order);
        let mut relay = Self {
            settings,
            routes,
            draw,
            phase: Phase::Running,
            outlets,
            chains,
            alone: None,
            alone_flight: None,
            settlements: Vec::new(),
            settle_due: None,
            settle_backoff: Backoff::default(),
            unsettled: VecDeque::new(),
            settling: 0,
            claiming: false,
            claim_due: now,
            claim_backoff: Backoff::default(),
            poll,
            sweeping: false,
            sweep_due: now,
            sweep_backoff: Backoff::default(),
            brake: Brake::default(),
            next_id: 0,
            commands: VecDeque::new(),
            totals: Totals::default(),
        };
        relay.advance(now);
        relay
    }

    /// Takes one input and works out what follows. After [`Command::Stopped`] inputs are ignored.
    pub fn handle(&mut self, now: Monotonic, input: Input) {
        if self.phase == Phase::Stopped {
            return;
        }
        match input {
            Input::Claimed(claimed) => self.claimed(now, claimed),
            Input::ClaimFailed(error) => self.claim_failed(now, error),
            Input::Outcome(id, outcome) => self.landed(now, id, outcome),
            Input::Settled(batch, answers) => self.settled(now, &batch, &answers),
            Input::SettleFailed(batch, error) => self.settle_failed(now, batch, error),
            Input::Swept(swept) => self.swept(now, swept),
            Input::SweepFailed(error) => self.sweep_failed(now, error),
            Input::Readiness(name, readiness) => self.readiness(now, name, readiness),
            Input::Wakeup => self.wake(now),
            Input::Timer => {}
            Input::Reconfigure(settings, routes) => self.reconfigure(&settings, routes),
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
        let open = self.outlets.values().filter(|outlet| !outlet.quarantining());
        let probe = open.filter_map(|outlet| outlet.circuit.probe_at()).min();
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
        self.unsettled.iter().map(|batch| batch.settlements.len()).sum()
    }

    fn publishing(&self) -> usize {
        self.outlets.values().map(Outlet::held).sum::<usize>()
            + self.chains.rows()
            + usize::from(self.alone.is_some())
    }

    /// What is held and in flight goes on; windows, limits, policies and routes are the new ones at once. The order
    /// stays: the store claims by it.
    fn reconfigure(&mut self, settings: &RelaySettings, routes: RouteTable) {
        assert!(
            routes.destinations().iter().eq(self.routes.destinations()),
            "the destinations of a relay do not change"
        );
        let order = self.settings.order;
        self.poll = self.poll.clamp(settings.poll_min, settings.poll_max);
        self.settings = RelaySettings { order, ..settings.clone() };
        self.routes = routes;
    }

    fn advance(&mut self, now: Monotonic) {
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

    /// The outlet of a destination that a route or a flight names.
    fn outlet(&mut self, name: &DestinationName) -> &mut Outlet {
        self.outlets.get_mut(name).expect("routes lead to configured destinations only")
    }

    fn report(&mut self, report: Report) {
        self.commands.push_back(Command::Report(report));
    }
}
