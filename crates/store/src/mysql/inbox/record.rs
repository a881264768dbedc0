//! Records for people: conflicts and dead deliveries, in tables of consign's own.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sqlx::{MySqlConnection, Row, query};

use crate::diagnostic::cut;
use crate::mapping::{Identifier, MarkerMapping};
use crate::mysql::connection::{Database, Lane, UnitError};
use crate::mysql::introspection;
use crate::mysql::outbox::count;
use crate::mysql::statement::{
    CONFLICT_COUNT, CONFLICT_RECORD, DEAD_DELIVERY_COUNT, DEAD_DELIVERY_RECORD, MARKER_COUNT, PARKED_COUNT,
    Text,
};
use crate::record::draft::{ConflictDraft, DeadDraft, PAYLOAD_BYTES_MAX, TEXT_BYTES_MAX};
use crate::status::InboxStatus;

/// One record about to be written.
pub(super) trait Record: Send + 'static {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>>;
}

/// Writes a record and commits it.
pub(super) async fn write(database: &Database, record: impl Record + Sync) -> Result<(), StoreError> {
    let written = database.transact(Lane::General, move |connection| {
        async move { record.insert(connection).await.map_err(UnitError::Sql) }.boxed()
    });
    written.await.map_err(super::transaction::unmigrated)
}

impl Record for ConflictDraft {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        async move {
            query(Text::own(CONFLICT_RECORD).sql())
                .bind(&self.consumer)
                .bind(&self.key)
                .bind(&self.digest)
                .bind(&self.event_id)
                .bind(&self.existing_event_id)
                .bind(&self.comparison)
                .bind(&self.existing)
                .bind(&self.message.source)
                .bind(self.message.body_within(PAYLOAD_BYTES_MAX))
                .bind(self.message.body_bytes())
                .execute(connection)
                .await
                .map(|_| ())
        }
        .boxed()
    }
}

impl Record for DeadDraft {
    fn insert<'c>(&'c self, connection: &'c mut MySqlConnection) -> BoxFuture<'c, Result<(), sqlx::Error>> {
        async move {
            query(Text::own(DEAD_DELIVERY_RECORD).sql())
                .bind(&self.consumer)
                .bind(&self.digest)
                .bind(&self.key)
                .bind(&self.message.id)
                .bind(&self.message.message_type)
                .bind(&self.message.source)
                .bind(&self.reason)
                .bind(cut(&self.message.headers, TEXT_BYTES_MAX))
                .bind(self.message.body_within(PAYLOAD_BYTES_MAX))
                .bind(self.message.body_bytes())
                .execute(connection)
                .await
                .map(|_| ())
        }
        .boxed()
    }
}

/// Counts markers and records; `None` for tables that do not exist.
pub(super) async fn status(database: &Database, mapping: &MarkerMapping) -> Result<InboxStatus, StoreError> {
    let mapping = mapping.clone();
    let own = |name| Identifier::table(name).expect("a constant name");
    database
        .read(Lane::General, move |connection| {
            async move {
                let markers =
                    Text::new(MARKER_COUNT, mapping.names(), &crate::introspection::TableShape::default());
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
