//! Publishing: what waits takes off as windows and circuits allow, and never with too little of its lease left.

use crate::lease::{Claim, Pending, Publish, PublishId};
use crate::ports::{Lane, Readiness};
use crate::route::{DestinationName, Route};
use crate::safeguard::{Safeguard, stands};
use crate::settle::{Settlement, Transition};
use crate::time::{Draw, Monotonic};

use super::circuit::Admission;
use super::{Command, Relay, Report};

/// Why rows go back that were never published.
const UNAVAILABLE: &str = "the destination is unavailable";

impl<D: Draw> Relay<D> {
    pub(super) fn pump(&mut self, now: Monotonic) {
        let names: Vec<DestinationName> = self.outlets.keys().cloned().collect();
        for name in &names {
            self.pump_suspects(now, name);
            self.pump_waiting(now, name);
        }
        self.pump_alone(now);
    }

    /// Suspects go one at a time, each alone on the quarantine lane, as far as the circuit allows.
    fn pump_suspects(&mut self, now: Monotonic, name: &DestinationName) {
        loop {
            let outlet = self.outlet(name);
            if outlet.quarantining() && stands(Safeguard::QuarantineOneByOne) {
                return;
            }
            let Some((pending, route)) = outlet.suspects.pop_front() else { return };
            match outlet.circuit.admission(now) {
                Admission::Wait(delay) => {
                    let delay = outlet.return_delay(now, delay);
                    let why = UNAVAILABLE.into();
                    self.push_settlement(now, pending.settle(Transition::Release { delay, why }));
                    continue;
                }
                Admission::Probe => outlet.circuit.probing(),
                Admission::Full => {}
            }
            match pending.publish(now, self.settings.publish, route.clone()) {
                Ok((publish, pending)) => {
                    self.take_off(now, publish, pending, route, Lane::Quarantine);
                }
                Err(settlement) => self.withdraw(now, name, settlement),
            }
        }
    }

    fn pump_waiting(&mut self, now: Monotonic, name: &DestinationName) {
        loop {
            let (window, window_bytes) = (self.settings.window, self.settings.window_bytes);
            let outlet = self.outlet(name);
            let Some((claim, _)) = outlet.waiting.front() else { return };
            let crowded = outlet.flights.len() >= window && stands(Safeguard::Window);
            let heavy = !outlet.flights.is_empty() && outlet.flying_weight + claim.weight() > window_bytes;
            let full = crowded || (heavy && stands(Safeguard::WindowBytes));
            let admission = outlet.circuit.admission(now);
            // A suspect that shared even the connection with others could be blamed for what they did.
            let held_back = outlet.quarantining() && !matches!(admission, Admission::Wait(_));
            if held_back || (full && admission == Admission::Full) {
                return;
            }
            let Some((claim, route)) = outlet.dequeue() else { return };
            self.start(now, claim, route, Lane::Window, admission);
        }
    }

    /// A twice-swept row goes once nothing else is held, not even an unsettled row.
    fn pump_alone(&mut self, now: Monotonic) {
        if self.held() != 1 {
            return;
        }
        let Some((claim, route)) = self.alone.take() else { return };
        let admission = self.outlet(&route.destination).circuit.admission(now);
        self.alone_flight = self.start(now, claim, route, Lane::Quarantine, admission);
    }

    fn start(
        &mut self,
        now: Monotonic,
        claim: Claim,
        route: Route,
        lane: Lane,
        admission: Admission,
    ) -> Option<PublishId> {
        match admission {
            Admission::Wait(delay) => {
                let delay = self.outlet(&route.destination).return_delay(now, delay);
                self.push_settlement(now, claim.release(delay, UNAVAILABLE));
                return None;
            }
            Admission::Probe => self.outlet(&route.destination).circuit.probing(),
            Admission::Full => {}
        }
        match claim.start(now, self.settings.publish, route.clone()) {
            Ok((publish, pending)) => Some(self.take_off(now, publish, pending, route, lane)),
            Err(settlement) => {
                self.withdraw(now, &route.destination, settlement);
                None
            }
        }
    }

    /// A row whose lease is nearly over goes back; if it was to be the probe, another row may be.
    fn withdraw(&mut self, now: Monotonic, name: &DestinationName, settlement: Settlement) {
        self.outlet(name).circuit.probe_withdrawn(now);
        self.push_settlement(now, settlement);
    }

    fn take_off(
        &mut self,
        now: Monotonic,
        publish: Publish,
        pending: Pending,
        route: Route,
        lane: Lane,
    ) -> PublishId {
        self.next_id += 1;
        let id = PublishId(self.next_id);
        self.outlet(&route.destination).take_off(id, pending, route, lane, now);
        self.totals.published += 1;
        self.commands.push_back(Command::Publish(id, lane, publish));
        id
    }

    pub(super) fn readiness(&mut self, now: Monotonic, name: DestinationName, readiness: Readiness) {
        let Some(outlet) = self.outlets.get_mut(&name) else { return };
        match readiness {
            Readiness::Accepting => {
                outlet.accepting(now);
                self.report(Report::Available(name));
            }
            Readiness::Unavailable(reason) => {
                outlet.circuit.unavailable(now);
                self.report(Report::Unavailable(name, reason));
            }
        }
    }
}
