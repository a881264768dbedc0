//! The inbox: markers and business writes in one transaction.

use std::sync::Arc;

use consign_core::delivery::Message;
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{DeadDelivery, InboxStore, StoreError};
use futures_util::FutureExt;

use crate::mapping::{MarkerMapping, OutboxMapping};
use crate::mysql::connection::{Database, Lane};
use crate::mysql::inbox::marker::Prepared;
use crate::mysql::prepared::Kept;
use crate::record::draft::{ConflictDraft, DeadDraft};
use crate::status::InboxStatus;

mod apply;
mod check;
mod conflict;
mod dead;
mod each;
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

    /// The same inbox, which knows an outbox in the same database: a conflict is then recorded with the payload of the
    /// event that was applied, when it is still there.
    #[must_use]
    pub fn with_outbox(self, outbox: OutboxMapping) -> Self {
        let (database, mapping) = (self.database().clone(), self.mapping().clone());
        let shared = Shared { database, mapping, outbox: Some(outbox), prepared: Kept::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The server.
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
    /// The server cannot be reached.
    pub async fn status(&self) -> Result<InboxStatus, StoreError> {
        record::status(self.database(), self.mapping()).await
    }

    /// Checks the marker table and consign's own tables. Looks at them afresh.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn findings(&self) -> Result<Vec<consign_core::finding::Finding>, StoreError> {
        crate::mysql::findings::inbox(self.database(), self.mapping()).await
    }

    async fn prepared(&self) -> Result<Arc<Prepared>, StoreError> {
        let mapping = self.shared.mapping.clone();
        let reading = self.database().read(Lane::General, move |connection| {
            async move { Prepared::read(connection, mapping).await }.boxed()
        });
        self.shared.prepared.get(reading).await
    }
}

impl InboxStore for Inbox {
    type Transaction = Transaction;

    async fn begin(&self) -> Result<Transaction, StoreError> {
        let prepared = self.prepared().await?;
        Transaction::begin(self.database().clone(), prepared).await
    }

    async fn marker(&self, operation: &Operation) -> Result<Option<StoredMarker>, StoreError> {
        Ok(self.markers(&[operation]).await?.pop().flatten())
    }

    async fn markers(&self, operations: &[&Operation]) -> Result<Vec<Option<StoredMarker>>, StoreError> {
        let prepared = self.prepared().await?;
        let reading = prepared.reading(operations)?;
        let read = self
            .database()
            .read(Lane::General, move |connection| async move { reading.run(connection).await }.boxed());
        self.shared.prepared.noting(read.await)
    }

    async fn record_conflict(
        &self,
        operation: &Operation,
        message: &Message,
        existing: &StoredMarker,
    ) -> Result<(), StoreError> {
        let draft = ConflictDraft::new(operation, message, existing)?;
        let shared = Arc::clone(&self.shared);
        let unit = self.database().transact(Lane::General, move |connection| {
            async move { record::conflict(connection, &draft, shared.outbox.as_ref()).await }.boxed()
        });
        unit.await
    }

    async fn record_dead(&self, dead: &DeadDelivery<'_>) -> Result<(), StoreError> {
        let draft = DeadDraft::new(dead)?;
        let unit = self.database().transact(Lane::General, move |connection| {
            async move { record::dead(connection, &draft).await }.boxed()
        });
        unit.await
    }
}
