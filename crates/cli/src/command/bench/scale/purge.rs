//! Old SENT rows deleted as the relay's own purge does it, in its steps and with its pauses.

use std::time::{Duration, Instant};

use consign_core::ports::StoreError;
use consign_store::mysql::Outbox;
use consign_store::retention::{Retention, SentPosition, StepSize};

use crate::retention::{STEP_ROWS_MAX, pause_after};

/// What is older goes.
const AGE: Duration = Duration::from_hours(24);

/// A purge that stops and goes on.
pub struct Purge {
    outbox: Outbox,
    before: String,
    after: Option<SentPosition>,
    size: StepSize,
    /// Rows deleted so far.
    pub rows: u64,
    /// The time that took, pauses included.
    pub spent: Duration,
}

impl Purge {
    /// Begins before the first row.
    pub async fn new(outbox: Outbox) -> anyhow::Result<Self> {
        let before = outbox.before(AGE).await?;
        let size = StepSize::new(STEP_ROWS_MAX);
        Ok(Self { outbox, before, after: None, size, rows: 0, spent: Duration::ZERO })
    }

    /// Deletes about this many more; `false` when there are none.
    pub async fn go_on(&mut self, rows: u64) -> anyhow::Result<bool> {
        let (started, until) = (Instant::now(), self.rows + rows);
        let mut more = true;
        while self.rows < until && more {
            let took = match self.outbox.purge_sent(&self.before, self.after.as_ref(), self.size.rows()).await
            {
                Ok(step) => {
                    self.rows += step.purged;
                    self.size.learn(&step);
                    more = step.more;
                    self.after = step.last;
                    step.took
                }
                Err(StoreError::Contended(_)) => {
                    self.size.shrink();
                    StepSize::TARGET
                }
                Err(error) => return Err(error.into()),
            };
            tokio::time::sleep(pause_after(took)).await;
        }
        self.spent += started.elapsed();
        Ok(more)
    }
}
