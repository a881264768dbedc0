//! One ordered claim: look, plan, lock, mark, move what stands in the way; in one short transaction.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, StoreError};
use futures_util::{FutureExt, TryStreamExt};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use super::partition::Fence;
use super::{ChainTexts, Texts};
use crate::mysql::claim::{SUSPECT_ATTEMPTS, mark, stored};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::outbox::{Prepared, count};
use crate::mysql::statement::{ListText, RowsText};
use crate::order::plan::{Limits, Planned, Waiting, chains_wanted, plan, unbroken};
use crate::order::{DEAD_DELAY, OrderSettings};
use crate::row::StoredRow;
use crate::settling::micros;
use crate::statement::{bucket, lists, padded};

/// Chains read by one statement at most.
const CHAINS_MAX: usize = 32;

/// What a claim works with.
pub(super) struct Claiming {
    pub(super) prepared: Arc<Prepared>,
    pub(super) texts: Arc<Texts>,
    pub(super) settings: OrderSettings,
    pub(super) fence: Option<Fence>,
}

impl Claiming {
    /// One unit of work; its rows are given out only after COMMIT.
    pub(super) async fn run(self, database: &Database, request: ClaimRequest) -> Result<Claimed, StoreError> {
        database
            .transact(Lane::Claim, move |connection| {
                async move { self.claim(connection, &request).await }.boxed()
            })
            .await
    }

    async fn claim(
        &self,
        connection: &mut MySqlConnection,
        request: &ClaimRequest,
    ) -> Result<Claimed, UnitError> {
        let partitions = match &self.fence {
            None => None,
            Some(fence) => match fence.held(connection).await? {
                held if held.is_empty() => return Ok(Claimed::default()),
                held => fence.restriction(&held),
            },
        };
        let limits = Limits::new(request.limit, request.bytes_max);
        let page = self.page(connection, partitions.as_deref(), limits).await?;
        let chains = self.chains(connection, &chains_wanted(&page, limits)).await?;
        let plan = plan(&page, &chains, limits);
        let mut rows = self.lock(connection, &plan.rows).await?;
        let taken = unbroken(&plan.rows, |id| rows.contains_key(id));
        let ids: Vec<String> = taken.iter().map(|row| row.id.clone()).collect();
        mark(connection, &self.prepared, request, &request.token().to_hex(), &ids).await?;
        for (delay, ids) in &plan.deferred {
            self.defer(connection, *delay, ids).await?;
        }
        let rows = taken.into_iter().filter_map(|planned| {
            let row = rows.remove(&planned.id)?;
            Some((StoredRow { suspect: plan.suspect, ..row }, planned.head.clone()))
        });
        Ok(self.settings.deal(rows, request, plan.more))
    }

    async fn page(
        &self,
        connection: &mut MySqlConnection,
        partitions: Option<&str>,
        limits: Limits,
    ) -> Result<Vec<Waiting>, UnitError> {
        let select = match partitions {
            None => query(self.texts.page.sql()),
            Some(numbers) => {
                query(self.texts.page_shared.sql()).bind(self.settings.partitions).bind(numbers.to_owned())
            }
        };
        let limit = i64::try_from(limits.page).unwrap_or(i64::MAX);
        let rows = select.bind(limit).fetch_all(connection).await?;
        Ok(rows.iter().map(|row| self.waiting(row)).collect::<Result<_, _>>()?)
    }

    /// The earliest rows of aggregates named by their heads, so many of each.
    async fn chains(
        &self,
        connection: &mut MySqlConnection,
        wanted: &[(String, u32)],
    ) -> Result<BTreeMap<String, Vec<Waiting>>, UnitError> {
        let rows = match &self.texts.chains {
            ChainTexts::Together(texts) => together(connection, texts, wanted).await?,
            ChainTexts::Each(texts) => each(connection, texts, wanted).await?,
            ChainTexts::Scanned(texts) => scanned(connection, texts, wanted).await?,
        };
        let mut chains: BTreeMap<String, Vec<Waiting>> = BTreeMap::new();
        for row in &rows {
            let row = self.waiting(row)?;
            chains.entry(row.head.clone()).or_default().push(row);
        }
        Ok(chains)
    }

    /// Locks the rows that nobody else has and reads them.
    async fn lock(
        &self,
        connection: &mut MySqlConnection,
        planned: &[Planned],
    ) -> Result<HashMap<String, StoredRow>, UnitError> {
        let mut rows = HashMap::with_capacity(planned.len());
        for list in lists(planned) {
            let mut select = query(self.texts.lock.sized(list.len()).sql());
            for row in padded(list) {
                select = select.bind(row.id.as_str());
            }
            let mut stream = select.fetch(&mut *connection);
            while let Some(row) = stream.try_next().await? {
                let row = stored(&row, &self.prepared.shape)?;
                rows.insert(row.event_id.clone(), row);
            }
        }
        Ok(rows)
    }

    /// Moves rows that nobody else has.
    async fn defer(
        &self,
        connection: &mut MySqlConnection,
        delay_micros: i64,
        ids: &[String],
    ) -> Result<(), UnitError> {
        for list in lists(ids) {
            let mut select = query(self.texts.defer_lock.sized(list.len()).sql());
            for id in padded(list) {
                select = select.bind(id.as_str());
            }
            let rows = select.fetch_all(&mut *connection).await?;
            let free: Vec<String> =
                rows.iter().map(|row| row.try_get_unchecked(0)).collect::<Result<_, _>>()?;
            if free.is_empty() {
                continue;
            }
            let mut update = query(self.texts.defer.sized(free.len()).sql()).bind(delay_micros);
            for id in padded(&free) {
                update = update.bind(id.as_str());
            }
            update.execute(&mut *connection).await?;
        }
        Ok(())
    }

    fn waiting(&self, row: &MySqlRow) -> Result<Waiting, sqlx::Error> {
        let flag =
            |place: usize| Ok::<_, sqlx::Error>(row.try_get_unchecked::<Option<i64>, _>(place)? == Some(1));
        let attempts: i64 = row.try_get_unchecked(6)?;
        // Without the column a retried row is treated like a swept one: it is claimed alone too.
        let swept = !self.prepared.shape.has("last_outcome")
            || row.try_get_unchecked::<Option<Vec<u8>>, _>(7)?.as_deref() == Some(b"swept".as_slice());
        Ok(Waiting {
            id: row.try_get_unchecked(0)?,
            head: row.try_get_unchecked(1)?,
            held: flag(2)?,
            dead: flag(3)?,
            // A row without a date is never due.
            wait_micros: row.try_get_unchecked::<Option<i64>, _>(4)?.unwrap_or(micros(DEAD_DELAY)),
            payload_bytes: row.try_get_unchecked::<Option<i64>, _>(5)?.map_or(0, count),
            suspect: attempts >= SUSPECT_ATTEMPTS && swept,
        })
    }
}

/// Chains of about one length share a statement, since it has one LIMIT: it reads at most twice what is wanted.
async fn together(
    connection: &mut MySqlConnection,
    texts: &ListText,
    wanted: &[(String, u32)],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut by_length: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    for (head, length) in wanted {
        by_length.entry(length.next_power_of_two()).or_default().push(head);
    }
    let mut rows = Vec::new();
    for (length, heads) in by_length {
        for list in lists(&heads) {
            let mut select = query(texts.sized(list.len()).sql()).bind(length);
            for head in padded(list) {
                select = select.bind(*head);
            }
            rows.extend(select.fetch_all(&mut *connection).await?);
        }
    }
    Ok(rows)
}

async fn each(
    connection: &mut MySqlConnection,
    texts: &RowsText,
    wanted: &[(String, u32)],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut rows = Vec::new();
    for part in wanted.chunks(CHAINS_MAX) {
        let mut select = query(texts.sized(bucket(part.len())).sql());
        // The text is as long as the next power of two: the chains in excess have no rows.
        for place in 0..bucket(part.len()) {
            let (head, length) = part.get(place).map_or((&part[0].0, 0), |(head, rows)| (head, *rows));
            select = select.bind(head.as_str()).bind(length);
        }
        rows.extend(select.fetch_all(&mut *connection).await?);
    }
    Ok(rows)
}

async fn scanned(
    connection: &mut MySqlConnection,
    texts: &ListText,
    wanted: &[(String, u32)],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let longest = wanted.iter().map(|(_, length)| *length).max().unwrap_or(0);
    let mut rows = Vec::new();
    for list in lists(wanted) {
        let mut select = query(texts.sized(list.len()).sql());
        for (head, _) in padded(list) {
            select = select.bind(head.as_str());
        }
        rows.extend(select.bind(longest).fetch_all(&mut *connection).await?);
    }
    Ok(rows)
}
