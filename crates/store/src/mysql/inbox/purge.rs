//! Purging markers beyond their retention, page by page in the order of their key.

use std::ops::ControlFlow;
use std::sync::Arc;

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::{ColumnKind, TableShape};
use crate::mapping::MarkerMapping;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::inbox::Inbox;
use crate::mysql::introspection;
use crate::mysql::packet;
use crate::mysql::statement::{ListText, MARKER_PAGE, MARKER_PURGE, PURGE_LIMIT, Text};
use crate::record::{PurgeMarkers, PurgePlan, PurgeReport};
use crate::settling::micros;
use crate::statement::padded;

/// More markers than this in one transaction would hold locks for too long.
const PAGE_MAX: u32 = 10_000;

/// The statements of one walk.
struct Texts {
    first_page: Text,
    next_page: Text,
    purge: ListText,
}

/// A marker's key.
type Key = (String, String);

/// One page of the table.
#[derive(Default)]
struct Page {
    examined: u64,
    undated: u64,
    /// The markers that are old, in order.
    old: Vec<Key>,
    /// The date of the oldest of them.
    oldest: Option<String>,
    /// Where it ends.
    last: Option<Key>,
    /// The table goes on behind it.
    more: bool,
}

impl Inbox {
    /// Deletes the markers that were applied longer ago than the retention. Each page is read without locks, and its old
    /// markers are deleted in one short transaction. A marker without a date is kept.
    ///
    /// A repeat that comes after its marker is gone is applied again: the retention must exceed every retry and replay.
    ///
    /// # Errors
    /// [`StoreError::Schema`]: the table has no `applied_at`, or one that is no date. Otherwise the server cannot be
    /// reached, or refuses; pages before that are deleted.
    pub async fn purge_markers(&self, purge: &PurgeMarkers) -> Result<PurgeReport, StoreError> {
        self.purge_markers_while(purge, |_| ControlFlow::Continue(())).await
    }

    /// As [`Inbox::purge_markers`], and asks `observe` after every page whether to go on.
    ///
    /// # Errors
    /// As [`Inbox::purge_markers`].
    pub async fn purge_markers_while(
        &self,
        purge: &PurgeMarkers,
        mut observe: impl FnMut(&PurgeReport) -> ControlFlow<()> + Send,
    ) -> Result<PurgeReport, StoreError> {
        let (texts, applied_before) = self.dated(purge).await?;
        let page = purge.page.clamp(1, PAGE_MAX);
        let mut report = PurgeReport::default();
        let mut after: Option<Key> = None;
        loop {
            let room = purge.limit.map_or(u64::MAX, |limit| limit.saturating_sub(report.purged));
            if room == 0 {
                return Ok(report);
            }
            let read = self.page(&texts, applied_before.clone(), after.take(), page, room).await?;
            report.examined += read.examined;
            report.undated += read.undated;
            if !read.old.is_empty() {
                let purged = self.purge(&texts, applied_before.clone(), read.old).await?;
                report.purged += purged;
                report.pages += u64::from(purged > 0);
            }
            if !read.more {
                report.finished = true;
                return Ok(report);
            }
            if observe(&report).is_break() {
                return Ok(report);
            }
            after = read.last;
        }
    }

    /// Counts what [`Inbox::purge_markers`] would delete, page by page, and changes nothing.
    ///
    /// # Errors
    /// As [`Inbox::purge_markers`].
    pub async fn plan_purge(&self, purge: &PurgeMarkers) -> Result<PurgePlan, StoreError> {
        let (texts, applied_before) = self.dated(purge).await?;
        let page = purge.page.clamp(1, PAGE_MAX);
        let mut plan = PurgePlan::default();
        let mut after: Option<Key> = None;
        loop {
            let read = self.page(&texts, applied_before.clone(), after, page, u64::MAX).await?;
            plan.examined += read.examined;
            plan.undated += read.undated;
            plan.old += read.old.len() as u64;
            // Dates of this form sort by time.
            plan.oldest_applied_at = plan.oldest_applied_at.into_iter().chain(read.oldest).min();
            if !read.more {
                return Ok(plan);
            }
            after = read.last;
        }
    }

    /// The statements for the table, and the date before which markers are old, once for a whole walk, so that it ends.
    async fn dated(&self, purge: &PurgeMarkers) -> Result<(Texts, String), StoreError> {
        let mapping = self.mapping().clone();
        let retention = micros(purge.retention);
        let reading = self.database().read(Lane::General, move |connection| {
            async move {
                let shape = dated(connection, &mapping).await?;
                let row = query(Text::own(PURGE_LIMIT).sql()).bind(retention).fetch_one(connection).await?;
                Ok((Texts::new(&mapping, &shape), row.try_get_unchecked::<String, _>(0)?))
            }
            .boxed()
        });
        reading.await
    }

    /// Reads the next markers, up to the one that fills the room there is.
    async fn page(
        &self,
        texts: &Texts,
        applied_before: String,
        after: Option<Key>,
        limit: u32,
        room: u64,
    ) -> Result<Page, StoreError> {
        let text = if after.is_some() { texts.next_page.clone() } else { texts.first_page.clone() };
        let reading = self.database().read(Lane::General, move |connection| {
            async move {
                let mut select = query(text.sql()).bind(applied_before);
                if let Some((consumer, key)) = after {
                    select = select.bind(consumer.clone()).bind(consumer).bind(key);
                }
                let rows = select.bind(limit).fetch_all(connection).await?;
                let mut page = Page::default();
                for row in &rows {
                    let key: Key =
                        (row.try_get_unchecked("consumer_name")?, row.try_get_unchecked("business_key")?);
                    page.examined += 1;
                    page.undated += u64::from(row.try_get_unchecked::<bool, _>("undated")?);
                    if row.try_get_unchecked::<bool, _>("old")? {
                        page.old.push(key.clone());
                        let applied_at: String = row.try_get_unchecked("applied_at")?;
                        page.oldest = page.oldest.take().into_iter().chain([applied_at]).min();
                    }
                    page.last = Some(key);
                    if page.old.len() as u64 == room {
                        break;
                    }
                }
                page.more = rows.len() as u64 == u64::from(limit) || page.examined < rows.len() as u64;
                Ok(page)
            }
            .boxed()
        });
        reading.await
    }

    /// Deletes old markers: many at a time, or one by one when that would wait. For many of a small table's keys the
    /// server may read all of a consumer's, and wait for operations under way.
    async fn purge(&self, texts: &Texts, applied_before: String, old: Vec<Key>) -> Result<u64, StoreError> {
        let old = Arc::new(old);
        match self.delete(texts, applied_before.clone(), Arc::clone(&old), false).await {
            Err(StoreError::Contended(_)) => self.delete(texts, applied_before, old, true).await,
            done => done,
        }
    }

    async fn delete(
        &self,
        texts: &Texts,
        applied_before: String,
        old: Arc<Vec<Key>>,
        single: bool,
    ) -> Result<u64, StoreError> {
        let texts = texts.purge.clone();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let mut purged = 0;
                for keys in old.chunk_by(|left, right| left.0 == right.0) {
                    let weigh = |(_, key): &Key| packet::weight(1, key.len());
                    let next = |rest: &[Key]| if single { 1 } else { packet::list(rest, weigh) };
                    for keys in packet::pieces(keys, next) {
                        let mut delete = query(texts.sized(keys.len()).sql()).bind(&keys[0].0);
                        for (_, key) in padded(keys) {
                            delete = delete.bind(key);
                        }
                        let done = delete.bind(&applied_before).execute(&mut *connection).await?;
                        purged += done.rows_affected();
                    }
                }
                Ok(purged)
            }
            .boxed()
        });
        unit.await
    }
}

impl Texts {
    fn new(mapping: &MarkerMapping, shape: &TableShape) -> Self {
        let page = |after| Text::with_words(MARKER_PAGE, mapping.names(), shape, [("after", after)]);
        Self {
            first_page: page(false),
            next_page: page(true),
            purge: ListText::new(MARKER_PURGE, mapping.names(), shape),
        }
    }
}

/// The table's columns, `applied_at` among them, as a date: the server would compare any other type with one by a
/// meaning nobody meant.
async fn dated(connection: &mut MySqlConnection, mapping: &MarkerMapping) -> Result<TableShape, UnitError> {
    let shape = introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
    let table = mapping.table();
    let Some((shape, column)) = shape.as_ref().and_then(|shape| Some((shape, shape.column("applied_at")?)))
    else {
        return Err(StoreError::Schema(format!(
            "{table} has no column applied_at, so no marker is known to be old: run `consign migrate` or map the \
             column in the config"
        ))
        .into());
    };
    if column.kind != ColumnKind::DateTime {
        return Err(StoreError::Schema(format!(
            "{table}.{} is {}, so no marker is known to be old: make it DATETIME(6)",
            column.name, column.declared
        ))
        .into());
    }
    Ok(shape.clone())
}
