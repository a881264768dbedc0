//! What can happen, and what it does.

use super::state::{Broken, EVENTS, Flight, Held, Row, Settlement, State, Status, To};
use super::{Chain, Guard, OnDead};

/// One step of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A relay takes the partition.
    Take { relay: usize },
    /// A relay takes the partition and is not told.
    TakeUnanswered { relay: usize },
    /// A relay gives the partition away.
    Give { relay: usize },
    /// The partition's lease ends.
    PartitionExpires,
    /// A claim begins: it checks the partition and chooses so many rows.
    Look { relay: usize, rows: usize },
    /// The claim locks and marks what it can have, and commits.
    Lock { relay: usize },
    /// The same, and the relay is not told.
    LockUnanswered { relay: usize },
    /// A flight takes off.
    Start { relay: usize, flight: usize },
    /// It goes back unpublished.
    Withdraw { relay: usize, flight: usize },
    /// The broker takes the message and confirms.
    Confirm { relay: usize, flight: usize },
    /// The broker does not take it, and the attempt counts.
    Return { relay: usize, flight: usize },
    /// The broker refuses the message for good.
    Reject { relay: usize, flight: usize },
    /// No answer comes.
    Doubt { relay: usize, flight: usize },
    /// The first settlement commits and is answered.
    Settle { relay: usize },
    /// It commits, and its answer is lost.
    SettleUnanswered { relay: usize },
    /// A relay dies.
    Crash { relay: usize },
    /// The lease of the claim that has this row ends.
    Expire { event: usize },
    /// Somebody sweeps the row.
    Sweep { event: usize },
    /// Its `available_at` comes.
    Due { event: usize },
    /// Bytes arrive whose sender waits no more.
    Arrive { event: usize },
    /// `consign dead requeue`.
    Requeue { event: usize },
    /// `consign dead discard`.
    Discard { event: usize },
}

impl Chain {
    pub(super) fn offer(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for relay in 0..2 {
            self.offer_partition(state, relay, actions);
            self.offer_relay(state, relay, actions);
        }
        if state.partition.live && state.left.handovers > 0 {
            actions.push(Action::PartitionExpires);
        }
        for event in 0..self.bounds.events {
            let row = &state.rows[event];
            let first = (0..event).all(|other| state.rows[other].claim != row.claim);
            if row.status == Status::Sending && row.live && first && state.left.expiries > 0 {
                actions.push(Action::Expire { event });
            }
            if row.status == Status::Sending && !row.live {
                actions.push(Action::Sweep { event });
            }
            if row.status == Status::New && !row.due {
                actions.push(Action::Due { event });
            }
            if row.late > 0 {
                actions.push(Action::Arrive { event });
            }
            if row.status == Status::Dead && state.left.operations > 0 {
                actions.push(Action::Requeue { event });
                actions.push(Action::Discard { event });
            }
        }
    }

    fn offer_partition(&self, state: &State, relay: usize, actions: &mut Vec<Action>) {
        if !self.bounds.partition {
            return;
        }
        let partition = state.partition;
        // A claim reads the partition under a shared lock until it commits.
        if state.relays.iter().any(|relay| !relay.plan.is_empty()) && !self.lacks(Guard::PartitionLock) {
            return;
        }
        let mine = partition.owner == Some(relay);
        let is_free = !partition.live || partition.owner.is_none() || mine && !state.relays[relay].knows;
        if is_free || self.lacks(Guard::PartitionLease) && !mine {
            actions.push(Action::Take { relay });
            if state.left.unanswered > 0 {
                actions.push(Action::TakeUnanswered { relay });
            }
        }
        if mine && state.relays[relay].knows && state.left.handovers > 0 {
            actions.push(Action::Give { relay });
        }
    }

    fn offer_relay(&self, state: &State, number: usize, actions: &mut Vec<Action>) {
        let relay = &state.relays[number];
        let busy = relay.chained || !relay.flights.is_empty() || !relay.settlements.is_empty();
        if state.left.crashes > 0 && (busy || !relay.plan.is_empty()) {
            actions.push(Action::Crash { relay: number });
        }
        if relay.plan.is_empty() {
            let owns = state.partition.owner == Some(number) && state.partition.live && relay.knows;
            if owns || !self.bounds.partition || self.lacks(Guard::PartitionFence) {
                for rows in 1..=self.ready(state).len() {
                    actions.push(Action::Look { relay: number, rows });
                }
            }
        } else {
            actions.push(Action::Lock { relay: number });
            if state.left.unanswered > 0 {
                actions.push(Action::LockUnanswered { relay: number });
            }
        }
        for (flight, Flight { held, started }) in relay.flights.iter().enumerate() {
            if *started {
                actions.push(Action::Confirm { relay: number, flight });
                actions.push(Action::Return { relay: number, flight });
                actions.push(Action::Reject { relay: number, flight });
                if state.left.doubts > 0 {
                    actions.push(Action::Doubt { relay: number, flight });
                }
                continue;
            }
            let checked = !self.lacks(Guard::LeaseCheck);
            if !(checked && held.over) {
                actions.push(Action::Start { relay: number, flight });
            }
            actions.push(Action::Withdraw { relay: number, flight });
        }
        if !relay.settlements.is_empty() {
            actions.push(Action::Settle { relay: number });
            if state.left.unanswered > 0 {
                actions.push(Action::SettleUnanswered { relay: number });
            }
        }
    }

    /// The rows an ordered claim may choose from now: the earliest NEW ones, up to the first that is not ready.
    fn ready(&self, state: &State) -> Vec<usize> {
        let rows = &state.rows[..self.bounds.events];
        if rows.iter().any(|row| row.status == Status::Sending) && !self.lacks(Guard::HeldAggregate) {
            return Vec::new();
        }
        let blocks = self.bounds.on_dead == OnDead::Block && !self.lacks(Guard::DeadBlocks);
        let waiting = (0..rows.len()).filter(|&event| rows[event].status == Status::New);
        let ready = |&event: &usize| {
            let dead = blocks && rows[..event].iter().any(|row| row.status == Status::Dead);
            rows[event].due && !dead
        };
        if self.lacks(Guard::HeadFirst) {
            return waiting.filter(ready).collect();
        }
        waiting.take_while(ready).collect()
    }

    pub(super) fn act(&self, state: &State, action: Action) -> State {
        let mut next = state.clone();
        match action {
            Action::Take { relay } => take(&mut next, relay),
            Action::TakeUnanswered { relay } => {
                next.left.unanswered -= 1;
                take(&mut next, relay);
                next.relays[relay].knows = false;
            }
            Action::Give { relay } => {
                next.left.handovers -= 1;
                next.partition.owner = None;
                next.partition.live = false;
                next.relays[relay].knows = false;
            }
            Action::PartitionExpires => {
                next.left.handovers -= 1;
                next.partition.live = false;
            }
            Action::Look { relay, rows } => {
                let mut plan = self.ready(&next);
                plan.truncate(rows);
                next.relays[relay].plan = plan;
            }
            Action::Lock { relay } => {
                for held in self.lock(&mut next, relay) {
                    enlist(&mut next, relay, held);
                }
            }
            Action::LockUnanswered { relay } => {
                next.left.unanswered -= 1;
                self.lock(&mut next, relay);
            }
            Action::Start { relay, flight } => self.start(&mut next, relay, flight),
            Action::Withdraw { relay, flight } => self.land(&mut next, relay, flight, To::Release),
            Action::Confirm { relay, flight } => {
                let held = next.relays[relay].flights[flight].held;
                take_copy(&mut next, held.event);
                self.land(&mut next, relay, flight, To::Sent);
                if self.lacks(Guard::FollowAfterSettle) {
                    follow(&mut next, relay, held.event);
                }
            }
            Action::Return { relay, flight } => self.count(&mut next, relay, flight),
            Action::Reject { relay, flight } => self.land(&mut next, relay, flight, To::Dead),
            Action::Doubt { relay, flight } => {
                next.left.doubts -= 1;
                let event = next.relays[relay].flights[flight].held.event;
                next.rows[event].late += 1;
                self.count(&mut next, relay, flight);
            }
            Action::Settle { relay } => self.settle(&mut next, relay),
            Action::SettleUnanswered { relay } => {
                next.left.unanswered -= 1;
                let settlement = next.relays[relay].settlements[0];
                self.change(&mut next, settlement);
                next.relays[relay].settlements[0].repeat = true;
            }
            Action::Crash { relay } => {
                next.left.crashes -= 1;
                let dead = std::mem::take(&mut next.relays[relay]);
                for flight in dead.flights.iter().filter(|flight| flight.started) {
                    next.rows[flight.held.event].late += 1;
                }
            }
            Action::Expire { event } => expire(&mut next, event),
            Action::Sweep { event } => {
                let exhausted = next.rows[event].attempts >= self.bounds.attempts_max;
                leave(&mut next.rows[event], if exhausted { Status::Dead } else { Status::New });
                // A swept row is due at once in ordered mode.
                next.rows[event].due = true;
            }
            Action::Due { event } => next.rows[event].due = true,
            Action::Arrive { event } => {
                next.rows[event].late -= 1;
                take_copy(&mut next, event);
            }
            Action::Requeue { event } => {
                next.left.operations -= 1;
                leave(&mut next.rows[event], Status::New);
                next.rows[event].attempts = 0;
                next.rows[event].due = true;
            }
            Action::Discard { event } => {
                next.left.operations -= 1;
                leave(&mut next.rows[event], Status::Discarded);
            }
        }
        next.rename();
        if self.bounds.symmetry && self.removed.is_none() { next.representative() } else { next }
    }

    /// Locks and marks; gives what was had.
    fn lock(&self, next: &mut State, relay: usize) -> Vec<Held> {
        let plan = std::mem::take(&mut next.relays[relay].plan);
        let owns = next.partition.owner == Some(relay) && next.relays[relay].knows;
        if self.bounds.partition && !owns {
            next.broken = Some(Broken::NotOwner);
        }
        let claim = 1 + next.rows.iter().map(|row| row.claim).max().unwrap_or(0);
        // Later than any name in use, so that nothing else has it.
        let claim = claim.max(1 + u8::try_from(EVENTS).expect("events are few"));
        let mut had = Vec::new();
        for event in plan {
            let row = &mut next.rows[event];
            let is_new = row.status == Status::New;
            if !is_new && !self.lacks(Guard::LockedRowsAreNew) {
                if self.lacks(Guard::UnbrokenChain) {
                    continue;
                }
                break;
            }
            if !is_new {
                next.broken = Some(Broken::Edge);
            }
            row.status = Status::Sending;
            row.live = true;
            row.claim = claim;
            row.attempts += 1;
            had.push(Held { event, claim, over: false });
        }
        had
    }

    fn start(&self, next: &mut State, relay: usize, flight: usize) {
        let flight = &mut next.relays[relay].flights[flight];
        flight.started = true;
        let Held { event, claim, .. } = flight.held;
        let row = &next.rows[event];
        if claim == 0 || row.claim != claim || !row.live {
            next.broken = Some(Broken::OutsideLease);
        }
        let skips = self.bounds.on_dead == OnDead::Skip;
        let finished = |row: &Row| match row.status {
            Status::Sent | Status::Discarded => true,
            // What was skipped once may be requeued later: that is asked for.
            Status::Dead | Status::New | Status::Sending => skips && row.given_up,
        };
        if !next.rows[..event].iter().all(finished) {
            next.broken = Some(Broken::Overtaken);
        }
    }

    /// An attempt that counts has failed.
    fn count(&self, next: &mut State, relay: usize, flight: usize) {
        let event = next.relays[relay].flights[flight].held.event;
        let exhausted = next.rows[event].attempts >= self.bounds.attempts_max;
        self.land(next, relay, flight, if exhausted { To::Dead } else { To::Retry });
    }

    /// A flight is over: its settlement waits, and with it what `Chains::ending` gives back.
    fn land(&self, next: &mut State, relay: usize, flight: usize, to: To) {
        let Flight { held, .. } = next.relays[relay].flights.remove(flight);
        next.relays[relay].settlements.push(Settlement { held, to, repeat: false });
        let cuts = match to {
            To::Sent => false,
            To::Dead => self.bounds.on_dead == OnDead::Block && !self.lacks(Guard::DeathCuts),
            To::Retry | To::Release => !self.lacks(Guard::FailureCuts),
        };
        if cuts {
            cut(next, relay, held.event);
        }
    }

    fn settle(&self, next: &mut State, relay: usize) {
        let settlement = next.relays[relay].settlements.remove(0);
        let event = settlement.held.event;
        let before = next.rows[event].status;
        let applied = self.change(next, settlement) || settlement.repeat && before == destined(settlement.to);
        if !applied {
            cut(next, relay, event);
            return;
        }
        let follows = match settlement.to {
            To::Sent | To::Dead => true,
            To::Retry | To::Release => self.lacks(Guard::FailureCuts),
        };
        if follows && !self.lacks(Guard::FollowAfterSettle) {
            follow(next, relay, event);
        }
    }

    /// `settle_*.sql`; whether the row changed.
    fn change(&self, next: &mut State, settlement: Settlement) -> bool {
        let Settlement { held, to, .. } = settlement;
        let row = &mut next.rows[held.event];
        let sending = row.status == Status::Sending;
        let own = sending && held.claim != 0 && row.claim == held.claim;
        if !(own || sending && self.lacks(Guard::SettleToken)) {
            return false;
        }
        if !own {
            next.broken = Some(Broken::ForeignSettle);
        }
        if to == To::Release {
            row.attempts = row.attempts.saturating_sub(1);
        }
        row.due = !matches!(to, To::Retry | To::Release);
        leave(row, destined(to));
        true
    }
}

fn destined(to: To) -> Status {
    match to {
        To::Sent => Status::Sent,
        To::Retry | To::Release => Status::New,
        To::Dead => Status::Dead,
    }
}

fn take(next: &mut State, relay: usize) {
    if next.partition.live && next.partition.owner == Some(1 - relay) {
        next.broken = Some(Broken::Stolen);
    }
    next.partition.owner = Some(relay);
    next.partition.live = true;
    next.relays[relay].knows = true;
    next.relays[1 - relay].knows = false;
}

fn expire(next: &mut State, event: usize) {
    next.left.expiries -= 1;
    let claim = next.rows[event].claim;
    for row in next.rows.iter_mut().filter(|row| row.claim == claim) {
        row.live = false;
    }
    for held in next.holds().filter(|held| held.claim == claim) {
        held.over = true;
    }
}

/// Out of SENDING.
fn leave(row: &mut Row, status: Status) {
    row.status = status;
    row.live = false;
    row.claim = 0;
    row.given_up |= matches!(status, Status::Dead | Status::Discarded);
    if status != Status::New {
        row.attempts = 0;
        row.due = true;
    }
}

fn take_copy(next: &mut State, event: usize) {
    let row = &next.rows[event];
    let overtaken = next.rows[event + 1..].iter().any(|later| later.copied);
    if !row.copied && overtaken && !row.given_up {
        next.broken = Some(Broken::Disorder);
    }
    next.rows[event].copied = true;
}

/// `Chains::enlist`.
fn enlist(next: &mut State, relay: usize, held: Held) {
    let relay = &mut next.relays[relay];
    if relay.chained {
        relay.followers.push(held);
        return;
    }
    relay.chained = true;
    relay.heads[held.event] = true;
    relay.flights.push(Flight { held, started: false });
}

/// `Chains::next`, and the flight waits to take off.
fn follow(next: &mut State, relay: usize, event: usize) {
    let relay = &mut next.relays[relay];
    if !std::mem::take(&mut relay.heads[event]) {
        return;
    }
    if relay.followers.is_empty() {
        relay.chained = false;
        return;
    }
    let held = relay.followers.remove(0);
    relay.heads[held.event] = true;
    relay.flights.push(Flight { held, started: false });
}

/// `Chains::cut`: what follows goes back.
fn cut(next: &mut State, relay: usize, event: usize) {
    let relay = &mut next.relays[relay];
    if !std::mem::take(&mut relay.heads[event]) {
        return;
    }
    relay.chained = false;
    for held in relay.followers.drain(..) {
        relay.settlements.push(Settlement { held, to: To::Release, repeat: false });
    }
}
