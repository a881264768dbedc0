//! One transaction of the consumers' database. It can be cut at every step.

use std::future::poll_fn;
use std::task::{Context, Poll};

use consign_core::declared::Statement;
use consign_core::guard::Progress;
use consign_core::operation::{Comparison, Operation, StoredMarker};
use consign_core::ports::{Advance, CommitError, EachError, InboxTransaction, Mark, StoreError};
use consign_core::value::Value;

use crate::guard::StoreGuard;
use crate::options::Fault;

use super::facts::{AMOUNT_MAX, AWARD, ENTER};
use super::locks::{Asked, LockKey};
use super::shared::{Alarm, Shared, State, Wake};
use super::situations::Met;
use super::tables::{Broken, Entry, place};

/// How long a lock is waited for.
const LOCK_WAIT_MILLIS: u64 = 5_000;
/// How many characters a business key may have.
pub const KEY_CHARS_MAX: usize = 128;
const AGGREGATE_CHARS_MAX: usize = 255;

/// An open transaction.
#[derive(Debug)]
pub struct SimTransaction {
    shared: Shared,
    number: usize,
    ended: bool,
}

/// What became of a COMMIT, and what its client hears.
enum Fate {
    Committed,
    RolledBack(StoreError),
    Unknown,
}

fn broken(broken: Broken) -> StoreError {
    match broken {
        Broken::Deadlock => StoreError::Contended("deadlock".into()),
        Broken::Connection => StoreError::Unavailable("connection reset".into()),
    }
}

impl SimTransaction {
    /// A transaction that has just begun.
    pub fn begin(shared: &Shared) -> Self {
        let mut state = shared.state();
        let process = state.running.0;
        let incarnation = state.processes.get(process).map_or(0, |process| process.incarnation);
        let number = state.tables.begin((process, incarnation));
        if number >= state.serials.len() {
            state.serials.resize(number + 1, 0);
        }
        drop(state);
        Self { shared: shared.clone(), number, ended: false }
    }

    /// A statement reaches the server, or something goes wrong with it.
    async fn statement(&mut self, writes: bool) -> Result<(), StoreError> {
        self.shared.trip().await;
        let mut state = self.shared.state();
        if let Some(reason) = state.tables.transaction(self.number).broken {
            return Err(broken(reason));
        }
        let breaks = if state.strikes(Fault::LostSessions, 3) {
            Some(Broken::Connection)
        } else {
            state.strikes(Fault::InboxDeadlocks, 3).then_some(Broken::Deadlock)
        };
        if let Some(reason) = breaks {
            state.note("transaction is broken", None, self.number as u64);
            state.book.met.meet_if(reason == Broken::Connection, Met::ConnectionLost);
            state.break_transaction(self.number, reason);
            return Err(broken(reason));
        }
        if writes && state.book.now < state.read_only_until {
            state.book.met.meet(Met::ReadOnly);
            return Err(StoreError::Unavailable("read-only".into()));
        }
        Ok(())
    }

    /// Waits for a lock; `true` when it was not free at once.
    async fn lock(&self, key: LockKey) -> Result<bool, StoreError> {
        let mut ticket = None;
        poll_fn(|context| self.poll_lock(&key, &mut ticket, context)).await
    }

    fn poll_lock(
        &self,
        key: &LockKey,
        ticket: &mut Option<u64>,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, StoreError>> {
        let mut state = self.shared.state();
        if let Some(waited) = *ticket
            && !state.free
        {
            match state.woken(waited) {
                None => return Poll::Pending,
                Some(Wake::Go | Wake::Victim) => {}
                Some(Wake::TimedOut) => {
                    state.tables.locks.give_up(self.number);
                    state.book.met.meet(Met::LockWaitTimeout);
                    state.note("lock wait timeout", None, self.number as u64);
                    return Poll::Ready(Err(StoreError::Contended("lock wait timeout".into())));
                }
            }
        }
        if let Some(reason) = state.tables.transaction(self.number).broken {
            return Poll::Ready(Err(broken(reason)));
        }
        let mut asked = state.tables.locks.ask(self.number, key);
        if let Asked::Deadlock(other) = asked {
            state.book.met.meet(Met::Deadlock);
            state.note("deadlock", None, other as u64);
            if state.free || state.draw.chance(50) || !break_waiter(&mut state, other) {
                state.break_transaction(self.number, Broken::Deadlock);
                return Poll::Ready(Err(broken(Broken::Deadlock)));
            }
            asked = state.tables.locks.ask(self.number, key);
        }
        match asked {
            Asked::Granted => Poll::Ready(Ok(ticket.is_some())),
            Asked::Busy(holder) | Asked::Deadlock(holder) => {
                if ticket.is_none() {
                    state.note("waits for a lock", None, holder as u64);
                    let orphan = state.tables.transaction(holder).orphan;
                    state.book.met.meet_if(orphan, Met::OrphanHeldLock);
                    state.book.met.meet_if(matches!(key, LockKey::Marker(_)), Met::MarkerWait);
                }
                *ticket = Some(self.wait(&mut state, key, context));
                Poll::Pending
            }
        }
    }

    fn wait(&self, state: &mut State, key: &LockKey, context: &Context<'_>) -> u64 {
        if state.free {
            let waker = Some(context.waker().clone());
            state.tables.locks.wait(self.number, key.clone(), 0, waker);
            return 0;
        }
        let (ticket, task) = (state.await_ticket(), state.running.1);
        let longest = if state.strikes(Fault::InboxLockWaits, 20) { 300 } else { LOCK_WAIT_MILLIS };
        state.tables.locks.wait(self.number, key.clone(), ticket, None);
        let timeout = state.span(longest);
        state.schedule(timeout, Alarm::Wake { task, ticket, wake: Wake::TimedOut });
        ticket
    }

    async fn add_points(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let [points, user, conditions @ ..] = values else { return Err(unknown_statement(sql)) };
        let holds = match (&sql[AWARD.len()..], conditions) {
            ("", []) => true,
            (" AND ? = ? AND ? IS NULL", [left, right, null]) => left == right && *null == Value::Null,
            _ => return Err(unknown_statement(sql)),
        };
        let (points, user) = (number(points)?, number(user)?);
        if !holds || !self.shared.state().tables.accounts.contains_key(&user) {
            self.shared.state().missed_users.push(user);
            return Ok(0);
        }
        self.lock(LockKey::Account(user)).await?;
        self.shared.state().tables.transaction(self.number).points.push((user, points));
        Ok(1)
    }

    fn enter(&mut self, values: &[Value]) -> Result<u64, StoreError> {
        let mut numbers = [0; 5];
        for (place, value) in numbers.iter_mut().zip(values) {
            *place = number(value)?;
        }
        let [order, user, amount, stream, version] = numbers;
        let mut state = self.shared.state();
        if amount > AMOUNT_MAX {
            state.refused_orders.push(order);
            return Err(StoreError::Data(format!("amount of order {order} is out of range")));
        }
        let entry = Entry { order, user, amount, stream, version };
        state.tables.transaction(self.number).entries.push(entry);
        Ok(1)
    }

    /// What COMMIT comes to at the server.
    fn conclude(&mut self) -> Fate {
        self.ended = true;
        let mut state = self.shared.state();
        let number = self.number;
        match state.tables.transaction(number).broken {
            // Nothing is left to commit, and the server says so with an OK.
            Some(Broken::Deadlock) => {
                state.discard(number);
                return Fate::Committed;
            }
            Some(Broken::Connection) => {
                state.lost_commit(number, false);
                state.discard(number);
                return Fate::Unknown;
            }
            None => {}
        }
        if state.strikes(Fault::RolledBackCommits, 6) {
            state.book.met.meet(Met::CommitRolledBack);
            state.note("commit is rolled back", None, number as u64);
            state.discard(number);
            let error = if state.draw.chance(50) {
                StoreError::Contended("deadlock".into())
            } else {
                StoreError::Unavailable("shutting down".into())
            };
            return Fate::RolledBack(error);
        }
        if !state.strikes(Fault::LostInboxCommits, 12) {
            state.apply(number);
            return Fate::Committed;
        }
        match state.draw.below(3) {
            0 => {
                state.lost_commit(number, true);
                state.apply(number);
            }
            1 => {
                state.lost_commit(number, false);
                state.discard(number);
            }
            // The server is slow: it applies the COMMIT when nobody waits for it any more.
            _ => {
                state.lost_commit(number, true);
                let (delay, serial) = (state.span(2_500), state.serials[number]);
                state.schedule(delay, Alarm::LateCommit { transaction: number, serial });
            }
        }
        state.note("commit gets no answer", None, number as u64);
        Fate::Unknown
    }
}

/// Another transaction becomes the victim of a deadlock, if it waits for a lock.
fn break_waiter(state: &mut State, transaction: usize) -> bool {
    let Some(waiter) = state.tables.locks.give_up(transaction) else { return false };
    state.break_transaction(transaction, Broken::Deadlock);
    state.wake_soon(waiter.ticket, Wake::Victim);
    true
}

fn unknown_statement(sql: &str) -> StoreError {
    StoreError::Schema(format!("no table for {sql}"))
}

fn number(value: &Value) -> Result<i64, StoreError> {
    let number = match value {
        Value::Integer(number) => i64::try_from(*number).ok(),
        Value::Decimal(text) => text.parse().ok(),
        Value::Null | Value::Text(_) | Value::Boolean(_) | Value::Timestamp(_) | Value::Json(_) => None,
    };
    number.ok_or_else(|| StoreError::Data("a whole number of 64 bits is wanted".into()))
}

fn stored(operation: &Operation) -> StoredMarker {
    let (columns, fingerprint) = match &operation.comparison {
        Comparison::Columns(columns) => {
            let text = |value: &Value| (*value != Value::Null).then(|| value.text());
            (columns.iter().map(|one| (one.column.clone(), text(&one.value))).collect(), None)
        }
        Comparison::Fingerprint(digest) => (std::collections::BTreeMap::new(), Some(digest.clone())),
    };
    StoredMarker {
        event_id: operation.event_id.as_ref().map(ToString::to_string),
        columns,
        fingerprint,
        comparison_version: Some(operation.comparison_version),
    }
}

impl InboxTransaction for SimTransaction {
    async fn mark(&mut self, operation: &Operation) -> Result<Mark, StoreError> {
        self.statement(true).await?;
        if operation.key.chars().count() > KEY_CHARS_MAX {
            return Err(StoreError::Data("business_key is longer than its column".into()));
        }
        let key = place(&operation.consumer, &operation.key);
        let (committed, unique) = {
            let state = self.shared.state();
            (state.tables.markers.contains_key(&key), state.guards(StoreGuard::MarkerUnique))
        };
        // The unique key decides: while another transaction holds it, nobody knows yet.
        let waited = unique && !committed && self.lock(LockKey::Marker(key.clone())).await?;
        let mut state = self.shared.state();
        let fact = state.fact_of(operation.event_id.as_ref().map(consign_core::event::EventId::as_str));
        let taken = (unique && state.tables.markers.contains_key(&key))
            || state.tables.transaction(self.number).markers.iter().any(|(own, _)| *own == key);
        state.note(if taken { "marker is taken" } else { "marks" }, fact, self.number as u64);
        state.book.met.meet_if(waited && taken, Met::WaitEndedTaken);
        state.book.met.meet_if(waited && !taken, Met::WaitEndedFree);
        if taken {
            return Ok(Mark::Taken);
        }
        state.tables.transaction(self.number).markers.push((key, stored(operation)));
        Ok(Mark::Inserted)
    }

    async fn lock_progress(
        &mut self,
        consumer: &str,
        aggregates: &[&str],
    ) -> Result<Vec<Option<Progress>>, StoreError> {
        self.statement(false).await?;
        let mut found = Vec::with_capacity(aggregates.len());
        for aggregate in aggregates {
            if aggregate.chars().count() > AGGREGATE_CHARS_MAX {
                return Err(StoreError::Data("aggregate is longer than its column".into()));
            }
            let key = place(consumer, aggregate);
            let lock = LockKey::Progress(key.clone());
            // A row that nobody has written is not locked.
            let exists = {
                let state = self.shared.state();
                state.tables.progress.contains_key(&key) || state.tables.locks.is_held(&lock)
            };
            if exists && self.shared.state().guards(StoreGuard::ProgressLock) {
                self.lock(lock).await?;
            }
            found.push(self.shared.state().tables.progress.get(&key).cloned());
        }
        Ok(found)
    }

    async fn save_progress(&mut self, consumer: &str, advances: &[Advance<'_>]) -> Result<(), StoreError> {
        self.statement(true).await?;
        for advance in advances {
            let key = place(consumer, advance.aggregate);
            self.lock(LockKey::Progress(key.clone())).await?;
            let mut state = self.shared.state();
            let unique = state.guards(StoreGuard::FirstStepUnique);
            if unique && advance.first && state.tables.progress.contains_key(&key) {
                state.book.met.meet(Met::FirstStepRace);
                return Err(StoreError::Contended("somebody else took the first step".into()));
            }
            state.tables.transaction(self.number).progress.push((key, advance.progress.clone()));
        }
        Ok(())
    }

    async fn execute_each(
        &mut self,
        statement: &Statement,
        values: &[&[Value]],
    ) -> Result<Vec<u64>, EachError> {
        // One statement for all of them cannot tell whose value was refused.
        let merged = values.len() > 1 && {
            let mut state = self.shared.state();
            !state.free && state.draw.chance(60)
        };
        let mut rows = Vec::with_capacity(values.len());
        for (at, values) in values.iter().enumerate() {
            let matched = self.execute(statement.sql(), values).await;
            let matched = matched.map_err(|error| {
                let refused = matches!(error, StoreError::Data(_));
                self.shared.state().book.met.meet_if(merged && refused, Met::Halved);
                EachError { at: (!merged).then_some(at), error }
            });
            rows.push(matched?);
        }
        Ok(rows)
    }

    async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        self.statement(true).await?;
        if sql.starts_with(AWARD) {
            self.add_points(sql, values).await
        } else if sql == ENTER && values.len() == 5 {
            self.enter(values)
        } else {
            Err(unknown_statement(sql))
        }
    }

    async fn commit(mut self) -> Result<(), CommitError> {
        self.shared.trip().await;
        let fate = self.conclude();
        self.shared.trip().await;
        match fate {
            Fate::Committed => Ok(()),
            Fate::RolledBack(error) => Err(CommitError::RolledBack(error)),
            Fate::Unknown => Err(CommitError::Unknown(StoreError::CommitUnknown("connection lost".into()))),
        }
    }

    async fn rollback(mut self) -> Result<(), StoreError> {
        self.shared.trip().await;
        self.ended = true;
        let mut state = self.shared.state();
        let lost = state.tables.transaction(self.number).broken == Some(Broken::Connection);
        state.note("rolls back", None, self.number as u64);
        state.discard(self.number);
        if lost { Err(broken(Broken::Connection)) } else { Ok(()) }
    }
}

impl Drop for SimTransaction {
    /// The client is gone; the server notices sooner or later.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut state = self.shared.state();
        if state.free {
            return state.discard(self.number);
        }
        state.tables.transaction(self.number).orphan = true;
        let slow = state.strikes(Fault::SlowFarewells, 40);
        let (delay, serial) = (state.span(if slow { 4_000 } else { 5 }), state.serials[self.number]);
        state.schedule(delay, Alarm::Notice { transaction: self.number, serial });
    }
}
