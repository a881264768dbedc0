//! Deliveries that wait in the database.

use std::collections::HashMap;
use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::event::Headers;
use consign_core::ports::{ParkDelivery, ParkedDelivery, Parking, StoreError};
use futures_util::FutureExt;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row, query};
use uuid::Uuid;

use crate::headers;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::inbox::Inbox;
use crate::mysql::inbox::record::check_packet;
use crate::mysql::statement::{
    PARK, PARKED_FETCH, PARKED_LEASE, PARKED_LOCK, PARKED_LOOK, PARKED_SELECT, Text, UNPARK,
};
use crate::record::draft::{ParkedDraft, reason_of, reason_word};
use crate::settling::micros;
use crate::statement::{LIST_MAX, padded};

impl Parking for Inbox {
    async fn park(&self, parked: &ParkDelivery<'_>) -> Result<(), StoreError> {
        let draft = ParkedDraft::new(parked)?;
        let unit = self.database().transact(Lane::General, move |connection| {
            async move { insert(connection, &draft).await }.boxed()
        });
        unit.await
    }

    async fn due(
        &self,
        consumer: &str,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        let limit = limit.min(u32::try_from(LIST_MAX).unwrap_or(u32::MAX));
        if limit == 0 {
            return Ok(Vec::new());
        }
        let name = consumer.to_owned();
        let look = self.database().read(Lane::General, move |connection| {
            async move { look(connection, &name, limit).await }.boxed()
        });
        let found = look.await?;
        if !found.due && found.next.is_empty() {
            return Ok(Vec::new());
        }
        let name = consumer.to_owned();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let ids = lock(connection, &name, limit, &found).await?;
                if ids.is_empty() {
                    return Ok(Vec::new());
                }
                let token = Uuid::new_v4().simple().to_string();
                hold(connection, &ids, &token, lease).await?;
                fetch(connection, &ids, token).await
            }
            .boxed()
        });
        unit.await
    }

    async fn unpark(&self, id: i64, lease_token: &str) -> Result<bool, StoreError> {
        let token = lease_token.to_owned();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let delete = query(Text::own(UNPARK).sql()).bind(id).bind(&token);
                Ok(delete.execute(connection).await.map_err(migrated)?.rows_affected() == 1)
            }
            .boxed()
        });
        unit.await
    }
}

/// What a look without locks finds.
struct Found {
    /// Some delivery's time has come.
    due: bool,
    /// Gaps whose time has not come, and whose step is the next one.
    next: Vec<i64>,
}

/// Parks a delivery in the unit at hand.
pub(super) async fn insert(connection: &mut MySqlConnection, draft: &ParkedDraft) -> Result<(), UnitError> {
    check_packet(connection, &draft.message).await?;
    query(Text::own(PARK).sql())
        .bind(&draft.consumer)
        .bind(&draft.digest)
        .bind(&draft.key)
        .bind(&draft.message.id)
        .bind(&draft.message.message_type)
        .bind(&draft.message.source)
        .bind(&draft.message.headers)
        .bind(draft.message.body.as_ref())
        .bind(reason_word(draft.reason))
        .bind(&draft.detail)
        .bind(draft.attempts)
        .bind(&draft.aggregate)
        .bind(draft.version)
        .bind(draft.delay_micros)
        .execute(connection)
        .await
        .map_err(migrated)?;
    Ok(())
}

async fn look(connection: &mut MySqlConnection, consumer: &str, limit: u32) -> Result<Found, UnitError> {
    let select = query(Text::own(PARKED_LOOK).sql()).bind(consumer).bind(consumer).bind(limit);
    let mut found = Found { due: false, next: Vec::new() };
    for row in select.fetch_all(connection).await.map_err(migrated)? {
        if row.try_get_unchecked("next")? {
            found.next.push(row.try_get_unchecked("id")?);
        } else {
            found.due = true;
        }
    }
    Ok(found)
}

/// Locks what may be leased, the oldest first: gaps that are next have a time in the future.
async fn lock(
    connection: &mut MySqlConnection,
    consumer: &str,
    limit: u32,
    found: &Found,
) -> Result<Vec<i64>, UnitError> {
    let mut ids: Vec<i64> = Vec::new();
    if found.due {
        let select = query(Text::own(PARKED_SELECT).sql()).bind(consumer).bind(limit);
        for row in select.fetch_all(&mut *connection).await? {
            ids.push(row.try_get_unchecked("id")?);
        }
    }
    // The time of a gap may have come between the two statements.
    let next = found.next.iter().copied().filter(|id| !ids.contains(id));
    let next: Vec<i64> = next.take((limit as usize).saturating_sub(ids.len())).collect();
    if !next.is_empty() {
        let text = Text::own_list(PARKED_LOCK, next.len());
        let mut select = query(text.sql());
        for id in padded(&next) {
            select = select.bind(id);
        }
        for row in select.fetch_all(connection).await? {
            ids.push(row.try_get_unchecked("id")?);
        }
    }
    Ok(ids)
}

async fn hold(
    connection: &mut MySqlConnection,
    ids: &[i64],
    token: &str,
    lease: Duration,
) -> Result<(), UnitError> {
    let text = Text::own_list(PARKED_LEASE, ids.len());
    let mut update = query(text.sql()).bind(token).bind(micros(lease));
    for id in padded(ids) {
        update = update.bind(id);
    }
    let changed = update.execute(connection).await?.rows_affected();
    if changed != ids.len() as u64 {
        let wanted = ids.len();
        return Err(
            StoreError::Mismatch(format!("the lease changed {changed} rows instead of {wanted}")).into()
        );
    }
    Ok(())
}

/// The leased rows, in the order of `ids`.
async fn fetch(
    connection: &mut MySqlConnection,
    ids: &[i64],
    token: String,
) -> Result<Vec<ParkedDelivery>, UnitError> {
    let text = Text::own_list(PARKED_FETCH, ids.len());
    let mut select = query(text.sql());
    for id in padded(ids) {
        select = select.bind(id);
    }
    let mut rows = HashMap::with_capacity(ids.len());
    for row in select.bind(&token).fetch_all(connection).await? {
        let delivery = delivery(&row, &token)?;
        rows.insert(delivery.id, delivery);
    }
    let fetched = |id: &i64| {
        rows.remove(id).ok_or_else(|| {
            StoreError::Mismatch(format!("parked delivery {id} was leased and could not be read")).into()
        })
    };
    ids.iter().map(fetched).collect()
}

fn delivery(row: &MySqlRow, token: &str) -> Result<ParkedDelivery, sqlx::Error> {
    let reason: String = row.try_get_unchecked("reason")?;
    let attempts: i64 = row.try_get_unchecked("attempts")?;
    let payload: Vec<u8> = row.try_get_unchecked("payload")?;
    let (headers, problem) = headers_of(row)?;
    Ok(ParkedDelivery {
        id: row.try_get_unchecked("id")?,
        lease_token: token.to_owned(),
        reason: reason_of(&reason),
        overdue: row.try_get_unchecked("overdue")?,
        message: Message {
            id: row.try_get_unchecked("message_id")?,
            message_type: row.try_get_unchecked("message_type")?,
            headers,
            undecodable: problem.map(|problem| format!("headers: {problem}")),
            body: payload.into(),
            redelivered: attempts > 0,
            delivery_count: u32::try_from(attempts.saturating_add(1)).unwrap_or(u32::MAX),
            source: row.try_get_unchecked("source")?,
        },
    })
}

/// A record's headers; with what is wrong with them when somebody changed them into something else.
pub(super) fn headers_of(row: &MySqlRow) -> Result<(Headers, Option<String>), sqlx::Error> {
    let text: Option<String> = row.try_get_unchecked("headers")?;
    Ok(match headers::read(text.as_deref().unwrap_or("null").as_bytes()) {
        Ok(headers) => (headers, None),
        Err(problem) => (Headers::new(), Some(problem)),
    })
}
