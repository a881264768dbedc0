//! Settles: claimed rows leave SENDING under their tokens, many per statement.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use consign_core::ports::StoreError;
use consign_core::settle::Settled;
use consign_failpoint as failpoint;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::outbox::Prepared;
use crate::settling::{Change, Groups, Order, groups};
use crate::statement::{lists, padded};

/// Settles all orders in one transaction. The quick way assumes that every row still carries its token; when one
/// does not, everything is rolled back and done again row by row under locks, to answer for each.
pub(crate) async fn settle(
    database: &Database,
    prepared: Arc<Prepared>,
    orders: Vec<Order>,
    repeat: bool,
) -> Result<Vec<Settled>, StoreError> {
    if orders.is_empty() {
        return Ok(Vec::new());
    }
    let orders = Arc::new(orders);
    if !repeat {
        let (prepared, orders) = (Arc::clone(&prepared), Arc::clone(&orders));
        let quick = database
            .transact(Lane::Settle, move |connection| {
                async move {
                    change_all(connection, &prepared, &groups(orders.iter())).await?;
                    Ok(vec![Settled::Applied; orders.len()])
                }
                .boxed()
            })
            .await;
        if !matches!(quick, Err(StoreError::Mismatch(_))) {
            return quick;
        }
    }
    database
        .transact(Lane::Settle, move |connection| {
            async move { settle_exactly(connection, &prepared, &orders, repeat).await }.boxed()
        })
        .await
}

/// Runs one statement per group and list; every statement must change exactly its rows.
async fn change_all(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    groups: &Groups<'_>,
) -> Result<(), UnitError> {
    for ((token, change), ids) in groups {
        let ids = ids.iter().copied().collect::<Vec<_>>();
        for list in lists(&ids) {
            prepared.log.settled(connection, token, change, list).await?;
            let changed = change_list(connection, prepared, token, change, list).await?;
            if changed != list.len() as u64 {
                let wanted = list.len();
                return Err(StoreError::Mismatch(format!(
                    "a settle changed {changed} rows instead of {wanted}"
                ))
                .into());
            }
        }
    }
    failpoint::pass("settle.after_update_before_commit");
    Ok(())
}

async fn change_list(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    token: &str,
    change: &Change,
    ids: &[&str],
) -> Result<u64, sqlx::Error> {
    let (texts, delay, error) = match change {
        Change::Sent => (&prepared.settle_sent, None, None),
        Change::Retry { delay_micros, why } => (&prepared.settle_retry, Some(*delay_micros), Some(why)),
        Change::Release { delay_micros, why } => (&prepared.settle_release, Some(*delay_micros), Some(why)),
        Change::Dead { reason } => (&prepared.settle_dead, None, Some(reason)),
    };
    let mut update = query(texts.sized(ids.len()).sql());
    if let Some(delay) = delay {
        update = update.bind(delay);
    }
    if let Some(error) = error.filter(|_| prepared.shape.has("last_error")) {
        update = update.bind(prepared.last_error(error));
    }
    for id in padded(ids) {
        update = update.bind(*id);
    }
    Ok(update.bind(token).execute(connection).await?.rows_affected())
}

/// Where a row stands, under its lock.
struct Standing {
    status: Vec<u8>,
    token: Option<Vec<u8>>,
    outcome: Option<Vec<u8>>,
}

async fn settle_exactly(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    orders: &[Order],
    repeat: bool,
) -> Result<Vec<Settled>, UnitError> {
    let mut standings = inspect(connection, prepared, orders).await?;
    let mut answers = Vec::with_capacity(orders.len());
    let mut owned = Vec::new();
    let mut settled: HashSet<&str> = HashSet::new();
    for order in orders {
        let answer = match standings.get(&order.id) {
            Some(row) if row.status == b"SENDING" && row.token.as_deref() == Some(order.token.as_bytes()) => {
                owned.push(order);
                Settled::Applied
            }
            Some(row) if repeat && is_settled(row, order, prepared) => Settled::AlreadyApplied,
            // Where sent rows are deleted, the first try took the row away. Nobody else can have: rows in flight are
            // deleted by nothing but a settle under their token.
            None if repeat && is_deleted(order, prepared) && !settled.contains(order.id.as_str()) => {
                Settled::AlreadyApplied
            }
            found => {
                record_fenced(connection, prepared, order, found).await?;
                Settled::Fenced
            }
        };
        if answer == Settled::Applied {
            // A second order for the same row finds it settled by the first.
            standings.remove(&order.id);
            settled.insert(&order.id);
        }
        answers.push(answer);
    }
    change_all(connection, prepared, &groups(owned)).await?;
    Ok(answers)
}

async fn inspect(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    orders: &[Order],
) -> Result<HashMap<String, Standing>, UnitError> {
    let ids = orders.iter().map(|order| order.id.as_str()).collect::<BTreeSet<_>>();
    let ids = ids.into_iter().collect::<Vec<_>>();
    let mut standings = HashMap::with_capacity(ids.len());
    for list in lists(&ids) {
        let mut select = query(prepared.settle_inspect.sized(list.len()).sql());
        for id in padded(list) {
            select = select.bind(*id);
        }
        for row in select.fetch_all(&mut *connection).await? {
            let outcome = if prepared.shape.has("last_outcome") {
                row.try_get_unchecked("last_outcome")?
            } else {
                None
            };
            let standing = Standing {
                status: row.try_get_unchecked::<Option<_>, _>("status")?.unwrap_or_default(),
                token: row.try_get_unchecked("lease_token")?,
                outcome,
            };
            standings.insert(row.try_get_unchecked("event_id")?, standing);
        }
    }
    Ok(standings)
}

/// True when the row is where the order puts it, so that an earlier try of the order may have put it there.
fn is_settled(row: &Standing, order: &Order, prepared: &Prepared) -> bool {
    let outcome = !prepared.shape.has("last_outcome")
        || row.outcome.as_deref() == Some(order.destined.outcome.as_bytes());
    row.token.is_none() && row.status == order.destined.status.as_bytes() && outcome
}

/// True when an earlier try of the order would have left no row.
fn is_deleted(order: &Order, prepared: &Prepared) -> bool {
    prepared.deletes_sent && order.change == Change::Sent
}

async fn record_fenced(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    order: &Order,
    found: Option<&Standing>,
) -> Result<(), UnitError> {
    let wanted = order.destined.status;
    let detail = match found {
        Some(row) => {
            let status = String::from_utf8_lossy(&row.status);
            let held = if row.token.is_some() { "under another token" } else { "without a token" };
            format!("settle to {wanted} came too late: the row is {status} {held}")
        }
        None => format!("settle to {wanted} came too late: the row is gone or was settled in the same batch"),
    };
    tracing::warn!(event_id = %order.id, wanted, "a settle was fenced");
    prepared.log.fenced(connection, order, &detail).await
}
