//! Invariants that need to see more than one part of the world. Those of single rows are checked by the store.

use consign_core::lease::Publish;
use consign_core::ports::Lane;
use consign_core::relay::{DeadHead, Order};
use consign_core::settle::{Settlement, Transition};

use crate::broker::Copy;
use crate::options::{Fault, Faults, millis};
use crate::require;
use crate::store::{Nature, Status, number};

use super::relay::Landed;
use super::situations::Met;
use super::{World, relay};

impl World {
    /// I7 and the bounds: the lease is the process's own and lives, the window has room, a suspect is alone. Returns
    /// the token that the row is published under.
    pub(super) fn check_publish(&mut self, relay: usize, lane: Lane, publish: &Publish) -> Option<u128> {
        let now = self.book.now;
        let number = number(&publish.event.id);
        let margin = self.slots[relay].settings.publish.margin;
        let claim = Some(std::sync::Arc::as_ptr(&publish.event).addr());
        let mut leases = self.slots[relay].leases.iter_mut().rev();
        let Some(lease) = leases.find(|lease| lease.row == number && lease.claim == claim) else {
            self.book.violate("I7", Some(number), "published without a lease".into());
            return None;
        };
        let confirmed = lease.landed == Some(Landed::Confirmed);
        require!(self.book, "I11", Some(number), !confirmed, "published again although it was confirmed");
        let flying = lease.flying;
        require!(self.book, "I11", Some(number), !flying, "published twice at a time under one lease");
        (lease.flying, lease.published) = (true, true);
        let (token, ends) = (lease.token, lease.ends);
        require!(self.book, "I7", Some(number), now < publish.deadline, "published with no time left");
        let in_time = publish.deadline.plus(margin) <= ends;
        require!(self.book, "I7", Some(number), in_time, "the margin of the lease is not left");
        let row = self.store.row(number);
        let held = row.status == Status::Sending && row.token == Some(token);
        let jumped = self.store.jumped();
        require!(self.book, "I6", Some(number), held || jumped, "published by one, leased to another");
        let same = publish.event.payload.as_ref() == Some(&row.payload);
        require!(self.book, "I12", Some(number), same, "published with another payload");
        self.check_company(relay, lane, publish);
        Some(token)
    }

    /// What else may be in flight beside a publish.
    fn check_company(&mut self, relay: usize, lane: Lane, publish: &Publish) {
        let slot = &self.slots[relay];
        let settings = &slot.settings;
        let number = number(&publish.event.id);
        let suspect = self.store.row(number).suspect() && !self.store.jumped();
        let destination = relay::destination(&publish.route.destination);
        let beside = || slot.flights.values().filter(move |flight| flight.destination == destination);
        let row = Some(number);
        let learnt = slot.learnt[destination].accepting;
        require!(self.book, "B6", row, learnt, "published to a destination that is known to be away");
        // One whose channel has died is over, though its relay hears of it a moment later; and the suspects of a dead
        // channel do not wait for a probe on the next one.
        let probing = beside().any(|flight| flight.probe && flight.edition == 0);
        let second = slot.learnt[destination].open && lane == Lane::Window && probing;
        require!(self.book, "B9", row, !second, "a second probe of an open circuit");
        let draining = slot.drain_ends.is_some();
        require!(self.book, "B8", row, !draining, "published by a relay that was told to stop");
        match lane {
            Lane::Window => {
                // One probe may go beside a window that was full when the breaker opened, and one beside an unanswered
                // probe when the destination became available meanwhile.
                let flights = beside().filter(|flight| flight.lane == lane && !flight.former).count();
                let most = settings.window;
                require!(
                    self.book,
                    "B7",
                    row,
                    flights <= most,
                    "{flights} publishes in flight beside another"
                );
                let bytes: usize = beside().map(|flight| flight.weight).sum();
                let fits = bytes == 0 || bytes + publish.event.weight() <= settings.window_bytes;
                let allowed = fits || flights >= most || self.breakers_may_open();
                require!(self.book, "B7", row, allowed, "{bytes} bytes in flight beside another");
                require!(self.book, "I15", row, !suspect, "a suspect was published in the window");
            }
            Lane::Quarantine => {
                let single = beside().all(|flight| flight.lane == Lane::Window);
                require!(self.book, "I15", row, single, "two in quarantine");
            }
        }
        if suspect {
            let alone = slot.flights.is_empty() && !slot.settle_open;
            require!(self.book, "I15", row, alone, "a suspect was published in company");
            self.book.met.meet(Met::ClaimedAlone);
        }
    }

    /// A breaker that opened lets its probe go beside what is still in flight.
    fn breakers_may_open(&self) -> bool {
        let causes = [
            Fault::Refusals,
            Fault::LostConfirms,
            Fault::LostConnections,
            Fault::Outages,
            Fault::BlockedBroker,
            Fault::Poison,
            Fault::Reconfigurations,
        ];
        causes.into_iter().any(|fault| self.options.faults.may(fault))
    }

    /// I13: what comes before in the aggregate is SENT, or passed by.
    pub(super) fn check_order(&mut self, number: usize) {
        let mut before = 0;
        let mut dead = 0;
        let skips = self.options.settings.order == Order::PerAggregate { dead: DeadHead::Skip };
        let mut overtaken = None;
        for row in self.store.before(number) {
            // An event that can never be published is never overtaken, wherever its way to DEAD has got to. One that
            // was sent or passed before may have been given to the relays once more.
            let skipped = skips && row.nature == Nature::Malformed;
            let again = row.was_sent || (skips && row.was_passed);
            if !(skipped || self.store.passed(row) || again) {
                overtaken = Some(row.number);
            }
            before += 1;
            dead += usize::from(row.status == Status::Dead);
        }
        self.book.met.meet_if(before > 0, Met::FollowedItsAggregate);
        self.book.met.meet_if(dead > 0, Met::WentOnWithoutADeadEvent);
        self.book.met.meet_if(before >= 9, Met::HotAggregate);
        if let Some(earlier) = overtaken {
            let what =
                format!("event {number} was published before event {earlier} of its aggregate was SENT");
            self.book.violate("I13", Some(number), what);
        }
    }

    /// I1, I12, I13: a copy is of a committed event, with its payload, and the first copies are in order.
    pub(super) fn check_copy(&mut self, copy: &Copy) {
        let number = copy.row;
        let row = self.store.row(number);
        let committed = row.status != Status::Absent;
        require!(self.book, "I1", Some(number), committed, "a copy of an event that was never committed");
        let same = copy.event.payload.as_ref() == Some(&row.payload);
        require!(self.book, "I12", Some(number), same, "a copy has another payload");
        if self.options.settings.order == Order::Competing || row.copies > 0 || row.was_passed {
            return;
        }
        let Some(aggregate) = row.aggregate else { return };
        let later = &self.store.rows()[number + 1..];
        let overtaken = later.iter().any(|later| later.aggregate == Some(aggregate) && later.copies > 0);
        require!(self.book, "I13", Some(number), !overtaken, "a later event of its aggregate arrived first");
    }

    /// I3, I4, I10: what becomes of a row follows from what its publish came to.
    pub(super) fn check_settlement(&mut self, relay: usize, settlement: &Settlement) {
        let (number, token) = (number(settlement.id()), settlement.token().bits());
        let row = Some(number);
        let lease = self.slots[relay].leases.iter().find(|lease| lease.row == number && lease.token == token);
        let Some(lease) = lease else {
            let past_drain = self.slots[relay].drain_ends.is_some_and(|ends| self.book.now >= ends);
            require!(self.book, "I4", row, past_drain, "settled without a lease");
            return;
        };
        let (landed, published) = (lease.landed, lease.published);
        let malformed = self.store.row(number).nature == Nature::Malformed;
        match settlement.to() {
            Transition::Sent(_) => {
                let proven = landed == Some(Landed::Confirmed);
                require!(self.book, "I3", row, proven, "settled SENT after {landed:?}");
            }
            Transition::Retry { delay, .. } => {
                let counts = matches!(landed, Some(Landed::Unroutable | Landed::Unknown));
                require!(self.book, "I10", row, counts, "an attempt was counted after {landed:?}");
                require!(self.book, "L8", row, *delay >= millis(100), "a retry after {delay:?}");
            }
            Transition::Release { .. } => {
                // Past the end of its drain a relay no longer hears of confirms.
                let past_drain = self.slots[relay].drain_ends.is_some_and(|ends| self.book.now >= ends);
                let lost = landed == Some(Landed::Confirmed) && !past_drain;
                require!(self.book, "I3", row, !lost, "a confirmed event was given back");
            }
            Transition::Dead { reason } => {
                let judged = published || malformed;
                require!(self.book, "I10", row, judged, "DEAD without a publish: {reason}");
                let blameless = matches!(landed, Some(Landed::Refused | Landed::Blameless | Landed::Shared));
                require!(self.book, "I10", row, !blameless, "DEAD after {landed:?}: {reason}");
            }
        }
        self.meet_settlement(settlement.to());
    }

    fn meet_settlement(&mut self, to: &Transition) {
        let situation = match to {
            Transition::Release { why, .. } if why.starts_with("too little of the lease") => {
                Met::ReleasedForItsMargin
            }
            Transition::Release { why, .. } if why.starts_with("unknown: abandoned") => Met::DrainAbandoned,
            Transition::Release { why, .. } if why.ends_with("is not SENT yet") => {
                Met::WentBackWithItsAggregate
            }
            Transition::Release { why, .. } if why.ends_with("is DEAD") => Met::BehindADeadEvent,
            Transition::Dead { reason } if reason.starts_with("unroutable") => Met::UnroutableByPolicy,
            Transition::Dead { reason } if reason.starts_with("406") => Met::PoisonJudged,
            _ => return,
        };
        self.book.met.meet(situation);
    }

    /// L2: once the faults have stopped, a lease that ended is swept soon.
    pub(super) fn check_sweep(&mut self) {
        let Some(healed_at) = self.healed_at else { return };
        // A process may stand still for two leases, start within three seconds, and wait for an old slow answer.
        let slack = self.options.settings.lease * 2 + std::time::Duration::from_secs(25);
        let (now, healed) = (self.store.clock(self.book.now), self.store.clock(healed_at));
        for row in self.store.rows().iter().filter(|row| row.status == Status::Sending) {
            let late = now.since(row.locked_until.max(healed));
            require!(self.book, "L2", Some(row.number), late <= slack, "not swept {late:?} after its lease");
        }
    }

    /// L1: nothing is left to do long after the faults.
    pub(super) fn check_liveness(&mut self) {
        let left = (0..self.store.rows().len()).find(|number| !self.store.ended(*number));
        let status = left.map_or("-", |number| self.store.row(number).status.word());
        self.book.violate("L1", left, format!("still {status} long after the faults stopped"));
    }

    pub(super) fn check_at_the_end(&mut self) {
        for number in 0..self.store.rows().len() {
            let row = self.store.row(number);
            let (status, at) = (row.status, Some(number));
            let ended = self.store.ended(number);
            require!(self.book, "I24", at, ended, "still {} when all relays had stopped", status.word());
            let (copies, publishes) = (row.copies, row.publishes);
            require!(self.book, "I11", at, copies <= publishes, "{copies} copies of {publishes} publishes");
            let deliverable = row.nature == Nature::Plain;
            let sent = status == Status::Sent;
            require!(self.book, "I3", at, deliverable || !sent, "SENT although {:?}", row.nature);
            let once = (sent, copies, row.attempts) == (true, 1, 1);
            let faultless = self.options.faults == Faults::NONE;
            require!(self.book, "I11", at, once || !faultless, "{copies} copies without any fault");
            self.book.met.meet_if(copies > 1, Met::PublishedTwice);
        }
        let all = self.store.rows().iter().all(|row| row.status == Status::Sent);
        self.book.met.meet_if(all, Met::AllSent);
    }
}
