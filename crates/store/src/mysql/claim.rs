//! Claims: due rows become SENDING under one token, in one short transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, StoreError};
use consign_failpoint as failpoint;
use futures_util::{FutureExt, TryStreamExt};
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::TableShape;
use crate::mysql::bookmark::{Bookmark, Place};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::outbox::{Prepared, count};
use crate::row::{StoredRow, cut};
use crate::settling::micros;
use crate::statement::{lists, padded};

/// From this many attempts on a row may be a suspect: it was swept twice.
pub(crate) const SUSPECT_ATTEMPTS: i64 = 2;

/// One unit of work; its rows are given out only after COMMIT.
pub(crate) async fn claim(
    database: &Database,
    prepared: Arc<Prepared>,
    bookmark: Arc<Bookmark>,
    request: ClaimRequest,
) -> Result<Claimed, StoreError> {
    database
        .transact(Lane::Claim, move |connection| {
            async move { claim_in(connection, &prepared, &bookmark, &request).await }.boxed()
        })
        .await
}

async fn claim_in(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    bookmark: &Bookmark,
    request: &ClaimRequest,
) -> Result<Claimed, UnitError> {
    let due = find(connection, prepared, bookmark, request.limit).await?;
    let weights = due.iter().map(|row| (row.payload_bytes, row.suspect)).collect::<Vec<_>>();
    let taken = cut(&weights, request.bytes_max);
    let more = taken < due.len() || (taken > 0 && due.len() as u64 >= u64::from(request.limit));
    let suspect = due.first().is_some_and(|row| row.suspect);
    let short = u64::from(request.limit) > due.len() as u64;
    bookmark.took(due[..taken].last().and_then(Due::place), short);
    let ids = due.into_iter().take(taken).map(|row| row.id).collect::<Vec<_>>();
    if ids.is_empty() {
        return Ok(Claimed::default());
    }
    failpoint::pass("claim.after_select");
    let token = request.token().to_hex();
    mark(connection, prepared, request, &token, &ids).await?;
    let mut rows = fetch(connection, prepared, &token, &ids).await?;
    let mut claimed = Claimed { more, ..Claimed::default() };
    for id in &ids {
        let Some(row) = rows.remove(id) else {
            return Err(StoreError::Mismatch(format!("row {id:?} was claimed and could not be read")).into());
        };
        match (StoredRow { suspect, ..row }).claim(request) {
            Ok(claim) => claimed.claims.push(claim),
            Err(settlement) => claimed.malformed.push(settlement),
        }
    }
    failpoint::pass("claim.before_commit");
    Ok(claimed)
}

struct Due {
    id: String,
    payload_bytes: u64,
    suspect: bool,
    /// `None` for a date that the database cannot write as one.
    available_at: Option<String>,
}

impl Due {
    fn place(&self) -> Option<Place> {
        let available_at = self.available_at.clone()?;
        Some(Place { available_at, event_id: self.id.clone() })
    }
}

/// The due rows from the bookmark on, or all of them when that is due or the rest is too few.
async fn find(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    bookmark: &Bookmark,
    limit: u32,
) -> Result<Vec<Due>, UnitError> {
    if let Some(place) = bookmark.start(Instant::now()) {
        let due = select(connection, prepared, Some(&place), limit).await?;
        if due.len() as u64 >= u64::from(limit) || !bookmark.looks_again(Instant::now()) {
            return Ok(due);
        }
    }
    let began = Instant::now();
    let due = select(connection, prepared, None, limit).await?;
    bookmark.looked(began, Instant::now());
    Ok(due)
}

async fn select(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    from: Option<&Place>,
    limit: u32,
) -> Result<Vec<Due>, UnitError> {
    let select = match from {
        None => query(prepared.claim_select.sql()),
        Some(Place { available_at, event_id }) => query(prepared.claim_select_from.sql())
            .bind(available_at)
            .bind(available_at)
            .bind(event_id)
            .bind(available_at),
    };
    let rows = select.bind(limit).fetch_all(connection).await?;
    let outcomes = prepared.shape.has("last_outcome");
    rows.iter()
        .map(|row| {
            let attempts: i64 = row.try_get_unchecked(2)?;
            // Without the column a retried row is treated like a swept one: it is claimed alone too.
            let swept = !outcomes
                || row.try_get_unchecked::<Option<Vec<u8>>, _>(3)?.as_deref() == Some(b"swept".as_slice());
            Ok(Due {
                id: row.try_get_unchecked(0)?,
                payload_bytes: row.try_get_unchecked::<Option<i64>, _>(1)?.map_or(0, count),
                suspect: attempts >= SUSPECT_ATTEMPTS && swept,
                available_at: row.try_get_unchecked("place")?,
            })
        })
        .collect()
}

/// Makes rows this claim's.
pub(crate) async fn mark(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    request: &ClaimRequest,
    token: &str,
    ids: &[String],
) -> Result<(), UnitError> {
    for list in lists(ids) {
        let mut update =
            query(prepared.claim_mark.sized(list.len()).sql()).bind(token).bind(micros(request.length));
        for id in padded(list) {
            update = update.bind(id.as_str());
        }
        let changed = update.execute(&mut *connection).await?.rows_affected();
        if changed != list.len() as u64 {
            let wanted = list.len();
            return Err(StoreError::Mismatch(format!(
                "the claim changed {changed} rows instead of {wanted}"
            ))
            .into());
        }
    }
    Ok(())
}

async fn fetch(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    token: &str,
    ids: &[String],
) -> Result<HashMap<String, StoredRow>, UnitError> {
    let mut rows = HashMap::with_capacity(ids.len());
    for list in lists(ids) {
        let mut select = query(prepared.claim_fetch.sized(list.len()).sql());
        for id in padded(list) {
            select = select.bind(id.as_str());
        }
        let mut stream = select.bind(token).fetch(&mut *connection);
        while let Some(row) = stream.try_next().await? {
            let row = stored(&row, &prepared.shape)?;
            rows.insert(row.event_id.clone(), row);
        }
    }
    Ok(rows)
}

/// The row as the database gave it.
pub(crate) fn stored(row: &MySqlRow, shape: &TableShape) -> Result<StoredRow, sqlx::Error> {
    let optional = |column: &'static str| {
        if shape.has(column) { row.try_get_unchecked::<Option<Vec<u8>>, _>(column) } else { Ok(None) }
    };
    Ok(StoredRow {
        event_id: row.try_get_unchecked("event_id")?,
        aggregate_type: optional("aggregate_type")?,
        aggregate_id: row.try_get_unchecked("aggregate_id")?,
        aggregate_version: if shape.has("aggregate_version") {
            row.try_get_unchecked("aggregate_version")?
        } else {
            None
        },
        event_type: row.try_get_unchecked("event_type")?,
        payload: row.try_get_unchecked::<Option<Vec<u8>>, _>("payload")?.map(Bytes::from),
        business_key: optional("business_key")?,
        headers: optional("headers")?,
        destination: optional("destination")?,
        route_key: optional("route_key")?,
        attempts: row.try_get_unchecked("attempts")?,
        created_at_micros: row.try_get_unchecked("created_at_micros")?,
        age_micros: row.try_get_unchecked("age_micros")?,
        suspect: false,
    })
}
