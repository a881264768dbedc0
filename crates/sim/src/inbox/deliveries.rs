//! The queue that consumers take deliveries from, as RabbitMQ keeps one: copies that are ready, copies that a channel holds
//! until they are acknowledged, and a flag and a count on what was delivered before.

use std::collections::VecDeque;
use std::time::Duration;

use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness};

use crate::broker::{confirmed, refused, returned, timed_out};
use crate::options::Fault;

use super::shared::{Alarm, Shared, State};
use super::situations::Met;

/// Where a copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    /// A channel of this process holds it.
    Held {
        process: usize,
        channel: u64,
    },
    /// It was handed back, or its channel died, and it is not ready yet.
    Returning,
    /// Acknowledged.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    fact: usize,
    place: Place,
    deliveries: u32,
}

/// The queue.
#[derive(Debug, Default)]
pub struct Deliveries {
    copies: Vec<Carried>,
    ready: VecDeque<usize>,
    /// The channel each process has now.
    channels: Vec<u64>,
    /// How many copies a channel holds at most.
    pub prefetch: usize,
    /// Whether the queue counts deliveries or only flags them.
    pub counts: bool,
    /// Copies that are still to arrive.
    pub to_come: usize,
    /// The latest copy delivered so far.
    latest: usize,
    /// Facts that the dead letters' destination took.
    pub dead_letters: Vec<usize>,
}

/// A handle on one delivery.
#[derive(Debug)]
pub struct SimReceipt {
    shared: Shared,
    process: usize,
    channel: u64,
    copy: usize,
}

impl Deliveries {
    /// An empty queue for so many processes.
    pub fn new(processes: usize) -> Self {
        Self { channels: vec![0; processes], prefetch: 1, counts: true, ..Self::default() }
    }

    /// True when nothing is in the queue, held or to come.
    pub fn is_empty(&self) -> bool {
        self.to_come == 0 && self.copies.iter().all(|copy| copy.place == Place::Gone)
    }

    /// True when a fact ever arrived.
    pub fn arrived(&self, fact: usize) -> bool {
        self.copies.iter().any(|copy| copy.fact == fact)
    }

    /// Facts that a process holds.
    pub fn held_by(&self, process: usize) -> Vec<usize> {
        let held =
            |copy: &&Carried| matches!(copy.place, Place::Held { process: holder, .. } if holder == process);
        self.copies.iter().filter(held).map(|copy| copy.fact).collect()
    }

    fn holds(&self, process: usize, channel: u64, copy: usize) -> bool {
        self.copies[copy].place == Place::Held { process, channel }
    }
}

impl State {
    /// A copy of a fact arrives.
    pub fn arrive(&mut self, fact: usize) {
        self.book.note(crate::trace::Actor::Broker(0), "a copy arrives", Some(fact), 0);
        self.deliveries.copies.push(Carried { fact, place: Place::Ready, deliveries: 0 });
        self.make_ready(self.deliveries.copies.len() - 1, false);
    }

    /// A copy that came back is ready again.
    pub fn come_back(&mut self, copy: usize) {
        if self.deliveries.copies[copy].place == Place::Returning {
            self.make_ready(copy, true);
        }
    }

    fn make_ready(&mut self, copy: usize, again: bool) {
        self.deliveries.copies[copy].place = Place::Ready;
        let ready = self.deliveries.ready.len();
        if self.strikes(Fault::Reordering, 40) {
            let at = self.draw.index(ready + 1);
            self.deliveries.ready.insert(at, copy);
        } else if again {
            self.deliveries.ready.push_front(copy);
        } else {
            self.deliveries.ready.push_back(copy);
        }
        for process in 0..self.processes.len() {
            self.turn_soon(process);
        }
    }

    /// The channel of a process is replaced; what it held comes again.
    pub fn replace_channel(&mut self, process: usize) {
        self.deliveries.channels[process] += 1;
        for copy in 0..self.deliveries.copies.len() {
            if matches!(self.deliveries.copies[copy].place, Place::Held { process: holder, .. } if holder == process)
            {
                self.give_back(copy, Duration::ZERO);
            }
        }
        self.turn_soon(process);
    }

    fn give_back(&mut self, copy: usize, delay: Duration) {
        self.deliveries.copies[copy].place = Place::Returning;
        let delay = delay + self.span(30);
        self.schedule(delay, Alarm::Return(copy));
    }
}

/// The next delivery for a process, if its channel may hold one more.
pub fn next_delivery(shared: &Shared, process: usize) -> Option<Delivery<SimReceipt>> {
    let mut state = shared.state();
    let held = state.deliveries.held_by(process).len();
    if held >= state.deliveries.prefetch {
        return None;
    }
    let copy = state.deliveries.ready.pop_front()?;
    let channel = state.deliveries.channels[process];
    let latest = state.deliveries.latest;
    state.deliveries.latest = latest.max(copy);
    let carried = &mut state.deliveries.copies[copy];
    carried.place = Place::Held { process, channel };
    let (fact, before) = (carried.fact, carried.deliveries);
    carried.deliveries += 1;
    state.book.met.meet_if(before > 0 && copy < latest, Met::ReorderedOnRedelivery);
    let mut message = state.facts[fact].message(fact);
    message.redelivered = before > 0;
    if state.deliveries.counts {
        message.delivery_count = before + 1;
    }
    state.running = (process, state.running.1);
    state.note("is delivered", Some(fact), u64::from(before));
    let receipt = SimReceipt { shared: shared.clone(), process, channel, copy };
    Some(Delivery { message, receipt })
}

impl SimReceipt {
    /// The fact that is settled, unless the channel was replaced.
    fn begin(&self, what: &'static str) -> Result<usize, ReceiptLost> {
        let mut state = self.shared.state();
        if state.deliveries.channels[self.process] != self.channel {
            state.book.met.meet(Met::AckOnReplacedChannel);
            return Err(ReceiptLost("the channel was replaced".into()));
        }
        let fact = state.deliveries.copies[self.copy].fact;
        state.note(what, Some(fact), 0);
        if !state.deliveries.holds(self.process, self.channel, self.copy) {
            state.book.violate("I21", Some(fact), "a delivery was settled twice".into());
        }
        Ok(fact)
    }
}

impl Receipt for SimReceipt {
    async fn ack(self, _: AckPermit) -> Result<(), ReceiptLost> {
        let fact = self.begin("is acknowledged")?;
        self.shared.state().check_gone(Some(fact), "a delivery was acknowledged");
        self.shared.trip().await;
        let mut state = self.shared.state();
        if !state.deliveries.holds(self.process, self.channel, self.copy) {
            // The channel died after the acknowledgement was written.
            state.lost_acks.push(fact);
            return Ok(());
        }
        if state.strikes(Fault::LostAcks, 8) {
            state.note("acknowledgement is lost", Some(fact), 0);
            state.lost_acks.push(fact);
            state.replace_channel(self.process);
            return Ok(());
        }
        state.deliveries.copies[self.copy].place = Place::Gone;
        state.turn_soon(self.process);
        Ok(())
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.begin("is handed back")?;
        self.shared.trip().await;
        let mut state = self.shared.state();
        if state.deliveries.holds(self.process, self.channel, self.copy) {
            state.give_back(self.copy, delay);
        }
        Ok(())
    }
}

/// Where dead letters go.
#[derive(Debug)]
pub struct SimDeadLetters(pub Shared);

impl Destination for SimDeadLetters {
    async fn publish(&self, _: Lane, publish: Publish) -> Outcome {
        self.0.trip().await;
        let outcome = {
            let mut state = self.0.state();
            let fact = state.fact_of(Some(publish.event.id.as_str()));
            let fate = if state.strikes(Fault::DeadLetterFailures, 35) { 1 + state.draw.below(4) } else { 0 };
            if fate < 2 {
                state.note("dead letter is taken", fact, fate);
                state.check_dead(fact);
                state.deliveries.dead_letters.extend(fact);
            }
            state.book.met.meet_if(fate == 1, Met::DeadLetterProofLost);
            match fate {
                0 => confirmed(),
                1 | 2 => timed_out(),
                3 => refused(None),
                _ => returned(),
            }
        };
        self.0.trip().await;
        outcome
    }

    async fn readiness_after(&self, _: &Readiness) -> Readiness {
        std::future::pending().await
    }
}
