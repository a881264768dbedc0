//! The relay engine: takes inputs, gives commands; no I/O, no clock, no randomness of its own.
//!
//! It claims while there is room, publishes within a window per destination, and settles in batches. Everything
//! it holds is bounded by rows and by bytes, so a slow broker stops the claims.

mod brake;
mod circuit;
mod judge;
mod outlet;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::EventId;
use crate::lease::{Claim, ClaimRequest, Publish, PublishId, PublishLimits};
use crate::outcome::Outcome;
use crate::ports::{Claimed, Lane, Readiness, StoreError};
use crate::retry::RetryPolicy;
use crate::route::{DestinationName, Route, RouteTable};
use crate::settle::{SettleBatch, Settled, Settlement, Swept, Transition};
use crate::time::{Draw, Monotonic};

use brake::Brake;
use circuit::Admission;
use outlet::Outlet;

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
}

impl Default for RelaySettings {
    fn default() -> Self {
        Self {
            batch_rows: 500,
            batch_bytes: 4 << 20,
            window: 256,
            window_bytes: 8 << 20,
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
        }
    }
}

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

/// Something people should know about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// A row has nowhere to go; it waits.
    NoRoute(EventId, String),
    /// A message was unroutable.
    Unroutable(EventId, DestinationName, String),
    /// A row went DEAD.
    Dead(EventId, String),
    /// Too many rows would die of exhaustion at once: they wait instead.
    BrakeOn(EventId),
    /// A destination failed too often and is left alone for a while.
    CircuitOpened(DestinationName, String),
    /// A destination became available.
    Available(DestinationName),
    /// A destination became unavailable.
    Unavailable(DestinationName, String),
    /// A settle found that its row belongs to somebody else.
    Fenced(EventId),
    /// Channel death: these messages are tried one at a time.
    Quarantined(DestinationName, String),
    /// The store failed.
    Store(&'static str, StoreError),
}

/// Totals since start, for metrics and logs. Audits query the database instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows claimed.
    pub claimed: u64,
    /// Publishes started.
    pub published: u64,
    /// Rows settled SENT.
    pub sent: u64,
    /// Rows settled back to NEW with the attempt counted.
    pub retried: u64,
    /// Rows settled back to NEW with the attempt given back.
    pub released: u64,
    /// Rows settled DEAD.
    pub dead: u64,
    /// Settlements that were fenced.
    pub fenced: u64,
    /// Unroutable outcomes.
    pub unroutable: u64,
    /// Unknown outcomes.
    pub unknown: u64,
    /// Refused outcomes.
    pub refused: u64,
    /// Rows swept.
    pub swept: u64,
    /// Outcomes that came for an attempt no longer held.
    pub late_outcomes: u64,
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
/// How long a row without a route waits.
const NO_ROUTE_DELAY: Duration = Duration::from_secs(30);

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

    // ---- claiming

    fn has_room(&self) -> bool {
        let weight: usize = self.outlets.values().map(Outlet::held_weight).sum();
        self.phase == Phase::Running
            && !self.claiming
            && self.alone.is_none()
            && !self.outlets.values().any(Outlet::quarantining)
            && self.held() <= self.settings.batch_rows as usize
            && weight + self.settings.batch_bytes <= self.settings.held_bytes.max(self.settings.batch_bytes)
    }

    /// How many rows to claim at `now`: none while every destination is unavailable, one for a probe.
    fn claim_size(&self, now: Monotonic) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        let mut admissions = self.outlets.values().map(|outlet| outlet.circuit.admission(now));
        let probe = admissions.clone().any(|admission| admission == Admission::Probe);
        if admissions.any(|admission| admission == Admission::Full) || self.outlets.is_empty() {
            Some(self.settings.batch_rows)
        } else {
            probe.then_some(1)
        }
    }

    fn claim(&mut self, now: Monotonic) {
        if now < self.claim_due {
            return;
        }
        let Some(limit) = self.claim_size(now) else { return };
        let bits = self.draw.bits();
        let request = ClaimRequest::new(limit, self.settings.batch_bytes, self.settings.lease, bits, now);
        self.claiming = true;
        self.commands.push_back(Command::Claim(request));
    }

    fn claimed(&mut self, now: Monotonic, claimed: Claimed) {
        self.claiming = false;
        self.store_pause = STORE_PAUSE_MIN;
        let rows = claimed.claims.len() + claimed.malformed.len();
        self.totals.claimed += rows as u64;
        self.poll = if rows == 0 {
            (self.poll * 2).clamp(self.settings.poll_min, self.settings.poll_max)
        } else {
            self.settings.poll_min
        };
        self.claim_due = if claimed.more { now } else { now.plus(self.poll) };
        for settlement in claimed.malformed {
            self.push_settlement(now, settlement);
        }
        for claim in claimed.claims {
            self.accept(now, claim);
        }
    }

    fn accept(&mut self, now: Monotonic, claim: Claim) {
        if self.phase != Phase::Running {
            return self.push_settlement(now, claim.release(Duration::ZERO, ""));
        }
        match self.routes.resolve(claim.event()) {
            Err(error) => {
                self.report(Report::NoRoute(claim.event().id.clone(), error.to_string()));
                self.push_settlement(now, claim.release(NO_ROUTE_DELAY, error.to_string()));
            }
            Ok(route) if claim.suspect => self.alone = Some((claim, route)),
            Ok(route) => {
                if let Some(outlet) = self.outlets.get_mut(&route.destination) {
                    outlet.queue(claim, route)
                } else {
                    let why = format!("destination {:?} is not configured", route.destination);
                    self.push_settlement(now, claim.release(NO_ROUTE_DELAY, why));
                }
            }
        }
    }

    // ---- publishing

    fn pump(&mut self, now: Monotonic) {
        let names: Vec<DestinationName> = self.outlets.keys().cloned().collect();
        for name in &names {
            self.pump_suspects(now, name);
            self.pump_waiting(now, name);
        }
        self.pump_alone(now);
    }

    fn pump_suspects(&mut self, now: Monotonic, name: &DestinationName) {
        let Some(outlet) = self.outlets.get_mut(name) else { return };
        if outlet.quarantining() {
            return;
        }
        while let Some((pending, route)) = outlet.suspects.pop_front() {
            match pending.publish(now, self.settings.publish, route.clone()) {
                Ok((publish, pending)) => {
                    return self.take_off(now, publish, pending, route, Lane::Quarantine);
                }
                Err(settlement) => {
                    push(
                        &mut self.settlements,
                        &mut self.settle_due,
                        now.plus(self.settings.settle_linger),
                        settlement,
                    );
                }
            }
        }
    }

    fn pump_waiting(&mut self, now: Monotonic, name: &DestinationName) {
        loop {
            let Some(outlet) = self.outlets.get_mut(name) else { return };
            let Some((claim, _)) = outlet.waiting.front() else { return };
            let full = outlet.flights.len() >= self.settings.window
                || (!outlet.flights.is_empty()
                    && outlet.flying_weight + claim.weight() > self.settings.window_bytes);
            let admission = outlet.circuit.admission(now);
            if full && admission == Admission::Full {
                return;
            }
            let Some((claim, route)) = outlet.dequeue() else { return };
            match admission {
                Admission::Wait(span) => {
                    self.push_settlement(now, claim.release(span, "the destination is unavailable"));
                }
                Admission::Probe => {
                    outlet.circuit.probing();
                    self.start(now, claim, route, Lane::Window);
                }
                Admission::Full => self.start(now, claim, route, Lane::Window),
            }
        }
    }

    fn pump_alone(&mut self, now: Monotonic) {
        if self.held() != usize::from(self.alone.is_some()) {
            return;
        }
        let Some((claim, route)) = self.alone.take() else { return };
        let admission = self.outlets.get(&route.destination).map(|outlet| outlet.circuit.admission(now));
        match admission {
            Some(Admission::Wait(span)) => {
                self.push_settlement(now, claim.release(span, "the destination is unavailable"));
            }
            Some(Admission::Full | Admission::Probe) => self.start(now, claim, route, Lane::Quarantine),
            None => {
                self.push_settlement(now, claim.release(NO_ROUTE_DELAY, "the destination is not configured"));
            }
        }
    }

    fn start(&mut self, now: Monotonic, claim: Claim, route: Route, lane: Lane) {
        match claim.start(now, self.settings.publish, route.clone()) {
            Ok((publish, pending)) => self.take_off(now, publish, pending, route, lane),
            Err(settlement) => {
                if let Some(outlet) = self.outlets.get_mut(&route.destination) {
                    outlet.circuit.probe_withdrawn(now);
                }
                self.push_settlement(now, settlement);
            }
        }
    }

    fn take_off(
        &mut self,
        now: Monotonic,
        publish: Publish,
        pending: crate::lease::Pending,
        route: Route,
        lane: Lane,
    ) {
        self.next_id += 1;
        let id = PublishId(self.next_id);
        let outlet = self.outlets.get_mut(&route.destination).expect("routes name known destinations only");
        outlet.take_off(id, pending, route, lane, now);
        self.totals.published += 1;
        self.commands.push_back(Command::Publish(id, lane, publish));
    }

    fn readiness(&mut self, now: Monotonic, name: DestinationName, readiness: Readiness) {
        let Some(outlet) = self.outlets.get_mut(&name) else { return };
        match readiness {
            Readiness::Accepting => {
                outlet.circuit.accepting(now);
                self.report(Report::Available(name));
            }
            Readiness::Unavailable(reason) => {
                outlet.circuit.unavailable(reason.clone());
                self.report(Report::Unavailable(name, reason));
            }
        }
    }

    // ---- settling

    fn push_settlement(&mut self, now: Monotonic, settlement: Settlement) {
        push(&mut self.settlements, &mut self.settle_due, now.plus(self.settings.settle_linger), settlement);
    }

    fn settle(&mut self, now: Monotonic) {
        if self.settling > 0 {
            return;
        }
        let due = self.settle_due.is_none_or(|due| now >= due);
        if let Some(batch) = self.unsettled.take_if(|_| due) {
            self.settle_due = (!self.settlements.is_empty()).then_some(now);
            self.settling = batch.settlements.len();
            self.commands.push_back(Command::Settle(batch));
            return;
        }
        if self.unsettled.is_some() || self.settlements.is_empty() {
            return;
        }
        let full = self.settlements.len() >= self.settings.batch_rows as usize;
        let idle = self.publishing() == 0;
        if full || idle || due {
            let size = self.settlements.len().min(self.settings.batch_rows as usize);
            let settlements: Vec<Settlement> = self.settlements.drain(..size).collect();
            self.settle_due = (!self.settlements.is_empty()).then_some(now);
            self.settling = settlements.len();
            self.commands.push_back(Command::Settle(SettleBatch { settlements, repeat: false }));
        }
    }

    fn settled(&mut self, batch: &SettleBatch, answers: &[Settled]) {
        assert_eq!(batch.settlements.len(), answers.len(), "a store answers every settlement");
        self.settling = 0;
        self.store_pause = STORE_PAUSE_MIN;
        for (settlement, answer) in batch.settlements.iter().zip(answers) {
            match answer {
                Settled::Applied | Settled::AlreadyApplied => match settlement.to() {
                    Transition::Sent(_) => self.totals.sent += 1,
                    Transition::Retry { .. } => self.totals.retried += 1,
                    Transition::Release { .. } => self.totals.released += 1,
                    Transition::Dead { reason } => {
                        self.totals.dead += 1;
                        self.report(Report::Dead(settlement.id().clone(), reason.clone()));
                    }
                },
                Settled::Fenced => {
                    self.totals.fenced += 1;
                    self.report(Report::Fenced(settlement.id().clone()));
                }
            }
        }
    }

    fn settle_failed(&mut self, now: Monotonic, mut batch: SettleBatch, error: StoreError) {
        self.settling = 0;
        batch.repeat |= matches!(error, StoreError::CommitUnknown(_));
        let pause = self.store_failed("settle", error);
        if self.phase == Phase::Abandoning {
            // The leases end by themselves; any relay sweeps the rows.
            self.settlements.clear();
            self.settle_due = None;
            return;
        }
        self.settle_due = Some(now.plus(pause));
        self.unsettled = Some(batch);
    }

    fn store_failed(&mut self, what: &'static str, error: StoreError) -> Duration {
        self.report(Report::Store(what, error));
        let pause = self.store_pause.mul_f64(0.5 + self.draw.fraction() / 2.0);
        self.store_pause = (self.store_pause * 2).min(STORE_PAUSE_MAX);
        pause
    }

    // ---- sweeping

    fn sweep(&mut self, now: Monotonic) {
        if self.phase != Phase::Running || self.sweeping || now < self.sweep_due {
            return;
        }
        self.sweeping = true;
        self.commands.push_back(Command::Sweep {
            limit: self.settings.sweep_rows,
            delay: self.settings.sweep_delay,
            attempts_max: self.settings.retry.attempts_max,
        });
    }

    fn swept(&mut self, now: Monotonic, swept: Swept) {
        self.sweeping = false;
        let rows = swept.returned + swept.dead;
        self.totals.swept += u64::from(rows);
        let full = rows >= self.settings.sweep_rows;
        self.sweep_due = if full { now } else { now.plus(self.settings.sweep_every) };
    }

    // ---- draining

    fn drain(&mut self, now: Monotonic) {
        if self.phase != Phase::Running {
            return;
        }
        self.phase = Phase::Draining { until: now.plus(self.settings.drain) };
        let mut released = Vec::new();
        for outlet in self.outlets.values_mut() {
            while let Some((claim, _)) = outlet.dequeue() {
                released.push(claim.release(Duration::ZERO, ""));
            }
            let suspects = outlet.suspects.drain(..).map(|(pending, _)| {
                pending.settle(Transition::Release { delay: Duration::ZERO, why: String::new() })
            });
            released.extend(suspects);
        }
        released.extend(self.alone.take().map(|(claim, _)| claim.release(Duration::ZERO, "")));
        for settlement in released {
            self.push_settlement(now, settlement);
        }
    }

    /// Past the drain's deadline nothing more is waited for: what is in flight is unknown and goes back.
    fn give_up_drain(&mut self, now: Monotonic) {
        if !matches!(self.phase, Phase::Draining { until } if now >= until) {
            return;
        }
        self.phase = Phase::Abandoning;
        let ids: Vec<PublishId> =
            self.outlets.values().flat_map(|outlet| outlet.flights.keys().copied()).collect();
        for id in ids {
            self.landed(now, id, Outcome::Unknown(crate::outcome::Doubt::Abandoned));
        }
    }

    fn report(&mut self, report: Report) {
        self.commands.push_back(Command::Report(report));
    }
}

fn push(
    settlements: &mut Vec<Settlement>,
    due: &mut Option<Monotonic>,
    linger_ends: Monotonic,
    settlement: Settlement,
) {
    settlements.push(settlement);
    due.get_or_insert(linger_ends);
}
