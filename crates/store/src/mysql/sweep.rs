//! Sweeps: rows whose lease has ended go back to NEW, or to DEAD.

use std::sync::Arc;
use std::time::Duration;

use consign_core::ports::StoreError;
use consign_core::settle::Swept;
use consign_failpoint as failpoint;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::outbox::Prepared;
use crate::mysql::statement::ListText;
use crate::settling::micros;
use crate::statement::{lists, padded};

const RETURNED: &str = "the lease ended before the attempt was settled";

/// One unit of work.
pub(crate) async fn sweep(
    database: &Database,
    prepared: Arc<Prepared>,
    limit: u32,
    delay: Duration,
    attempts_max: u32,
) -> Result<Swept, StoreError> {
    database
        .transact(Lane::Settle, move |connection| {
            async move { sweep_in(connection, &prepared, limit, delay, attempts_max).await }.boxed()
        })
        .await
}

async fn sweep_in(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    limit: u32,
    delay: Duration,
    attempts_max: u32,
) -> Result<Swept, UnitError> {
    let rows = query(prepared.sweep_select.sql()).bind(limit).fetch_all(&mut *connection).await?;
    let (mut returned, mut dead) = (Vec::new(), Vec::new());
    for row in &rows {
        let attempts: i64 = row.try_get_unchecked("attempts")?;
        let ids = if attempts >= i64::from(attempts_max) { &mut dead } else { &mut returned };
        ids.push(row.try_get_unchecked::<String, _>("event_id")?);
    }
    // Locked rows are changed in key order, as everywhere.
    returned.sort_unstable();
    dead.sort_unstable();
    let reason = format!("{RETURNED}, and attempts reached the cap of {attempts_max}");
    change(connection, prepared, &prepared.sweep_return, Some(delay), RETURNED, &returned).await?;
    change(connection, prepared, &prepared.sweep_dead, None, &reason, &dead).await?;
    Ok(Swept { returned: length(&returned), dead: length(&dead) })
}

async fn change(
    connection: &mut MySqlConnection,
    prepared: &Prepared,
    texts: &ListText,
    delay: Option<Duration>,
    error: &str,
    ids: &[String],
) -> Result<(), UnitError> {
    for list in lists(ids) {
        prepared.log.swept(connection, error, list).await?;
        // Logged and not yet returned: one without the other would be a lie.
        failpoint::pass("sweep.mid_batch");
        let mut update = query(texts.sized(list.len()).sql());
        if let Some(delay) = delay {
            update = update.bind(micros(delay));
        }
        if prepared.shape.has("last_error") {
            update = update.bind(prepared.last_error(error));
        }
        for id in padded(list) {
            update = update.bind(id.as_str());
        }
        let changed = update.execute(&mut *connection).await?.rows_affected();
        if changed != list.len() as u64 {
            let wanted = list.len();
            return Err(
                StoreError::Mismatch(format!("a sweep changed {changed} rows instead of {wanted}")).into()
            );
        }
    }
    Ok(())
}

fn length(ids: &[String]) -> u32 {
    u32::try_from(ids.len()).unwrap_or(u32::MAX)
}
