//! What can happen, and what it does.

use super::state::{Attempt, Broken, EVENTS_MAX, Event, PLACES, Phase, RELAYS, State, Status, To};
use super::{Guard, Lease, Steps};

/// One step of somebody. `place` is an attempt's place at its event; a relay has one or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A claim commits.
    Claim { event: usize, place: usize },
    /// A claim was rolled back, and its relay is not told.
    ClaimRolledBack { event: usize, place: usize },
    /// The relay hears of its claim.
    ClaimAnswered { event: usize, place: usize },
    /// The relay never hears of its claim.
    ClaimUnanswered { event: usize, place: usize },
    /// `Claim::start` or `Pending::publish`: the message goes to the client.
    Start { event: usize, place: usize },
    /// The row goes back unpublished: too little lease, a closed circuit, a drain.
    Withdraw { event: usize, place: usize },
    /// The client writes the bytes.
    Write { event: usize, place: usize },
    /// The broker takes the message.
    Accept { event: usize, place: usize },
    /// The confirm arrives.
    Confirm { event: usize, place: usize },
    /// `Refused`: a nack, a blocked or closed connection.
    Refuse { event: usize, place: usize },
    /// `Unroutable`: a return, and an ack behind it.
    Return { event: usize, place: usize },
    /// `Rejected`: the message itself is at fault.
    Reject { event: usize, place: usize },
    /// `Unknown`, and the attempt counts or does not.
    Doubt { event: usize, place: usize, counts: bool },
    /// `Unknown(ChannelClosed)`: the message is to be tried again under the same lease.
    ChannelClosed { event: usize, place: usize },
    /// A client that sends again by itself (a mutation).
    Resend { event: usize, place: usize },
    /// The settle commits and is answered.
    Settle { event: usize, place: usize },
    /// The settle commits, and its answer is lost.
    SettleUnanswered { event: usize, place: usize },
    /// A relay dies with everything it holds.
    Crash { relay: usize },
    /// A lease ends.
    Expire { event: usize },
    /// Somebody sweeps.
    Sweep { event: usize },
    /// Bytes arrive whose sender waits no more.
    Arrive { event: usize },
    /// `consign dead requeue`.
    Requeue { event: usize },
    /// `consign dead discard`.
    Discard { event: usize },
    /// `consign replay`.
    Replay { event: usize },
}

impl Lease {
    pub(super) fn offer(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for relay in 0..RELAYS {
            if state.left.crashes > 0 && self.held(state, relay) > 0 {
                actions.push(Action::Crash { relay });
            }
        }
        for event in 0..self.bounds.events {
            self.offer_row(state, event, actions);
            for place in 0..RELAYS * self.bounds.hands {
                self.offer_attempt(state, event, place, actions);
            }
        }
    }

    fn offer_row(&self, state: &State, event: usize, actions: &mut Vec<Action>) {
        let row = &state.events[event];
        let sending = row.status == Status::Sending;
        if sending && row.live && state.left.expiries > 0 {
            actions.push(Action::Expire { event });
        }
        let ended = !row.live || self.lacks(Guard::SweepLeaseEnd);
        if (sending || self.lacks(Guard::SweepStatus) && row.status == Status::Sent) && ended {
            actions.push(Action::Sweep { event });
        }
        if row.late > 0 {
            actions.push(Action::Arrive { event });
        }
        if state.left.operations > 0 {
            if row.status == Status::Dead || self.lacks(Guard::RequeueStatus) && sending {
                actions.push(Action::Requeue { event });
            }
            let is_out = matches!(row.status, Status::New | Status::Dead);
            if is_out || self.lacks(Guard::DiscardStatus) && sending {
                actions.push(Action::Discard { event });
            }
            if row.status == Status::Sent || self.lacks(Guard::ReplayStatus) && sending {
                actions.push(Action::Replay { event });
            }
        }
    }

    fn offer_attempt(&self, state: &State, event: usize, place: usize, actions: &mut Vec<Action>) {
        let row = &state.events[event];
        let Some(attempt) = row.places[place] else {
            let relay = self.relay(place);
            // Of two free places the first one is taken.
            let first = (relay * self.bounds.hands..place).all(|before| row.places[before].is_some());
            if first && self.held(state, relay) < self.bounds.hold {
                if row.status == Status::New
                    || self.lacks(Guard::ClaimStatus) && row.status == Status::Sending
                {
                    actions.push(Action::Claim { event, place });
                }
                if self.lacks(Guard::UnansweredClaimIsNotOwned) && state.left.unanswered > 0 {
                    actions.push(Action::ClaimRolledBack { event, place });
                }
            }
            return;
        };
        let doubts = state.left.doubts > 0;
        if self.bounds.steps == Steps::Merged {
            offer_merged(state, event, place, attempt, actions);
        } else {
            self.offer_fine(state, event, place, attempt, actions);
        }
        if doubts && matches!(attempt.phase, Phase::Started | Phase::Written | Phase::Accepted) {
            actions.push(Action::Doubt { event, place, counts: true });
            actions.push(Action::Doubt { event, place, counts: false });
            actions.push(Action::ChannelClosed { event, place });
        }
    }

    fn offer_fine(
        &self,
        state: &State,
        event: usize,
        place: usize,
        attempt: Attempt,
        actions: &mut Vec<Action>,
    ) {
        match attempt.phase {
            Phase::Asked => {
                actions.push(Action::ClaimAnswered { event, place });
                if state.left.unanswered > 0 {
                    actions.push(Action::ClaimUnanswered { event, place });
                }
            }
            Phase::Held => {
                if !attempt.over || self.lacks(Guard::LeaseCheck) {
                    actions.push(Action::Start { event, place });
                }
                actions.push(Action::Withdraw { event, place });
            }
            Phase::Started => {
                actions.push(Action::Write { event, place });
                actions.push(Action::Refuse { event, place });
            }
            Phase::Written => {
                actions.push(Action::Accept { event, place });
                actions.push(Action::Refuse { event, place });
                actions.push(Action::Return { event, place });
                actions.push(Action::Reject { event, place });
                if self.lacks(Guard::OneLayerRetries) {
                    actions.push(Action::Resend { event, place });
                }
            }
            Phase::Accepted => actions.push(Action::Confirm { event, place }),
            Phase::Settling { .. } => {
                actions.push(Action::Settle { event, place });
                if state.left.unanswered > 0 {
                    actions.push(Action::SettleUnanswered { event, place });
                }
            }
        }
    }

    pub(super) fn act(&self, state: &State, action: Action) -> State {
        let mut next = *state;
        match action {
            Action::Claim { event, place } => self.claim(&mut next, event, place),
            Action::ClaimRolledBack { event, place } => {
                next.left.unanswered -= 1;
                let claim = unused(&next.events[event]);
                next.events[event].places[place] = Some(Attempt { phase: Phase::Held, claim, over: false });
            }
            Action::ClaimAnswered { event, place } => {
                let from_answer = self.lacks(Guard::LeaseFromBeforeTheClaim);
                let attempt = attempt(&mut next, event, place);
                attempt.phase = Phase::Held;
                attempt.over &= !from_answer;
            }
            Action::ClaimUnanswered { event, place } => {
                next.left.unanswered -= 1;
                next.events[event].places[place] = None;
            }
            Action::Start { event, place } => start(&mut next, event, place),
            Action::Withdraw { event, place } => settle_to(&mut next, event, place, To::Release),
            Action::Refuse { event, place } => {
                turn_down(&mut next.events[event]);
                settle_to(&mut next, event, place, To::Release);
            }
            Action::Write { event, place } => attempt(&mut next, event, place).phase = Phase::Written,
            Action::Accept { event, place } => {
                attempt(&mut next, event, place).phase = Phase::Accepted;
                take_copy(&mut next, event);
            }
            Action::Confirm { event, place } => {
                if self.bounds.steps == Steps::Merged {
                    take_copy(&mut next, event);
                }
                settle_to(&mut next, event, place, To::Sent);
            }
            Action::Return { event, place } => {
                turn_down(&mut next.events[event]);
                let to = if self.lacks(Guard::ReturnBeforeAck) {
                    To::Sent
                } else {
                    self.counted(&next.events[event])
                };
                settle_to(&mut next, event, place, to);
            }
            Action::Reject { event, place } => {
                turn_down(&mut next.events[event]);
                settle_to(&mut next, event, place, To::Rejected);
            }
            Action::Doubt { event, place, counts } => self.doubt(&mut next, event, place, counts),
            Action::ChannelClosed { event, place } => {
                next.left.doubts -= 1;
                leave_behind(&mut next.events[event], place);
                attempt(&mut next, event, place).phase = Phase::Held;
            }
            Action::Resend { event, .. } => take_copy(&mut next, event),
            Action::Settle { event, place } => self.settle(&mut next, event, place, false),
            Action::SettleUnanswered { event, place } => self.settle(&mut next, event, place, true),
            Action::Crash { relay } => self.crash(&mut next, relay),
            Action::Expire { event } => expire(&mut next, event),
            Action::Sweep { event } => self.sweep(&mut next, event),
            Action::Arrive { event } => {
                next.events[event].late -= 1;
                take_copy(&mut next, event);
            }
            Action::Requeue { event } => operate(&mut next, event, Status::Dead, Status::New),
            Action::Discard { event } => {
                next.left.operations -= 1;
                let row = &mut next.events[event];
                let allowed = matches!(row.status, Status::New | Status::Dead);
                leave(row, Status::Discarded);
                if !allowed {
                    next.broken = Some(Broken::Edge);
                }
            }
            Action::Replay { event } => operate(&mut next, event, Status::Sent, Status::New),
        }
        if self.bounds.steps == Steps::Merged {
            self.settle_at_once(&mut next);
        }
        self.tidy(&mut next);
        next
    }

    fn claim(&self, next: &mut State, event: usize, place: usize) {
        let owner = if self.lacks(Guard::TokenPerClaim) { 1 + index(self.relay(place)) } else { 0 };
        let row = &mut next.events[event];
        if row.status != Status::New {
            next.broken = Some(Broken::Edge);
        }
        let claim = unused(row);
        row.status = Status::Sending;
        row.live = true;
        row.claim = claim;
        row.owner = owner;
        row.attempts += 1;
        row.charged += 1;
        row.places[place] = Some(Attempt { phase: Phase::Asked, claim, over: false });
    }

    /// `count_attempt` in the judge: back to NEW, or DEAD at the cap.
    fn counted(&self, row: &Event) -> To {
        let cap = if self.lacks(Guard::JudgeCap) { 1 } else { self.bounds.attempts_max };
        if row.attempts >= cap { To::Exhausted } else { To::Retry }
    }

    fn doubt(&self, next: &mut State, event: usize, place: usize, counts: bool) {
        next.left.doubts -= 1;
        leave_behind(&mut next.events[event], place);
        let to = match counts {
            true if self.lacks(Guard::UnknownIsNotSent) => To::Sent,
            true => self.counted(&next.events[event]),
            false => To::Release,
        };
        settle_to(next, event, place, to);
    }

    fn settle(&self, next: &mut State, event: usize, place: usize, unanswered: bool) {
        let relay = self.relay(place);
        let row = &mut next.events[event];
        let attempt = row.places[place].expect("an offered attempt is there");
        let Phase::Settling { to, .. } = attempt.phase else { return };
        let sending = row.status == Status::Sending;
        let own = sending && row.claim == attempt.claim;
        let matches = if self.lacks(Guard::SettleToken) {
            sending
        } else if self.lacks(Guard::SettleTokenAndStatus) {
            true
        } else if self.lacks(Guard::TokenPerClaim) {
            sending && row.owner == 1 + index(relay)
        } else {
            own
        };
        row.places[place] = None;
        if unanswered {
            next.left.unanswered -= 1;
            row.places[place] = Some(Attempt { phase: Phase::Settling { to, repeat: true }, ..attempt });
        }
        if !matches {
            return;
        }
        let broken = self.change(row, to);
        next.broken = match (sending, own) {
            (false, _) => Some(Broken::Edge),
            (true, false) => Some(Broken::ForeignSettle),
            (true, true) => broken,
        };
    }

    /// An outcome and its settle are one step, and what is started is as good as on its way.
    fn settle_at_once(&self, next: &mut State) {
        for event in 0..self.bounds.events {
            for place in 0..RELAYS * self.bounds.hands {
                let Some(attempt) = &mut next.events[event].places[place] else { continue };
                match attempt.phase {
                    Phase::Asked => attempt.phase = Phase::Held,
                    Phase::Started => attempt.phase = Phase::Written,
                    Phase::Settling { .. } => self.settle(next, event, place, false),
                    Phase::Held | Phase::Written | Phase::Accepted => {}
                }
            }
        }
    }

    /// `settle_*.sql`.
    fn change(&self, row: &mut Event, to: To) -> Option<Broken> {
        match to {
            To::Sent => leave(row, Status::Sent),
            To::Retry => leave(row, Status::New),
            To::Release => {
                row.charged = row.charged.saturating_sub(1);
                if !self.lacks(Guard::ReleaseRefunds) {
                    row.attempts = row.attempts.saturating_sub(1);
                }
                leave(row, Status::New);
            }
            To::Exhausted => {
                let early = row.charged < self.bounds.attempts_max;
                leave(row, Status::Dead);
                return early.then_some(Broken::EarlyDeath);
            }
            To::Rejected => leave(row, Status::Dead),
        }
        None
    }

    fn crash(&self, next: &mut State, relay: usize) {
        next.left.crashes -= 1;
        for row in &mut next.events {
            for place in relay * self.bounds.hands..(relay + 1) * self.bounds.hands {
                if row.places[place].is_some_and(|attempt| attempt.phase == Phase::Written) {
                    row.late += 1;
                }
                row.places[place] = None;
            }
        }
    }

    fn sweep(&self, next: &mut State, event: usize) {
        let cap = if self.lacks(Guard::SweepCap) { 1 } else { self.bounds.attempts_max };
        let row = &mut next.events[event];
        if row.status != Status::Sending {
            leave(row, Status::New);
            next.broken = Some(Broken::Edge);
        } else if row.attempts >= cap {
            let early = row.charged < self.bounds.attempts_max;
            leave(row, Status::Dead);
            next.broken = early.then_some(Broken::EarlyDeath);
        } else {
            leave(row, Status::New);
        }
    }

    /// The relay that an attempt's place belongs to.
    fn relay(&self, place: usize) -> usize {
        place / self.bounds.hands
    }

    /// How many rows a relay has in its hands.
    fn held(&self, state: &State, relay: usize) -> usize {
        let places = relay * self.bounds.hands..(relay + 1) * self.bounds.hands;
        state.events.iter().map(|row| row.places[places.clone()].iter().flatten().count()).sum()
    }

    /// Forgets what nothing reads any more, so that states which differ in nothing else are one state.
    fn tidy(&self, next: &mut State) {
        for row in &mut next.events {
            if !self.bounds.counts {
                row.copies = row.copies.min(1);
                row.publishes = 0;
            }
            if self.removed.is_none() {
                rename(row);
            }
        }
        if self.bounds.symmetry && self.removed.is_none() {
            *next = self.representative(next);
        }
    }

    /// The smallest of the states that differ from this one by the names of relays and events only.
    pub(super) fn representative(&self, state: &State) -> State {
        let mut same = *state;
        same.events[..self.bounds.events].sort_unstable();
        let mut swapped = *state;
        for row in &mut swapped.events {
            row.places = self.swapped(row.places);
        }
        swapped.events[..self.bounds.events].sort_unstable();
        same.min(swapped)
    }

    fn swapped(&self, places: [Option<Attempt>; PLACES]) -> [Option<Attempt>; PLACES] {
        let hands = self.bounds.hands;
        let mut swapped = places;
        for place in 0..RELAYS * hands {
            swapped[place] = places[(place + hands) % (RELAYS * hands)];
        }
        swapped
    }
}

fn offer_merged(state: &State, event: usize, place: usize, attempt: Attempt, actions: &mut Vec<Action>) {
    if attempt.phase == Phase::Held {
        if !attempt.over {
            actions.push(Action::Start { event, place });
        }
        actions.push(Action::Withdraw { event, place });
        if state.left.unanswered > 0 {
            actions.push(Action::ClaimUnanswered { event, place });
        }
    } else {
        actions.push(Action::Confirm { event, place });
        actions.push(Action::Refuse { event, place });
        actions.push(Action::Return { event, place });
        actions.push(Action::Reject { event, place });
    }
}

fn attempt(state: &mut State, event: usize, place: usize) -> &mut Attempt {
    state.events[event].places[place].as_mut().expect("an offered attempt is there")
}

fn settle_to(next: &mut State, event: usize, place: usize, to: To) {
    attempt(next, event, place).phase = Phase::Settling { to, repeat: false };
}

fn start(next: &mut State, event: usize, place: usize) {
    let row = &mut next.events[event];
    let attempt = row.places[place].expect("an offered attempt is there");
    if row.claim != attempt.claim || !row.live {
        next.broken = Some(Broken::OutsideLease);
    }
    row.publishes += 1;
    row.places[place] = Some(Attempt { phase: Phase::Started, ..attempt });
}

/// The broker says that it did not take the message: this publish made no copy and never will.
fn turn_down(row: &mut Event) {
    row.publishes = row.publishes.saturating_sub(1);
}

/// The sender waits no more for bytes that may still arrive. What was handed to the client may be written yet.
fn leave_behind(row: &mut Event, place: usize) {
    let phase = row.places[place].map(|attempt| attempt.phase);
    if matches!(phase, Some(Phase::Started | Phase::Written)) {
        row.late += 1;
    }
}

fn take_copy(next: &mut State, event: usize) {
    let row = &mut next.events[event];
    if row.copies > 0 {
        next.excess += 1;
    }
    row.copies += 1;
}

fn expire(next: &mut State, event: usize) {
    next.left.expiries -= 1;
    let row = &mut next.events[event];
    row.live = false;
    // The relay counts from before the claim was sent and keeps a margin, so its own clock was earlier.
    for attempt in row.places.iter_mut().flatten().filter(|attempt| attempt.claim == row.claim) {
        attempt.over = true;
    }
}

/// Out of SENDING: `lease_token` and `locked_until` become NULL.
fn leave(row: &mut Event, status: Status) {
    row.status = status;
    row.live = false;
    row.claim = 0;
    row.owner = 0;
    if status != Status::New {
        // Nothing reads them before an operator makes them 0.
        row.attempts = 0;
        row.charged = 0;
    }
}

fn operate(next: &mut State, event: usize, from: Status, to: Status) {
    next.left.operations -= 1;
    let row = &mut next.events[event];
    let allowed = row.status == from;
    leave(row, to);
    row.attempts = 0;
    row.charged = 0;
    if !allowed {
        next.broken = Some(Broken::Edge);
    }
}

/// A claim number that neither the row nor an attempt at it has.
fn unused(row: &Event) -> u8 {
    let used =
        |claim: u8| row.claim == claim || row.places.iter().flatten().any(|attempt| attempt.claim == claim);
    (1..=u8::MAX).find(|claim| !used(*claim)).expect("there are few claims")
}

/// Claims are only compared with the row's own: that one is called 1, and all others 2.
fn rename(row: &mut Event) {
    let current = row.claim;
    for attempt in row.places.iter_mut().flatten() {
        let is_current = current != 0 && attempt.claim == current;
        attempt.claim = if is_current { 1 } else { 2 };
        // A settle that will be fenced is fenced wherever it goes.
        if !is_current && let Phase::Settling { to, repeat: false } = &mut attempt.phase {
            *to = To::Retry;
        }
    }
    row.claim = u8::from(current != 0);
}

fn index(relay: usize) -> u8 {
    u8::try_from(relay).expect("there are two relays")
}

const _: () = assert!(EVENTS_MAX == 3 && PLACES == 2 * RELAYS);
