//! Deliveries that wait in the file.

use std::collections::HashMap;
use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::event::Headers;
use consign_core::ports::{ParkDelivery, ParkedDelivery, Parking, StoreError};
use futures_util::FutureExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, query};
use uuid::Uuid;

use crate::headers;
use crate::record::draft::{ParkedDraft, reason_of, reason_word};
use crate::settling::micros;
use crate::sqlite::connection::UnitError;
use crate::sqlite::failure::migrated;
use crate::sqlite::inbox::Inbox;
use crate::sqlite::statement::{PARK, PARKED_FETCH, PARKED_LEASE, PARKED_SELECT, Text, UNPARK, after};
use crate::statement::{LIST_MAX, padded};

impl Parking for Inbox {
    async fn park(&self, parked: &ParkDelivery<'_>) -> Result<(), StoreError> {
        let draft = ParkedDraft::new(parked)?;
        let unit = self
            .database()
            .transact(move |connection| async move { insert(connection, &draft).await }.boxed());
        unit.await
    }

    async fn due(
        &self,
        consumer: &str,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<ParkedDelivery>, StoreError> {
        let limit = limit.min(u32::try_from(LIST_MAX).unwrap_or(u32::MAX));
        // A look without the write lock, so that idle consumers never shut out anybody.
        let name = consumer.to_owned();
        let look =
            self.database().read(move |connection| async move { select(connection, &name, 1).await }.boxed());
        if limit == 0 || look.await?.is_empty() {
            return Ok(Vec::new());
        }
        let name = consumer.to_owned();
        let unit = self.database().transact(move |connection| {
            async move {
                let ids = select(connection, &name, limit).await?;
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
        let unit = self.database().transact(move |connection| {
            async move {
                let delete = query(Text::own(UNPARK).sql()).bind(id).bind(&token);
                Ok(delete.execute(connection).await.map_err(migrated)?.rows_affected() == 1)
            }
            .boxed()
        });
        unit.await
    }
}

/// Parks a delivery in the unit at hand.
pub(super) async fn insert(connection: &mut SqliteConnection, draft: &ParkedDraft) -> Result<(), UnitError> {
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
        .bind(after(draft.delay_micros))
        .execute(connection)
        .await
        .map_err(migrated)?;
    Ok(())
}

async fn select(
    connection: &mut SqliteConnection,
    consumer: &str,
    limit: u32,
) -> Result<Vec<i64>, UnitError> {
    let select = query(Text::own(PARKED_SELECT).sql()).bind(consumer).bind(limit);
    let rows = select.fetch_all(connection).await.map_err(migrated)?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

async fn hold(
    connection: &mut SqliteConnection,
    ids: &[i64],
    token: &str,
    lease: Duration,
) -> Result<(), UnitError> {
    let text = Text::own_list(PARKED_LEASE, ids.len());
    let mut update = query(text.sql()).bind(token).bind(after(micros(lease)));
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

async fn fetch(
    connection: &mut SqliteConnection,
    ids: &[i64],
    token: String,
) -> Result<Vec<ParkedDelivery>, UnitError> {
    let text = Text::own_list(PARKED_FETCH, ids.len());
    let mut select = query(text.sql());
    for id in padded(ids) {
        select = select.bind(id);
    }
    let rows = select.bind(&token).fetch_all(connection).await?;
    let mut fetched = HashMap::with_capacity(rows.len());
    for row in &rows {
        let delivery = delivery(row, &token)?;
        fetched.insert(delivery.id, delivery);
    }
    Ok(ids.iter().filter_map(|id| fetched.remove(id)).collect())
}

fn delivery(row: &SqliteRow, token: &str) -> Result<ParkedDelivery, sqlx::Error> {
    let reason: String = row.try_get("reason")?;
    let attempts: i64 = row.try_get("attempts")?;
    let payload: Vec<u8> = row.try_get("payload")?;
    let (headers, problem) = headers_of(row)?;
    Ok(ParkedDelivery {
        id: row.try_get("id")?,
        lease_token: token.to_owned(),
        reason: reason_of(&reason),
        overdue: row.try_get("overdue")?,
        message: Message {
            id: row.try_get("message_id")?,
            message_type: row.try_get("message_type")?,
            headers,
            undecodable: problem.map(|problem| format!("headers: {problem}")),
            body: payload.into(),
            redelivered: attempts > 0,
            delivery_count: u32::try_from(attempts.saturating_add(1)).unwrap_or(u32::MAX),
            source: row.try_get("source")?,
        },
    })
}

/// A record's headers; with what is wrong with them when somebody changed them into something else.
pub(super) fn headers_of(row: &SqliteRow) -> Result<(Headers, Option<String>), sqlx::Error> {
    let text: Option<String> = row.try_get("headers")?;
    Ok(match headers::read(text.as_deref().unwrap_or("null").as_bytes()) {
        Ok(headers) => (headers, None),
        Err(problem) => (Headers::new(), Some(problem)),
    })
}
