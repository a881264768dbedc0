//! The inbox: markers and business writes in one transaction.

use std::sync::Arc;

use consign_core::delivery::Message;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{DeadDelivery, InboxStore, StoreError};
use futures_util::FutureExt;

use crate::mapping::{MarkerMapping, OutboxMapping};
use crate::record::draft::{ConflictDraft, DeadDraft};
use crate::sqlite::connection::Database;
use crate::sqlite::inbox::marker::Prepared;
use crate::sqlite::prepared::Kept;
use crate::status::InboxStatus;

mod apply;
mod check;
mod conflict;
mod dead;
mod execute;
mod marker;
mod parking;
mod progress;
mod purge;
mod record;
mod transaction;
mod value;

pub use transaction::Transaction;

/// An inbox: a marker table, and consign's own tables beside it. Cloning it shares everything.
#[derive(Clone, Debug)]
pub struct Inbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    mapping: MarkerMapping,
    outbox: Option<OutboxMapping>,
    prepared: Kept<Prepared>,
}

impl Inbox {
    /// The inbox whose markers are at `mapping` in `database`.
    pub fn new(database: Database, mapping: MarkerMapping) -> Self {
        let shared = Shared { database, mapping, outbox: None, prepared: Kept::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The same inbox, which knows an outbox in the same file: a conflict is then recorded with the payload of the
    /// event that was applied, when it is still there.
    #[must_use]
    pub fn with_outbox(self, outbox: OutboxMapping) -> Self {
        let (database, mapping) = (self.database().clone(), self.mapping().clone());
        let shared = Shared { database, mapping, outbox: Some(outbox), prepared: Kept::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The file.
    pub fn database(&self) -> &Database {
        &self.shared.database
    }

    /// The table's names.
    pub fn mapping(&self) -> &MarkerMapping {
        &self.shared.mapping
    }

    /// Counts markers and records.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn status(&self) -> Result<InboxStatus, StoreError> {
        record::status(self.database(), self.mapping()).await
    }

    /// Checks the marker table and consign's own tables. Looks at them afresh.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn findings(&self) -> Result<Vec<consign_core::finding::Finding>, StoreError> {
        crate::sqlite::findings::inbox(self.database(), self.mapping()).await
    }

    async fn prepared(&self) -> Result<Arc<Prepared>, StoreError> {
        let mapping = self.shared.mapping.clone();
        let reading = self
            .database()
            .read(move |connection| async move { Prepared::read(connection, mapping).await }.boxed());
        self.shared.prepared.get(reading).await
    }
}

impl InboxStore for Inbox {
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction, StoreError> {
        let prepared = self.prepared().await?;
        let live = self.database().begin_unit().await?;
        Ok(Transaction::new(live, prepared, Arc::clone(&self.shared)))
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        Ok(self.markers(&[operation]).await?.pop().flatten())
    }

    async fn markers(&self, operations: &[&Operation]) -> Result<Vec<Option<StoredMarker>>, StoreError> {
        let prepared = self.prepared().await?;
        let mut found = Vec::with_capacity(operations.len());
        for (markers, run) in self.shared.prepared.noting(prepared.runs(operations))? {
            let Some(consumer) = run.first().map(|operation| operation.consumer.clone()) else { continue };
            let mut keys: Vec<String> = run.iter().map(|operation| operation.key.clone()).collect();
            keys.sort_unstable();
            keys.dedup();
            let reading = self.database().read(move |connection| {
                async move { markers.select(connection, &consumer, &keys).await }.boxed()
            });
            let stored = self.shared.prepared.noting(reading.await)?;
            found.extend(run.iter().map(|operation| stored.get(&operation.key).cloned()));
        }
        Ok(found)
    }

    async fn record_conflict(
        &self,
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> Result<(), StoreError> {
        let draft = ConflictDraft::new(operation, message, existing)?;
        let shared = Arc::clone(&self.shared);
        let unit = self.database().transact(move |connection| {
            async move { record::conflict(connection, &draft, shared.outbox.as_ref()).await }.boxed()
        });
        unit.await
    }

    async fn record_dead(&self, dead: &DeadDelivery<'_>) -> Result<(), StoreError> {
        let draft = DeadDraft::new(dead)?;
        let unit = self
            .database()
            .transact(move |connection| async move { record::dead(connection, &draft).await }.boxed());
        unit.await
    }
}
