//! The outbox in order: claims that never put an event before an earlier one of its aggregate.

use std::sync::Arc;
use std::time::Duration;

use consign_core::finding::Finding;
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled, Swept};
use futures_util::FutureExt;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::TableShape;
use crate::mapping::OutboxMapping;
use crate::order::findings::{columns, missing_index};
use crate::order::{BLOCKED_MAX, BlockedAggregate, OrderSettings, OrderStatus, index_columns};
use crate::sqlite::connection::UnitError;
use crate::sqlite::introspection;
use crate::sqlite::outbox::{Outbox, count};
use crate::sqlite::prepared::Kept;
use crate::sqlite::statement::{
    BLOCKED_SELECT, ListText, ORDERED_CHAIN, ORDERED_DEFER, ORDERED_PAGE, ORDERED_SCAN, QUOTE, Text,
};

mod claim;

/// An outbox whose claims keep the order of each aggregate, as [`crate::order`] tells. Settles and sweeps are the
/// outbox's own. Cloning it shares everything.
///
/// There are no partitions: claims of a file exclude each other, and the states of the rows keep the order.
#[derive(Clone, Debug)]
pub struct OrderedOutbox {
    outbox: Outbox,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: OrderSettings,
    texts: Kept<Texts>,
}

/// The statements of ordered claims on the table as it is.
#[derive(Debug)]
struct Texts {
    page: Text,
    chains: ChainTexts,
    defer: ListText,
}

/// How chains are read.
#[derive(Debug)]
enum ChainTexts {
    /// By the index of aggregates, one at a time.
    Indexed(Text),
    /// From all unfinished rows at once.
    Scanned(ListText),
}

impl Outbox {
    /// The same outbox in order. The number of partitions is of no account.
    pub fn ordered(&self, settings: OrderSettings) -> OrderedOutbox {
        let shared = Shared { settings, texts: Kept::default() };
        OrderedOutbox { outbox: self.clone(), shared: Arc::new(shared) }
    }
}

impl OrderedOutbox {
    /// The outbox.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// How claims work.
    pub fn settings(&self) -> OrderSettings {
        self.shared.settings
    }

    /// The aggregates that wait behind a DEAD event.
    ///
    /// # Errors
    /// The file cannot be read, or the table does not fit.
    pub async fn order_status(&self) -> Result<OrderStatus, StoreError> {
        let shape = self.outbox.shape().await?;
        let typed = shape.has("aggregate_type");
        let blocked = Text::new(BLOCKED_SELECT, self.outbox.mapping().names(), &shape);
        let reading = self.outbox.database().read(move |connection| {
            async move {
                let mut status = OrderStatus::default();
                for row in query(blocked.sql()).bind(BLOCKED_MAX).fetch_all(connection).await? {
                    status.blocked.push(BlockedAggregate {
                        aggregate_id: row.try_get::<Option<String>, _>(0)?.unwrap_or_default(),
                        dead: count(row.try_get(1)?),
                        waiting: count(row.try_get(2)?),
                        aggregate_type: if typed { row.try_get_unchecked(3)? } else { None },
                    });
                }
                Ok(status)
            }
            .boxed()
        });
        self.outbox.noting(reading.await)
    }

    /// Checks what the order of this outbox rests on. Looks at the table afresh; what [`Outbox::findings`] reports is
    /// not repeated.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn ordered_findings(&self) -> Result<Vec<Finding>, StoreError> {
        let mapping = self.outbox.mapping().clone();
        let reading = self
            .outbox
            .database()
            .read(move |connection| async move { findings(connection, &mapping).await }.boxed());
        reading.await
    }

    async fn texts(&self) -> Result<Arc<Texts>, StoreError> {
        let shape = self.outbox.shape().await?;
        let (mapping, settings) = (self.outbox.mapping().clone(), self.shared.settings);
        let reading = self.outbox.database().read(move |connection| {
            async move { Texts::read(connection, &mapping, &shape, settings).await }.boxed()
        });
        self.shared.texts.get(reading).await
    }
}

impl OutboxStore for OrderedOutbox {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let prepared = self.outbox.prepared().await?;
        let due = self.outbox.noting(self.outbox.finds_any(&prepared.claim_select).await)?;
        if !due || request.limit == 0 {
            return Ok(Claimed::default());
        }
        let claiming =
            claim::Claiming { prepared, texts: self.texts().await?, settings: self.shared.settings };
        let result = claiming.run(self.outbox.database(), request).await;
        self.shared.texts.noting(self.outbox.noting(result))
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        self.outbox.settle(batch).await
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        self.outbox.sweep(limit, delay, attempts_max).await
    }
}

impl Texts {
    async fn read(
        connection: &mut SqliteConnection,
        mapping: &OutboxMapping,
        shape: &TableShape,
        settings: OrderSettings,
    ) -> Result<Self, UnitError> {
        let names = mapping.names();
        let indexed = aggregate_index(connection, mapping, shape).await?.is_some();
        let page = if indexed { ORDERED_PAGE } else { ORDERED_SCAN };
        let words = || settings.words(shape, false).into_iter();
        let chain = words().chain([("chain", true)]);
        Ok(Self {
            page: Text::with_words(page, names, shape, words()),
            chains: if indexed {
                ChainTexts::Indexed(Text::with_words(ORDERED_CHAIN, names, shape, chain))
            } else {
                ChainTexts::Scanned(ListText::with_words(ORDERED_SCAN, names, shape, chain))
            },
            defer: ListText::new(ORDERED_DEFER, names, shape),
        })
    }
}

/// The name of the index by which claims find the earliest rows of an aggregate.
pub(crate) async fn aggregate_index(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Option<String>, sqlx::Error> {
    let wanted: Vec<&str> =
        index_columns(shape).iter().map(|column| mapping.names()[column].as_str()).collect();
    let indexes = introspection::indexes(connection, mapping.table()).await?;
    Ok(indexes.into_iter().find(|(_, index)| index.starts_with(&wanted)).map(|(name, _)| name))
}

async fn findings(
    connection: &mut SqliteConnection,
    mapping: &OutboxMapping,
) -> Result<Vec<Finding>, UnitError> {
    introspection::check_file(mapping.table())?;
    let table = mapping.table();
    let shape = introspection::shape(connection, OutboxMapping::TABLE, mapping.names()).await?;
    let Some(shape) = shape else { return Ok(Vec::new()) };
    let mut findings = columns(table, &shape);
    findings.push(match aggregate_index(connection, mapping, &shape).await? {
        Some(_) => Finding::fine("outbox-order-index", table.as_str(), "the index of aggregates is there"),
        None => missing_index(mapping, &shape, QUOTE),
    });
    Ok(findings)
}
