//! The outbox in order: claims that never put an event before an earlier one of its aggregate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled, Swept};
use futures_util::FutureExt;
use sqlx::{MySqlConnection, raw_sql};

use crate::introspection::TableShape;
use crate::mapping::{Identifier, OutboxMapping};
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::introspection;
use crate::mysql::outbox::Outbox;
use crate::mysql::prepared::Kept;
use crate::mysql::statement::{
    ListText, ORDERED_CHAIN, ORDERED_CHAINS, ORDERED_DEFER, ORDERED_DEFER_LOCK, ORDERED_LOCK, ORDERED_PAGE,
    ORDERED_SCAN, QUOTE, RowsText, Text,
};
use crate::order::{OrderSettings, index_columns};
use crate::statement::Rendering;

mod claim;
mod findings;
mod partition;
mod status;

/// An outbox whose claims keep the order of each aggregate, as [`crate::order`] tells. Settles and sweeps are the
/// outbox's own. Cloning it shares everything.
///
/// With partitions it claims only in those it holds, so [`OrderedOutbox::hold_partitions`] has to be called before the
/// first claim and again several times per lease.
#[derive(Clone, Debug)]
pub struct OrderedOutbox {
    outbox: Outbox,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: OrderSettings,
    texts: Kept<Texts>,
    held: Mutex<Held>,
}

/// The partitions this relay believes to hold; each claim asks the table.
#[derive(Clone, Debug, Default)]
struct Held {
    relay: String,
    tokens: BTreeMap<u16, String>,
}

/// The statements of ordered claims on the table as it is.
#[derive(Debug)]
struct Texts {
    page: Text,
    page_shared: Text,
    chains: ChainTexts,
    lock: ListText,
    defer_lock: ListText,
    defer: ListText,
}

/// How chains are read.
#[derive(Debug)]
enum ChainTexts {
    /// By the index of aggregates, all of about one length together.
    Together(ListText),
    /// By the index of aggregates, a few in one statement, each planned by itself: for servers without LATERAL.
    Each(RowsText),
    /// From all unfinished rows at once.
    Scanned(ListText),
}

impl Outbox {
    /// The same outbox in order.
    pub fn ordered(&self, settings: OrderSettings) -> OrderedOutbox {
        let shared = Shared { settings, texts: Kept::default(), held: Mutex::default() };
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

    fn held(&self) -> Held {
        self.shared.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn texts(&self) -> Result<Arc<Texts>, StoreError> {
        let shape = self.outbox.shape().await?;
        let (mapping, settings) = (self.outbox.mapping().clone(), self.shared.settings);
        let reading = self.outbox.database().read(Lane::General, move |connection| {
            async move { Texts::read(connection, &mapping, &shape, settings).await }.boxed()
        });
        self.shared.texts.get(reading).await
    }
}

impl OutboxStore for OrderedOutbox {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let settings = self.shared.settings;
        let fence = (settings.partitions > 0)
            .then(|| partition::Fence::new(self.outbox.mapping(), settings.partitions, self.held()));
        if request.limit == 0 || fence.as_ref().is_some_and(partition::Fence::is_empty) {
            return Ok(Claimed::default());
        }
        let (prepared, texts) = (self.outbox.prepared().await?, self.texts().await?);
        let claiming = claim::Claiming { prepared, texts, settings, fence };
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
        connection: &mut MySqlConnection,
        mapping: &OutboxMapping,
        shape: &TableShape,
        settings: OrderSettings,
    ) -> Result<Self, UnitError> {
        let mut names = mapping.names().clone();
        let index = aggregate_index(connection, mapping, shape).await?;
        let page = if index.is_some() { ORDERED_PAGE } else { ORDERED_SCAN };
        let indexed = index.is_some();
        if let Some(index) = index {
            names.insert("idx_aggregate", index);
        }
        let text = |shared| Text::with_words(page, &names, shape, settings.words(shape, shared));
        let mut present = shape.present();
        let words = settings.words(shape, false).into_iter().chain([("chain", true)]);
        present.extend(words.filter(|(_, taken)| *taken).map(|(word, _)| word.to_owned()));
        let rendering = Rendering::new(QUOTE).names(&names).present(&present);
        let list = |file| ListText::new(file, &names, shape);
        Ok(Self {
            page: text(false),
            page_shared: text(true),
            chains: if !indexed {
                ChainTexts::Scanned(ListText::rendered(&rendering, ORDERED_SCAN))
            } else if has_lateral(connection).await? {
                ChainTexts::Together(ListText::rendered(&rendering, ORDERED_CHAINS))
            } else {
                ChainTexts::Each(RowsText::rendered(&rendering, ORDERED_CHAIN))
            },
            lock: list(ORDERED_LOCK),
            defer_lock: list(ORDERED_DEFER_LOCK),
            defer: list(ORDERED_DEFER),
        })
    }
}

/// Whether the server knows LATERAL: MySQL since 8.0.14 (manual, Lateral Derived Tables), MariaDB not. Any other failure
/// of so plain a statement shows again in the statements themselves.
async fn has_lateral(connection: &mut MySqlConnection) -> Result<bool, UnitError> {
    let probe =
        "SELECT 1 FROM (SELECT 1 AS one) AS row_of JOIN LATERAL (SELECT row_of.one AS same) AS lateral_row";
    match raw_sql(probe).execute(connection).await {
        Ok(_) => Ok(true),
        Err(error) if error.as_database_error().is_some() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The index by which claims find the earliest rows of an aggregate, whatever it is called. One that its owner gave a
/// name that cannot be quoted is as none.
pub(crate) async fn aggregate_index(
    connection: &mut MySqlConnection,
    mapping: &OutboxMapping,
    shape: &TableShape,
) -> Result<Option<Identifier>, sqlx::Error> {
    let names = mapping.names();
    let column = |column: &str| names[column].as_str().to_ascii_lowercase();
    let wanted: Vec<String> = index_columns(shape).iter().map(|name| column(name)).collect();
    let found = introspection::index_on(connection, mapping.table(), &wanted, &column("event_id")).await?;
    Ok(found.and_then(|name| Identifier::column(&name).ok()))
}
