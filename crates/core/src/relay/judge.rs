//! From outcome to transition: what counts as an attempt, and who is to blame.
//!
//! A failure counts only when the destination was demonstrably healthy around it, or the row was alone while nothing
//! spoke against the destination. An outage of hours therefore leaves every row deliverable.

use std::time::Duration;

use crate::event::Event;
use crate::lease::{Pending, PublishId};
#[cfg(feature = "mutants")]
use crate::outcome::Proof;
use crate::outcome::{Doubt, Outcome};
use crate::ports::Lane;
use crate::retry::{RetryPolicy, UnroutablePolicy};
use crate::route::DestinationName;
use crate::safeguard::{Safeguard, stands};
use crate::settle::Transition;
use crate::time::{Draw, Monotonic};

use super::circuit::granted;
use super::outlet::Flight;
use super::{Phase, Relay, Report};

impl<D: Draw> Relay<D> {
    pub(super) fn landed(&mut self, now: Monotonic, id: PublishId, outcome: Outcome) {
        let flight = self.outlets.values_mut().find_map(|outlet| outlet.land(id));
        let Some(flight) = flight else {
            self.totals.late_outcomes += 1;
            return;
        };
        self.alone_flight.take_if(|alone| *alone == id);
        let name = flight.route.destination.clone();
        match outcome {
            Outcome::Confirmed(proof) => {
                self.answered(now, &name);
                self.push_settlement(now, flight.pending.settle(Transition::Sent(proof)));
            }
            Outcome::Unroutable { code, text } => self.unroutable(now, flight, &name, code, &text),
            Outcome::Rejected { reason } => {
                self.answered(now, &name);
                self.push_settlement(now, flight.pending.settle(Transition::Dead { reason }));
            }
            Outcome::Refused { reason, retry_after } => {
                self.totals.refused += 1;
                self.failed(now, &name, retry_after, &reason);
                let delay = retry_after.map_or_else(|| self.backoff(&flight.pending, &name), granted);
                let to = if stands(Safeguard::RefusalRefunds) {
                    Transition::Release { delay, why: reason }
                } else {
                    Transition::Retry { delay, why: reason }
                };
                self.push_settlement(now, flight.pending.settle(to));
            }
            #[cfg(feature = "mutants")]
            Outcome::Unknown(_) if !stands(Safeguard::UnknownIsNotSent) => {
                let proof = Proof::Appended { partition: 0, offset: 0 };
                self.push_settlement(now, flight.pending.settle(Transition::Sent(proof)));
            }
            Outcome::Unknown(doubt) => self.unknown(now, flight, &name, &doubt),
        }
    }

    fn unroutable(&mut self, now: Monotonic, flight: Flight, name: &DestinationName, code: u16, text: &str) {
        self.totals.unroutable += 1;
        self.answered(now, name);
        let why = format!("unroutable: {code} {text} (route key {:?})", flight.route.key);
        self.report(Report::Unroutable(flight.pending.event.id.clone(), name.clone(), why.clone()));
        let to = match self.policy(&flight.pending.event, name).unroutable {
            UnroutablePolicy::Dead => Transition::Dead { reason: why },
            UnroutablePolicy::Retry => self.count_attempt(now, &flight.pending, name, why),
        };
        self.push_settlement(now, flight.pending.settle(to));
    }

    fn unknown(&mut self, now: Monotonic, flight: Flight, name: &DestinationName, doubt: &Doubt) {
        self.totals.unknown += 1;
        let why = format!("unknown: {doubt}");
        let circuit = &self.outlet(name).circuit;
        let answered = circuit.answered_since(flight.started);
        let unavailable = circuit.is_unavailable();
        let alone = !flight.company && flight.healthy_start;
        let counts = match doubt {
            Doubt::ChannelClosed(reason)
                if flight.lane == Lane::Window
                    && self.phase == Phase::Running
                    && stands(Safeguard::ChannelDeathBlamesNobody) =>
            {
                return self.quarantine(now, flight, name, reason);
            }
            // The channel was this message's own: nobody else can be blamed.
            Doubt::ChannelClosed(_) => {
                flight.lane == Lane::Quarantine || !stands(Safeguard::ChannelDeathBlamesNobody)
            }
            // A broker that blocks its publishers answers nobody, and says so only after the first publish. One that stores
            // without being safe does so with every message.
            Doubt::ConfirmTimedOut | Doubt::Inconclusive(_) => {
                ((answered || alone) && !unavailable) || !stands(Safeguard::OutageIsNoFault)
            }
            // A lost connection takes everybody along; only a lone row can have caused it.
            Doubt::ConnectionLost(_) => alone,
            Doubt::Abandoned => false,
        };
        match doubt {
            Doubt::ConfirmTimedOut | Doubt::Inconclusive(_) | Doubt::ConnectionLost(_) => {
                self.failed(now, name, None, &why);
            }
            // Neither says anything about the destination: a closed channel speaks about its messages.
            Doubt::ChannelClosed(_) | Doubt::Abandoned => self.outlet(name).circuit.probe_withdrawn(now),
        }
        let to = if counts {
            self.count_attempt(now, &flight.pending, name, why)
        } else {
            let delay = match doubt {
                Doubt::Abandoned => Duration::ZERO,
                Doubt::ChannelClosed(_)
                | Doubt::ConfirmTimedOut
                | Doubt::Inconclusive(_)
                | Doubt::ConnectionLost(_) => self.backoff(&flight.pending, name),
            };
            Transition::Release { delay, why }
        };
        self.push_settlement(now, flight.pending.settle(to));
    }

    /// Everything that was in flight on a dead channel is suspect: tried again one by one under the same lease.
    fn quarantine(&mut self, now: Monotonic, flight: Flight, name: &DestinationName, reason: &str) {
        let outlet = self.outlet(name);
        outlet.circuit.probe_withdrawn(now);
        let first = outlet.suspects.is_empty() && !outlet.quarantining();
        outlet.suspects.push_back((flight.pending, flight.route));
        if first {
            self.report(Report::Quarantined(name.clone(), reason.into()));
        }
    }

    fn count_attempt(
        &mut self,
        now: Monotonic,
        pending: &Pending,
        name: &DestinationName,
        why: String,
    ) -> Transition {
        let policy = self.policy(&pending.event, name);
        let delay = policy.delay(pending.attempt, &mut self.draw);
        if !policy.exhausted(pending.attempt, pending.age) {
            return Transition::Retry { delay, why };
        }
        if self.brake.allows(now) {
            return Transition::Dead {
                reason: format!("given up after {} attempts: {why}", pending.attempt),
            };
        }
        self.report(Report::BrakeOn(pending.event.id.clone()));
        Transition::Retry { delay, why }
    }

    fn backoff(&mut self, pending: &Pending, name: &DestinationName) -> Duration {
        self.policy(&pending.event, name).delay(pending.attempt, &mut self.draw)
    }

    /// The policy of the event's rule, else of its destination, else the relay's.
    fn policy(&self, event: &Event, name: &DestinationName) -> RetryPolicy {
        *self.routes.retry(event, name).unwrap_or(&self.settings.retry)
    }

    fn answered(&mut self, now: Monotonic, name: &DestinationName) {
        self.outlet(name).circuit.answered(now);
    }

    fn failed(&mut self, now: Monotonic, name: &DestinationName, retry_after: Option<Duration>, why: &str) {
        let outlet = self.outlets.get_mut(name).expect("routes lead to configured destinations only");
        if outlet.circuit.failed(now, retry_after, &mut self.draw) {
            self.report(Report::CircuitOpened(name.clone(), why.into()));
        }
    }
}
