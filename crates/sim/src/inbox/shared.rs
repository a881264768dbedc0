//! What the futures of consumers share with the schedule: the database, the queue, the clock and what goes wrong.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use consign_core::time::Monotonic;

use crate::book::Book;
use crate::draw::Seeded;
use crate::guard::StoreGuard;
use crate::options::{Fault, Faults, Strikes, millis};
use crate::queue::Queue;
use crate::trace::Actor;

use super::deliveries::Deliveries;
use super::facts::{Fact, Rule};
use super::tables::{Broken, Tables};

/// Something that is to happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alarm {
    /// An await of a task goes on.
    Wake { task: usize, ticket: u64, wake: Wake },
    /// A process looks around.
    Turn(usize),
    /// A process starts.
    Start(usize),
    /// A copy of a fact arrives in the queue.
    Arrive(usize),
    /// A copy that was handed back can be delivered again.
    Return(usize),
    /// The server notices that a transaction's client is gone.
    Notice { transaction: usize, serial: u64 },
    /// A COMMIT that its client gave up on is applied after all.
    LateCommit { transaction: usize, serial: u64 },
    /// An account is opened.
    OpenAccount(i64),
    /// Something goes wrong, perhaps.
    Chaos,
}

/// Why an await goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Its time has come, or what it waited for is there.
    Go,
    /// It waited too long.
    TimedOut,
    /// It was chosen as the victim of a deadlock.
    Victim,
}

/// What the schedule knows of a consumer process.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is drawn or set on its own")]
pub struct ProcessState {
    /// It runs.
    pub alive: bool,
    /// Counts its starts.
    pub incarnation: u64,
    /// It takes no more deliveries and finishes those in hand.
    pub stopping: bool,
    /// A conflict asked it to stop.
    pub halted: bool,
    /// It stands still until then.
    pub stalled_until: Monotonic,
    /// When its next turn is.
    pub turn_at: Option<Monotonic>,
    /// It should look for parked deliveries at its next turn.
    pub look_now: bool,
}

/// Everything shared.
#[derive(Debug)]
pub struct State {
    /// What is written down, with the time.
    pub book: Book,
    /// A guard of the database that is missing.
    pub missing: Option<StoreGuard>,
    /// Randomness.
    pub draw: Seeded,
    /// Faults that may happen now.
    pub faults: Faults,
    /// Faults that struck.
    pub strikes: Strikes,
    /// What is to happen.
    pub(super) alarms: Queue<Alarm>,
    /// The database.
    pub tables: Tables,
    /// The queue.
    pub deliveries: Deliveries,
    /// What messages say, by their number.
    pub facts: Vec<Fact>,
    /// What keeps streams in order.
    pub rule: Rule,
    /// Processes.
    pub processes: Vec<ProcessState>,
    /// Nobody schedules: awaits go on as soon as they are polled again, and nothing goes wrong. For the behaviour suite.
    pub free: bool,
    /// Writes fail until then.
    pub read_only_until: Monotonic,
    /// The process and the task that are being polled.
    pub running: (usize, usize),
    /// The await that goes on now.
    woken: Option<(u64, Wake)>,
    tickets: u64,
    /// The await that each task is at.
    awaits: Vec<u64>,
    /// Awaits that end when their process is told to stop: process, task, ticket.
    pauses: Vec<(usize, usize, u64)>,
    /// Tells one use of a transaction's number from the next.
    pub serials: Vec<u64>,
    /// COMMITs whose answer was lost, by order: whether it was applied.
    pub unknown_commits: Vec<(i64, bool)>,
    /// Orders whose acknowledgement was lost on its way.
    pub lost_acks: Vec<usize>,
    /// Orders whose entry the database refused.
    pub refused_orders: Vec<i64>,
    /// Facts that came before the step before them was applied.
    pub early: Vec<usize>,
    /// Users whose account was not there when it was wanted.
    pub missed_users: Vec<i64>,
    /// The last version applied to each stream.
    pub streams: BTreeMap<i64, i64>,
    /// What the filter of repeats remembers: contents by key.
    pub filter: BTreeMap<String, String>,
    /// The process and incarnation that applied each order.
    pub applied_by: Vec<(i64, (usize, u64))>,
}

/// A handle on everything shared.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<State>>);

impl State {
    /// Nothing has happened.
    pub fn new(seed: u64, faults: Faults, rule: Rule, processes: usize) -> Self {
        let start = Monotonic::default();
        Self {
            book: Book::new(start, false),
            missing: None,
            draw: Seeded::new(seed),
            faults,
            strikes: Strikes::default(),
            alarms: Queue::new(),
            tables: Tables::default(),
            deliveries: Deliveries::new(processes),
            facts: Vec::new(),
            rule,
            processes: vec![ProcessState::default(); processes],
            free: false,
            read_only_until: start,
            running: (0, 0),
            woken: None,
            tickets: 0,
            awaits: Vec::new(),
            pauses: Vec::new(),
            serials: Vec::new(),
            unknown_commits: Vec::new(),
            lost_acks: Vec::new(),
            refused_orders: Vec::new(),
            early: Vec::new(),
            missed_users: Vec::new(),
            streams: BTreeMap::new(),
            filter: BTreeMap::new(),
            applied_by: Vec::new(),
        }
    }

    /// A fault of this kind strikes in `percent` of a hundred draws, if it may.
    pub fn strikes(&mut self, fault: Fault, percent: u64) -> bool {
        let strikes = !self.free && self.faults.may(fault) && self.draw.chance(percent);
        if strikes {
            self.strikes.count(fault);
        }
        strikes
    }

    /// True unless a mutant has taken the guard away.
    pub fn guards(&self, guard: StoreGuard) -> bool {
        self.missing != Some(guard)
    }

    /// Lets something happen after a delay.
    pub(super) fn schedule(&mut self, delay: Duration, alarm: Alarm) {
        let tie = self.draw.number();
        self.alarms.push(self.book.now.plus(delay), tie, alarm);
    }

    /// Up to `longest` milliseconds, at least one.
    pub fn span(&mut self, longest: u64) -> Duration {
        millis(1 + self.draw.below(longest.max(1)))
    }

    /// The way of a request or an answer.
    fn trip(&mut self) -> Duration {
        if self.strikes(Fault::SlowInbox, 4) {
            self.span(4_000)
        } else {
            Duration::from_micros(self.draw.below(9_000))
        }
    }

    /// The number of the fact that a message carries.
    pub fn fact_of(&self, message_id: Option<&str>) -> Option<usize> {
        let number = message_id?.parse().ok()?;
        (number < self.facts.len()).then_some(number)
    }

    /// Writes down what the running process did.
    pub fn note(&mut self, what: &'static str, fact: Option<usize>, detail: u64) {
        self.book.note(Actor::Consumer(self.running.0), what, fact, detail);
    }

    /// Begins an await of the running task.
    pub fn await_ticket(&mut self) -> u64 {
        self.tickets += 1;
        let task = self.running.1;
        if task >= self.awaits.len() {
            self.awaits.resize(task + 1, 0);
        }
        self.awaits[task] = self.tickets;
        self.tickets
    }

    /// True when the task is still at this await.
    pub fn at_await(&self, task: usize, ticket: u64) -> bool {
        self.awaits.get(task) == Some(&ticket)
    }

    /// The task is gone: none of its awaits goes on.
    pub fn forget_task(&mut self, task: usize) {
        if let Some(at) = self.awaits.get_mut(task) {
            *at = 0;
        }
    }

    /// Polls of the running task let this await go on.
    pub fn wake(&mut self, process: usize, task: usize, woken: Option<(u64, Wake)>) {
        (self.running, self.woken) = ((process, task), woken);
    }

    /// Why an await goes on, once it does.
    pub fn woken(&self, ticket: u64) -> Option<Wake> {
        self.woken.filter(|(woken, _)| *woken == ticket).map(|(_, wake)| wake)
    }

    /// The task that is at this await.
    fn task_at(&self, ticket: u64) -> Option<usize> {
        self.awaits.iter().position(|at| *at == ticket)
    }

    /// Lets an await go on soon.
    pub fn wake_soon(&mut self, ticket: u64, wake: Wake) {
        if let Some(task) = self.task_at(ticket) {
            let delay = Duration::from_micros(self.draw.below(2_000));
            self.schedule(delay, Alarm::Wake { task, ticket, wake });
        }
    }

    /// Ends a transaction's locks, and lets those go on who waited for them.
    pub fn release(&mut self, transaction: usize) {
        for waiter in self.tables.locks.release(transaction) {
            match waiter.waker {
                Some(waker) => waker.wake(),
                None => self.wake_soon(waiter.ticket, Wake::Go),
            }
        }
    }

    /// The server rolls a transaction back; its client learns of it at its next statement.
    pub fn break_transaction(&mut self, transaction: usize, broken: Broken) {
        let open = self.tables.transaction(transaction);
        if open.broken.is_none() {
            open.broken = Some(broken);
            self.release(transaction);
        }
    }

    /// A transaction is over without a trace.
    pub fn discard(&mut self, transaction: usize) {
        self.release(transaction);
        self.tables.open[transaction] = None;
        self.serials[transaction] += 1;
    }

    /// The process gets a turn soon.
    pub fn turn_soon(&mut self, process: usize) {
        self.turn_after(process, Duration::ZERO);
    }

    /// The process gets a turn after this delay, or before.
    pub fn turn_after(&mut self, process: usize, delay: Duration) {
        let jitter = Duration::from_micros(self.draw.below(3_000));
        let at = self.book.now.plus(delay + jitter);
        let known = self.processes[process].turn_at;
        if self.processes[process].alive && known.is_none_or(|known| known > at) {
            self.processes[process].turn_at = Some(at);
            let tie = self.draw.number();
            self.alarms.push(at, tie, Alarm::Turn(process));
        }
    }

    /// Tells a process to stop.
    pub fn stop(&mut self, process: usize) {
        self.processes[process].stopping = true;
        let pauses = std::mem::take(&mut self.pauses);
        for (paused, task, ticket) in pauses {
            if paused == process {
                self.wake_soon(ticket, Wake::Go);
            } else if self.at_await(task, ticket) {
                self.pauses.push((paused, task, ticket));
            }
        }
        self.turn_soon(process);
    }
}

impl Shared {
    /// A handle.
    pub fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// The state, locked. Nothing awaits while it is.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request or an answer on its way.
    pub fn trip(&self) -> Nap {
        let span = self.state().trip();
        self.nap(span)
    }

    /// Time passes.
    pub fn nap(&self, span: Duration) -> Nap {
        Nap { shared: self.clone(), span, ticket: None, pause: false }
    }

    /// Time passes, or the process is told to stop: `false` then.
    pub async fn pause(&self, span: Duration) -> bool {
        let process = self.state().running.0;
        if self.state().processes[process].stopping {
            return false;
        }
        Nap { shared: self.clone(), span, ticket: None, pause: true }.await;
        !self.state().processes[process].stopping
    }
}

/// Some time that passes.
#[derive(Debug)]
pub struct Nap {
    shared: Shared,
    span: Duration,
    ticket: Option<u64>,
    pause: bool,
}

impl Future for Nap {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let nap = self.get_mut();
        let shared = nap.shared.clone();
        let mut state = shared.state();
        match nap.ticket {
            Some(_) if state.free => Poll::Ready(()),
            Some(ticket) if state.woken(ticket).is_some() => Poll::Ready(()),
            Some(_) => Poll::Pending,
            None if state.free => {
                nap.ticket = Some(0);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                let ticket = state.await_ticket();
                let (process, task) = state.running;
                if nap.pause {
                    state.pauses.push((process, task, ticket));
                }
                state.schedule(nap.span, Alarm::Wake { task, ticket, wake: Wake::Go });
                nap.ticket = Some(ticket);
                Poll::Pending
            }
        }
    }
}
