//! An inbox store in memory: one unique key, transactions that lock it, and failures by script.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use consign_core::delivery::{AckPermit, Message, Receipt, ReceiptLost};
use consign_core::guard::Progress;
use consign_core::inbox::{Handler, HandlerError};
use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::{
    Advance, CommitError, DeadDelivery, InboxStore, InboxTransaction, Mark, StoreError,
};
use consign_core::value::Value;

/// Runs futures that wait for nothing but each other, taking turns.
pub fn run_both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    const TURNS_MAX: usize = 1000;
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut other) = (None, None);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..TURNS_MAX {
        turn(first.as_mut(), &mut one, &mut context);
        turn(second.as_mut(), &mut other, &mut context);
        if one.is_some() && other.is_some() {
            break;
        }
    }
    (one.expect("the first future ends"), other.expect("the second future ends"))
}

fn turn<T>(future: Pin<&mut impl Future<Output = T>>, result: &mut Option<T>, context: &mut Context<'_>) {
    if result.is_none()
        && let Poll::Ready(value) = future.poll(context)
    {
        *result = Some(value);
    }
}

pub fn run<T>(future: impl Future<Output = T>) -> T {
    run_both(future, std::future::ready(())).0
}

/// Lets the other future take its turn.
async fn take_turns() {
    let mut waited = false;
    poll_fn(|_| if std::mem::replace(&mut waited, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// A step of the story, in the order the steps happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Begin,
    Mark,
    Apply,
    Commit,
    Rollback,
    ReadMarker,
    RecordConflict,
    RecordDead,
    Park,
    Unpark,
    Ack,
    Retry,
    PutAside,
}

/// What goes wrong, and at which step.
#[derive(Clone, Debug)]
pub enum Fault {
    Fails(Step, StoreError),
    /// The commit is applied, and its answer lost.
    CommitAnswerLost,
    /// The commit is not applied, and its answer lost.
    CommitLost,
    /// The marker is gone when it is read, as when its owner rolled back in between.
    MarkerVanishes,
}

#[derive(Debug, Default)]
struct State {
    markers: BTreeMap<(String, String), StoredMarker>,
    progress: BTreeMap<(String, String), Progress>,
    /// Keys that an open transaction has inserted.
    locked: Vec<(String, String)>,
    effects: Vec<String>,
    conflicts: Vec<String>,
    dead: Vec<String>,
    parked: Vec<String>,
    retries: Vec<Duration>,
    steps: Vec<Step>,
    faults: VecDeque<Fault>,
    marked: Vec<String>,
    refused: Option<(String, StoreError)>,
}

/// The store; clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<State>>);

impl Memory {
    pub fn failing(faults: impl IntoIterator<Item = Fault>) -> Self {
        let memory = Self::default();
        memory.state().faults.extend(faults);
        memory
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn effects(&self) -> Vec<String> {
        self.state().effects.clone()
    }

    pub fn markers(&self) -> usize {
        self.state().markers.len()
    }

    pub fn conflicts(&self) -> Vec<String> {
        self.state().conflicts.clone()
    }

    /// The keys of all markers ever inserted, in the order of the inserts.
    pub fn marked(&self) -> Vec<String> {
        self.state().marked.clone()
    }

    /// The version a consumer applied last to an aggregate.
    pub fn version(&self, aggregate: &str) -> Option<i64> {
        let state = self.state();
        state.progress.get(&("points-award".into(), aggregate.into())).and_then(|progress| progress.version)
    }

    /// Everything committed besides effects, comparable with another store's.
    pub fn everything(&self) -> String {
        let state = self.state();
        format!("{:?} {:?}", state.markers, state.progress)
    }

    /// A store that refuses to mark one key.
    pub fn refusing_key(key: &str, error: StoreError) -> Self {
        let memory = Self::default();
        memory.state().refused = Some((key.into(), error));
        memory
    }

    pub fn dead(&self) -> Vec<String> {
        self.state().dead.clone()
    }

    /// What was parked, in words.
    pub fn parked(&self) -> Vec<String> {
        self.state().parked.clone()
    }

    pub fn note_parked(&self, parked: String) {
        self.state().parked.push(parked);
    }

    /// After how long each delivery that was handed back is to come again.
    pub fn retries(&self) -> Vec<Duration> {
        self.state().retries.clone()
    }

    pub fn steps(&self) -> Vec<Step> {
        self.state().steps.clone()
    }

    pub fn open_transactions(&self) -> usize {
        let state = self.state();
        let count = |step: Step| state.steps.iter().filter(|one| **one == step).count();
        count(Step::Begin) - count(Step::Commit) - count(Step::Rollback)
    }

    pub fn step(&self, step: Step) -> Result<(), StoreError> {
        let mut state = self.state();
        let due = matches!(state.faults.front(), Some(Fault::Fails(at, _)) if *at == step);
        state.steps.push(step);
        match due.then(|| state.faults.pop_front()).flatten() {
            Some(Fault::Fails(_, error)) => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    pub fn receipt(&self) -> Handle {
        Handle(self.clone())
    }
}

pub struct Open {
    memory: Memory,
    markers: Vec<((String, String), StoredMarker)>,
    progress: Vec<((String, String), Progress)>,
    effects: Vec<String>,
}

impl Open {
    fn unlock(&self) {
        let mut state = self.memory.state();
        state.locked.retain(|locked| self.markers.iter().all(|(key, _)| key != locked));
    }

    fn apply(&mut self) {
        let mut state = self.memory.state();
        state.markers.extend(self.markers.iter().cloned());
        state.progress.extend(self.progress.drain(..));
        state.effects.append(&mut self.effects);
    }
}

impl InboxTransaction for Open {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        self.memory.step(Step::Mark)?;
        let key = (operation.consumer.clone(), operation.key.clone());
        // The unique key decides: while another transaction holds it, nobody knows yet.
        while self.memory.state().locked.contains(&key) {
            take_turns().await;
        }
        let mut state = self.memory.state();
        if state.markers.contains_key(&key) {
            return Ok(Mark::Taken);
        }
        match &state.refused {
            Some((refused, error)) if *refused == operation.key => return Err(error.clone()),
            Some(_) | None => {}
        }
        state.marked.push(operation.key.clone());
        state.locked.push(key.clone());
        let Comparison::Columns(columns) = &operation.comparison else { panic!("columns are compared here") };
        let columns = columns.iter().map(|one| (one.column.clone(), Some(one.value.text()))).collect();
        let event_id = operation.event_id.as_ref().map(ToString::to_string);
        self.markers.push((key, StoredMarker { event_id, columns, ..StoredMarker::default() }));
        Ok(Mark::Inserted)
    }

    async fn lock_progress(
        &mut self,
        consumer: &str,
        aggregates: &[&str],
    ) -> Result<Vec<Option<Progress>>, StoreError> {
        assert!(aggregates.is_sorted(), "locks are taken in a fixed order");
        let state = self.memory.state();
        let find = |aggregate: &&str| state.progress.get(&(consumer.into(), (*aggregate).into())).cloned();
        Ok(aggregates.iter().map(find).collect())
    }

    async fn save_progress(&mut self, consumer: &str, advances: &[Advance<'_>]) -> Result<(), StoreError> {
        self.progress.extend(
            advances
                .iter()
                .map(|advance| ((consumer.into(), advance.aggregate.into()), advance.progress.clone())),
        );
        Ok(())
    }

    async fn execute(&mut self, sql: &str, _: &[Value]) -> Result<u64, StoreError> {
        take_turns().await;
        self.memory.step(Step::Apply)?;
        self.effects.push(sql.into());
        Ok(1)
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        self.memory.step(Step::Commit).map_err(|error| {
            self.unlock();
            CommitError::RolledBack(error)
        })?;
        let fault = {
            let mut state = self.memory.state();
            state.faults.pop_front_if(|fault| matches!(fault, Fault::CommitAnswerLost | Fault::CommitLost))
        };
        if !matches!(fault, Some(Fault::CommitLost)) {
            self.apply();
        }
        self.unlock();
        match fault {
            Some(_) => Err(CommitError::Unknown(StoreError::CommitUnknown("connection lost".into()))),
            None => Ok(()),
        }
    }

    async fn rollback(self) -> Result<(), StoreError> {
        self.unlock();
        self.memory.step(Step::Rollback)
    }
}

impl InboxStore for Memory {
    type Transaction = Open;

    async fn begin(&self) -> Result<Open, StoreError> {
        self.step(Step::Begin)?;
        Ok(Open { memory: self.clone(), markers: Vec::new(), progress: Vec::new(), effects: Vec::new() })
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        self.step(Step::ReadMarker)?;
        let mut state = self.state();
        let key = (operation.consumer.clone(), operation.key.clone());
        if state.faults.pop_front_if(|fault| matches!(fault, Fault::MarkerVanishes)).is_some() {
            state.markers.remove(&key);
        }
        Ok(state.markers.get(&key).cloned())
    }

    async fn record_conflict(
        &self,
        operation: &Operation,
        _: &Message,
        existing: &StoredMarker,
    ) -> Result<(), StoreError> {
        self.step(Step::RecordConflict)?;
        let conflict = format!("{} beside {:?}", operation.comparison.text(), existing.columns);
        self.state().conflicts.push(conflict);
        Ok(())
    }

    async fn record_dead(&self, dead: &DeadDelivery<'_>) -> Result<(), StoreError> {
        self.step(Step::RecordDead)?;
        let key = dead.business_key.unwrap_or("no key");
        self.state().dead.push(format!("{} {key}: {}", dead.consumer, dead.reason));
        Ok(())
    }
}

/// A delivery's handle; it writes down what became of it.
#[derive(Debug)]
pub struct Handle(Memory);

impl Handle {
    /// An error of the step stands for a channel that is gone.
    fn step(&self, step: Step) -> Result<(), ReceiptLost> {
        self.0.step(step).map_err(|error| ReceiptLost(error.to_string()))
    }
}

impl Receipt for Handle {
    async fn ack(self, _: AckPermit) -> Result<(), ReceiptLost> {
        self.step(Step::Ack)
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.step(Step::Retry)?;
        self.0.state().retries.push(delay);
        Ok(())
    }

    async fn put_aside(self, _: AckPermit) -> Result<(), ReceiptLost> {
        self.step(Step::PutAside)
    }
}

/// The business change: one statement, and whatever the test wants after it.
pub struct Award(pub Result<(), HandlerError>);

impl Handler<Open> for Award {
    async fn apply(&self, tx: &mut Open, operation: &Operation, _: &Message) -> Result<(), HandlerError> {
        tx.execute(&operation.key, &[]).await?;
        self.0.clone()
    }
}
