//! Publishing: what waits takes off as windows and circuits allow, and never with too little of its lease left.

use crate::lease::{Claim, Pending, Publish, PublishId};
use crate::ports::{Lane, Readiness};
use crate::route::{DestinationName, Route};
use crate::time::{Draw, Monotonic};

use super::circuit::Admission;
use super::claimer::NO_ROUTE_DELAY;
use super::settler::push;
use super::{Command, Relay, Report};

impl<D: Draw> Relay<D> {
    pub(super) fn pump(&mut self, now: Monotonic) {
        let names: Vec<DestinationName> = self.outlets.keys().cloned().collect();
        for name in &names {
            self.pump_suspects(now, name);
            self.pump_waiting(now, name);
        }
        self.pump_alone(now);
    }

    pub(super) fn pump_suspects(&mut self, now: Monotonic, name: &DestinationName) {
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

    pub(super) fn pump_waiting(&mut self, now: Monotonic, name: &DestinationName) {
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

    pub(super) fn pump_alone(&mut self, now: Monotonic) {
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

    pub(super) fn start(&mut self, now: Monotonic, claim: Claim, route: Route, lane: Lane) {
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

    pub(super) fn take_off(
        &mut self,
        now: Monotonic,
        publish: Publish,
        pending: Pending,
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

    pub(super) fn readiness(&mut self, now: Monotonic, name: DestinationName, readiness: Readiness) {
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
}
