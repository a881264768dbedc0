//! The consumers' half of the world: their processes run the shipped worker and inbox over a queue and a database in
//! memory. Their futures are polled by hand, one await at a time, so that anything can happen between two of them.
//!
//! - [`options`]: what a seed decides. [`facts`]: what messages say, and the consumer that reads them.
//! - [`deliveries`]: the queue and the dead letters. [`store`], [`transaction`], [`tables`], [`locks`]: the database.
//! - [`around`]: what a process gives its worker. [`shared`]: the schedule.
//! - [`check`]: invariants. [`situations`]: what is worth meeting.

mod around;
mod chaos;
pub mod check;
pub mod deliveries;
pub mod facts;
mod feed;
pub mod locks;
pub mod options;
mod process;
pub mod shared;
pub mod situations;
pub mod store;
pub mod tables;
pub mod transaction;

use std::mem::swap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use consign_core::declared::DeclaredConsumer;
use consign_core::time::Monotonic;

use crate::book::Book;
use crate::guard::StoreGuard;
use crate::options::{Faults, Strikes};

use options::ConsumerOptions;
use process::{Done, Process, Task};
use shared::{Alarm, Shared, State, Wake};

/// All consumers of one seed, with their queue and their database.
#[derive(Debug)]
pub struct Consumers {
    shared: Shared,
    options: ConsumerOptions,
    consumer: Arc<DeclaredConsumer>,
    processes: Vec<Process>,
    tasks: Vec<Option<Task>>,
}

/// A task that came to its end.
struct Ended {
    process: usize,
    done: Done,
}

impl Consumers {
    /// The consumers of these options; the facts of the outbox come first.
    pub fn new(
        options: ConsumerOptions,
        faults: Faults,
        missing: Option<StoreGuard>,
        outbox: Vec<facts::Fact>,
        book: &mut Book,
    ) -> Self {
        let mut state = State::new(options.seed, faults, options.rule, options.processes);
        (state.deliveries.prefetch, state.deliveries.counts) = (options.prefetch, options.counts);
        (state.facts, state.missing) = (outbox, missing);
        let consumer = facts::consumer(options.rule, options.accounts, options.fingerprint);
        let settings = &options.settings;
        let bounds = consign_core::consumer::Bounds { rows: settings.batch, bytes: settings.batch_bytes };
        let process = |_| Process::new(settings.workers, bounds);
        let mut consumers = Self {
            shared: Shared::new(state),
            consumer: Arc::new(consumer),
            processes: (0..options.processes).map(process).collect(),
            tasks: Vec::new(),
            options,
        };
        consumers.with_book(book, Self::feed);
        consumers
    }

    /// Runs something that writes into the world's book.
    fn with_book<T>(&mut self, book: &mut Book, run: impl FnOnce(&mut Self) -> T) -> T {
        swap(&mut self.shared.state().book, book);
        let result = run(self);
        swap(&mut self.shared.state().book, book);
        result
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Monotonic> {
        self.shared.state().alarms.next_at()
    }

    /// The next thing happens; the book's time is that moment.
    pub fn step(&mut self, book: &mut Book) {
        let Some((_, alarm)) = self.shared.state().alarms.pop() else { return };
        self.with_book(book, |consumers| consumers.happen(alarm));
    }

    /// A copy of a fact of the outbox was published.
    pub fn publish(&mut self, book: &mut Book, fact: usize) {
        self.with_book(book, |consumers| consumers.shared.state().arrive(fact));
    }

    /// True when nothing waits, in the queue or in the database.
    pub fn drained(&self) -> bool {
        self.shared.state().drained()
    }

    /// The last account: everything came to something, and nothing is left.
    pub fn check_at_the_end(&mut self, book: &mut Book) {
        self.with_book(book, |consumers| consumers.shared.state().check_at_the_end());
    }

    /// Long after the faults, at `since`, something still waits.
    pub fn check_liveness(&mut self, book: &mut Book, since: Monotonic) {
        self.with_book(book, |consumers| consumers.shared.state().check_liveness(since));
    }

    /// Faults that struck.
    pub fn strikes(&self) -> Strikes {
        self.shared.state().strikes
    }

    fn happen(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Wake { task, ticket, wake } => self.wake(task, ticket, wake),
            Alarm::Turn(process) => {
                let mut state = self.shared.state();
                let (now, at) = (state.book.now, state.processes[process].turn_at);
                if !state.processes[process].alive || at.is_none_or(|at| at > now) {
                    return;
                }
                state.processes[process].turn_at = None;
                let stalled = state.processes[process].stalled_until;
                if stalled > now {
                    return state.turn_after(process, stalled.since(now));
                }
                drop(state);
                self.turn(process);
            }
            Alarm::Start(process) => self.start(process),
            Alarm::Arrive(fact) => {
                let mut state = self.shared.state();
                state.deliveries.to_come -= 1;
                state.arrive(fact);
            }
            Alarm::Return(copy) => self.shared.state().come_back(copy),
            Alarm::Notice { transaction, serial } => self.shared.state().notice(transaction, serial),
            Alarm::LateCommit { transaction, serial } => self.shared.state().commit_late(transaction, serial),
            Alarm::OpenAccount(user) => {
                self.shared.state().tables.accounts.entry(user).or_default();
            }
            Alarm::Chaos => self.chaos(),
        }
    }

    fn wake(&mut self, task: usize, ticket: u64, wake: Wake) {
        let Some(process) = self.tasks.get(task).and_then(Option::as_ref).map(|task| task.process) else {
            return;
        };
        {
            let mut state = self.shared.state();
            if !state.at_await(task, ticket) {
                return;
            }
            let (now, stalled) = (state.book.now, state.processes[process].stalled_until);
            if stalled > now {
                return state.schedule(stalled.since(now), Alarm::Wake { task, ticket, wake });
            }
        }
        self.poll(task, Some((ticket, wake)));
    }

    /// Polls a task, and the tasks that follow from its end.
    fn poll(&mut self, number: usize, woken: Option<(u64, Wake)>) {
        let Some(task) = &mut self.tasks[number] else { return };
        self.shared.state().wake(task.process, number, woken);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(done) = task.future.as_mut().poll(&mut context) else { return };
        let process = task.process;
        self.tasks[number] = None;
        self.shared.state().forget_task(number);
        self.ended(Ended { process, done });
    }
}
