//! The outbox: a table of events shared by any number of relays and producers.

use std::sync::Arc;
use std::time::Duration;

use consign_core::event::{EventId, NewEvent};
use consign_core::finding::Finding;
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, OutboxStore, StoreError};
use consign_core::settle::{SettleBatch, Settled, Swept};
use futures_util::FutureExt;
use sqlx::{Row, Sqlite, SqliteConnection, query};

use crate::append::AppendError;
use crate::introspection::{ColumnKind, TableShape};
use crate::mapping::{OUTBOX_REQUIRED, OutboxMapping};
use crate::retention::{Keeping, OnSent};
use crate::settling::orders;
use crate::sqlite::attempts::AttemptTexts;
use crate::sqlite::connection::{Database, UnitError};
use crate::sqlite::prepared::Kept;
use crate::sqlite::statement::{self, ListText, Text};
use crate::sqlite::{append, claim, findings, introspection, settle, sweep};
use crate::status::OutboxStatus;

/// An outbox table. Cloning it shares everything.
///
/// The table is looked at when it is first needed, and again after SQLite said that it does not fit.
#[derive(Clone, Debug)]
pub struct Outbox {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Database,
    mapping: OutboxMapping,
    relay: String,
    keeping: Keeping,
    prepared: Kept<Prepared>,
}

/// The table as it is, and the statements for it.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) shape: TableShape,
    pub(crate) claim_select: Text,
    pub(crate) claim_mark: ListText,
    pub(crate) claim_fetch: ListText,
    pub(crate) settle_sent: ListText,
    pub(crate) settle_retry: ListText,
    pub(crate) settle_release: ListText,
    pub(crate) settle_dead: ListText,
    pub(crate) settle_inspect: ListText,
    pub(crate) sweep_select: Text,
    pub(crate) sweep_return: ListText,
    pub(crate) sweep_dead: ListText,
    /// Whether a sent row is deleted.
    pub(crate) deletes_sent: bool,
    pub(crate) log: AttemptTexts,
}

impl Outbox {
    /// The outbox at `mapping` in `database`, which keeps everything. `relay` names this process in records of attempts.
    pub fn new(database: Database, mapping: OutboxMapping, relay: impl Into<String>) -> Self {
        Self::with_keeping(database, mapping, relay, Keeping::default())
    }

    /// The same, keeping what `keeping` says.
    pub fn with_keeping(
        database: Database,
        mapping: OutboxMapping,
        relay: impl Into<String>,
        keeping: Keeping,
    ) -> Self {
        let shared = Shared { database, mapping, relay: relay.into(), keeping, prepared: Kept::default() };
        Self { shared: Arc::new(shared) }
    }

    /// The file.
    pub fn database(&self) -> &Database {
        &self.shared.database
    }

    /// The table's names.
    pub fn mapping(&self) -> &OutboxMapping {
        &self.shared.mapping
    }

    /// What the table has.
    ///
    /// # Errors
    /// The file cannot be read, or the table or one of its required columns is missing.
    pub async fn shape(&self) -> Result<TableShape, StoreError> {
        Ok(self.prepared().await?.shape.clone())
    }

    /// Appends an event inside the producer's own transaction: it is published if and only if that commits. Begin it
    /// by [`Database::begin`] or with `BEGIN IMMEDIATE`: a deferred one may find the file locked at its first write.
    ///
    /// # Errors
    /// The event does not fit the table, its id is taken, or the store failed. The transaction must then be rolled
    /// back. Dropping the future may leave the event in the transaction or not.
    pub async fn append(
        &self,
        tx: &mut sqlx::Transaction<'_, Sqlite>,
        event: NewEvent,
    ) -> Result<EventId, AppendError> {
        let mut ids = self.append_all(tx, vec![event]).await?;
        Ok(ids.pop().expect("one event gives one id"))
    }

    /// Appends events in multi-row statements, in order; gives their ids in the same order.
    ///
    /// # Errors
    /// As [`Outbox::append`]. Some events may be in the transaction already: roll it back.
    pub async fn append_all(
        &self,
        tx: &mut sqlx::Transaction<'_, Sqlite>,
        events: Vec<NewEvent>,
    ) -> Result<Vec<EventId>, AppendError> {
        let prepared = self.prepared().await?;
        let result = append::append(self, &prepared, tx, events).await;
        if matches!(result, Err(AppendError::Store(StoreError::Schema(_)) | AppendError::NoColumn { .. })) {
            self.shared.prepared.forget();
        }
        result
    }

    /// Counts rows by status. Reads the whole index of pending rows.
    ///
    /// # Errors
    /// The file cannot be read or the table does not fit.
    pub async fn status(&self) -> Result<OutboxStatus, StoreError> {
        let prepared = self.prepared().await?;
        let names = self.shared.mapping.names();
        let by_status = Text::new(statement::OUTBOX_STATUS, names, &prepared.shape);
        let pending = Text::new(statement::OUTBOX_PENDING, names, &prepared.shape);
        let fenced = prepared.log.exists().then(|| Text::own(statement::ATTEMPT_COUNT));
        let reading = self.database().read(move |connection| {
            async move { read_status(connection, &by_status, &pending, fenced.as_ref()).await }.boxed()
        });
        self.shared.prepared.noting(reading.await)
    }

    /// Checks the table and the claim against it. Looks at the table afresh.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn findings(&self) -> Result<Vec<Finding>, StoreError> {
        findings::outbox(self.database(), self.mapping()).await
    }

    /// Passes a result on; one that says the schema does not fit makes the next call look again.
    pub(crate) fn noting<R>(&self, result: Result<R, StoreError>) -> Result<R, StoreError> {
        self.shared.prepared.noting(result)
    }

    /// The table and its statements.
    pub(crate) async fn prepared(&self) -> Result<Arc<Prepared>, StoreError> {
        let (names, keeping, relay) =
            (self.shared.mapping.clone(), self.shared.keeping, self.shared.relay.clone());
        let reading = self.database().read(move |connection| {
            async move { Prepared::read(connection, &names, keeping, &relay).await }.boxed()
        });
        self.shared.prepared.get(reading).await
    }

    /// A look without the write lock, so that idle relays never shut out anybody. What it misses the next one sees.
    pub(crate) async fn finds_any(&self, select: &Text) -> Result<bool, StoreError> {
        let select = select.clone();
        self.database()
            .read(move |connection| {
                async move { Ok(query(select.sql()).bind(1).fetch_optional(connection).await?.is_some()) }
                    .boxed()
            })
            .await
    }
}

impl OutboxStore for Outbox {
    async fn claim(&self, request: ClaimRequest) -> Result<Claimed, StoreError> {
        let prepared = self.prepared().await?;
        let due = self.shared.prepared.noting(self.finds_any(&prepared.claim_select).await)?;
        if !due || request.limit == 0 {
            return Ok(Claimed::default());
        }
        self.shared.prepared.noting(claim::claim(self.database(), prepared, request).await)
    }

    async fn settle(&self, batch: &SettleBatch) -> Result<Vec<Settled>, StoreError> {
        let orders = orders(batch);
        let prepared = self.prepared().await?;
        let result = settle::settle(self.database(), prepared, orders, batch.repeat).await;
        self.shared.prepared.noting(result)
    }

    async fn sweep(&self, limit: u32, delay: Duration, attempts_max: u32) -> Result<Swept, StoreError> {
        let prepared = self.prepared().await?;
        let expired = self.shared.prepared.noting(self.finds_any(&prepared.sweep_select).await)?;
        if !expired || limit == 0 {
            return Ok(Swept::default());
        }
        let result = sweep::sweep(self.database(), prepared, limit, delay, attempts_max).await;
        self.shared.prepared.noting(result)
    }
}

impl Prepared {
    async fn read(
        connection: &mut SqliteConnection,
        mapping: &OutboxMapping,
        keeping: Keeping,
        relay: &str,
    ) -> Result<Self, UnitError> {
        let names = mapping.names();
        introspection::check_file(mapping.table())?;
        let shape = introspection::shape(connection, OutboxMapping::TABLE, names).await?;
        let Some(shape) = shape else {
            let table = mapping.table();
            return Err(missing(&format!("there is no table {table}")));
        };
        let lacking = shape.missing(&OUTBOX_REQUIRED);
        if !lacking.is_empty() {
            let (table, columns) = (mapping.table(), lacking.join(", "));
            return Err(missing(&format!("{table} lacks {columns}")));
        }
        let id = &shape.columns["event_id"];
        if id.kind != ColumnKind::Text {
            // Any other affinity turns text that looks like a number into one.
            return Err(StoreError::Schema(format!(
                "{}.{} is {:?}: make it a text column such as VARCHAR(64)",
                mapping.table(),
                id.name,
                id.declared
            ))
            .into());
        }
        let log = AttemptTexts::read(connection, names, &shape, keeping, relay).await?;
        let deletes_sent = keeping.on_sent == OnSent::Delete;
        let list = |file| ListText::new(file, names, &shape);
        Ok(Self {
            claim_select: Text::new(statement::CLAIM_SELECT, names, &shape),
            claim_mark: list(statement::CLAIM_MARK),
            claim_fetch: list(statement::CLAIM_FETCH),
            settle_sent: list(if deletes_sent { statement::SETTLE_DELETE } else { statement::SETTLE_SENT }),
            settle_retry: list(statement::SETTLE_RETRY),
            settle_release: list(statement::SETTLE_RELEASE),
            settle_dead: list(statement::SETTLE_DEAD),
            settle_inspect: list(statement::SETTLE_INSPECT),
            sweep_select: Text::new(statement::SWEEP_SELECT, names, &shape),
            sweep_return: list(statement::SWEEP_RETURN),
            sweep_dead: list(statement::SWEEP_DEAD),
            deletes_sent,
            log,
            shape,
        })
    }

    /// `text` as the column `last_error` can take it; `None` when there is nothing to tell.
    pub(crate) fn last_error(&self, text: &str) -> Option<String> {
        let column = self.shape.column("last_error")?;
        (!text.is_empty()).then(|| crate::diagnostic::fitted(text, column))
    }
}

fn missing(what: &str) -> UnitError {
    StoreError::Schema(format!("{what}: run `consign migrate` or map the names in the config")).into()
}

async fn read_status(
    connection: &mut SqliteConnection,
    by_status: &Text,
    pending: &Text,
    fenced: Option<&Text>,
) -> Result<OutboxStatus, UnitError> {
    let mut status = OutboxStatus::default();
    for row in query(by_status.sql()).fetch_all(&mut *connection).await? {
        let name: Option<String> = row.try_get_unchecked(0)?;
        let events = count(row.try_get(1)?);
        match name.as_deref() {
            Some("NEW") => status.new += events,
            Some("SENDING") => status.sending += events,
            Some("SENT") => status.sent += events,
            Some("DEAD") => status.dead += events,
            Some("DISCARDED") => status.discarded += events,
            // Rows of other statuses belong to somebody else; `findings` reports them.
            _ => {}
        }
    }
    let row = query(pending.sql()).fetch_one(&mut *connection).await?;
    let oldest: Option<i64> = row.try_get(0)?;
    status.oldest_pending = oldest.map(|micros| Duration::from_micros(count(micros)));
    status.expired = count(row.try_get(1)?);
    if let Some(fenced) = fenced {
        status.fenced = Some(count(query(fenced.sql()).fetch_one(connection).await?.try_get(0)?));
    }
    Ok(status)
}

/// A COUNT or an age, which are never negative.
pub(crate) fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
