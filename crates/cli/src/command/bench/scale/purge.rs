//! Old SENT rows deleted as a purge should do it: pages by primary key, a short transaction for each, and after each a
//! rest of the same length, so that claims find the server free.

use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, MySqlPool};

use super::scratch::SENT;

/// Rows of one transaction.
const BATCH: usize = 500;

/// A purge that stops and goes on.
pub struct Purge {
    pool: MySqlPool,
    after: String,
    /// Rows deleted so far.
    pub rows: u32,
    /// The time that took, rests included.
    pub spent: Duration,
}

impl Purge {
    /// Begins before the first row.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool, after: String::new(), rows: 0, spent: Duration::ZERO }
    }

    /// Deletes about this many more; `false` when there are none.
    pub async fn go_on(&mut self, rows: u32) -> anyhow::Result<bool> {
        let (started, until) = (Instant::now(), self.rows + rows);
        let select = format!(
            "SELECT event_id FROM {SENT} WHERE event_id > ? AND status = 'SENT' AND created_at < NOW(6) - INTERVAL 1 DAY
             ORDER BY event_id LIMIT {BATCH}"
        );
        let mut found = true;
        while self.rows < until && found {
            let batch = Instant::now();
            let mut ids: Vec<String> = sqlx::query_scalar(AssertSqlSafe(select.clone()))
                .bind(&self.after)
                .fetch_all(&self.pool)
                .await?;
            found = ids.len() == BATCH;
            self.delete(&ids).await?;
            self.after = ids.pop().unwrap_or_default();
            tokio::time::sleep(batch.elapsed()).await;
        }
        self.spent += started.elapsed();
        Ok(found)
    }

    async fn delete(&mut self, ids: &[String]) -> anyhow::Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let places = vec!["?"; ids.len()].join(", ");
        let delete = format!("DELETE FROM {SENT} WHERE event_id IN ({places}) AND status = 'SENT'");
        let mut delete = sqlx::query(AssertSqlSafe(delete));
        for id in ids {
            delete = delete.bind(id);
        }
        self.rows += u32::try_from(delete.execute(&self.pool).await?.rows_affected())?;
        Ok(())
    }
}
