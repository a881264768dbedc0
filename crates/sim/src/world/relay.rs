//! Relays as processes: they start, take inputs, run commands, stand still, drain and die.

use std::collections::BTreeMap;
use std::ptr::from_ref;

use consign_core::lease::{Publish, PublishId};
use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::{Lane, Readiness};
use consign_core::relay::{Command, Input, Relay, RelaySettings, Report};
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::time::Monotonic;

use crate::broker::{self, Copy};
use crate::draw::Seeded;
use crate::options::{Fault, millis};
use crate::require;
use crate::store::{Nature, Status, number};
use crate::trace::Actor;

use super::situations::Met;
use super::work::Work;
use super::{DESTINATIONS, Event, Sent, World};

/// A publish under way.
#[derive(Debug)]
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
    /// Raised when something else ends the flight than was planned.
    edition: u32,
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
        let draw = Seeded::new(self.draw.next());
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
        let span = slot.settings.drain + std::time::Duration::from_secs(60);
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
                let learnt = &mut slot.learnt[destination(name)];
                learnt.accepting = *readiness == Readiness::Accepting;
                for flight in slot.flights.values_mut() {
                    flight.probe = false;
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
                self.slots[relay].learnt[destination(name)].open = true;
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

    fn publish(&mut self, relay: usize, id: PublishId, lane: Lane, publish: &Publish) {
        let row = number(&publish.event.id);
        let destination = destination(&publish.route.destination);
        let Some(token) = self.check_publish(relay, lane, publish) else { return };
        self.check_order(row);
        self.store.row_mut(row).publishes += 1;
        self.book.note(Actor::Relay(relay), "publishes", Some(row), destination as u64);
        let now = self.book.now;
        let elsewhere = self.slots.iter().enumerate().any(|(other, slot)| {
            other != relay && slot.alive() && slot.flights.values().any(|flight| flight.row == row)
        });
        self.book.met.meet_if(elsewhere, Met::PublishedByTwo);
        let slot = &mut self.slots[relay];
        let mut company = false;
        for beside in slot.flights.values_mut().filter(|flight| flight.destination == destination) {
            (beside.company, company) = (true, true);
        }
        let flight = Flight {
            row,
            token,
            destination,
            lane,
            weight: publish.event.weight(),
            company,
            started: now,
            probe: slot.learnt[destination].open,
            edition: 0,
            lost: false,
            taken: false,
        };
        slot.flights.insert(id, flight);
        self.send(relay, id, lane, publish);
    }

    /// What becomes of a message, as far as nothing comes between.
    fn send(&mut self, relay: usize, id: PublishId, lane: Lane, publish: &Publish) {
        let now = self.book.now;
        let (row, destination) = (number(&publish.event.id), destination(&publish.route.destination));
        let incarnation = self.slots[relay].incarnation;
        let there = &self.broker.destinations[destination];
        let landing = |outcome| Event::Landing { relay, incarnation, id, edition: 0, outcome };
        if there.down || !self.slots[relay].learnt[destination].connected {
            return self.schedule_at(now.plus(millis(1)), landing(broker::not_connected()));
        }
        // Whoever hears nothing until then gives up.
        self.schedule_at(publish.deadline, landing(broker::timed_out()));
        let left = publish.deadline.since(now);
        let slow = self.strikes(Fault::SlowConfirms, 8);
        let longest = if slow { left } else { left.min(millis(40)) };
        let delay = self.span(u64::try_from(longest.as_millis()).unwrap_or(1));
        let learnt = &mut self.slots[relay].learnt[destination];
        // What is sent on one connection arrives in its order.
        let soon = now.plus(delay).max(learnt.sent_until).min(publish.deadline);
        learnt.sent_until = soon;
        let arrive = |world: &mut Self, at, confirm| {
            let copy = Copy { event: publish.event.clone(), row, at };
            let token = world.slots[relay].flights.get(&id).map_or(0, |flight| flight.token);
            let sent = Sent { relay, incarnation, id, token, destination, copy, confirm };
            world.schedule_at(at, Event::Accept(sent));
        };
        let nature = self.store.row(row).nature;
        match nature {
            Nature::Plain if self.strikes(Fault::Refusals, 15) => {
                let retry_after = self.draw.chance(20).then(|| millis(500 + self.draw.below(5_000)));
                self.book.met.meet_if(retry_after.is_some(), Met::RetryAfter);
                self.schedule_at(soon, landing(broker::refused(retry_after)));
            }
            Nature::Plain if self.strikes(Fault::LostConfirms, 20) => {
                let zombie = publish.deadline.plus(millis(self.draw.below(5_000)));
                if let Some(at) = self.draw.pick(&[Some(soon), Some(zombie), None]) {
                    arrive(self, at, false);
                }
            }
            Nature::Plain => arrive(self, soon, true),
            Nature::Poison if lane == Lane::Window => {
                self.schedule_at(soon, Event::ChannelDeath { relay, incarnation, id });
            }
            Nature::Poison => self.schedule_at(soon, landing(broker::rejected("406 message too large"))),
            Nature::Invalid => self.schedule_at(soon, landing(broker::rejected("a header with a \0 byte"))),
            Nature::Unroutable => self.schedule_at(soon, landing(broker::returned())),
            Nature::Malformed | Nature::Stray => {
                self.book.violate("I1", Some(row), format!("a {nature:?} event was published"));
            }
        }
    }

    /// A message reaches the broker.
    pub(super) fn accept(&mut self, mut sent: Sent) {
        let now = self.book.now;
        let alive = self.slots[sent.relay].is(sent.incarnation);
        let flight = self.slots[sent.relay].flights.get_mut(&sent.id).filter(|_| alive);
        // What a dead relay had written may still be in a buffer that is lost.
        if flight.as_ref().is_some_and(|flight| flight.lost) || (!alive && self.draw.chance(30)) {
            return;
        }
        let there = &self.broker.destinations[sent.destination];
        if there.blocked {
            // It stays in the buffers until the blockade is over.
            return self.schedule_at(now.plus(millis(200)), Event::Accept(sent));
        }
        let (relay, incarnation, id) = (sent.relay, sent.incarnation, sent.id);
        let landing = |outcome| Event::Landing { relay, incarnation, id, edition: 0, outcome };
        let number = sent.copy.row;
        if there.unbound {
            self.store.row_mut(number).was_returned = true;
            return self.schedule_at(now.plus(millis(1)), landing(broker::returned()));
        }
        let late = flight.is_none();
        if let Some(flight) = flight {
            flight.taken = true;
        }
        if sent.confirm {
            let delay = self.span(20);
            self.schedule(delay, landing(broker::confirmed()));
        }
        sent.copy.at = now;
        self.check_copy(&sent.copy);
        let row = self.store.row_mut(number);
        row.copies += 1;
        row.copies_of_this_life += 1;
        let (status, held) = (row.status, row.token == Some(sent.token));
        let met = &mut self.book.met;
        met.meet_if(!held && status == Status::Sending, Met::CopyAfterTheLeaseWasLost);
        met.meet_if(!held && status == Status::Sent, Met::CopyAfterSent);
        met.meet_if(matches!(status, Status::Dead | Status::Discarded), Met::CopyAfterDead);
        met.meet_if(!alive, Met::CopyOfTheDead);
        met.meet_if(late && sent.confirm && alive, Met::UnblockedLate);
        self.book.note(Actor::Broker(sent.destination), "takes", Some(number), u64::from(late));
        self.broker.take(sent.destination, sent.copy);
        if let Some(consumers) = &mut self.consumers {
            consumers.publish(&mut self.book, number);
        }
    }

    pub(super) fn landing(
        &mut self,
        relay: usize,
        incarnation: u64,
        id: PublishId,
        edition: u32,
        outcome: Outcome,
    ) {
        let slot = &self.slots[relay];
        if !slot.is(incarnation) || slot.flights.get(&id).is_none_or(|flight| flight.edition != edition) {
            return;
        }
        if slot.paused_until > self.book.now {
            let until = slot.paused_until;
            let event = Event::Landing { relay, incarnation, id, edition, outcome };
            return self.schedule_at(until, event);
        }
        if matches!(outcome, Outcome::Confirmed(_)) && self.dies_here(relay, Some(Met::CrashBeforeSettle)) {
            return;
        }
        self.land(relay, id, &outcome);
        self.feed(relay, Input::Outcome(id, outcome));
    }

    /// What the world writes down about an outcome that reaches a process.
    fn land(&mut self, relay: usize, id: PublishId, outcome: &Outcome) {
        let now = self.book.now;
        let slot = &mut self.slots[relay];
        let Some(flight) = slot.flights.remove(&id) else { return };
        let learnt = &mut slot.learnt[flight.destination];
        let silent = learnt.answered_at.is_none_or(|at| at <= flight.started);
        let (landed, word) = match outcome {
            Outcome::Confirmed(_) => (Landed::Confirmed, "gets a confirm"),
            Outcome::Unroutable { .. } => (Landed::Unroutable, "gets a return"),
            Outcome::Rejected { .. } => (Landed::Rejected, "gets a rejection"),
            Outcome::Refused { .. } => (Landed::Refused, "gets a refusal"),
            Outcome::Unknown(Doubt::ConfirmTimedOut) if flight.company && silent => {
                (Landed::Blameless, "waits in vain")
            }
            Outcome::Unknown(Doubt::ConnectionLost(_)) if flight.company => {
                (Landed::Blameless, "loses its connection")
            }
            Outcome::Unknown(Doubt::ConfirmTimedOut) => (Landed::Unknown, "waits in vain"),
            Outcome::Unknown(Doubt::ChannelClosed(_)) if flight.lane == Lane::Window => {
                (Landed::Shared, "loses its channel")
            }
            Outcome::Unknown(_) => (Landed::Unknown, "loses its channel"),
        };
        let answers = matches!(landed, Landed::Confirmed | Landed::Unroutable | Landed::Rejected);
        if answers {
            (learnt.answered_at, learnt.open) = (Some(now), false);
        }
        if let Some(lease) = slot.lease(flight.row, flight.token) {
            (lease.flying, lease.landed) = (false, Some(landed));
        }
        let met = &mut self.book.met;
        met.meet_if(flight.probe && landed == Landed::Confirmed, Met::ProbeAnswered);
        met.meet_if(flight.probe && !answers, Met::ProbeFailed);
        let innocent = flight.lane == Lane::Quarantine && landed == Landed::Confirmed;
        let suspect = self.store.row(flight.row).suspect();
        met.meet_if(innocent && !suspect, Met::InnocentCleared);
        self.book.note(Actor::Relay(relay), word, Some(flight.row), 0);
    }

    /// Everything in flight on the shared channel ends with the message that killed it.
    pub(super) fn channel_death(&mut self, relay: usize, incarnation: u64, id: PublishId) {
        let slot = &self.slots[relay];
        let killer = slot.flights.get(&id).filter(|flight| slot.is(incarnation) && flight.edition == 0);
        if let Some((destination, row)) = killer.map(|flight| (flight.destination, flight.row)) {
            self.book.note(Actor::Broker(destination), "closes the channel", Some(row), 0);
            self.end_flights(relay, destination, Some(Lane::Window), &broker::channel_closed());
        }
    }

    /// The connection of one relay to one destination breaks. Of what was on it, the first so many had arrived.
    pub(super) fn disconnect(&mut self, relay: usize, destination: usize) {
        let arrived = self.draw.index(4);
        let slot = &mut self.slots[relay];
        slot.learnt[destination].connected = false;
        let here = slot.flights.values_mut().filter(|flight| flight.destination == destination);
        let (mut taken, mut lost) = (0, 0);
        for flight in here {
            if flight.taken || taken < arrived {
                taken += 1;
            } else {
                flight.lost = true;
                lost += 1;
            }
        }
        self.book.met.meet_if(taken > 0 && lost > 0, Met::ConnectionLostPartlyAccepted);
        self.book.note(Actor::Relay(relay), "loses a connection", None, destination as u64);
        self.end_flights(relay, destination, None, &broker::connection_lost());
        let incarnation = self.slots[relay].incarnation;
        self.schedule(millis(1), Event::Readiness { relay, incarnation, destination });
        let delay = self.span(2_000);
        self.schedule(delay, Event::Reconnect { relay, incarnation, destination });
    }

    fn end_flights(&mut self, relay: usize, destination: usize, lane: Option<Lane>, outcome: &Outcome) {
        let slot = &mut self.slots[relay];
        let incarnation = slot.incarnation;
        let hit = |flight: &Flight| {
            flight.destination == destination && lane.is_none_or(|lane| flight.lane == lane)
        };
        let mut ended = Vec::new();
        for (id, flight) in slot.flights.iter_mut().filter(|(_, flight)| hit(flight)) {
            flight.edition += 1;
            ended.push((*id, flight.edition));
        }
        for (id, edition) in ended {
            let delay = self.span(3);
            let outcome = outcome.clone();
            self.schedule(delay, Event::Landing { relay, incarnation, id, edition, outcome });
        }
    }

    pub(super) fn reconnect(&mut self, relay: usize, incarnation: u64, destination: usize) {
        if self.slots[relay].is(incarnation) {
            self.slots[relay].learnt[destination].connected = true;
            self.readiness(relay, incarnation, destination);
        }
    }

    pub(super) fn tell_readiness(&mut self, destination: usize) {
        for relay in 0..self.slots.len() {
            let incarnation = self.slots[relay].incarnation;
            self.readiness(relay, incarnation, destination);
        }
    }

    pub(super) fn readiness(&mut self, relay: usize, incarnation: u64, destination: usize) {
        let slot = &self.slots[relay];
        if !slot.is(incarnation) {
            return;
        }
        if slot.paused_until > self.book.now {
            let until = slot.paused_until;
            return self.schedule_at(until, Event::Readiness { relay, incarnation, destination });
        }
        let there = &self.broker.destinations[destination];
        let readiness = if there.down || !slot.learnt[destination].connected {
            Readiness::Unavailable("connection refused".into())
        } else if there.blocked {
            Readiness::Unavailable("blocked: memory".into())
        } else {
            Readiness::Accepting
        };
        self.feed(relay, Input::Readiness(DestinationName::new(DESTINATIONS[destination]), readiness));
    }
}
