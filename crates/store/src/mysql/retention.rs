//! Forgetting sent rows and attempts, step by step.

use std::time::{Duration, Instant};

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::outbox::Outbox;
use crate::mysql::packet;
use crate::mysql::statement::{ATTEMPT_PAGE, ATTEMPT_PURGE, ListText, SENT_PAGE, SENT_PURGE, Text};
use crate::retention::{PurgeStep, Retention, SentPosition};
use crate::statement::padded;

impl Retention for Outbox {
    async fn before(&self, age: Duration) -> Result<String, StoreError> {
        self.moment(age).await
    }

    async fn look_at_sent(
        &self,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> Result<PurgeStep, StoreError> {
        Ok(self.page(before, after, rows).await?.0)
    }

    async fn purge_sent(
        &self,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> Result<PurgeStep, StoreError> {
        let (mut step, mut ids) = self.page(before, after, rows).await?;
        if ids.is_empty() {
            return Ok(step);
        }
        // Rows are changed in key order, as everywhere.
        ids.sort_unstable();
        let texts = ListText::new(SENT_PURGE, self.mapping().names(), &self.shape().await?);
        let before = before.to_owned();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let started = Instant::now();
                let purged = delete(connection, &texts, &before, &ids).await?;
                Ok((purged, started.elapsed()))
            }
            .boxed()
        });
        (step.purged, step.took) = unit.await?;
        Ok(step)
    }

    async fn purge_attempts(&self, before: &str, rows: u32) -> Result<PurgeStep, StoreError> {
        if !self.prepared().await?.log.exists() {
            return Ok(PurgeStep::default());
        }
        let before = before.to_owned();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move { purge_attempts(connection, &before, rows).await }.boxed()
        });
        unit.await
    }
}

impl Outbox {
    /// The next sent rows, and the ids of those that are old.
    async fn page(
        &self,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> Result<(PurgeStep, Vec<String>), StoreError> {
        let shape = self.shape().await?;
        let text = Text::with_words(SENT_PAGE, self.mapping().names(), &shape, [("after", after.is_some())]);
        let (before, after) = (before.to_owned(), after.cloned());
        let reading = self.database().read(Lane::General, move |connection| {
            async move {
                let mut select = query(text.sql()).bind(&before).bind(&before);
                if let Some(SentPosition { due_at, event_id }) = &after {
                    select = select.bind(due_at).bind(due_at).bind(event_id);
                }
                let found = select.bind(rows).fetch_all(connection).await?;
                let mut step = PurgeStep { examined: found.len() as u64, ..PurgeStep::default() };
                step.more = step.examined == u64::from(rows);
                let mut ids = Vec::new();
                for row in &found {
                    let event_id: String = row.try_get_unchecked("event_id")?;
                    if row.try_get_unchecked::<bool, _>("old")? {
                        step.old += 1;
                        // Dates of this form sort by time.
                        let dated: String = row.try_get_unchecked("dated")?;
                        step.oldest = step.oldest.take().into_iter().chain([dated]).min();
                        ids.push(event_id.clone());
                    }
                    step.last = Some(SentPosition { due_at: row.try_get_unchecked("due_at")?, event_id });
                }
                Ok((step, ids))
            }
            .boxed()
        });
        reading.await
    }
}

async fn delete(
    connection: &mut MySqlConnection,
    texts: &ListText,
    before: &str,
    ids: &[String],
) -> Result<u64, UnitError> {
    let mut purged = 0;
    let weigh = |id: &String| packet::weight(1, id.len());
    for list in packet::pieces(ids, |rest| packet::list(rest, weigh)) {
        let mut statement = query(texts.sized(list.len()).sql());
        for id in padded(list) {
            statement = statement.bind(id);
        }
        purged += statement.bind(before).execute(&mut *connection).await?.rows_affected();
    }
    Ok(purged)
}

async fn purge_attempts(
    connection: &mut MySqlConnection,
    before: &str,
    rows: u32,
) -> Result<PurgeStep, UnitError> {
    let select = query(Text::own(ATTEMPT_PAGE).sql()).bind(before).bind(rows);
    let found = select.fetch_all(&mut *connection).await?;
    let mut step = PurgeStep { examined: found.len() as u64, ..PurgeStep::default() };
    let mut range: Option<(i64, i64)> = None;
    for row in &found {
        if !row.try_get_unchecked::<bool, _>("old")? {
            break;
        }
        let id: i64 = row.try_get_unchecked("attempt_id")?;
        range = Some((range.map_or(id, |(first, _)| first), id));
        step.old += 1;
    }
    let Some((first, last)) = range else { return Ok(step) };
    let started = Instant::now();
    let statement = query(Text::own(ATTEMPT_PURGE).sql()).bind(first).bind(last).bind(before);
    step.purged = statement.execute(connection).await?.rows_affected();
    step.took = started.elapsed();
    step.more = step.old == u64::from(rows);
    Ok(step)
}
