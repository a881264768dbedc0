//! The relay's own forgetting, in the background: sent rows beyond `retention_days`, attempts beyond `attempt_days`.

use std::time::Duration;

use anyhow::Context;
use consign::shutdown::Shutdown;
use consign_core::ports::StoreError;
use consign_store::retention::{PurgeStep, Retention, SentPosition, StepSize};
use tokio::task::JoinSet;

use crate::config::Config;

/// How often a walk begins.
const WALK_EVERY: Duration = Duration::from_mins(1);
/// The most rows of a step.
pub const STEP_ROWS_MAX: u32 = 1_000;
/// The shortest pause between two steps.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// A pause is so many times as long as the step before it, so that forgetting takes a fifth of one connection at most.
const PAUSE_FACTOR: u32 = 4;

/// How long what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spans {
    /// Sent rows; `None` for ever.
    sent: Option<Duration>,
    /// Attempts; `None` when another outbox of this database forgets them.
    attempts: Option<Duration>,
}

/// What is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Matter {
    Sent,
    Attempts,
}

/// Starts forgetting in tasks of their own, one for each outbox.
pub fn start<S: Retention + 'static>(config: &Config, outboxes: Vec<S>, shutdown: &Shutdown) -> JoinSet<()> {
    let mut forgetting = JoinSet::new();
    for (index, (outbox, store)) in config.outboxes.iter().zip(outboxes).enumerate() {
        let spans = Spans {
            sent: outbox.retention,
            // The outboxes of a config share the log.
            attempts: (index == 0).then_some(config.attempts.retention),
        };
        let (name, stop) = (outbox.name.clone(), shutdown.clone());
        forgetting.spawn(async move { forget(&name, &store, spans, stop).await });
    }
    forgetting
}

/// Waits until the steps at hand have ended.
pub async fn end(mut forgetting: JoinSet<()>) -> anyhow::Result<()> {
    while let Some(ended) = forgetting.join_next().await {
        ended.context("the purge broke an invariant")?;
    }
    Ok(())
}

/// Forgets until a drain is asked for, which ends it after the step at hand. A step that failed is told, and tried again in
/// the next walk: nothing depends on it.
async fn forget<S: Retention>(outbox: &str, store: &S, spans: Spans, mut shutdown: Shutdown) {
    let matters = [(Matter::Sent, spans.sent), (Matter::Attempts, spans.attempts)];
    loop {
        for (matter, span) in matters {
            let Some(span) = span else { continue };
            match walk(store, matter, span, &mut shutdown).await {
                Ok(0) => {}
                Ok(rows) => tracing::info!(outbox, ?matter, rows, "purged what is older than its retention"),
                Err(error) => {
                    tracing::warn!(outbox, ?matter, %error, "a purge stopped; the next one goes on");
                }
            }
        }
        if asked_within(&mut shutdown, WALK_EVERY).await {
            return;
        }
    }
}

/// One walk from the oldest on; gives the number of rows that went.
async fn walk<S: Retention>(
    store: &S,
    matter: Matter,
    span: Duration,
    shutdown: &mut Shutdown,
) -> Result<u64, StoreError> {
    let before = store.before(span).await?;
    let mut size = StepSize::new(STEP_ROWS_MAX);
    let mut after: Option<SentPosition> = None;
    let mut purged = 0;
    loop {
        let step = match matter {
            Matter::Sent => store.purge_sent(&before, after.as_ref(), size.rows()).await,
            Matter::Attempts => store.purge_attempts(&before, size.rows()).await,
        };
        let took = match step {
            Ok(step) => {
                purged += step.purged;
                size.learn(&step);
                if !step.more {
                    return Ok(purged);
                }
                let PurgeStep { took, last, .. } = step;
                after = last;
                took
            }
            // Somebody holds a row: fewer at once, after a longer pause.
            Err(StoreError::Contended(_)) => {
                size.shrink();
                StepSize::TARGET
            }
            Err(error) => return Err(error),
        };
        if asked_within(shutdown, pause_after(took)).await {
            return Ok(purged);
        }
    }
}

/// The pause after a step that took so long.
pub fn pause_after(took: Duration) -> Duration {
    (took * PAUSE_FACTOR).max(PAUSE_MIN)
}

/// Whether a drain is asked for before the pause is over.
async fn asked_within(shutdown: &mut Shutdown, pause: Duration) -> bool {
    tokio::time::timeout(pause, shutdown.requested()).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use consign::shutdown::{ShutdownTrigger, shutdown};

    use super::*;

    /// A table of so many old rows, which keeps the sizes of its steps; some steps meet a lock.
    struct Table {
        left: Mutex<u64>,
        steps: Mutex<Vec<u32>>,
        contended_every: usize,
        /// Asks for a drain in this step.
        drain: Option<(usize, ShutdownTrigger)>,
    }

    impl Table {
        fn of(rows: u64, contended_every: usize) -> Self {
            Self { left: Mutex::new(rows), steps: Mutex::new(Vec::new()), contended_every, drain: None }
        }

        fn step(&self, rows: u32) -> Result<PurgeStep, StoreError> {
            let mut steps = self.steps.lock().unwrap();
            steps.push(rows);
            if let Some((at, trigger)) = &self.drain
                && steps.len() == *at
            {
                trigger.request();
            }
            if steps.len().is_multiple_of(self.contended_every) {
                return Err(StoreError::Contended("a row is locked".into()));
            }
            let mut left = self.left.lock().unwrap();
            let purged = u64::from(rows).min(*left);
            *left -= purged;
            Ok(PurgeStep { purged, more: *left > 0, ..PurgeStep::default() })
        }
    }

    impl Retention for Table {
        async fn before(&self, _: Duration) -> Result<String, StoreError> {
            Ok("2026-01-01 00:00:00.000000".into())
        }

        async fn look_at_sent(
            &self,
            _: &str,
            _: Option<&SentPosition>,
            _: u32,
        ) -> Result<PurgeStep, StoreError> {
            unreachable!("the background job looks and deletes at once")
        }

        async fn purge_sent(
            &self,
            _: &str,
            _: Option<&SentPosition>,
            rows: u32,
        ) -> Result<PurgeStep, StoreError> {
            self.step(rows)
        }

        async fn purge_attempts(&self, _: &str, rows: u32) -> Result<PurgeStep, StoreError> {
            self.step(rows)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_walk_goes_to_the_end_and_takes_fewer_rows_after_a_lock() {
        let table = Table::of(5_000, 5);
        let (_trigger, mut stop) = shutdown();

        let purged = walk(&table, Matter::Sent, Duration::ZERO, &mut stop).await;

        assert_eq!(purged, Ok(5_000));
        let steps = table.steps.lock().unwrap().clone();
        assert_eq!(steps[..7], [64, 128, 256, 512, 1_000, 500, 1_000], "{steps:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_ends_it_between_two_steps() {
        const STEPS: usize = 10;
        let (trigger, stop) = shutdown();
        let table = Table { drain: Some((STEPS, trigger)), ..Table::of(u64::MAX, usize::MAX) };
        let spans = Spans { sent: Some(Duration::ZERO), attempts: None };

        forget("outbox", &table, spans, stop).await;

        assert_eq!(
            table.steps.lock().unwrap().len(),
            STEPS,
            "none after the one in which it was asked to end"
        );
    }
}
