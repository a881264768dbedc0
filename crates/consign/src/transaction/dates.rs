//! The database's time without a question for each transaction.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use consign_core::ports::StoreError;
use consign_core::transaction::marker::MarkerStore;
use tokio::time::Instant;

/// How long an answer of the database is added to.
const ASK_AGAIN_AFTER: Duration = Duration::from_mins(1);

/// What the database said last, and when it was asked.
#[derive(Debug, Default)]
pub(super) struct Dates(Mutex<Option<(Instant, i64)>>);

impl Dates {
    /// The database's time at `now`, in microseconds since the Unix epoch. It is never ahead: what passed is counted from
    /// the moment of the answer.
    pub async fn at<M: MarkerStore>(&self, now: Instant, store: &M) -> Result<i64, StoreError> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (answered, micros) = match known {
            Some((answered, micros)) if now.duration_since(answered) < ASK_AGAIN_AFTER => (answered, micros),
            _ => {
                let micros = store.now().await?;
                let answer = (Instant::now(), micros);
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
                answer
            }
        };
        // Asked after `now`: nothing has passed.
        let passed = now.saturating_duration_since(answered);
        Ok(micros.saturating_add(i64::try_from(passed.as_micros()).unwrap_or(i64::MAX)))
    }
}
