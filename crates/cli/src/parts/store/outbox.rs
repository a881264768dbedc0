//! An outbox as the relay's mode wants it claimed.

use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled, Swept};
use consign_store::order::Holdings;
use consign_store::{mysql, sqlite};

/// An outbox whose relays may have to share.
pub trait Partitioned: Send + Sync {
    /// Renews what this process holds, and takes or gives up partitions to have its share; `None` when there is
    /// nothing to share.
    fn hold(&self, lease: Duration) -> impl Future<Output = Result<Option<Holdings>, StoreError>> + Send;

    /// Gives up what it holds.
    fn release(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A MySQL outbox.
pub enum MySqlOutbox {
    /// Claimed in no order.
    Competing(mysql::Outbox),
    /// Claimed in the order of its aggregates, by a relay of this name in the partitions.
    Ordered(mysql::OrderedOutbox, String),
}

/// A SQLite outbox. One process works on the file, so nothing is shared.
pub enum SqliteOutbox {
    /// Claimed in no order.
    Competing(sqlite::Outbox),
    /// Claimed in the order of its aggregates.
    Ordered(sqlite::OrderedOutbox),
}

impl OutboxStore for MySqlOutbox {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        match self {
            Self::Competing(store) => store.claim(request).await,
            Self::Ordered(store, _) => store.claim(request).await,
        }
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        match self {
            Self::Competing(store) => store.settle(batch).await,
            Self::Ordered(store, _) => store.settle(batch).await,
        }
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        match self {
            Self::Competing(store) => store.sweep(limit, delay, attempts_max).await,
            Self::Ordered(store, _) => store.sweep(limit, delay, attempts_max).await,
        }
    }
}

impl OutboxStore for SqliteOutbox {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        match self {
            Self::Competing(store) => store.claim(request).await,
            Self::Ordered(store) => store.claim(request).await,
        }
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        match self {
            Self::Competing(store) => store.settle(batch).await,
            Self::Ordered(store) => store.settle(batch).await,
        }
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        match self {
            Self::Competing(store) => store.sweep(limit, delay, attempts_max).await,
            Self::Ordered(store) => store.sweep(limit, delay, attempts_max).await,
        }
    }
}

impl Partitioned for MySqlOutbox {
    async fn hold(&self, lease: Duration) -> Result<Option<Holdings>, StoreError> {
        match self {
            Self::Competing(_) => Ok(None),
            Self::Ordered(store, relay) => store.hold_partitions(relay, lease).await.map(Some),
        }
    }

    async fn release(&self) -> Result<(), StoreError> {
        match self {
            Self::Competing(_) => Ok(()),
            Self::Ordered(store, _) => store.release_partitions().await,
        }
    }
}

impl Partitioned for SqliteOutbox {
    async fn hold(&self, _lease: Duration) -> Result<Option<Holdings>, StoreError> {
        Ok(None)
    }

    async fn release(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
