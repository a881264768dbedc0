//! Purging markers beyond their retention, page by page in the order of their key.

use std::ops::ControlFlow;

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::TableShape;
use crate::mapping::MarkerMapping;
use crate::record::{PurgeMarkers, PurgePlan, PurgeReport};
use crate::settling::micros;
use crate::sqlite::connection::UnitError;
use crate::sqlite::inbox::Inbox;
use crate::sqlite::introspection;
use crate::sqlite::statement::{MARKER_PAGE, MARKER_PURGE, PURGE_LIMIT, Text, before};

/// More markers than this in one transaction would shut out others for too long.
const PAGE_MAX: u32 = 10_000;

/// The statements for the first page, or for those that follow.
struct Texts {
    page: Text,
    purge: Text,
}

/// A marker's key.
type Key = (String, String);

/// One page of the table.
#[derive(Default)]
struct Page {
    examined: u64,
    undated: u64,
    old: u64,
    /// The date of the oldest that is old.
    oldest: Option<String>,
    /// Where it ends.
    last: Option<Key>,
    /// The table goes on behind it.
    more: bool,
}

impl Inbox {
    /// Deletes the markers that were applied longer ago than the retention. Each page is read without the write lock
    /// and deleted in one short transaction, in between of which others write. A marker without a date is kept.
    ///
    /// A repeat that comes after its marker is gone is applied again: the retention must exceed every retry and replay.
    ///
    /// # Errors
    /// [`StoreError::Schema`]: the table has no `applied_at`. Otherwise the file cannot be read or written; pages
    /// before that are deleted.
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
        let (shape, applied_before) = self.dated(purge).await?;
        let page = purge.page.clamp(1, PAGE_MAX);
        let mut report = PurgeReport::default();
        let mut after: Option<Key> = None;
        loop {
            let room = purge.limit.map_or(u64::MAX, |limit| limit.saturating_sub(report.purged));
            if room == 0 {
                return Ok(report);
            }
            let texts = Texts::new(self.mapping(), &shape, after.is_some());
            let read = self.page(&texts, applied_before.clone(), after.clone(), page, room).await?;
            report.examined += read.examined;
            report.undated += read.undated;
            let Some(last) = read.last else {
                report.finished = true;
                return Ok(report);
            };
            if read.old > 0 {
                let purged = self.purge(&texts, applied_before.clone(), after, last.clone()).await?;
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
            after = Some(last);
        }
    }

    /// Counts what [`Inbox::purge_markers`] would delete, page by page, and changes nothing.
    ///
    /// # Errors
    /// As [`Inbox::purge_markers`].
    pub async fn plan_purge(&self, purge: &PurgeMarkers) -> Result<PurgePlan, StoreError> {
        let (shape, applied_before) = self.dated(purge).await?;
        let page = purge.page.clamp(1, PAGE_MAX);
        let mut plan = PurgePlan::default();
        let mut after: Option<Key> = None;
        loop {
            let texts = Texts::new(self.mapping(), &shape, after.is_some());
            let read = self.page(&texts, applied_before.clone(), after, page, u64::MAX).await?;
            plan.examined += read.examined;
            plan.undated += read.undated;
            plan.old += read.old;
            // Dates of this form sort by time.
            plan.oldest_applied_at = plan.oldest_applied_at.into_iter().chain(read.oldest).min();
            if !read.more {
                return Ok(plan);
            }
            after = read.last;
        }
    }

    /// The table's shape, and the date before which markers are old, once for a whole walk, so that it ends.
    async fn dated(&self, purge: &PurgeMarkers) -> Result<(TableShape, String), StoreError> {
        let mapping = self.mapping().clone();
        let retention = before(micros(purge.retention));
        let reading = self.database().read(move |connection| {
            async move {
                let shape = dated(connection, &mapping).await?;
                let row = query(Text::own(PURGE_LIMIT).sql()).bind(retention).fetch_one(connection).await?;
                Ok((shape, row.try_get::<String, _>(0)?))
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
        let text = texts.page.clone();
        let reading = self.database().read(move |connection| {
            async move {
                let mut select = query(text.sql()).bind(applied_before);
                if let Some((consumer, key)) = after {
                    select = select.bind(consumer).bind(key);
                }
                let rows = select.bind(limit).fetch_all(connection).await?;
                let mut page = Page::default();
                for row in &rows {
                    page.examined += 1;
                    page.undated += u64::from(row.try_get::<bool, _>("undated")?);
                    if row.try_get::<bool, _>("old")? {
                        page.old += 1;
                        let applied_at: String = row.try_get("applied_at")?;
                        page.oldest = page.oldest.take().into_iter().chain([applied_at]).min();
                    }
                    page.last = Some((
                        row.try_get_unchecked("consumer_name")?,
                        row.try_get_unchecked("business_key")?,
                    ));
                    if page.old == room {
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

    async fn purge(
        &self,
        texts: &Texts,
        applied_before: String,
        after: Option<Key>,
        last: Key,
    ) -> Result<u64, StoreError> {
        let text = texts.purge.clone();
        let unit = self.database().transact(move |connection| {
            async move {
                let mut delete = query(text.sql()).bind(last.0).bind(last.1);
                if let Some((consumer, key)) = after {
                    delete = delete.bind(consumer).bind(key);
                }
                Ok(delete.bind(applied_before).execute(connection).await?.rows_affected())
            }
            .boxed()
        });
        unit.await
    }
}

impl Texts {
    fn new(mapping: &MarkerMapping, shape: &TableShape, follows: bool) -> Self {
        let text = |file| Text::with_words(file, mapping.names(), shape, [("after", follows)]);
        Self { page: text(MARKER_PAGE), purge: text(MARKER_PURGE) }
    }
}

/// The table's columns, `applied_at` among them.
async fn dated(connection: &mut SqliteConnection, mapping: &MarkerMapping) -> Result<TableShape, UnitError> {
    introspection::check_file(mapping.table())?;
    let shape = introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
    match shape {
        Some(shape) if shape.has("applied_at") => Ok(shape),
        Some(_) | None => Err(StoreError::Schema(format!(
            "{} has no column applied_at, so no marker is known to be old: run `consign migrate` or map the column in \
             the config",
            mapping.table()
        ))
        .into()),
    }
}
