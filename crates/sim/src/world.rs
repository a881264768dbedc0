//! The world of one seed: relays, the store, the broker and what goes wrong between them.

mod chaos;
mod check;
mod operate;
mod relay;
pub mod situations;
mod work;

use std::time::Duration;

use consign_core::lease::PublishId;
use consign_core::outcome::Outcome;
use consign_core::relay::{Input, Order};
use consign_core::time::Monotonic;

use crate::book::Book;
use crate::broker::{Copy, SimBroker};
use crate::draw::Seeded;
use crate::inbox::Consumers;
use crate::inbox::facts::Fact;
use crate::options::{Cut, Fault, Faults, Options, Strikes, millis};
use crate::queue::Queue;
use crate::require;
use crate::store::{Nature, Row, SimStore, Status};
use crate::trace::Actor;
use relay::Slot;
use situations::Met;
use work::Work;

/// The names of destinations.
pub const DESTINATIONS: [&str; 2] = ["a", "b"];

/// Once the faults have stopped everything must have drained after this long (L1).
const LIVENESS_BOUND: Duration = Duration::from_mins(3);
/// So many steps at one moment are a loop.
const STEPS_PER_MOMENT_MAX: u32 = 4_000;

#[derive(Debug)]
enum Event {
    /// A producer inserts the row; it commits later or never.
    Insert(usize),
    Commit(usize),
    Start(usize),
    /// The store runs a unit of work, whether or not its relay still lives.
    Work(usize, u64, Work),
    Reply(usize, u64, Input),
    /// The broker takes a message that was published under this token.
    Accept(Sent),
    /// A publish ends; void if its flight has ended otherwise.
    Landing {
        relay: usize,
        incarnation: u64,
        id: PublishId,
        edition: u32,
        outcome: Outcome,
    },
    ChannelDeath {
        relay: usize,
        incarnation: u64,
        id: PublishId,
    },
    /// The relay learns whether the destination is connected at this moment.
    Readiness {
        relay: usize,
        incarnation: u64,
        destination: usize,
    },
    Reconnect {
        relay: usize,
        incarnation: u64,
        destination: usize,
    },
    OutageEnds(usize),
    Unblock(usize),
    Bind(usize),
    Unlock(usize),
    Chaos,
}

/// A message on its way to the broker.
#[derive(Debug)]
struct Sent {
    relay: usize,
    incarnation: u64,
    id: PublishId,
    token: u128,
    destination: usize,
    copy: Copy,
    /// The broker says that it took it.
    confirm: bool,
}

/// Everything there is while a seed runs.
#[derive(Debug)]
pub struct World {
    options: Options,
    cut: Cut,
    /// The faults that may happen now.
    faults: Faults,
    strikes: Strikes,
    struck: u32,
    draw: Seeded,
    queue: Queue<Event>,
    store: SimStore,
    broker: SimBroker,
    slots: Vec<Slot>,
    consumers: Option<Consumers>,
    book: Book,
    steps_at_this_moment: u32,
    /// Rows that are still to be inserted and committed or rolled back.
    rows_to_come: usize,
    /// When the faults stopped.
    healed_at: Option<Monotonic>,
    /// Set once everything has drained: relays that stop are not replaced.
    finishing: bool,
}

/// What a seed came to.
#[derive(Debug)]
pub struct Ending {
    /// What was written down.
    pub book: Book,
    /// Faults that struck.
    pub strikes: Strikes,
    /// How many strikes were drawn, which is what [`Cut::strikes`] counts.
    pub struck: u32,
}

impl World {
    /// The world of these options, less what is cut; `keep` the steps to print them.
    pub fn new(options: Options, cut: Cut, keep: bool) -> Self {
        let faults = cut.faults.iter().fold(options.faults, |faults, cut| faults.without(*cut));
        let mut world = Self {
            faults,
            strikes: Strikes::default(),
            struck: 0,
            draw: Seeded::new(!options.seed),
            queue: Queue::new(),
            store: SimStore::new(&options.settings, options.missing),
            broker: SimBroker::new(options.destinations),
            slots: (0..options.relays).map(|_| Slot::new(&options.settings)).collect(),
            consumers: None,
            // Not at zero, so that spans into the past do not saturate.
            book: Book::new(Monotonic::new(Duration::from_secs(1_000)), keep),
            steps_at_this_moment: 0,
            rows_to_come: 0,
            healed_at: None,
            finishing: false,
            options,
            cut,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for relay in 0..self.options.relays {
            let delay = self.span(200);
            if !self.cut.relays.contains(&relay) {
                self.schedule(delay, Event::Start(relay));
            }
        }
        let longest = u64::try_from(self.options.faults_end.as_millis()).expect("the span is short");
        let mut moments: Vec<u64> = (0..self.options.rows).map(|_| 1 + self.draw.below(longest)).collect();
        moments.sort_unstable();
        let hot = self.faults.may(Fault::HotAggregate);
        let mut facts = Vec::new();
        if hot && self.options.settings.order != Order::Competing {
            self.strikes.count(Fault::HotAggregate);
        }
        for (number, moment) in moments.into_iter().enumerate() {
            let mut row = self.draw_row(number, hot);
            if let Some(consumers) = &self.options.consumers {
                let fact = fact(&facts, &row, consumers.users);
                row.payload = fact.body.clone();
                facts.push(fact);
            }
            self.store.insert(row);
            if !self.cut.rows.contains(&number) {
                self.rows_to_come += 1;
                // Never two at one moment: their numbers are their order.
                let after = Duration::from_micros(moment * 1_000 + number as u64);
                self.schedule(after, Event::Insert(number));
            }
        }
        self.schedule(millis(100), Event::Chaos);
        if let Some(options) = self.options.consumers.clone() {
            self.consumers =
                Some(Consumers::new(options, self.faults, self.options.missing, facts, &mut self.book));
        }
    }

    fn draw_row(&mut self, number: usize, hot: bool) -> Row {
        let odd = [Nature::Invalid, Nature::Unroutable, Nature::Malformed, Nature::Stray];
        let (poison, oddity) = (self.draw.chance(20), self.draw.chance(25));
        let odd = self.draw.pick(&odd);
        let nature = if self.faults.may(Fault::Poison) && poison {
            Nature::Poison
        } else if self.faults.may(Fault::OddRows) && oddity {
            odd
        } else {
            Nature::Plain
        };
        match nature {
            Nature::Plain => {}
            Nature::Poison => self.strikes.count(Fault::Poison),
            _ => self.strikes.count(Fault::OddRows),
        }
        let destination = self.draw.index(self.options.destinations);
        let padding = if self.draw.chance(10) { 3_000 } else { self.draw.index(400) };
        let mut row = Row::new(number, nature, destination, padding);
        let aggregate = self.draw.index(self.options.aggregates);
        let none = self.draw.chance(10);
        if self.options.settings.order != Order::Competing && !none {
            row.aggregate = Some(if hot && self.draw.chance(80) { 0 } else { aggregate });
        }
        row
    }

    /// Runs through the faults, on until everything has drained, and to the end of every relay.
    pub fn run(mut self) -> Ending {
        let faults_end = self.book.now.plus(self.options.faults_end);
        while self.book.now < faults_end && self.sound() {
            self.step();
        }
        self.heal();
        let bound = self.book.now.plus(LIVENESS_BOUND);
        while self.sound() && !self.drained() {
            if self.book.now >= bound {
                if !self.published() {
                    self.check_liveness();
                } else if let (Some(consumers), Some(since)) = (&mut self.consumers, self.healed_at) {
                    consumers.check_liveness(&mut self.book, since);
                }
                break;
            }
            self.step();
        }
        self.finish();
        if let Some(consumers) = &self.consumers {
            self.strikes.merge(&consumers.strikes());
        }
        Ending { book: self.book, strikes: self.strikes, struck: self.struck }
    }

    fn sound(&self) -> bool {
        self.book.violation.is_none()
    }

    /// The faults stop. What works from now on works for good; some relays may stay dead for good.
    fn heal(&mut self) {
        self.book.note(Actor::World, "the faults stop", None, 0);
        let stay_dead = self.faults.may(Fault::DeadRelays);
        self.faults = Faults::NONE;
        self.healed_at = Some(self.book.now);
        self.broker.heal();
        if let Some(consumers) = &mut self.consumers {
            consumers.heal();
        }
        if stay_dead {
            self.bury_some();
        }
        for destination in 0..self.options.destinations {
            self.tell_readiness(destination);
        }
        self.store.unlock_all();
    }

    fn drained(&self) -> bool {
        self.published() && self.consumers.as_ref().is_none_or(Consumers::drained)
    }

    /// True when nothing more can become of any row.
    fn published(&self) -> bool {
        self.rows_to_come == 0 && (0..self.store.rows().len()).all(|number| self.store.ended(number))
    }

    /// Drains every relay and gives the last account.
    fn finish(&mut self) {
        let bound = self.book.now.plus(self.options.settings.drain).plus(Duration::from_mins(1));
        self.finishing = true;
        for relay in 0..self.slots.len() {
            if self.sound() {
                self.drain(relay);
            }
        }
        while self.sound() && self.slots.iter().any(Slot::alive) {
            let now = self.book.now;
            require!(self.book, "L6", None, now < bound, "a relay does not stop");
            self.step();
        }
        if self.sound() {
            self.check_at_the_end();
        }
        self.settle_consumers();
    }

    /// What relays published last is consumed, and the consumers give their account.
    fn settle_consumers(&mut self) {
        let bound = self.book.now.plus(LIVENESS_BOUND);
        while self.sound() && !self.drained() && self.book.now < bound {
            self.step();
        }
        let sound = self.sound();
        if let Some(consumers) = self.consumers.as_mut().filter(|_| sound) {
            consumers.check_at_the_end(&mut self.book);
        }
    }

    /// The next thing happens: an event, or a relay's timer.
    fn step(&mut self) {
        let timers = self.slots.iter().enumerate().filter_map(|(relay, slot)| Some((slot.timer()?, relay)));
        let timer = timers.min();
        let event = self.queue.next_at();
        let delivery = self.consumers.as_ref().and_then(Consumers::next_at);
        let Some(at) = timer.map(|(at, _)| at).into_iter().chain(event).chain(delivery).min() else {
            return self.book.violate("L1", None, "nothing is to come any more".into());
        };
        self.steps_at_this_moment = if at > self.book.now { 0 } else { self.steps_at_this_moment + 1 };
        let steps = self.steps_at_this_moment;
        require!(self.book, "L0", None, steps < STEPS_PER_MOMENT_MAX, "a loop at one moment");
        self.book.now = self.book.now.max(at);
        if let Some(consumers) = self.consumers.as_mut().filter(|_| delivery == Some(at)) {
            return consumers.step(&mut self.book);
        }
        match timer {
            Some((timer, relay)) if event.is_none_or(|event| timer <= event) => self.tick(relay),
            _ => {
                if let Some((_, event)) = self.queue.pop() {
                    self.happen(event);
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Insert(row) => self.insert(row),
            Event::Commit(row) => self.commit(row),
            Event::Start(relay) => self.start(relay),
            Event::Work(relay, incarnation, work) => self.work(relay, incarnation, work),
            Event::Reply(relay, incarnation, input) => self.reply(relay, incarnation, input),
            Event::Accept(sent) => self.accept(sent),
            Event::Landing { relay, incarnation, id, edition, outcome } => {
                self.landing(relay, incarnation, id, edition, outcome);
            }
            Event::ChannelDeath { relay, incarnation, id } => self.channel_death(relay, incarnation, id),
            Event::Readiness { relay, incarnation, destination } => {
                self.readiness(relay, incarnation, destination);
            }
            Event::Reconnect { relay, incarnation, destination } => {
                self.reconnect(relay, incarnation, destination);
            }
            Event::OutageEnds(destination) => {
                self.broker.destinations[destination].down = false;
                self.tell_readiness(destination);
            }
            Event::Unblock(destination) => self.unblock(destination),
            Event::Bind(destination) => {
                self.book.note(Actor::Broker(destination), "bound again", None, 0);
                self.broker.destinations[destination].unbound = false;
            }
            Event::Unlock(row) => self.store.row_mut(row).locked = false,
            Event::Chaos => self.chaos(),
        }
    }

    /// A producer inserts a row, and commits, or rolls back.
    fn insert(&mut self, number: usize) {
        if self.strikes(Fault::Rollbacks, 20) {
            self.book.note(Actor::Producer, "rolls back", Some(number), 0);
            self.book.met.meet(Met::RolledBack);
            self.rows_to_come -= 1;
        } else if self.store.row(number).aggregate.is_none() && self.draw.chance(20) {
            // Transactions of one aggregate follow each other; others may be open side by side.
            let delay = self.span(1_500);
            self.schedule(delay, Event::Commit(number));
        } else {
            self.commit(number);
        }
    }

    fn commit(&mut self, number: usize) {
        self.rows_to_come -= 1;
        self.store.commit(&mut self.book, number);
        if self.draw.chance(50) {
            (0..self.slots.len()).for_each(|relay| self.feed(relay, Input::Wakeup));
        }
    }

    /// A fault of this kind strikes in `percent` of a hundred draws, if it may.
    fn strikes(&mut self, fault: Fault, percent: u64) -> bool {
        if !self.faults.may(fault) || !self.draw.chance(percent) {
            return false;
        }
        let number = self.struck;
        self.struck += 1;
        let strikes = !self.cut.strikes.contains(&number);
        if strikes {
            self.strikes.count(fault);
        }
        strikes
    }

    fn schedule(&mut self, delay: Duration, event: Event) {
        self.schedule_at(self.book.now.plus(delay), event);
    }

    fn schedule_at(&mut self, at: Monotonic, event: Event) {
        let tie = self.draw.number();
        self.queue.push(at, tie, event);
    }

    /// Up to `longest` milliseconds, at least one.
    fn span(&mut self, longest: u64) -> Duration {
        millis(1 + self.draw.below(longest.max(1)))
    }

    /// True when the row's status is this one.
    fn is(&self, number: usize, status: Status) -> bool {
        self.store.row(number).status == status
    }
}

/// What a row says to the consumers.
fn fact(before: &[Fact], row: &Row, users: i64) -> Fact {
    let aggregate = row.aggregate;
    let alone = Fact::of_the_outbox(row.number, aggregate, 1, users);
    let earlier = before.iter().filter(|fact| aggregate.is_some() && fact.stream == alone.stream).count();
    let version = 1 + i64::try_from(earlier).unwrap_or(0);
    Fact { version, ..alone }.with_body(row.payload.len())
}
