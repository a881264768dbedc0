//! What goes wrong with whole processes, connections, destinations and clocks.

use consign_core::relay::Input;

use crate::options::{Fault, Options, millis};
use crate::trace::Actor;

use super::situations::Met;
use super::{Event, World};

impl World {
    /// One fault, if it is among those of this seed, and the next one later.
    pub(super) fn chaos(&mut self) {
        if self.healed_at.is_some() || self.slots.is_empty() {
            return;
        }
        let relay = self.draw.index(self.slots.len());
        let destination = self.draw.index(self.options.destinations);
        match self.draw.below(14) {
            0 if self.slots[relay].alive() && self.strikes(Fault::Crashes, 100) => self.crash(relay),
            1 if self.strikes(Fault::Pauses, 100) => self.pause(relay),
            2 if self.strikes(Fault::Drains, 100) => self.drain(relay),
            3 if self.strikes(Fault::LostConnections, 100) => self.disconnect(relay, destination),
            4 if self.strikes(Fault::Outages, 100) => self.outage(destination),
            5 if self.strikes(Fault::BlockedBroker, 100) => self.block(destination),
            6 if self.strikes(Fault::TopologyChanges, 100) => self.unbind(destination),
            7 if self.strikes(Fault::ClockJumps, 100) => self.jump(),
            8 if self.strikes(Fault::LockedRows, 100) => self.lock_rows(),
            9 if self.strikes(Fault::Reconfigurations, 100) => self.reconfigure(relay),
            10 if self.strikes(Fault::Operators, 100) => self.operate(),
            11 | 13 if self.strikes(Fault::Purges, 100) => drop(self.purge()),
            12 if self.strikes(Fault::Wakeups, 100) => self.feed(relay, Input::Wakeup),
            _ => {}
        }
        let delay = self.span(600);
        self.schedule(delay, Event::Chaos);
    }

    fn pause(&mut self, relay: usize) {
        let lease = self.options.settings.lease;
        let span = self.span(u64::try_from(lease.as_millis()).unwrap_or(1) * 2);
        let flying = !self.slots[relay].flights.is_empty();
        self.book.note(Actor::Relay(relay), "stands still", None, span.as_secs());
        self.book.met.meet_if(span > lease && flying, Met::PauseBeyondALease);
        self.pause_ends_later(relay, self.book.now.plus(span));
    }

    /// The destination is down for everybody, for a while.
    fn outage(&mut self, destination: usize) {
        self.book.note(Actor::Broker(destination), "goes down", None, 0);
        self.broker.destinations[destination].down = true;
        for relay in 0..self.slots.len() {
            self.disconnect(relay, destination);
        }
        let delay = self.span(6_000);
        self.schedule(delay, Event::OutageEnds(destination));
    }

    /// The destination stops reading: it says so, and answers nobody until it goes on.
    fn block(&mut self, destination: usize) {
        self.book.note(Actor::Broker(destination), "blocks its publishers", None, 0);
        self.broker.destinations[destination].blocked = true;
        let flying = self.slots.iter().flat_map(|slot| slot.flights.values());
        let flying = flying.filter(|flight| flight.destination == destination).count();
        self.book.met.meet_if(flying > 0, Met::BlockedWithFlights);
        for relay in 0..self.slots.len() {
            let incarnation = self.slots[relay].incarnation;
            let delay = self.span(20);
            self.schedule(delay, Event::Readiness { relay, incarnation, destination });
        }
        let delay = self.span(6_000);
        self.schedule(delay, Event::Unblock(destination));
    }

    pub(super) fn unblock(&mut self, destination: usize) {
        self.broker.destinations[destination].blocked = false;
        self.book.note(Actor::Broker(destination), "goes on", None, 0);
        self.tell_readiness(destination);
    }

    /// Nothing is bound for a while: messages come back.
    fn unbind(&mut self, destination: usize) {
        self.book.note(Actor::Broker(destination), "is unbound", None, 0);
        self.broker.destinations[destination].unbound = true;
        let delay = self.span(3_000);
        self.schedule(delay, Event::Bind(destination));
    }

    fn jump(&mut self) {
        let (forwards, span) = (self.draw.chance(60), self.span(10_000));
        self.store.jump(forwards, span);
        let what = if forwards { "clock jumps forwards" } else { "clock jumps backwards" };
        self.book.note(Actor::Store, what, None, span.as_secs());
        self.book.met.meet_if(!forwards, Met::ClockWentBack);
    }

    /// Another session locks rows for a while.
    fn lock_rows(&mut self) {
        let rows = self.store.rows().len();
        for number in 0..rows {
            if self.draw.chance(40) {
                self.store.row_mut(number).locked = true;
                let delay = self.span(3_000);
                self.schedule(delay, Event::Unlock(number));
            }
        }
        self.book.note(Actor::Operator, "locks rows", None, 0);
    }

    /// New limits for a running relay. The lease and the order stay: they are those of the store's rows.
    fn reconfigure(&mut self, relay: usize) {
        let other = Options::draw(self.draw.number()).settings;
        let mut settings = self.slots[relay].settings.clone();
        (settings.batch_rows, settings.batch_bytes) = (other.batch_rows, other.batch_bytes);
        (settings.window, settings.window_bytes) = (other.window, other.window_bytes);
        (settings.held_rows, settings.held_bytes) = (other.held_rows, other.held_bytes);
        settings.publish.deadline = millis(500 + self.draw.below(2_500));
        self.book.note(Actor::Relay(relay), "gets other settings", None, 0);
        let routes = super::relay::routes(self.options.destinations);
        self.feed(relay, Input::Reconfigure(Box::new(settings), routes));
    }

    /// Some relays stay dead for good, though at least one lives on.
    pub(super) fn bury_some(&mut self) {
        let first = self.draw.index(self.slots.len().max(1));
        self.strikes.count(Fault::DeadRelays);
        for relay in 0..self.slots.len() {
            if relay != first && !self.cut.relays.contains(&first) && self.draw.chance(50) {
                if self.slots[relay].alive() {
                    self.crash(relay);
                }
                self.slots[relay].buried = true;
            }
        }
    }
}
