//! The consumers' store: the real port over the tables in memory.

use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{DeadDelivery, InboxStore, ParkDelivery, ParkedDelivery, Parking, StoreError};

use crate::guard::StoreGuard;
use crate::options::Fault;

use super::shared::{Shared, State};
use super::situations::Met;
use super::tables::{Conflict, Dead, place};
use super::transaction::SimTransaction;

/// The store as one process has it.
#[derive(Clone, Debug)]
pub struct SimInbox(pub Shared);

/// What becomes of a statement that is a transaction of its own.
enum Unit {
    Fails(StoreError),
    /// It is applied, and nobody hears of it.
    Lost,
    Applied,
}

fn unit(state: &mut State) -> Unit {
    if state.book.now < state.read_only_until {
        state.book.met.meet(Met::ReadOnly);
        return Unit::Fails(StoreError::Unavailable("read-only".into()));
    }
    if state.strikes(Fault::LostSessions, 4) {
        return Unit::Fails(StoreError::Unavailable("connection reset".into()));
    }
    if state.strikes(Fault::LostInboxCommits, 10) {
        return if state.draw.chance(60) { Unit::Lost } else { Unit::Fails(lost()) };
    }
    Unit::Applied
}

fn lost() -> StoreError {
    StoreError::CommitUnknown("connection lost".into())
}

impl SimInbox {
    /// Runs a change in a transaction of its own.
    async fn change<T>(&self, change: impl FnOnce(&mut State) -> T + Send) -> Result<T, StoreError> {
        self.0.trip().await;
        let (changed, heard) = {
            let mut state = self.0.state();
            match unit(&mut state) {
                Unit::Fails(error) => return Err(error),
                Unit::Lost => (change(&mut state), false),
                Unit::Applied => (change(&mut state), true),
            }
        };
        self.0.trip().await;
        if heard { Ok(changed) } else { Err(lost()) }
    }

    async fn read<T>(&self, read: impl FnOnce(&State) -> T + Send) -> Result<T, StoreError> {
        self.0.trip().await;
        let mut state = self.0.state();
        if state.strikes(Fault::LostSessions, 3) {
            return Err(StoreError::Unavailable("connection reset".into()));
        }
        Ok(read(&state))
    }
}

fn marker(state: &State, operation: &Operation) -> Option<StoredMarker> {
    let mut marker = state.tables.markers.get(&place(&operation.consumer, &operation.key))?.clone();
    for column in operation.marker_columns() {
        if !marker.columns.contains_key(column) {
            marker.columns.insert(column.to_owned(), None);
        }
    }
    Some(marker)
}

impl InboxStore for SimInbox {
    type Transaction = SimTransaction;

    async fn begin(&self) -> Result<SimTransaction, StoreError> {
        self.0.trip().await;
        if self.0.state().strikes(Fault::LostSessions, 3) {
            return Err(StoreError::Unavailable("connection refused".into()));
        }
        Ok(SimTransaction::begin(&self.0))
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        self.read(|state| marker(state, operation)).await
    }

    async fn markers(&self, operations: &[&Operation]) -> Result<Vec<Option<StoredMarker>>, StoreError> {
        self.read(|state| operations.iter().map(|operation| marker(state, operation)).collect()).await
    }

    async fn record_conflict(
        &self,
        operation: &Operation,
        message: &Message,
        _: &StoredMarker,
    ) -> Result<(), StoreError> {
        let key = place(&operation.consumer, &operation.key);
        let content = operation.comparison.text();
        self.change(|state| {
            let fact = state.fact_of(message.id.as_deref());
            state.note("records a conflict", fact, 0);
            let conflict = state.tables.conflicts.entry((key, content)).or_insert_with(|| Conflict {
                consumer: operation.consumer.clone(),
                key: operation.key.clone(),
                count: 0,
                message_id: message.id.clone(),
            });
            conflict.count += 1;
            let again = conflict.count > 1;
            state.book.met.meet(Met::ConflictRecorded);
            state.book.met.meet_if(again, Met::ConflictAgain);
        })
        .await
    }

    async fn record_dead(&self, dead: &DeadDelivery<'_>) -> Result<(), StoreError> {
        self.change(|state| {
            let fact = state.fact_of(dead.message.id.as_deref());
            state.note("records a dead delivery", fact, 0);
            let (consumer, message_id) = (dead.consumer.to_owned(), dead.message.id.clone());
            state.tables.dead.push(Dead { consumer, message_id });
            state.check_dead(fact);
        })
        .await
    }
}

impl Parking for SimInbox {
    async fn park(&self, parked: &ParkDelivery<'_>) -> Result<(), StoreError> {
        let done = self
            .change(|state| {
                let fact = state.fact_of(parked.message.id.as_deref());
                state.note("is parked", fact, u64::from(parked.attempts));
                let again =
                    state.tables.park(parked, state.book.now, state.guards(StoreGuard::ParkEndsLease));
                state.book.met.meet_if(again, Met::ParkedTwice);
            })
            .await;
        if let Err(StoreError::CommitUnknown(_)) = &done {
            let mut state = self.0.state();
            let parked = state.tables.parked.iter().any(|row| row.message.id == parked.message.id);
            state.book.met.meet_if(parked, Met::ParkUnknown);
        }
        done
    }

    async fn due(
        &self,
        consumer: &str,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        self.change(|state| state.tables.due(consumer, limit, lease, state.book.now)).await
    }

    async fn unpark(&self, id: i64, lease_token: &str) -> Result<bool, StoreError> {
        self.change(|state| {
            let asks = state.guards(StoreGuard::UnparkLease);
            let Some(row) = state.tables.unpark(id, lease_token, asks) else {
                let taken = state.tables.parked.iter().any(|row| row.id == id && row.lease.is_some());
                state.book.met.meet_if(taken, Met::ParkedLeaseLost);
                return false;
            };
            let fact = state.fact_of(row.message.id.as_deref());
            state.note("is unparked", fact, 0);
            state.check_gone(fact, "a parked delivery was removed");
            true
        })
        .await
    }
}
