//! One ordered claim: look, plan, mark, move what stands in the way; under the file's write lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, StoreError};
use futures_util::FutureExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use super::{ChainTexts, Texts};
use crate::order::plan::{Limits, Waiting, chains_wanted, plan};
use crate::order::{DEAD_DELAY, OrderSettings};
use crate::row::StoredRow;
use crate::settling::micros;
use crate::sqlite::claim::{SUSPECT_ATTEMPTS, fetch, mark};
use crate::sqlite::connection::{Database, UnitError};
use crate::sqlite::outbox::{Prepared, count};
use crate::sqlite::statement::after;
use crate::statement::{lists, padded};

/// What a claim works with.
pub(super) struct Claiming {
    pub(super) prepared: Arc<Prepared>,
    pub(super) texts: Arc<Texts>,
    pub(super) settings: OrderSettings,
}

impl Claiming {
    /// One unit of work; its rows are given out only after COMMIT.
    pub(super) async fn run(self, database: &Database, request: ClaimRequest) -> Result<Claimed, StoreError> {
        database
            .transact(move |connection| async move { self.claim(connection, &request).await }.boxed())
            .await
    }

    async fn claim(
        &self,
        connection: &mut SqliteConnection,
        request: &ClaimRequest,
    ) -> Result<Claimed, UnitError> {
        let limits = Limits::new(request.limit, request.bytes_max);
        let limit = i64::try_from(limits.page).unwrap_or(i64::MAX);
        let rows = query(self.texts.page.sql()).bind(limit).fetch_all(&mut *connection).await?;
        let page = self.waiting(&rows)?;
        let chains = self.chains(connection, &chains_wanted(&page, limits)).await?;
        let plan = plan(&page, &chains, limits);
        // Nobody else writes meanwhile: what was planned is had.
        let ids: Vec<String> = plan.rows.iter().map(|row| row.id.clone()).collect();
        let token = request.token().to_hex();
        mark(connection, &self.prepared, request, &token, &ids).await?;
        let mut rows = fetch(connection, &self.prepared, &token, &ids).await?;
        for (delay, ids) in &plan.deferred {
            self.defer(connection, *delay, ids).await?;
        }
        let mut dealt = Vec::with_capacity(plan.rows.len());
        for planned in plan.rows {
            let Some(row) = rows.remove(&planned.id) else {
                let text = format!("row {:?} was claimed and could not be read", planned.id);
                return Err(StoreError::Mismatch(text).into());
            };
            dealt.push((StoredRow { suspect: plan.suspect, ..row }, planned.head));
        }
        Ok(self.settings.deal(dealt, request, plan.more))
    }

    /// The earliest rows of aggregates named by their heads, so many of each.
    async fn chains(
        &self,
        connection: &mut SqliteConnection,
        wanted: &[(String, u32)],
    ) -> Result<BTreeMap<String, Vec<Waiting>>, UnitError> {
        let mut chains: BTreeMap<String, Vec<Waiting>> = BTreeMap::new();
        match &self.texts.chains {
            ChainTexts::Indexed(text) => {
                for (head, length) in wanted {
                    let select = query(text.sql()).bind(head.as_str()).bind(*length);
                    let rows = select.fetch_all(&mut *connection).await?;
                    chains.insert(head.clone(), self.waiting(&rows)?);
                }
            }
            ChainTexts::Scanned(texts) => {
                let longest = wanted.iter().map(|(_, length)| *length).max().unwrap_or(0);
                for list in lists(wanted) {
                    let mut select = query(texts.sized(list.len()).sql());
                    for (head, _) in padded(list) {
                        select = select.bind(head.as_str());
                    }
                    let rows = select.bind(longest).fetch_all(&mut *connection).await?;
                    for row in self.waiting(&rows)? {
                        chains.entry(row.head.clone()).or_default().push(row);
                    }
                }
            }
        }
        Ok(chains)
    }

    async fn defer(
        &self,
        connection: &mut SqliteConnection,
        delay_micros: i64,
        ids: &[String],
    ) -> Result<(), UnitError> {
        for list in lists(ids) {
            let mut update = query(self.texts.defer.sized(list.len()).sql()).bind(after(delay_micros));
            for id in padded(list) {
                update = update.bind(id.as_str());
            }
            update.execute(&mut *connection).await?;
        }
        Ok(())
    }

    fn waiting(&self, rows: &[SqliteRow]) -> Result<Vec<Waiting>, sqlx::Error> {
        let outcomes = self.prepared.shape.has("last_outcome");
        let mut waiting = Vec::with_capacity(rows.len());
        for row in rows {
            // An id that is no UTF-8 cannot be settled under its name; `findings` reports it.
            let Ok(id) = String::from_utf8(row.try_get_unchecked(0)?) else { continue };
            let Ok(head) = String::from_utf8(row.try_get_unchecked(1)?) else { continue };
            let flag = |place: usize| Ok::<_, sqlx::Error>(row.try_get::<Option<i64>, _>(place)? == Some(1));
            let attempts: i64 = row.try_get(6)?;
            // Without the column a retried row is treated like a swept one: it is claimed alone too.
            let swept = !outcomes
                || row.try_get_unchecked::<Option<Vec<u8>>, _>(7)?.as_deref() == Some(b"swept".as_slice());
            waiting.push(Waiting {
                id,
                head,
                held: flag(2)?,
                dead: flag(3)?,
                // A row without a date is never due.
                wait_micros: row.try_get::<Option<i64>, _>(4)?.unwrap_or(micros(DEAD_DELAY)),
                payload_bytes: row.try_get::<Option<i64>, _>(5)?.map_or(0, count),
                suspect: attempts >= SUSPECT_ATTEMPTS && swept,
            });
        }
        Ok(waiting)
    }
}
