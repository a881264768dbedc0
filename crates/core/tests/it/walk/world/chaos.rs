//! What goes wrong with whole processes and connections.

use crate::walk::options::Fault;

use super::{Event, World};

impl World {
    /// One fault, if it is among those of this walk, and the next one later.
    pub fn chaos(&mut self) {
        let faults = self.faults;
        let relay = self.draw.index(self.slots.len());
        let destination = self.draw.index(self.options.destinations);
        match self.draw.below(5) {
            0 if faults.may(Fault::Crashes) && self.slots[relay].alive() => self.crash(relay),
            1 if faults.may(Fault::Pauses) => self.pause(relay),
            2 if faults.may(Fault::Drains) => self.drain(relay),
            3 if faults.may(Fault::LostConnections) => self.disconnect(relay, destination),
            4 if faults.may(Fault::Outages) => self.outage(destination),
            _ => {}
        }
        let delay = self.span(1_500);
        self.schedule(delay, Event::Chaos);
    }

    /// The destination is down for everybody, for a while.
    fn outage(&mut self, destination: usize) {
        self.up[destination] = false;
        for relay in 0..self.slots.len() {
            self.disconnect(relay, destination);
        }
        let delay = self.span(6_000);
        self.schedule(delay, Event::OutageEnds { destination });
    }

    pub fn tell_readiness(&mut self, destination: usize) {
        for relay in 0..self.slots.len() {
            let incarnation = self.slots[relay].incarnation;
            self.readiness(relay, incarnation, destination);
        }
    }
}
