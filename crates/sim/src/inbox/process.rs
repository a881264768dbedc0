//! Consumer processes: they take deliveries, spread them over lanes, and run the shipped worker over each batch.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use consign_core::consumer::{AnyReceipt, Batch, Bounds, DeadLetters, Lanes, Report, Worker};
use consign_core::declared::DeclaredChange;
use consign_core::delivery::Delivery;
use consign_core::inbox::{Inbox, Unit};
use consign_core::ports::{ParkedDelivery, Parking, StoreError};
use consign_core::route::{DestinationName, Route};
use consign_core::time::Monotonic;

use super::around::{Around, SimFilter};
use super::deliveries::{SimDeadLetters, SimReceipt, next_delivery};
use super::facts::CONSUMER;
use super::situations::Met;
use super::store::SimInbox;
use super::{Consumers, Ended};

/// The pause after the first look for parked deliveries that found none; each further one is twice as long.
const IDLE_MIN: Duration = Duration::from_millis(50);
/// The longest pause between looks.
const IDLE_MAX: Duration = Duration::from_secs(1);

type AnyReceiptHere = AnyReceipt<SimReceipt, SimInbox>;
type SimWorker = Worker<SimInbox, SimDeadLetters, SimFilter, Around>;

/// What a task came to.
pub(super) enum Done {
    Batch(usize, Report),
    Looked(Result<Vec<ParkedDelivery>, StoreError>, Monotonic),
    Other,
}

type Running = Pin<Box<dyn Future<Output = Done> + Send>>;

/// One future of a process.
pub(super) struct Task {
    pub process: usize,
    pub future: Running,
}

/// One consumer process.
pub(super) struct Process {
    worker: Option<Arc<SimWorker>>,
    lanes: Lanes<AnyReceiptHere, DeclaredChange>,
    /// Parked deliveries that were leased and not begun.
    ready: VecDeque<(ParkedDelivery, Monotonic)>,
    looking: bool,
    look_at: Monotonic,
    idle: Duration,
    linger_until: Option<Monotonic>,
    /// Deliveries that were never begun when it was told to stop.
    unbegun: Option<Vec<Delivery<AnyReceiptHere>>>,
}

impl fmt::Debug for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Task").field("process", &self.process).finish_non_exhaustive()
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Process").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl Process {
    pub(super) fn new(workers: usize, bounds: Bounds) -> Self {
        Self {
            worker: None,
            lanes: Lanes::new(workers, bounds),
            ready: VecDeque::new(),
            looking: false,
            look_at: Monotonic::default(),
            idle: IDLE_MIN,
            linger_until: None,
            unbegun: None,
        }
    }
}

impl Consumers {
    fn fresh_process(&self) -> Process {
        let settings = &self.options.settings;
        Process::new(settings.workers, Bounds { rows: settings.batch, bytes: settings.batch_bytes })
    }

    /// A process starts.
    pub(super) fn start(&mut self, process: usize) {
        let mut state = self.shared.state();
        if state.processes[process].alive {
            return;
        }
        let incarnation = state.processes[process].incarnation + 1;
        state.processes[process] = super::shared::ProcessState {
            alive: true,
            incarnation,
            ..super::shared::ProcessState::default()
        };
        state.running = (process, 0);
        state.note("starts", None, incarnation);
        state.turn_soon(process);
        drop(state);
        let shared = self.shared.clone();
        let dead_letters = if self.options.dead_letters {
            let route = Route { destination: DestinationName::new("dead"), key: "dead".into() };
            DeadLetters::Destination(Arc::new(SimDeadLetters(shared.clone())), route)
        } else {
            DeadLetters::Table
        };
        let filter = SimFilter { shared: shared.clone(), present: self.options.filter };
        let worker = Worker::new(
            CONSUMER,
            Arc::new(Inbox::new(SimInbox(shared.clone()))),
            Arc::new(dead_letters),
            Arc::new(filter),
            self.options.settings.clone(),
            Around { shared, process },
        );
        self.processes[process] = self.fresh_process();
        self.processes[process].worker = Some(Arc::new(worker));
    }

    /// A process is killed: nothing of it goes on, and what it held comes again.
    pub(super) fn crash(&mut self, process: usize) {
        self.note_crash(process);
        for number in 0..self.tasks.len() {
            if self.tasks[number].as_ref().is_some_and(|task| task.process == process) {
                self.shared.state().forget_task(number);
                self.tasks[number] = None;
            }
        }
        self.close(process, true);
    }

    fn note_crash(&self, process: usize) {
        let mut state = self.shared.state();
        state.running = (process, 0);
        state.note("crashes", None, 0);
        let owner = (process, state.processes[process].incarnation);
        let inside =
            state.tables.open.iter().flatten().any(|open| open.owner == owner && !open.markers.is_empty());
        state.book.met.meet_if(inside, Met::CrashBeforeCommit);
        let held = state.deliveries.held_by(process);
        let unacknowledged = held.iter().any(|fact| {
            let order = state.facts[*fact].order;
            state.applied_by.contains(&(order, owner))
        });
        state.book.met.meet_if(unacknowledged, Met::CrashBeforeAck);
    }

    /// A process is gone, and another one takes its place.
    fn close(&mut self, process: usize, crashed: bool) {
        // Whatever it still had is dropped before the state is locked.
        self.processes[process] = self.fresh_process();
        let mut state = self.shared.state();
        state.processes[process].alive = false;
        state.processes[process].turn_at = None;
        state.replace_channel(process);
        if !crashed {
            state.running = (process, 0);
            state.note("has stopped", None, 0);
        }
        let delay = state.span(if crashed { 2_000 } else { 500 });
        state.schedule(delay, super::shared::Alarm::Start(process));
    }

    /// A process looks around: what has come, what may begin, and whether it is to stop.
    pub(super) fn turn(&mut self, process: usize) {
        let state = self.shared.state().processes[process];
        if state.halted && !state.stopping {
            self.shared.state().stop(process);
        }
        if state.stopping || state.halted {
            return self.wind_up(process);
        }
        self.accept(process);
        self.look(process, state.look_now);
        self.dispatch(process);
    }

    fn has_tasks(&self, process: usize) -> bool {
        self.tasks.iter().flatten().any(|task| task.process == process)
    }

    /// A process that is to stop finishes what it has begun, then hands back what it has not.
    fn wind_up(&mut self, process: usize) {
        if self.processes[process].unbegun.is_none() {
            let drained = self.processes[process].lanes.drain();
            self.shared.state().book.met.meet_if(!drained.is_empty(), Met::DrainedUnbegun);
            let unbegun = drained.into_iter().map(|unit| unit.delivery).collect();
            self.processes[process].unbegun = Some(unbegun);
        }
        if self.has_tasks(process) {
            return;
        }
        let unbegun = self.processes[process].unbegun.replace(Vec::new()).unwrap_or_default();
        let worker = self.processes[process].worker.clone();
        let Some(worker) = worker.filter(|_| !unbegun.is_empty()) else { return self.close(process, false) };
        self.spawn(process, async move {
            for delivery in unbegun {
                worker.return_unprocessed(delivery).await;
            }
            Done::Other
        });
    }

    /// Takes what the broker and the database hand out.
    fn accept(&mut self, process: usize) {
        while !self.processes[process].lanes.full() {
            let store = Arc::new(SimInbox(self.shared.clone()));
            let (delivery, wait) = if let Some((parked, until)) = self.processes[process].ready.pop_front() {
                let (delivery, wait) = AnyReceipt::from_parked(store, parked, until);
                (delivery, Some(wait))
            } else if let Some(delivery) = next_delivery(&self.shared, process) {
                (AnyReceipt::from_broker(delivery), None)
            } else {
                return;
            };
            match self.consumer.operation(&delivery.message) {
                Ok((operation, handler)) => {
                    let unit = Unit { delivery, operation, handler };
                    self.processes[process].lanes.accept(unit, wait);
                }
                Err(refusal) => self.refuse(process, delivery, refusal.to_string()),
            }
        }
    }

    fn refuse(&mut self, process: usize, delivery: Delivery<AnyReceiptHere>, reason: String) {
        let Some(worker) = self.processes[process].worker.clone() else { return };
        self.spawn(process, async move {
            worker.refuse(delivery, reason).await;
            Done::Other
        });
    }

    /// Looks for parked deliveries that are due.
    fn look(&mut self, process: usize, now_please: bool) {
        let here = &mut self.processes[process];
        let now = self.shared.state().book.now;
        if now_please {
            here.idle = IDLE_MIN;
        }
        if here.looking || !here.ready.is_empty() {
            return;
        }
        if !now_please && here.look_at > now {
            let delay = here.look_at.since(now);
            return self.shared.state().turn_after(process, delay);
        }
        self.shared.state().processes[process].look_now = false;
        here.looking = true;
        let (store, lease) = (SimInbox(self.shared.clone()), self.options.lease);
        let until = now.plus(lease);
        let limit = u32::try_from(self.options.settings.batch).unwrap_or(u32::MAX);
        self.spawn(process, async move {
            Done::Looked(Parking::due(&store, CONSUMER, limit, lease).await, until)
        });
    }

    fn looked(&mut self, process: usize, found: Result<Vec<ParkedDelivery>, StoreError>, until: Monotonic) {
        let here = &mut self.processes[process];
        here.looking = false;
        let now = self.shared.state().book.now;
        match found {
            Ok(found) if found.is_empty() => here.idle = (here.idle * 2).min(IDLE_MAX),
            Ok(found) => {
                here.ready.extend(found.into_iter().map(|parked| (parked, until)));
                here.idle = IDLE_MIN;
            }
            Err(_) => here.idle = IDLE_MAX,
        }
        here.look_at = now.plus(here.idle);
    }

    /// Begins the batches that are complete, or have waited for company long enough.
    fn dispatch(&mut self, process: usize) {
        let now = self.shared.state().book.now;
        let here = &mut self.processes[process];
        let lingered = here.linger_until.is_some_and(|until| until <= now);
        while let Some(batch) = self.processes[process].lanes.take(lingered) {
            self.begin(process, batch);
        }
        let here = &mut self.processes[process];
        if !here.lanes.partial() {
            here.linger_until = None;
        } else if here.linger_until.is_none() || lingered {
            here.linger_until = Some(now.plus(self.options.settings.linger));
        }
        if let Some(until) = self.processes[process].linger_until {
            self.shared.state().turn_after(process, until.since(now));
        }
    }

    fn begin(&mut self, process: usize, batch: Batch<AnyReceiptHere, DeclaredChange>) {
        let Some(worker) = self.processes[process].worker.clone() else { return };
        let keys: BTreeSet<&str> = batch.units.iter().map(|unit| unit.operation.key.as_str()).collect();
        let copies = keys.len() < batch.units.len();
        self.shared.state().book.met.meet_if(copies, Met::CopiesInOneBatch);
        self.spawn(process, async move {
            let lane = batch.lane;
            Done::Batch(lane, worker.process(batch).await)
        });
    }

    fn spawn(&mut self, process: usize, future: impl Future<Output = Done> + Send + 'static) {
        let task = Task { process, future: Box::pin(future) };
        let number = self.tasks.iter().position(Option::is_none).unwrap_or_else(|| {
            self.tasks.push(None);
            self.tasks.len() - 1
        });
        self.tasks[number] = Some(task);
        self.poll(number, None);
    }

    /// A task of a process came to its end.
    pub(super) fn ended(&mut self, ended: Ended) {
        let Ended { process, done } = ended;
        match done {
            Done::Batch(lane, report) => {
                let (course, totals) = (report.course, report.totals);
                let mut state = self.shared.state();
                let split = course.refused > 0 && course.rows > course.refused && totals.applied > 0;
                state.book.met.meet_if(split, Met::SplitToCulprit);
                let stopping = state.processes[process].stopping;
                state.book.met.meet_if(stopping && totals.retried > 0, Met::DrainedInHand);
                drop(state);
                self.processes[process].lanes.finished(lane, course);
            }
            Done::Looked(found, until) => self.looked(process, found, until),
            Done::Other => {}
        }
        self.shared.state().turn_soon(process);
    }
}
