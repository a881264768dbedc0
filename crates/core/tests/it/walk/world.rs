//! The world of one walk: relays, the store, destinations and what goes wrong between them.

mod chaos;
mod relay;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use consign_core::lease::{ClaimRequest, PublishId};
use consign_core::outcome::Outcome;
use consign_core::ports::StoreError;
use consign_core::relay::{Input, Order};
use consign_core::settle::SettleBatch;
use consign_core::time::Monotonic;

use crate::draw::Seeded;
use crate::harness::{millis, seconds};

use super::options::{Fault, Faults, Options};
use super::queue::Queue;
use super::store::{Nature, Row, Status, Store};
use super::witness::{Met, Witness};
use relay::Slot;

pub const DESTINATIONS: [&str; 2] = ["a", "b"];

/// Once the faults have stopped everything must have drained after this long (L1).
const LIVENESS_BOUND: Duration = Duration::from_mins(3);
/// So many steps at one moment are a loop.
const STEPS_PER_MOMENT_MAX: u32 = 2_000;

/// A unit of work on its way to the store.
#[derive(Debug)]
enum Work {
    Claim(ClaimRequest),
    Settle(SettleBatch),
    Sweep { limit: u32, delay: Duration, attempts_max: u32 },
}

#[derive(Debug)]
enum Event {
    Insert(Row),
    Start(usize),
    /// The store runs a unit of work, whether or not its relay still lives.
    Work(usize, u64, Work),
    Reply(usize, u64, Input),
    /// The broker takes a message that was published under this token.
    Accept {
        relay: usize,
        incarnation: u64,
        row: usize,
        token: String,
    },
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
    OutageEnds {
        destination: usize,
    },
    Chaos,
}

pub struct World {
    options: Options,
    faults: Faults,
    draw: Seeded,
    now: Monotonic,
    queue: Queue<Event>,
    store: Store,
    slots: Vec<Slot>,
    /// Which destinations are up at all.
    up: [bool; DESTINATIONS.len()],
    met: Witness,
    trace: DefaultHasher,
    steps_at_this_moment: u32,
    /// Set once everything has drained: relays that stop are not replaced.
    finishing: bool,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let options = Options::draw(seed);
        let store = Store::new(options.settings.retry.attempts_max, options.settings.order);
        let mut world = Self {
            faults: options.faults,
            draw: Seeded::new(!seed),
            // Not at zero, so that spans into the past do not saturate.
            now: Monotonic::new(seconds(1_000)),
            queue: Queue::new(),
            store,
            slots: (0..options.relays).map(|_| Slot::default()).collect(),
            up: [true; DESTINATIONS.len()],
            met: Witness::default(),
            trace: DefaultHasher::new(),
            steps_at_this_moment: 0,
            finishing: false,
            options,
        };
        for relay in 0..world.options.relays {
            let delay = world.span(200);
            world.schedule(delay, Event::Start(relay));
        }
        for _ in 0..world.options.rows {
            let delay = world.span(u64::try_from(world.options.faults_end.as_millis()).unwrap());
            let row = world.draw_row(world.now.plus(delay));
            world.schedule(delay, Event::Insert(row));
        }
        world.schedule(millis(100), Event::Chaos);
        world
    }

    fn draw_row(&mut self, created_at: Monotonic) -> Row {
        let odd = [Nature::Invalid, Nature::Unroutable, Nature::Malformed, Nature::Stray];
        let nature = if self.faults.may(Fault::Poison) && self.draw.chance(20) {
            Nature::Poison
        } else if self.faults.may(Fault::OddRows) && self.draw.chance(25) {
            odd[self.draw.index(4)]
        } else {
            Nature::Plain
        };
        let destination = self.draw.index(self.options.destinations);
        let payload_bytes = if self.draw.chance(10) { 3_000 } else { self.draw.index(400) };
        let mut row = Row::new(nature, destination, payload_bytes, created_at);
        if self.options.settings.order != Order::Competing && !self.draw.chance(10) {
            row.aggregate = Some(self.draw.index(self.options.aggregates));
        }
        row
    }

    /// Walks through the faults and on until everything has drained.
    pub fn run(&mut self) {
        let faults_end = self.now.plus(self.options.faults_end);
        let bound = faults_end.plus(LIVENESS_BOUND);
        while self.now < faults_end {
            self.step();
        }
        self.faults = Faults::NONE;
        while !self.drained() {
            assert!(self.now < bound, "not drained long after the faults: {:?}", self.store.rows);
            self.step();
        }
    }

    fn drained(&self) -> bool {
        let rows = self.store.rows.len();
        rows == self.options.rows && (0..rows).all(|number| self.store.ended(number))
    }

    /// Drains every relay and gives the last account.
    pub fn finish(mut self) -> (Witness, u64) {
        let bound = self.now.plus(self.options.settings.drain).plus(seconds(60));
        self.finishing = true;
        for relay in 0..self.slots.len() {
            self.drain(relay);
        }
        while self.slots.iter().any(Slot::alive) {
            assert!(self.now < bound, "a relay does not stop");
            self.step();
        }
        for number in 0..self.store.rows.len() {
            self.check_at_the_end(number);
        }
        if self.store.rows.iter().all(|row| row.status == Status::Sent) {
            self.met.meet(Met::AllSent);
        }
        if self.store.rows.iter().any(|row| row.copies > 1) {
            self.met.meet(Met::PublishedTwice);
        }
        (self.met, self.trace.finish())
    }

    fn check_at_the_end(&self, number: usize) {
        let row = &self.store.rows[number];
        assert!(self.store.ended(number), "L6: a drained relay left {row:?}");
        assert!(row.copies <= row.publishes, "I11: more copies than publishes: {row:?}");
        let deliverable = row.nature == Nature::Plain;
        assert!(deliverable || row.status != Status::Sent, "I3: {row:?}");
        if self.options.faults == Faults::NONE {
            // Without a fault everything arrives at its first attempt, once.
            assert_eq!((row.status, row.copies, row.attempts), (Status::Sent, 1, 1), "{row:?}");
        }
    }

    /// The next thing happens: an event, or a relay's timer.
    fn step(&mut self) {
        let timers = self.slots.iter().enumerate().filter_map(|(relay, slot)| Some((slot.timer()?, relay)));
        let timer = timers.min();
        let event = self.queue.next_at();
        let at = timer.map(|(at, _)| at).into_iter().chain(event).min().expect("something is always to come");
        self.steps_at_this_moment = if at > self.now { 0 } else { self.steps_at_this_moment + 1 };
        assert!(self.steps_at_this_moment < STEPS_PER_MOMENT_MAX, "a loop at {at:?}");
        self.now = self.now.max(at);
        match timer {
            Some((timer, relay)) if event.is_none_or(|event| timer <= event) => {
                self.note(("timer", relay));
                self.tick(relay);
            }
            _ => {
                let (_, event) = self.queue.pop().expect("it was looked at");
                self.happen(event);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Insert(row) => {
                self.store.rows.push(row);
                if self.draw.chance(50) {
                    (0..self.slots.len()).for_each(|relay| self.feed(relay, Input::Wakeup));
                }
            }
            Event::Start(_) if self.finishing => {}
            Event::Start(relay) => self.start(relay),
            Event::Work(relay, incarnation, work) => self.work(relay, incarnation, work),
            Event::Reply(relay, incarnation, input) => self.reply(relay, incarnation, input),
            Event::Accept { relay, incarnation, row, token } => {
                // What a dead relay had written may still be in a buffer that is lost.
                if self.slots[relay].is(incarnation) || self.draw.chance(70) {
                    self.accept(row, &token);
                }
            }
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
            Event::OutageEnds { destination } => {
                self.up[destination] = true;
                self.tell_readiness(destination);
            }
            Event::Chaos => self.chaos(),
        }
    }

    fn accept(&mut self, number: usize, token: &str) {
        let row = &mut self.store.rows[number];
        row.copies += 1;
        if row.token.as_deref() != Some(token) {
            self.met.meet(Met::CopyAfterTheLeaseWasLost);
        }
        self.note(("accept", number));
    }

    /// The store runs a unit of work: it may fail, and its answer may be lost whether it was applied or not.
    fn work(&mut self, relay: usize, incarnation: u64, work: Work) {
        let alive = self.slots[relay].is(incarnation);
        // A dead relay's unit may still be in a buffer that is lost; after the end nobody would clean up behind it.
        if !alive && (self.finishing || self.draw.chance(50)) {
            return;
        }
        if let Work::Claim(request) = &work
            && alive
        {
            self.slots[relay].claiming = Some(request.token().to_hex());
        }
        let answer = match self.failure() {
            Some(error) => fail(work, error),
            None => self.apply(work),
        };
        let unknown = self.faults.may(Fault::LostCommits) && self.draw.chance(15);
        let answer = if unknown { self.lose(answer) } else { answer };
        let slow = self.faults.may(Fault::SlowStore) && self.draw.chance(10);
        let delay = if slow { self.span(8_000) } else { self.span(20) };
        self.schedule(delay, Event::Reply(relay, incarnation, answer));
    }

    fn failure(&mut self) -> Option<StoreError> {
        if self.faults.may(Fault::StoreFailures) && self.draw.chance(20) {
            return Some(if self.draw.chance(50) {
                StoreError::Contended("deadlock".into())
            } else {
                StoreError::Unavailable("read-only".into())
            });
        }
        let unapplied = self.faults.may(Fault::LostCommits) && self.draw.chance(10);
        unapplied.then(|| StoreError::CommitUnknown("connection lost".into()))
    }

    fn apply(&mut self, work: Work) -> Input {
        match work {
            Work::Claim(request) => Input::Claimed(self.store.claim(self.now, &request)),
            Work::Settle(batch) => match self.store.settle(self.now, &batch, &mut self.met) {
                Ok(answers) => Input::Settled(batch, answers),
                Err(error) => Input::SettleFailed(batch, error),
            },
            Work::Sweep { limit, delay, attempts_max } => {
                Input::Swept(self.store.sweep(self.now, limit, delay, attempts_max, &mut self.met))
            }
        }
    }

    /// The unit was applied, and nobody hears of it.
    fn lose(&mut self, answer: Input) -> Input {
        let error = StoreError::CommitUnknown("connection lost".into());
        match answer {
            Input::Claimed(claimed) => {
                if !claimed.claims.is_empty() {
                    self.met.meet(Met::ClaimUnknownButApplied);
                }
                Input::ClaimFailed(error)
            }
            Input::Settled(batch, _) => Input::SettleFailed(batch, error),
            Input::Swept(_) => Input::SweepFailed(error),
            failed => failed,
        }
    }

    fn schedule(&mut self, delay: Duration, event: Event) {
        self.schedule_at(self.now.plus(delay), event);
    }

    fn schedule_at(&mut self, at: Monotonic, event: Event) {
        let tie = self.draw.next();
        self.queue.push(at, tie, event);
    }

    /// Up to `longest` milliseconds, at least one.
    fn span(&mut self, longest: u64) -> Duration {
        millis(1 + self.draw.below(longest))
    }

    fn note(&mut self, what: impl Hash) {
        (self.now.since_origin(), what).hash(&mut self.trace);
    }
}

fn fail(work: Work, error: StoreError) -> Input {
    match work {
        Work::Claim(_) => Input::ClaimFailed(error),
        Work::Settle(batch) => Input::SettleFailed(batch, error),
        Work::Sweep { .. } => Input::SweepFailed(error),
    }
}
