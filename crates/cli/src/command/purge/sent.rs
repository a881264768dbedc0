//! Sent rows beyond their retention.

use std::time::Duration;

use consign_core::ports::StoreError;
use consign_store::retention::{PurgeStep, SentPosition, StepSize};
use serde_json::json;

use super::DAY;
use crate::age;
use crate::config::{Config, OutboxConfig};
use crate::exit::Exit;
use crate::output::{self, Progress};
use crate::pace::Pace;
use crate::parts::{self, Store};

/// What is asked.
pub struct Purge {
    /// The age, when it is given.
    pub older_than: Option<Duration>,
    /// The most rows of a step.
    pub rows_max: u32,
    /// Delete, rather than count.
    pub delete: bool,
    /// Print one JSON document.
    pub json: bool,
}

/// What was found and deleted.
#[derive(Debug, Default)]
struct Totals {
    examined: u64,
    old: u64,
    oldest: Option<String>,
    purged: u64,
    batches: u64,
    slowest: Duration,
    finished: bool,
}

impl Totals {
    fn add(&mut self, step: &PurgeStep) {
        self.examined += step.examined;
        self.old += step.old;
        // Dates of one database sort by time.
        self.oldest = self.oldest.take().into_iter().chain(step.oldest.clone()).min();
        self.purged += step.purged;
        self.batches += u64::from(step.purged > 0);
        self.slowest = self.slowest.max(step.took);
    }
}

/// Counts or deletes in every outbox.
pub async fn run(config: &Config, purge: &Purge) -> anyhow::Result<Exit> {
    let ages = config.outboxes.iter().map(|outbox| Ok((outbox, retention(config, outbox, purge)?)));
    let ages: Vec<(&OutboxConfig, Duration)> = match ages.collect::<Result<_, String>>() {
        Ok(ages) => ages,
        Err(refusal) => {
            eprintln!("error: {refusal}");
            return Ok(Exit::Usage);
        }
    };
    let store = parts::open_store(config).await?;
    let pace = Pace::new(None)?;
    let mut totals = Totals { finished: true, ..Totals::default() };
    for (outbox, age) in &ages {
        totals.finished = walk(&store, outbox, *age, purge, &pace, &mut totals).await?;
        if !totals.finished {
            break;
        }
    }
    tell(&totals, &ages, purge)
}

/// The age beyond which sent rows of an outbox go.
fn retention(config: &Config, outbox: &OutboxConfig, purge: &Purge) -> Result<Duration, String> {
    let age = purge.older_than.or(outbox.retention).ok_or_else(|| {
        format!(
            "how long outbox {:?} keeps sent rows is not set: set retention_days under its [[outbox]], or give --older-than, \
             such as 7d",
            outbox.name
        )
    })?;
    let horizon = config.inbox.replay_horizon;
    if age < horizon {
        return Err(format!(
            "events sent {} ago may still be replayed: replay_horizon_days is {}; give --older-than {}d or more, or lower \
             replay_horizon_days",
            age::shown(age),
            horizon.as_secs() / DAY,
            horizon.as_secs() / DAY
        ));
    }
    Ok(age)
}

/// Walks one outbox. `false` when somebody asked to stop.
async fn walk(
    store: &Store,
    outbox: &OutboxConfig,
    age: Duration,
    purge: &Purge,
    pace: &Pace,
    totals: &mut Totals,
) -> anyhow::Result<bool> {
    let before = store.before(outbox, age).await?;
    let mut size = StepSize::new(purge.rows_max);
    let mut progress = Progress::new();
    let mut after: Option<SentPosition> = None;
    loop {
        let step = if purge.delete {
            store.purge_sent(outbox, &before, after.as_ref(), size.rows()).await
        } else {
            store.look_at_sent(outbox, &before, after.as_ref(), size.rows()).await
        };
        match step {
            Ok(step) => {
                totals.add(&step);
                size.learn(&step);
                if !step.more {
                    return Ok(true);
                }
                after = step.last;
            }
            // A row that somebody holds ends a step of one row.
            Err(error) if is_contended(&error) && size.rows() > 1 => size.shrink(),
            Err(error) => return Err(error),
        }
        if pace.is_stopped() {
            return Ok(false);
        }
        progress.tell(|| format!("purged {} sent rows so far, looked at {}", totals.purged, totals.examined));
    }
}

fn tell(totals: &Totals, ages: &[(&OutboxConfig, Duration)], purge: &Purge) -> anyhow::Result<Exit> {
    let Totals { examined, old, oldest, purged, batches, slowest, finished } = totals;
    if purge.json {
        let seconds = ages.iter().map(|(outbox, age)| (outbox.name.clone(), age.as_secs().into()));
        let seconds: serde_json::Map<_, serde_json::Value> = seconds.collect();
        output::print_json(&json!({
            "older_than_seconds": seconds, "would_purge": if purge.delete { 0 } else { *old }, "purged": purged,
            "examined": examined, "oldest_sent_at": oldest, "batches": batches,
            "slowest_batch_milliseconds": slowest.as_secs_f64() * 1000.0, "finished": finished,
        }))?;
    } else if purge.delete {
        output::print(format!(
            "purged {purged} sent rows in {batches} batches, the slowest in {} ms\n",
            slowest.as_millis()
        ))?;
    } else {
        let oldest = oldest.as_ref().map_or_else(String::new, |at| format!(", the oldest sent at {at}"));
        output::print(format!("{old} sent rows are old enough to go{oldest}\n"))?;
    }
    if !purge.delete && *old > 0 {
        eprintln!("nothing was deleted: add --yes to do it");
    }
    if *finished {
        return Ok(Exit::Fine);
    }
    eprintln!("stopped after {purged} sent rows, between two batches; start it again for the rest");
    Ok(Exit::Failed)
}

fn is_contended(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| matches!(cause.downcast_ref::<StoreError>(), Some(StoreError::Contended(_))))
}
