//! How aggregates are spread over relays, and which wait for people.

use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use super::OrderedOutbox;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::failure::migrated;
use crate::mysql::outbox::count;
use crate::mysql::statement::{BLOCKED_SELECT, PARTITION_STATUS, Text};
use crate::order::{BLOCKED_MAX, BlockedAggregate, OrderStatus, RelayShare};

impl OrderedOutbox {
    /// Who holds how many partitions, and the aggregates that wait behind a DEAD event.
    ///
    /// # Errors
    /// The server cannot be reached, or a table does not fit.
    pub async fn order_status(&self) -> Result<OrderStatus, StoreError> {
        let shape = self.outbox.shape().await?;
        let partitions = self.settings().partitions;
        let table = self.outbox.mapping().table().as_str().to_owned();
        let typed = shape.has("aggregate_type");
        let blocked = Text::new(BLOCKED_SELECT, self.outbox.mapping().names(), &shape);
        let reading = self.outbox.database().read(Lane::General, move |connection| {
            async move {
                let mut status = OrderStatus::default();
                if partitions > 0 {
                    spread(connection, &table, partitions, &mut status).await?;
                }
                for row in query(blocked.sql()).bind(BLOCKED_MAX).fetch_all(connection).await? {
                    status.blocked.push(BlockedAggregate {
                        aggregate_id: row.try_get_unchecked::<Option<String>, _>(0)?.unwrap_or_default(),
                        dead: count(row.try_get_unchecked(1)?),
                        waiting: count(row.try_get_unchecked(2)?),
                        aggregate_type: if typed { row.try_get_unchecked(3)? } else { None },
                    });
                }
                Ok(status)
            }
            .boxed()
        });
        self.outbox.noting(reading.await)
    }
}

async fn spread(
    connection: &mut MySqlConnection,
    table: &str,
    partitions: u16,
    status: &mut OrderStatus,
) -> Result<(), UnitError> {
    let select = query(Text::own(PARTITION_STATUS).sql()).bind(table).bind(partitions);
    for row in select.fetch_all(connection).await.map_err(migrated)? {
        let partitions = count(row.try_get_unchecked(1)?);
        match row.try_get_unchecked(0)? {
            Some(relay) => status.relays.push(RelayShare { relay, partitions }),
            None => status.free += partitions,
        }
    }
    // Rows are made by the first relay that looks.
    let held: u64 = status.relays.iter().map(|share| share.partitions).sum();
    status.free = u64::from(partitions).saturating_sub(held);
    Ok(())
}
