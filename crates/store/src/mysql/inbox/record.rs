//! Records for people: conflicts and dead deliveries, in tables of consign's own.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::introspection::TableShape;
use crate::mapping::{Identifier, MarkerMapping, OutboxMapping};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::introspection;
use crate::mysql::outbox::count;
use crate::mysql::statement::{
    CONFLICT_COUNT, CONFLICT_RECORD, DEAD_DELIVERY_COUNT, DEAD_DELIVERY_RECORD, EVENT_PAYLOAD, MARKER_COUNT,
    PACKET_LIMIT, PARKED_COUNT, Text,
};
use crate::record::draft::{ConflictDraft, DeadDraft, MessageDraft, PAYLOAD_BYTES_MAX};
use crate::status::InboxStatus;

/// Smaller messages fit the packets of any server.
const UNCHECKED_BYTES_MAX: usize = 512 * 1024;

/// What is written beside a message's body and headers takes less than this.
const OTHERS_BYTES_MAX: usize = 16 * 1024;

/// Records a conflict in the unit at hand, with the payload of the applied event when the outbox is in the same
/// database.
pub(super) async fn conflict(
    connection: &mut MySqlConnection,
    draft: &ConflictDraft,
    outbox: Option<&OutboxMapping>,
) -> Result<(), UnitError> {
    let existing = match (outbox, &draft.existing_event_id) {
        (Some(outbox), Some(event_id)) => payload(connection, outbox, event_id).await,
        (Some(_), None) | (None, _) => None,
    };
    let (existing, existing_bytes) = existing.unzip();
    query(Text::own(CONFLICT_RECORD).sql())
        .bind(&draft.consumer)
        .bind(&draft.key)
        .bind(&draft.digest)
        .bind(&draft.event_id)
        .bind(&draft.existing_event_id)
        .bind(&draft.comparison)
        .bind(&draft.existing)
        .bind(&draft.message.id)
        .bind(&draft.message.message_type)
        .bind(&draft.message.source)
        .bind(&draft.message.headers)
        .bind(draft.message.body_within(PAYLOAD_BYTES_MAX))
        .bind(draft.message.body_bytes())
        .bind(existing)
        .bind(existing_bytes)
        .execute(connection)
        .await
        .map_err(migrated)?;
    Ok(())
}

/// What is kept of the applied event's payload, and its real length. A record without it is worth having, so nothing
/// that fails here counts.
async fn payload(
    connection: &mut MySqlConnection,
    outbox: &OutboxMapping,
    event_id: &str,
) -> Option<(Vec<u8>, i64)> {
    let select = Text::new(EVENT_PAYLOAD, outbox.names(), &TableShape::default());
    let select = query(select.sql()).bind(i64::try_from(PAYLOAD_BYTES_MAX).ok()?).bind(event_id);
    let row = select.fetch_optional(connection).await.ok()??;
    let mut payload: Vec<u8> = row.try_get_unchecked::<Option<_>, _>("payload").ok()??;
    // The server counted characters where the column has them.
    payload.truncate(PAYLOAD_BYTES_MAX);
    Some((payload, row.try_get_unchecked("payload_bytes").ok()?))
}

/// Refuses a message that no packet takes whole: the server would hang up instead of answering, and nothing would tell
/// that from a failure of the network (B77).
pub(super) async fn check_packet(
    connection: &mut MySqlConnection,
    message: &MessageDraft,
) -> Result<(), UnitError> {
    let bytes = message.body.len() + message.headers.len();
    if bytes <= UNCHECKED_BYTES_MAX {
        return Ok(());
    }
    let row = query(Text::own(PACKET_LIMIT).sql()).fetch_one(connection).await?;
    let limit = count(row.try_get_unchecked(0)?);
    if (bytes + OTHERS_BYTES_MAX) as u64 <= limit {
        return Ok(());
    }
    Err(StoreError::Data(format!(
        "the message has {bytes} bytes and the server takes {limit} at once: raise its max_allowed_packet"
    ))
    .into())
}

/// Records a dead delivery in the unit at hand.
pub(super) async fn dead(connection: &mut MySqlConnection, draft: &DeadDraft) -> Result<(), UnitError> {
    check_packet(connection, &draft.message).await?;
    query(Text::own(DEAD_DELIVERY_RECORD).sql())
        .bind(&draft.consumer)
        .bind(&draft.digest)
        .bind(&draft.key)
        .bind(&draft.message.id)
        .bind(&draft.message.message_type)
        .bind(&draft.message.source)
        .bind(&draft.reason)
        .bind(draft.attempts)
        .bind(&draft.message.headers)
        .bind(draft.message.body.as_ref())
        .bind(draft.message.body_bytes())
        .execute(connection)
        .await
        .map_err(migrated)?;
    Ok(())
}

/// Counts markers and records; `None` for tables that do not exist.
pub(super) async fn status(database: &Database, mapping: &MarkerMapping) -> Result<InboxStatus, StoreError> {
    let mapping = mapping.clone();
    let own = |name| Identifier::table(name).expect("a constant name");
    database
        .read(Lane::General, move |connection| {
            async move {
                let markers = Text::new(MARKER_COUNT, mapping.names(), &TableShape::default());
                let conflicts = Text::own(CONFLICT_COUNT);
                let dead = Text::own(DEAD_DELIVERY_COUNT);
                let parked = Text::own(PARKED_COUNT);
                Ok(InboxStatus {
                    markers: count_rows(connection, mapping.table(), &markers).await?,
                    conflicts: count_rows(connection, &own("consign_conflict"), &conflicts).await?,
                    dead_deliveries: count_rows(connection, &own("consign_dead_delivery"), &dead).await?,
                    parked: count_rows(connection, &own("consign_parked_delivery"), &parked).await?,
                })
            }
            .boxed()
        })
        .await
}

async fn count_rows(
    connection: &mut MySqlConnection,
    table: &Identifier,
    text: &Text,
) -> Result<Option<u64>, sqlx::Error> {
    if introspection::engine(connection, table).await?.is_none() {
        return Ok(None);
    }
    let row = query(text.sql()).fetch_one(connection).await?;
    Ok(Some(count(row.try_get_unchecked(0)?)))
}
