//! Relays as processes: they start, take inputs, run commands, stand still, drain and die.

use std::collections::{BTreeMap, BTreeSet};

use consign_core::lease::{Publish, PublishId};
use consign_core::outcome::Outcome;
use consign_core::ports::{Lane, Readiness};
use consign_core::relay::{Command, DeadHead, Input, Order, Relay, Report};
use consign_core::route::DestinationName;
use consign_core::settle::{Settlement, Transition};
use consign_core::time::Monotonic;

use crate::draw::Seeded;
use crate::harness::{channel_closed, connection_lost, millis, routes, seconds};
use crate::walk::broker::{self, End, Fate};
use crate::walk::options::Fault;
use crate::walk::store::{Nature, Status, number};
use crate::walk::witness::Met;

use super::{DESTINATIONS, Event, Work, World};

/// A publish under way.
#[derive(Debug)]
struct Flight {
    destination: usize,
    lane: Lane,
    weight: usize,
    /// Raised when something else ends the flight than was planned.
    edition: u32,
}

/// The place of one relay; its process may come and go.
#[derive(Debug, Default)]
pub struct Slot {
    engine: Option<Relay<Seeded>>,
    /// What the engine said after its last input.
    timer: Option<Monotonic>,
    pub incarnation: u64,
    /// The token of the claim whose answer is on its way.
    pub claiming: Option<String>,
    /// Tokens of claims that this process knows to own.
    owned: BTreeSet<String>,
    flights: BTreeMap<PublishId, Flight>,
    settle_open: bool,
    paused_until: Monotonic,
    pub connected: [bool; DESTINATIONS.len()],
    drain_until: Option<Monotonic>,
}

impl Slot {
    pub fn alive(&self) -> bool {
        self.engine.is_some()
    }

    /// True while the process with this incarnation lives.
    pub fn is(&self, incarnation: u64) -> bool {
        self.alive() && self.incarnation == incarnation
    }

    pub fn draining(&self) -> bool {
        self.drain_until.is_some()
    }

    /// When the process looks at its timer.
    pub fn timer(&self) -> Option<Monotonic> {
        self.timer.map(|timer| timer.max(self.paused_until))
    }
}

impl World {
    pub fn start(&mut self, relay: usize) {
        let draw = Seeded::new(self.draw.next());
        let names = &DESTINATIONS[..self.options.destinations];
        let engine = Relay::new(self.options.settings.clone(), routes(names), draw, self.now);
        let incarnation = self.slots[relay].incarnation + 1;
        self.slots[relay] = Slot { engine: Some(engine), incarnation, ..Slot::default() };
        for destination in 0..self.options.destinations {
            let delay = self.span(50);
            self.schedule(delay, Event::Reconnect { relay, incarnation, destination });
        }
        self.commands(relay);
    }

    /// The process is gone between two steps; what it had sent goes its way.
    pub fn crash(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        let (flying, settling) = (!slot.flights.is_empty(), slot.settle_open);
        (slot.engine, slot.timer) = (None, None);
        if flying {
            self.met.meet(Met::CrashWithPublishesInFlight);
        }
        if settling {
            self.met.meet(Met::CrashWithSettleOpen);
        }
        let delay = self.span(3_000);
        self.schedule(delay, Event::Start(relay));
    }

    pub fn pause(&mut self, relay: usize) {
        let lease = self.options.settings.lease;
        let longest = u64::try_from(lease.as_millis()).unwrap() * 2;
        let span = self.span(longest);
        let slot = &mut self.slots[relay];
        slot.paused_until = self.now.plus(span);
        slot.drain_until = slot.drain_until.map(|until| until.plus(span));
        if span > lease && !slot.flights.is_empty() {
            self.met.meet(Met::PauseBeyondALease);
        }
    }

    pub fn drain(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        if !slot.alive() || slot.draining() {
            return;
        }
        // The store may take seconds for the claim, the settle and the last settle.
        slot.drain_until =
            Some(self.now.max(slot.paused_until).plus(self.options.settings.drain).plus(seconds(60)));
        if !slot.flights.is_empty() {
            self.met.meet(Met::DrainedWithFlights);
        }
        self.feed(relay, Input::Drain);
    }

    pub fn reply(&mut self, relay: usize, incarnation: u64, input: Input) {
        if !self.slots[relay].is(incarnation) {
            return;
        }
        if self.slots[relay].paused_until > self.now {
            let until = self.slots[relay].paused_until;
            return self.schedule_at(until, Event::Reply(relay, incarnation, input));
        }
        let slot = &mut self.slots[relay];
        match &input {
            Input::Claimed(_) => slot.owned.extend(slot.claiming.take()),
            Input::Settled(..) => slot.settle_open = false,
            Input::SettleFailed(..) => {
                slot.settle_open = false;
                self.met.meet(Met::SettleFailed);
            }
            _ => {}
        }
        self.feed(relay, input);
    }

    /// Gives the engine an input, unless its process is dead; one that stands still gets it when it goes on.
    pub fn feed(&mut self, relay: usize, input: Input) {
        let slot = &mut self.slots[relay];
        let Some(engine) = &mut slot.engine else { return };
        if slot.paused_until > self.now {
            let (until, incarnation) = (slot.paused_until, slot.incarnation);
            return self.schedule_at(until, Event::Reply(relay, incarnation, input));
        }
        engine.handle(self.now, input);
        self.commands(relay);
    }

    pub fn tick(&mut self, relay: usize) {
        let timer = self.slots[relay].timer;
        let engine = self.slots[relay].engine.as_mut().expect("only a living relay has a timer");
        engine.handle(self.now, Input::Timer);
        let commands = self.commands(relay);
        assert!(
            commands > 0 || self.slots[relay].timer != timer,
            "the timer at {timer:?} does nothing for ever"
        );
    }

    fn commands(&mut self, relay: usize) -> usize {
        let mut commands = 0;
        while let Some(command) = self.slots[relay].engine.as_mut().and_then(Relay::next_command) {
            commands += 1;
            match command {
                Command::Claim(request) => self.send_to_store(relay, Work::Claim(request)),
                Command::Settle(batch) => {
                    batch.settlements.iter().for_each(|settlement| self.look_at(settlement));
                    assert!(!self.slots[relay].settle_open, "one settle at a time");
                    self.slots[relay].settle_open = true;
                    self.send_to_store(relay, Work::Settle(batch));
                }
                Command::Sweep { limit, delay, attempts_max } => {
                    self.send_to_store(relay, Work::Sweep { limit, delay, attempts_max });
                }
                Command::Publish(id, lane, publish) => self.publish(relay, id, lane, &publish),
                Command::Report(report) => self.look_at_report(&report),
                Command::Stopped => self.stopped(relay),
            }
        }
        self.check_engine(relay);
        commands
    }

    fn check_engine(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        slot.timer = slot.engine.as_ref().and_then(Relay::next_timer);
        let Some(engine) = &slot.engine else { return };
        if let Some(timer) = slot.timer {
            assert!(timer > self.now, "timer {timer:?} is already due at {:?}", self.now);
        }
        let settings = &self.options.settings;
        let held_max = settings.held_rows.max(2 * settings.batch_rows as usize);
        assert!(engine.held() <= held_max, "{} rows held, at most {held_max}", engine.held());
    }

    fn stopped(&mut self, relay: usize) {
        let slot = &mut self.slots[relay];
        let until = slot.drain_until.expect("nothing stops without a drain");
        assert!(self.now <= until, "L6: the drain took too long");
        let engine = slot.engine.take().expect("it stops once");
        assert_eq!(engine.held(), 0, "it stopped with rows in hand");
        if engine.totals().late_outcomes > 0 {
            self.met.meet(Met::LateOutcome);
        }
        if !self.finishing {
            let delay = self.span(2_000);
            self.schedule(delay, Event::Start(relay));
        }
    }

    fn send_to_store(&mut self, relay: usize, work: Work) {
        let slow = self.faults.may(Fault::SlowStore) && self.draw.chance(10);
        let delay = if slow { self.span(8_000) } else { self.span(20) };
        self.schedule(delay, Event::Work(relay, self.slots[relay].incarnation, work));
    }

    fn publish(&mut self, relay: usize, id: PublishId, lane: Lane, publish: &Publish) {
        let row = number(&publish.event.id);
        self.check_publish(relay, lane, publish);
        self.check_order(row);
        let destination = destination(&publish.route.destination);
        self.store.rows[row].publishes += 1;
        self.note(("publish", relay, row));
        let slot = &mut self.slots[relay];
        let incarnation = slot.incarnation;
        let connected = self.up[destination] && slot.connected[destination];
        let weight = publish.event.weight();
        slot.flights.insert(id, Flight { destination, lane, weight, edition: 0 });
        let nature = self.store.rows[row].nature;
        let Fate { accepted_at, ends, ends_at } = if connected {
            broker::fate(&mut self.draw, &self.faults, nature, lane, publish, self.now)
        } else {
            broker::not_connected(self.now)
        };
        if let Some(at) = accepted_at {
            let token = self.store.rows[row].token.clone().expect("it is leased");
            self.schedule_at(at, Event::Accept { relay, incarnation, row, token });
        }
        let event = match ends {
            End::Outcome(outcome) => Event::Landing { relay, incarnation, id, edition: 0, outcome },
            End::ChannelDeath => Event::ChannelDeath { relay, incarnation, id },
        };
        self.schedule_at(ends_at, event);
    }

    /// I7 and the bounds: the lease lives and is known to be owned, the window has room, a suspect is alone.
    fn check_publish(&mut self, relay: usize, lane: Lane, publish: &Publish) {
        let settings = &self.options.settings;
        let row = &self.store.rows[number(&publish.event.id)];
        let slot = &self.slots[relay];
        assert_eq!(row.status, Status::Sending, "I7: published without a lease");
        let token = row.token.as_ref().expect("a SENDING row has a token");
        assert!(slot.owned.contains(token), "I7: published under a claim that is not its own");
        assert!(self.now < publish.deadline, "published with no time left");
        assert!(
            publish.deadline.plus(settings.publish.margin) <= row.locked_until,
            "I7: the margin is not left"
        );
        let destination = destination(&publish.route.destination);
        let beside = || slot.flights.values().filter(move |flight| flight.destination == destination);
        match lane {
            Lane::Window => {
                // One probe may go beside a window that was full when the breaker opened.
                let flights = beside().filter(|flight| flight.lane == lane).count();
                assert!(flights <= settings.window, "{flights} in flight beside another");
                let bytes: usize = beside().map(|flight| flight.weight).sum();
                let probe = flights >= settings.window;
                let fits = bytes == 0 || bytes + publish.event.weight() <= settings.window_bytes;
                assert!(fits || probe || self.breakers_may_open(), "{bytes} bytes in flight beside another");
                assert!(!row.suspect(), "a suspect was published in the window");
            }
            Lane::Quarantine => {
                assert!(beside().all(|flight| flight.lane == Lane::Window), "two in quarantine");
            }
        }
        if row.suspect() {
            assert!(slot.flights.is_empty() && !slot.settle_open, "a suspect was published in company");
            self.met.meet(Met::ClaimedAlone);
        }
    }

    /// The order of an aggregate: what comes before is SENT, or DEAD and skipped.
    fn check_order(&mut self, number: usize) {
        let mut before = 0;
        for row in self.store.before(number) {
            // A row that can never be published is never overtaken, wherever its way to DEAD has got to.
            let skipped = self.options.settings.order == Order::PerAggregate { dead: DeadHead::Skip }
                && row.nature == Nature::Malformed;
            assert!(skipped || self.store.passed(row), "row {number} was published before {row:?} was SENT");
            before += 1;
            if row.status == Status::Dead {
                self.met.meet(Met::WentOnWithoutADeadEvent);
            }
        }
        if before > 0 {
            self.met.meet(Met::FollowedItsAggregate);
        }
    }

    /// A breaker that opened lets its probe go beside what is still in flight.
    fn breakers_may_open(&self) -> bool {
        let causes =
            [Fault::Refusals, Fault::LostConfirms, Fault::LostConnections, Fault::Outages, Fault::Poison];
        causes.into_iter().any(|fault| self.options.faults.may(fault))
    }

    fn look_at(&mut self, settlement: &Settlement) {
        match settlement.to() {
            Transition::Release { why, .. } if why.starts_with("too little of the lease") => {
                self.met.meet(Met::ReleasedForItsMargin);
            }
            Transition::Release { why, .. } if why.starts_with("unknown: abandoned") => {
                self.met.meet(Met::DrainAbandoned);
            }
            Transition::Release { why, .. } if why.ends_with("is not SENT yet") => {
                self.met.meet(Met::WentBackWithItsAggregate);
            }
            Transition::Release { why, .. } if why.ends_with("is DEAD") => {
                self.met.meet(Met::BehindADeadEvent);
            }
            Transition::Dead { reason } if reason.starts_with("unroutable") => {
                self.met.meet(Met::UnroutableByPolicy);
            }
            Transition::Dead { reason } if reason.starts_with("406") => self.met.meet(Met::PoisonJudged),
            _ => {}
        }
        let nature = self.store.rows[number(settlement.id())].nature;
        if nature == Nature::Malformed {
            self.met.meet(Met::Malformed);
        }
    }

    fn look_at_report(&mut self, report: &Report) {
        match report {
            Report::NoRoute(..) => self.met.meet(Met::NoRoute),
            Report::CircuitOpened(..) => self.met.meet(Met::CircuitOpened),
            Report::Quarantined(..) => self.met.meet(Met::Quarantined),
            Report::Unavailable(..) => self.met.meet(Met::UnavailableDestination),
            _ => {}
        }
    }

    pub fn landing(&mut self, relay: usize, incarnation: u64, id: PublishId, edition: u32, outcome: Outcome) {
        let slot = &mut self.slots[relay];
        if !slot.is(incarnation) || slot.flights.get(&id).is_none_or(|flight| flight.edition != edition) {
            return;
        }
        if slot.paused_until > self.now {
            let until = slot.paused_until;
            let event = Event::Landing { relay, incarnation, id, edition, outcome };
            return self.schedule_at(until, event);
        }
        slot.flights.remove(&id);
        self.feed(relay, Input::Outcome(id, outcome));
    }

    /// Everything in flight on the shared channel ends with the message that killed it.
    pub fn channel_death(&mut self, relay: usize, incarnation: u64, id: PublishId) {
        let slot = &self.slots[relay];
        let killer = slot.flights.get(&id).filter(|flight| slot.is(incarnation) && flight.edition == 0);
        if let Some(destination) = killer.map(|flight| flight.destination) {
            self.end_flights(relay, destination, Some(Lane::Window), &channel_closed());
        }
    }

    /// The connection of one relay to one destination breaks.
    pub fn disconnect(&mut self, relay: usize, destination: usize) {
        self.slots[relay].connected[destination] = false;
        self.end_flights(relay, destination, None, &connection_lost());
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

    pub fn reconnect(&mut self, relay: usize, incarnation: u64, destination: usize) {
        if self.slots[relay].is(incarnation) {
            self.slots[relay].connected[destination] = true;
            self.readiness(relay, incarnation, destination);
        }
    }

    pub fn readiness(&mut self, relay: usize, incarnation: u64, destination: usize) {
        let slot = &self.slots[relay];
        if !slot.is(incarnation) {
            return;
        }
        if slot.paused_until > self.now {
            let until = slot.paused_until;
            return self.schedule_at(until, Event::Readiness { relay, incarnation, destination });
        }
        let readiness = if self.up[destination] && slot.connected[destination] {
            Readiness::Accepting
        } else {
            Readiness::Unavailable("connection refused".into())
        };
        self.feed(relay, Input::Readiness(DestinationName::new(DESTINATIONS[destination]), readiness));
    }
}

fn destination(name: &DestinationName) -> usize {
    DESTINATIONS.iter().position(|known| *known == name.as_str()).expect("only known destinations are named")
}
