//! Checks of one consumer against the tables there are, without consuming.

use consign_core::finding::Finding;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{AssertSqlSafe, Either, Executor, SqlSafeStr, Statement as _};

use crate::demand::{MarkerDemand, Typing};
use crate::mapping::MarkerMapping;
use crate::sqlite::inbox::Inbox;
use crate::sqlite::introspection;

impl Inbox {
    /// What of the marker table does not fit a consumer.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn consumer_findings(&self, demand: &MarkerDemand) -> Result<Vec<Finding>, StoreError> {
        let (mapping, demand) = (self.mapping().clone(), demand.clone());
        self.database()
            .read(move |connection| {
                async move {
                    let shape =
                        introspection::shape(connection, MarkerMapping::TABLE, mapping.names()).await?;
                    Ok(demand.findings(mapping.table(), shape.as_ref(), Typing::Affinity))
                }
                .boxed()
            })
            .await
    }

    /// Prepares a statement without running it, and counts its placeholders.
    ///
    /// # Errors
    /// SQLite refuses the statement, or the file cannot be read.
    pub async fn prepare(&self, sql: &str) -> Result<usize, StoreError> {
        let sql = sql.to_owned();
        self.database()
            .read(move |connection| {
                async move {
                    // The statement comes from the config; nothing of a payload is in it.
                    let prepared = connection.prepare(AssertSqlSafe(sql).into_sql_str()).await?;
                    Ok(match prepared.parameters() {
                        Some(Either::Left(types)) => types.len(),
                        Some(Either::Right(count)) => count,
                        None => 0,
                    })
                }
                .boxed()
            })
            .await
    }
}
