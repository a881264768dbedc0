//! What a relay and its brokers say to each other: messages on their way, outcomes, connections that end.

use consign_core::lease::{Publish, PublishId};
use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::{Lane, Readiness};
use consign_core::relay::Input;
use consign_core::route::DestinationName;

use crate::broker::{self, Copy};
use crate::options::{Fault, millis};
use crate::store::{Nature, Status, number};
use crate::trace::Actor;
use crate::world::situations::Met;
use crate::world::{DESTINATIONS, Event, Sent, World};

use super::{Flight, Landed, destination};

impl World {
    pub(super) fn publish(&mut self, relay: usize, id: PublishId, lane: Lane, publish: &Publish) {
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
            former: false,
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
    pub(in crate::world) fn accept(&mut self, mut sent: Sent) {
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

    pub(in crate::world) fn landing(
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
    pub(in crate::world) fn channel_death(&mut self, relay: usize, incarnation: u64, id: PublishId) {
        let slot = &self.slots[relay];
        let killer = slot.flights.get(&id).filter(|flight| slot.is(incarnation) && flight.edition == 0);
        if let Some((destination, row)) = killer.map(|flight| (flight.destination, flight.row)) {
            self.book.note(Actor::Broker(destination), "closes the channel", Some(row), 0);
            self.end_flights(relay, destination, Some(Lane::Window), &broker::channel_closed());
        }
    }

    /// The connection of one relay to one destination breaks. Of what was on it, the first so many had arrived.
    pub(in crate::world) fn disconnect(&mut self, relay: usize, destination: usize) {
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

    pub(in crate::world) fn reconnect(&mut self, relay: usize, incarnation: u64, destination: usize) {
        if self.slots[relay].is(incarnation) {
            self.slots[relay].learnt[destination].connected = true;
            self.readiness(relay, incarnation, destination);
        }
    }

    pub(in crate::world) fn tell_readiness(&mut self, destination: usize) {
        for relay in 0..self.slots.len() {
            let incarnation = self.slots[relay].incarnation;
            self.readiness(relay, incarnation, destination);
        }
    }

    pub(in crate::world) fn readiness(&mut self, relay: usize, incarnation: u64, destination: usize) {
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
