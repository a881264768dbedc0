//! Relays as processes: they start, take inputs, run commands, stand still, drain and die.

use std::collections::BTreeMap;
use std::ptr::from_ref;

use consign_core::lease::PublishId;
use consign_core::ports::{Lane, Readiness};
use consign_core::relay::{Command, Input, Relay, RelaySettings, Report};
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::time::Monotonic;

use crate::draw::Seeded;
use crate::options::Fault;
use crate::require;
use crate::store::number;
use crate::trace::Actor;

use super::situations::Met;
use super::work::Work;
use super::{DESTINATIONS, Event, World};

mod wire;

/// A publish under way.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not states of one thing")]
pub(super) struct Flight {
    pub row: usize,
    pub token: u128,
    pub destination: usize,
    pub lane: Lane,
    pub weight: usize,
    /// Another one to the same destination was in flight at some moment of this one.
    pub company: bool,
    pub started: Monotonic,
    /// It went to an open circuit, to see.
    pub probe: bool,
    /// The destination became available, or was lost, after it took off.
    pub former: bool,
    /// Raised when something else ends the flight than was planned.
    pub edition: u32,
    /// Its bytes never reach the broker: the connection broke before.
    lost: bool,
    /// The broker has taken it.
    taken: bool,
}

/// A row that a process holds a lease on, as far as it can know.
#[derive(Debug)]
pub(super) struct Lease {
    pub row: usize,
    pub token: u128,
    /// Where the claimed event lies in memory, which tells the claims of one row apart; none when it is malformed.
    pub claim: Option<usize>,
    /// By the process's own clock, counted from before the claim was sent.
    pub ends: Monotonic,
    pub flying: bool,
    pub published: bool,
    pub landed: Option<Landed>,
}

/// How the last publish of a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    Confirmed,
    Unroutable,
    Rejected,
    Refused,
    /// The channel died that it shared with others.
    Shared,
    /// Nobody knows, and the row may be at fault.
    Unknown,
    /// Nobody knows, and nothing speaks against this row more than against its neighbours.
    Blameless,
}

/// What a process has learnt about a destination.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Learnt {
    pub connected: bool,
    /// It was told that the destination takes messages.
    pub accepting: bool,
    /// It told that it leaves the destination alone.
    pub open: bool,
    /// When the destination last said anything about a message.
    pub answered_at: Option<Monotonic>,
    /// No message on the connection reaches the broker before this.
    sent_until: Monotonic,
}

/// The place of one relay; its process may come and go.
#[derive(Debug)]
pub(super) struct Slot {
    engine: Option<Relay<Seeded>>,
    pub settings: RelaySettings,
    /// The most rows it ever was allowed to hold.
    pub held_max: usize,
    /// What the engine said after its last input.
    timer: Option<Monotonic>,
    pub incarnation: u64,
    /// The claim on its way: its token, and when it was asked for.
    claiming: Option<(u128, Monotonic)>,
    pub leases: Vec<Lease>,
    pub flights: BTreeMap<PublishId, Flight>,
    pub settle_open: bool,
    /// The last settle failed.
    settle_failing: bool,
    pub paused_until: Monotonic,
    pub learnt: [Learnt; DESTINATIONS.len()],
    /// When a drain must be over at the latest.
    drain_until: Option<Monotonic>,
    /// When the engine gives up on its drain.
    pub drain_ends: Option<Monotonic>,
    /// It stays dead for good.
    pub buried: bool,
}

impl Slot {
    pub fn new(settings: &RelaySettings) -> Self {
        let mut slot = Self {
            engine: None,
            settings: settings.clone(),
            held_max: 0,
            timer: None,
            incarnation: 0,
            claiming: None,
            leases: Vec::new(),
            flights: BTreeMap::new(),
            settle_open: false,
            settle_failing: false,
            paused_until: Monotonic::default(),
            learnt: [Learnt::default(); DESTINATIONS.len()],
            drain_until: None,
            drain_ends: None,
            buried: false,
        };
        slot.set(settings.clone());
        slot
    }

    fn set(&mut self, settings: RelaySettings) {
        self.held_max = self.held_max.max(settings.held_rows.max(2 * settings.batch_rows as usize));
        self.settings = settings;
    }

    pub fn alive(&self) -> bool {
        self.engine.is_some()
    }

    /// True while the process with this incarnation lives.
    pub fn is(&self, incarnation: u64) -> bool {
        self.alive() && self.incarnation == incarnation
    }

    /// When the process looks at its timer.
    pub fn timer(&self) -> Option<Monotonic> {
        self.timer.map(|timer| timer.max(self.paused_until))
    }

    fn lease(&mut self, row: usize, token: u128) -> Option<&mut Lease> {
        self.leases.iter_mut().find(|lease| lease.row == row && lease.token == token)
    }
}

/// Routes that send each event to the destination its type names.
pub(super) fn routes(destinations: usize) -> RouteTable {
    let names: Vec<DestinationName> =
        DESTINATIONS[..destinations].iter().map(|name| DestinationName::new(*name)).collect();
    let key = Template::parse("{event_type}").expect("it is a template");
    let rule = |name: &DestinationName| Rule {
        event_type: name.as_str().into(),
        destination: name.clone(),
        key: key.clone(),
        retry: None,
    };
    RouteTable::new(names.iter().map(rule).collect(), names.clone())
}

pub(super) fn destination(name: &DestinationName) -> usize {
    DESTINATIONS.iter().position(|known| *known == name.as_str()).expect("only known destinations are named")
}

impl World {
    pub(super) fn start(&mut self, relay: usize) {
        if self.finishing || self.slots[relay].buried || self.slots[relay].alive() {
            return;
        }
        self.book.note(Actor::Relay(relay), "starts", None, 0);
        let draw = Seeded::new(self.draw.number());
        let settings = self.options.settings.clone();
        let incarnation = self.slots[relay].incarnation + 1;
        self.slots[relay] = Slot { incarnation, ..Slot::new(&settings) };
        let now = self.book.now;
        self.slots[relay].engine = Some(Relay::new(settings, routes(self.options.destinations), draw, now));
        for destination in 0..self.options.destinations {
            let delay = self.span(50);
            self.schedule(delay, Event::Reconnect { relay, incarnation, destination });
        }
        self.commands(relay);
    }

    /// The process is gone between two steps; what it had sent goes its way.
    pub(super) fn crash(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        let flying = slot.flights.values().any(|flight| flight.edition == 0);
        let settling = slot.settle_open;
        (slot.engine, slot.timer) = (None, None);
        self.book.note(Actor::Relay(relay), "is killed", None, 0);
        self.book.met.meet_if(flying, Met::CrashWithPublishesInFlight);
        self.book.met.meet_if(settling, Met::CrashWithSettleOpen);
        let delay = self.span(3_000);
        self.schedule(delay, Event::Start(relay));
    }

    /// The process is killed at this very point of its work, if that fault strikes.
    fn dies_here(&mut self, relay: usize, situation: Option<Met>) -> bool {
        let dies = self.strikes(Fault::CrashPoints, 3);
        if dies {
            if let Some(situation) = situation {
                self.book.met.meet(situation);
            }
            self.crash(relay);
        }
        dies
    }

    pub(super) fn drain(&mut self, relay: usize) {
        let now = self.book.now;
        let slot = &mut self.slots[relay];
        if !slot.alive() || slot.drain_until.is_some() {
            return;
        }
        // The store may take seconds for the claim, the settle and the last settle.
        let span = slot.settings.drain + std::time::Duration::from_mins(1);
        slot.drain_until = Some(now.max(slot.paused_until).plus(span));
        self.book.note(Actor::Relay(relay), "is told to stop", None, 0);
        let flying = !self.slots[relay].flights.is_empty();
        self.book.met.meet_if(flying, Met::DrainedWithFlights);
        self.feed(relay, Input::Drain);
    }

    pub(super) fn pause_ends_later(&mut self, relay: usize, until: Monotonic) {
        let now = self.book.now;
        let slot = &mut self.slots[relay];
        slot.paused_until = slot.paused_until.max(until);
        let span = until.since(now);
        slot.drain_until = slot.drain_until.map(|moment| moment.plus(span));
    }

    pub(super) fn reply(&mut self, relay: usize, incarnation: u64, input: Input) {
        if self.slots[relay].is(incarnation) {
            self.feed(relay, input);
        }
    }

    /// Gives the engine an input, unless its process is dead; one that stands still gets it when it goes on.
    pub(super) fn feed(&mut self, relay: usize, input: Input) {
        let slot = &self.slots[relay];
        if !slot.alive() || self.book.violation.is_some() {
            return;
        }
        if slot.paused_until > self.book.now {
            let (until, incarnation) = (slot.paused_until, slot.incarnation);
            return self.schedule_at(until, Event::Reply(relay, incarnation, input));
        }
        if matches!(input, Input::Settled(..)) && self.dies_here(relay, Some(Met::CrashAfterSettle)) {
            return;
        }
        self.learn(relay, &input);
        let now = self.book.now;
        if let Some(engine) = &mut self.slots[relay].engine {
            engine.handle(now, input);
            self.commands(relay);
        }
    }

    /// What the world writes down about an input that reaches a process.
    fn learn(&mut self, relay: usize, input: &Input) {
        let now = self.book.now;
        let slot = &mut self.slots[relay];
        match input {
            Input::Claimed(claimed) => {
                let Some((token, asked_at)) = slot.claiming.take() else {
                    return self.book.violate("I4", None, "a claim was answered that was not asked".into());
                };
                let ends = asked_at.plus(slot.settings.lease);
                let whole = claimed.claims.iter();
                let whole =
                    whole.map(|claim| (number(&claim.event().id), Some(from_ref(claim.event()).addr())));
                let malformed = claimed.malformed.iter().map(|settlement| (number(settlement.id()), None));
                for (row, claim) in whole.chain(malformed) {
                    let (flying, published, landed) = (false, false, None);
                    slot.leases.push(Lease { row, token, claim, ends, flying, published, landed });
                    self.book.note(Actor::Relay(relay), "has claimed", Some(row), 0);
                }
            }
            Input::ClaimFailed(_) => slot.claiming = None,
            Input::Settled(batch, _) => {
                (slot.settle_open, slot.settle_failing) = (false, false);
                for settlement in &batch.settlements {
                    let (row, token) = (number(settlement.id()), settlement.token().bits());
                    slot.leases.retain(|lease| lease.row != row || lease.token != token);
                }
            }
            Input::SettleFailed(..) => {
                (slot.settle_open, slot.settle_failing) = (false, true);
                self.book.met.meet(Met::SettleFailed);
            }
            Input::Readiness(name, readiness) => {
                let there = destination(name);
                let learnt = &mut slot.learnt[there];
                learnt.accepting = *readiness == Readiness::Accepting;
                for flight in slot.flights.values_mut() {
                    flight.probe = false;
                    flight.former |= flight.destination == there;
                }
            }
            Input::Drain => {
                slot.drain_ends = Some(now.plus(slot.settings.drain));
            }
            Input::Reconfigure(settings, _) => {
                let flying = !slot.flights.is_empty();
                slot.set((**settings).clone());
                self.book.met.meet_if(flying, Met::Reconfigured);
            }
            _ => {}
        }
    }

    pub(super) fn tick(&mut self, relay: usize) {
        let timer = self.slots[relay].timer;
        let now = self.book.now;
        let Some(engine) = &mut self.slots[relay].engine else { return };
        engine.handle(now, Input::Timer);
        let commands = self.commands(relay);
        let moved = commands > 0 || self.slots[relay].timer != timer;
        require!(self.book, "L0", None, moved, "the timer of relay {relay} does nothing for ever");
    }

    fn commands(&mut self, relay: usize) -> usize {
        let mut commands = 0;
        let mut published = 0;
        while let Some(command) = self.slots[relay].engine.as_mut().and_then(Relay::next_command) {
            commands += 1;
            match command {
                Command::Claim(request) => {
                    self.check_claim(relay);
                    if !self.dies_here(relay, Some(Met::CrashBeforeClaim)) {
                        self.slots[relay].claiming = Some((request.token().bits(), self.book.now));
                        let others = self.slots.iter().filter(|slot| slot.claiming.is_some()).count();
                        self.book.met.meet_if(others > 1, Met::ClaimNextToAnother);
                        self.send_to_store(relay, Work::Claim(request));
                    }
                }
                Command::Settle(batch) => {
                    batch.settlements.iter().for_each(|settlement| self.check_settlement(relay, settlement));
                    let open = self.slots[relay].settle_open;
                    require!(self.book, "B3", None, !open, "two settles at a time");
                    self.slots[relay].settle_open = true;
                    self.send_to_store(relay, Work::Settle(batch));
                }
                Command::Sweep { limit, delay, attempts_max } => {
                    self.send_to_store(relay, Work::Sweep { limit, delay, attempts_max });
                }
                Command::Publish(id, lane, publish) => {
                    if !self.dies_with(relay, published) {
                        published += 1;
                        self.publish(relay, id, lane, &publish);
                    }
                }
                Command::Report(report) => self.hear(relay, &report),
                Command::Stopped => self.stopped(relay),
            }
        }
        self.check_engine(relay);
        commands
    }

    fn dies_with(&mut self, relay: usize, published: usize) -> bool {
        let situation = if published > 0 {
            Some(Met::CrashBetweenPublishes)
        } else {
            self.slots[relay].flights.is_empty().then_some(Met::CrashBeforePublish)
        };
        self.dies_here(relay, situation)
    }

    /// B4, B5: a relay that is told to stop, or cannot settle, claims nothing more; and it claims once at a time.
    fn check_claim(&mut self, relay: usize) {
        let slot = &self.slots[relay];
        require!(self.book, "B3", None, slot.claiming.is_none(), "two claims at a time");
        require!(self.book, "B4", None, slot.drain_ends.is_none(), "claimed although told to stop");
        require!(self.book, "B5", None, !slot.settle_failing, "claimed while the store refuses settles");
    }

    fn check_engine(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        slot.timer = slot.engine.as_ref().and_then(Relay::next_timer);
        let Some(engine) = &slot.engine else { return };
        let now = self.book.now;
        if let Some(timer) = slot.timer {
            require!(self.book, "L0", None, timer > now, "a timer of relay {relay} is due already");
        }
        let (held, most) = (engine.held(), slot.held_max);
        require!(self.book, "B1", None, held <= most, "relay {relay} holds {held} rows, at most {most}");
        // Past the end of its drain it leaves leases to end by themselves.
        if slot.drain_ends.is_none_or(|ends| now < ends) {
            let leased = slot.leases.len();
            require!(
                self.book,
                "B2",
                None,
                held == leased,
                "relay {relay} holds {leased} leases and knows of {held}"
            );
        }
    }

    fn stopped(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        let now = self.book.now;
        let until = slot.drain_until;
        let Some(engine) = slot.engine.take() else { return };
        slot.timer = None;
        self.book.note(Actor::Relay(relay), "has stopped", None, 0);
        let asked = until.is_some_and(|until| now <= until);
        require!(self.book, "L6", None, asked, "relay {relay} stopped unasked, or late");
        require!(self.book, "L6", None, engine.held() == 0, "relay {relay} stopped with rows in hand");
        self.book.met.meet_if(engine.totals().late_outcomes > 0, Met::LateOutcome);
        if !self.finishing {
            let delay = self.span(2_000);
            self.schedule(delay, Event::Start(relay));
        }
    }

    fn hear(&mut self, relay: usize, report: &Report) {
        match report {
            Report::NoRoute(..) => self.book.met.meet(Met::NoRoute),
            Report::CircuitOpened(name, _) => {
                let there = destination(name);
                let slot = &mut self.slots[relay];
                slot.learnt[there].open = true;
                // A flight from before the breaker opened can fail late and open it again: that counts as an answer to the
                // probe, and the next probe may go beside it.
                for flight in slot.flights.values_mut().filter(|flight| flight.destination == there) {
                    flight.probe = false;
                }
                self.book.met.meet(Met::CircuitOpened);
                self.book.note(Actor::Relay(relay), "opens a circuit", None, destination(name) as u64);
            }
            Report::Quarantined(name, _) => {
                self.book.met.meet(Met::Quarantined);
                self.book.note(Actor::Relay(relay), "quarantines", None, destination(name) as u64);
            }
            Report::Unavailable(..) => self.book.met.meet(Met::UnavailableDestination),
            _ => {}
        }
    }
}
