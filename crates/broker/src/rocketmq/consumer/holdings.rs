//! What a source has received and not settled. Pure: it is told the time and the answers, and says which calls to make.
//!
//! ```text
//!  received ─► line ─► out ─► settling ─► gone
//!     │ order: waiting ─┘ ▲     │ refused, in order: paused
//!     │                   └─────┘
//!     └ lapsed: forgotten, it comes again
//! ```
//!
//! **Time.** A message stays invisible to others for a span that began when the broker took it out of its queue, which is
//! after the receive was asked for and before it was answered. So it is *surely held* until the span has passed since
//! the asking, and *surely lapsed* when it has passed since the answer.
//!
//! **Extending** is the exception, not a heartbeat: an extension writes a new record at the broker, is known to be
//! ignored at times (apache/rocketmq#9583) and refused under load (apache/rocketmq#9515), and what lapses after it counts
//! as an attempt (apache/rocketmq-clients#951). So it is asked for once, late, for twice the time before, a few times at
//! most. The old handle is kept unless the broker answers OK; after that only the new one is used.
//!
//! **Order.** With an ordered group, a message is handed out when the one before it in its message group is settled. A
//! refused one keeps its place and is handed out again from here. One that has to be left to the broker takes those
//! behind it along, since the broker will deliver all of them again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::time::Monotonic;

mod tenure;

use tenure::Tenure;

#[cfg(test)]
mod tests;

/// The first pause before a settlement that got no answer is sent again; it doubles with every try.
const AGAIN_MIN: Duration = Duration::from_millis(100);
/// The longest such pause.
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// How often giving a message back is tried: it comes again by itself.
const RETURN_TRIES: u32 = 3;

/// On what terms messages are held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// Unsettled messages at most.
    pub prefetch: usize,
    /// How long a message is invisible after it was received.
    pub invisible: Duration,
    /// Messages of one message group are handed out one after another.
    pub ordered: bool,
}

/// Names one held message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// A message as it came.
#[derive(Debug)]
pub(super) struct Arrival<H> {
    /// What consumers see.
    pub message: Message,
    /// What keeps its order: its message group, or its queue when it has none.
    pub group: String,
    /// What settles it.
    pub handle: H,
}

/// What is to become of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settlement {
    /// Acknowledged.
    Ack,
    /// Moved to the group's dead-letter topic.
    PutAside,
    /// Given back, to come again after about this span.
    Return(Duration),
}

/// What to ask the broker for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Settle it.
    Settle(Settlement),
    /// Keep it invisible for this span from now.
    Extend(Duration),
}

/// One call to make. The handle goes along and comes back with the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<H> {
    pub ticket: Ticket,
    pub handle: H,
    pub ask: Ask,
    /// Which delivery of the message this is, from 1.
    pub attempt: u32,
}

/// What became of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<H> {
    /// Settled.
    Done,
    /// Extended: only the new handle counts now.
    Extended(H),
    /// The handle has lapsed: somebody else may have the message.
    Lapsed,
    /// Refused for a reason that will not pass.
    Refused(H),
    /// Not sent, not answered, or refused for now.
    Again(H),
}

/// The handle has lapsed, and the message comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lapsed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Behind another of its message group.
    Waiting,
    /// Next to be handed out.
    Line,
    /// With a consumer.
    Out,
    /// Refused in its place of the order, to be handed out again then.
    Paused(Monotonic),
    /// Decided; what is left is telling the broker.
    Settling { settlement: Settlement, tries: u32, not_before: Monotonic },
}

#[derive(Debug)]
struct Entry<H> {
    place: Place,
    /// `None` while a call has it.
    handle: Option<H>,
    /// What is handed out; kept in an ordered group, where it may be handed out again.
    message: Option<Message>,
    attempt: u32,
    group: String,
    tenure: Tenure,
}

/// Everything a source holds.
#[derive(Debug)]
pub(super) struct Holdings<H> {
    terms: Terms,
    entries: HashMap<Ticket, Entry<H>>,
    /// Slots that receives under way may fill.
    reserved: usize,
    next_ticket: u64,
    line: VecDeque<Ticket>,
    /// Who comes after whom, in an ordered group.
    groups: HashMap<String, VecDeque<Ticket>>,
    /// To be looked at for a call.
    pending: VecDeque<Ticket>,
    /// To be looked at then; what has changed meanwhile is ignored.
    timers: BTreeSet<(Monotonic, Ticket)>,
    stopped: bool,
}

impl<H> Holdings<H> {
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            entries: HashMap::new(),
            reserved: 0,
            next_ticket: 0,
            line: VecDeque::new(),
            groups: HashMap::new(),
            pending: VecDeque::new(),
            timers: BTreeSet::new(),
            stopped: false,
        }
    }

    /// Slots for further messages; none after a stop.
    fn room(&self) -> usize {
        if self.stopped { 0 } else { self.terms.prefetch.saturating_sub(self.entries.len() + self.reserved) }
    }

    /// Keeps at most `wanted` slots for a receive that is about to be asked for, and says how many there are.
    pub fn reserve(&mut self, wanted: usize) -> usize {
        let slots = wanted.min(self.room());
        self.reserved += slots;
        slots
    }

    /// A receive ended that had `slots` reserved, was asked for at `asked` and answered now.
    pub fn received(&mut self, slots: usize, arrivals: Vec<Arrival<H>>, asked: Monotonic, now: Monotonic) {
        self.reserved -= slots;
        for arrival in arrivals {
            self.hold(arrival, Tenure::new(asked, now, self.terms.invisible), now);
        }
    }

    fn hold(&mut self, arrival: Arrival<H>, tenure: Tenure, now: Monotonic) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let Arrival { message, group, handle } = arrival;
        let mut first = true;
        if self.terms.ordered {
            let queue = self.groups.entry(group.clone()).or_default();
            first = queue.is_empty();
            queue.push_back(ticket);
        }
        let place = if first { Place::Line } else { Place::Waiting };
        let attempt = message.delivery_count;
        let entry = Entry { place, handle: Some(handle), message: Some(message), attempt, group, tenure };
        self.entries.insert(ticket, entry);
        if first {
            self.line.push_back(ticket);
        }
        self.watch_tenure(ticket);
        if self.stopped {
            self.give_back(ticket, now);
        }
    }

    /// The next message to hand out, unless it has lapsed.
    pub fn next(&mut self, now: Monotonic) -> Option<(Ticket, Message)> {
        while let Some(ticket) = self.line.pop_front() {
            let ordered = self.terms.ordered;
            let Some(entry) = self.entries.get_mut(&ticket) else { continue };
            if entry.place != Place::Line {
                continue;
            }
            if entry.tenure.surely_held(now) {
                let message = if ordered { entry.message.clone() } else { entry.message.take() };
                entry.place = Place::Out;
                return Some((ticket, message.expect("a message in line has not been handed out")));
            }
            self.forsake(ticket, now);
        }
        None
    }

    /// Decides about a message that is out. The broker is told by the calls that follow.
    ///
    /// # Errors
    /// Its handle has lapsed: nothing is left to do here.
    pub fn settle(&mut self, ticket: Ticket, settlement: Settlement, now: Monotonic) -> Result<(), Lapsed> {
        let entry = self.entries.get_mut(&ticket).filter(|entry| entry.place == Place::Out).ok_or(Lapsed)?;
        if entry.tenure.surely_lapsed(now) {
            match settlement {
                Settlement::Return(_) => self.forsake(ticket, now),
                Settlement::Ack | Settlement::PutAside => self.remove(ticket),
            }
            return Err(Lapsed);
        }
        match settlement {
            Settlement::Return(delay) if self.terms.ordered && !self.stopped => {
                entry.attempt = entry.attempt.saturating_add(1);
                if let Some(message) = &mut entry.message {
                    message.delivery_count = entry.attempt;
                    message.redelivered = true;
                }
                let until = now.plus(delay);
                entry.place = Place::Paused(until);
                self.timers.insert((until, ticket));
            }
            Settlement::Return(_) | Settlement::Ack | Settlement::PutAside => {
                self.begin(ticket, settlement, now);
            }
        }
        Ok(())
    }

    /// Nothing more is handed out or received; what was not handed out goes back.
    pub fn stop(&mut self, now: Monotonic) {
        self.stopped = true;
        let mut kept: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| !matches!(entry.place, Place::Out | Place::Settling { .. }))
            .map(|(ticket, _)| *ticket)
            .collect();
        kept.sort_unstable();
        for ticket in kept {
            self.give_back(ticket, now);
        }
    }

    /// True when nothing is held: every message was settled, and the broker has answered or let it lapse.
    pub fn idle(&self) -> bool {
        self.entries.is_empty() && self.reserved == 0
    }

    /// True while a consumer has a message.
    pub fn any_out(&self) -> bool {
        self.entries.values().any(|entry| entry.place == Place::Out)
    }

    /// The calls to make now, at most `limit`.
    pub fn calls(&mut self, limit: usize, now: Monotonic) -> Vec<Call<H>> {
        while let Some(&(due, ticket)) = self.timers.first() {
            if due > now {
                break;
            }
            self.timers.pop_first();
            self.look(ticket, now);
        }
        let mut calls = Vec::new();
        while calls.len() < limit
            && let Some(ticket) = self.pending.pop_front()
        {
            calls.extend(self.call(ticket, now));
        }
        calls
    }

    /// When [`Holdings::calls`] is to be asked again, if nothing happens before.
    pub fn next_moment(&self) -> Option<Monotonic> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// What became of a call that was sent at `sent`.
    pub fn answered(&mut self, ticket: Ticket, ask: Ask, answer: Answer<H>, sent: Monotonic, now: Monotonic) {
        match ask {
            Ask::Settle(settlement) => self.settled(ticket, settlement, answer, now),
            Ask::Extend(span) => self.extended(ticket, span, answer, sent, now),
        }
    }

    fn settled(&mut self, ticket: Ticket, asked: Settlement, answer: Answer<H>, now: Monotonic) {
        let Some(entry) = self.entries.get_mut(&ticket) else { return };
        let Place::Settling { settlement, tries, not_before } = &mut entry.place else { return };
        let handle = match answer {
            // Put aside is an acknowledgement with a favour on top: the message is recorded already.
            Answer::Refused(handle) if asked == Settlement::PutAside => {
                *settlement = Settlement::Ack;
                handle
            }
            Answer::Done | Answer::Lapsed | Answer::Extended(_) | Answer::Refused(_) => {
                return self.remove(ticket);
            }
            Answer::Again(handle) => handle,
        };
        entry.handle = Some(handle);
        let pause = AGAIN_MIN.saturating_mul(1 << (*tries).min(5)).min(AGAIN_MAX);
        *tries += 1;
        *not_before = now.plus(pause);
        let (due, tries) = (*not_before, *tries);
        let hopeless = matches!(asked, Settlement::Return(_)) && tries >= RETURN_TRIES;
        if hopeless || entry.tenure.surely_lapsed(due) {
            return self.remove(ticket);
        }
        self.timers.insert((due, ticket));
    }

    fn extended(
        &mut self,
        ticket: Ticket,
        span: Duration,
        answer: Answer<H>,
        sent: Monotonic,
        now: Monotonic,
    ) {
        let Some(entry) = self.entries.get_mut(&ticket) else { return };
        match answer {
            Answer::Extended(handle) => {
                entry.handle = Some(handle);
                entry.tenure.extend(sent, now, span);
            }
            Answer::Refused(handle) | Answer::Again(handle) => {
                entry.handle = Some(handle);
                entry.tenure.not_extended(now);
            }
            Answer::Lapsed | Answer::Done => entry.tenure.lapse(now),
        }
        self.watch_tenure(ticket);
        self.pending.push_back(ticket);
    }

    fn watch_tenure(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.get(&ticket) else { return };
        self.timers.extend(entry.tenure.moments().map(|moment| (moment, ticket)));
    }

    /// A moment of this message has come, perhaps.
    fn look(&mut self, ticket: Ticket, now: Monotonic) {
        let Some(entry) = self.entries.get_mut(&ticket) else { return };
        match entry.place {
            Place::Settling { .. } => return self.pending.push_back(ticket),
            Place::Paused(until) if until <= now => {
                entry.place = Place::Line;
                self.line.push_back(ticket);
            }
            Place::Out | Place::Paused(_) | Place::Line | Place::Waiting => {}
        }
        let entry = &self.entries[&ticket];
        if entry.place != Place::Out && !entry.tenure.surely_held(now) {
            return self.forsake(ticket, now);
        }
        if entry.tenure.wants_extension(now) {
            self.pending.push_back(ticket);
        }
    }

    fn call(&mut self, ticket: Ticket, now: Monotonic) -> Option<Call<H>> {
        let entry = self.entries.get_mut(&ticket)?;
        let ask = match entry.place {
            Place::Settling { not_before, .. } if not_before > now => return None,
            Place::Settling { settlement, .. } => Ask::Settle(settlement),
            _ if entry.tenure.wants_extension(now) => Ask::Extend(entry.tenure.extension()),
            _ => return None,
        };
        let attempt = entry.attempt;
        let Some(handle) = entry.handle.take() else {
            // An extension has it and its answer comes back here. Without one, the message has lapsed.
            if entry.tenure.surely_lapsed(now) && matches!(ask, Ask::Settle(_)) {
                self.remove(ticket);
            }
            return None;
        };
        Some(Call { ticket, handle, ask, attempt })
    }

    /// From here on the message is the broker's business; the one behind it has its turn unless it goes back.
    fn begin(&mut self, ticket: Ticket, settlement: Settlement, now: Monotonic) {
        if matches!(settlement, Settlement::Return(_)) {
            self.send_back_behind(ticket, now);
        }
        self.leave_group(ticket);
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.message = None;
            entry.place = Place::Settling { settlement, tries: 0, not_before: now };
            self.pending.push_back(ticket);
        }
    }

    fn give_back(&mut self, ticket: Ticket, now: Monotonic) {
        self.leave_group(ticket);
        if let Some(entry) = self.entries.get_mut(&ticket) {
            entry.message = None;
            let settlement = Settlement::Return(Duration::ZERO);
            entry.place = Place::Settling { settlement, tries: 0, not_before: now };
            self.pending.push_back(ticket);
        }
    }

    /// Lets a message go that was not finished and comes again.
    fn forsake(&mut self, ticket: Ticket, now: Monotonic) {
        self.send_back_behind(ticket, now);
        self.remove(ticket);
    }

    /// Those behind an unfinished message must not overtake it. Copies that came after it lapsed have it in front of them.
    fn send_back_behind(&mut self, ticket: Ticket, now: Monotonic) {
        let Some(entry) = self.entries.get(&ticket) else { return };
        let Some(queue) = self.groups.get(&entry.group) else { return };
        let lapses = entry.tenure.held_until();
        let behind: Vec<_> = queue
            .iter()
            .skip_while(|other| **other != ticket)
            .skip(1)
            .copied()
            .filter(|other| self.entries[other].tenure.received() < lapses)
            .collect();
        for other in behind {
            self.give_back(other, now);
        }
    }

    fn remove(&mut self, ticket: Ticket) {
        self.leave_group(ticket);
        self.entries.remove(&ticket);
    }

    /// Takes a message out of its order, and lets the next one have its turn.
    fn leave_group(&mut self, ticket: Ticket) {
        let Some(entry) = self.entries.get(&ticket) else { return };
        let Some(queue) = self.groups.get_mut(&entry.group) else { return };
        queue.retain(|other| *other != ticket);
        let Some(first) = queue.front().copied() else {
            self.groups.remove(&entry.group);
            return;
        };
        if let Some(next) = self.entries.get_mut(&first)
            && next.place == Place::Waiting
        {
            next.place = Place::Line;
            self.line.push_back(first);
        }
    }
}
