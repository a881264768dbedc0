//! Claims: due rows become SENDING under one token, in one short transaction.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, StoreError};
use futures_util::{FutureExt, TryStreamExt};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};

use crate::introspection::TableShape;
use crate::row::{StoredRow, cut};
use crate::settling::micros;
use crate::sqlite::connection::{Database, UnitError};
use crate::sqlite::outbox::{Prepared, count};
use crate::sqlite::statement::after;
use crate::statement::{lists, padded};

/// From this many attempts on a row may be a suspect: it was swept twice.
pub(crate) const SUSPECT_ATTEMPTS: i64 = 2;

/// One unit of work; its rows are given out only after COMMIT.
pub(crate) async fn claim(
    database: &Database,
    prepared: Arc<Prepared>,
    request: ClaimRequest,
) -> Result<Claimed, StoreError> {
    database
        .transact(move |connection| async move { claim_in(connection, &prepared, &request).await }.boxed())
        .await
}

async fn claim_in(
    connection: &mut SqliteConnection,
    prepared: &Prepared,
    request: &ClaimRequest,
) -> Result<Claimed, UnitError> {
    let due = select(connection, prepared, request.limit).await?;
    let weights = due.iter().map(|row| (row.payload_bytes, row.suspect)).collect::<Vec<_>>();
    let fitting = cut(&weights, request.bytes_max);
    let more = fitting < due.len() || (fitting > 0 && due.len() as u64 >= u64::from(request.limit));
    let suspect = due.first().is_some_and(|row| row.suspect);
    let ids = due.into_iter().take(fitting).map(|row| row.id).collect::<Vec<_>>();
    if ids.is_empty() {
        return Ok(Claimed::default());
    }
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
    Ok(claimed)
}

struct Due {
    id: String,
    payload_bytes: u64,
    suspect: bool,
}

async fn select(
    connection: &mut SqliteConnection,
    prepared: &Prepared,
    limit: u32,
) -> Result<Vec<Due>, UnitError> {
    let rows = query(prepared.claim_select.sql()).bind(limit).fetch_all(connection).await?;
    let outcomes = prepared.shape.has("last_outcome");
    let mut due = Vec::with_capacity(rows.len());
    for row in &rows {
        // An id that is no UTF-8 cannot be settled under its name; `findings` reports it.
        let Ok(id) = String::from_utf8(row.try_get_unchecked(0)?) else { continue };
        let attempts: i64 = row.try_get(2)?;
        // Without the column a retried row is treated like a swept one: it is claimed alone too.
        let swept = !outcomes
            || row.try_get_unchecked::<Option<Vec<u8>>, _>(3)?.as_deref() == Some(b"swept".as_slice());
        due.push(Due {
            id,
            payload_bytes: row.try_get::<Option<i64>, _>(1)?.map_or(0, count),
            suspect: attempts >= SUSPECT_ATTEMPTS && swept,
        });
    }
    Ok(due)
}

/// Makes rows this claim's.
pub(crate) async fn mark(
    connection: &mut SqliteConnection,
    prepared: &Prepared,
    request: &ClaimRequest,
    token: &str,
    ids: &[String],
) -> Result<(), UnitError> {
    for list in lists(ids) {
        let mut update = query(prepared.claim_mark.sized(list.len()).sql())
            .bind(token)
            .bind(after(micros(request.length)));
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

/// Reads the rows just marked.
pub(crate) async fn fetch(
    connection: &mut SqliteConnection,
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

fn stored(row: &SqliteRow, shape: &TableShape) -> Result<StoredRow, sqlx::Error> {
    let optional = |column: &'static str| {
        if shape.has(column) { row.try_get::<Option<Vec<u8>>, _>(column) } else { Ok(None) }
    };
    Ok(StoredRow {
        event_id: row.try_get("event_id")?,
        aggregate_type: optional("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        aggregate_version: if shape.has("aggregate_version") {
            row.try_get("aggregate_version")?
        } else {
            None
        },
        event_type: row.try_get("event_type")?,
        payload: row.try_get::<Option<Vec<u8>>, _>("payload")?.map(Bytes::from),
        business_key: optional("business_key")?,
        headers: optional("headers")?,
        destination: optional("destination")?,
        route_key: optional("route_key")?,
        attempts: row.try_get("attempts")?,
        created_at_micros: row.try_get("created_at_micros")?,
        age_micros: row.try_get("age_micros")?,
        suspect: false,
    })
}
