//! What is done to relays and consumers.

use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::fleet::Role;
use crate::stage::Stage;

/// How long a process may take to reach its failpoint, or to drain.
const EFFECT_LIMIT: Duration = Duration::from_mins(1);
/// Events that are written for a failpoint, again and again until it is reached.
const FOOD: u64 = 10;
/// Longer than the lease of two seconds.
const FROZEN: Duration = Duration::from_millis(3500);
/// Kills of one storm.
const STORM_KILLS: u64 = 60;
/// The longest pause between two of them, in milliseconds.
const STORM_PAUSE_MAX: u64 = 400;

/// One of the role's processes, drawn by lot.
fn victim(stage: &mut Stage, role: Role) -> usize {
    let slots = stage.fleet.slots(role);
    let drawn = stage.random.below(slots.len() as u64);
    slots[usize::try_from(drawn).expect("an index")]
}

pub fn kill(stage: &mut Stage, role: Role) -> Result<()> {
    let slot = victim(stage, role);
    stage.fleet.replace(slot, None)
}

pub async fn storm(stage: &mut Stage) -> Result<()> {
    for _ in 0..STORM_KILLS {
        let role = if stage.random.below(2) == 0 { Role::Relay } else { Role::Consumer };
        kill(stage, role)?;
        sleep(Duration::from_millis(stage.random.below(STORM_PAUSE_MAX))).await;
    }
    Ok(())
}

/// Replaces a process by one that ends at the point, and keeps it fed until it did.
pub async fn crash(stage: &mut Stage, point: &'static str) -> Result<()> {
    let (unit, _) = point.split_once('.').expect("a point is named unit.moment");
    let role = if unit == "consume" { Role::Consumer } else { Role::Relay };
    // A row passes some points, a whole batch passes the others.
    let passes_max = if ["publish", "consume"].contains(&unit) { 20 } else { 3 };
    let nth = if unit == "sweep" { 1 } else { stage.random.between(1, passes_max) };
    let slot = victim(stage, role);
    stage.fleet.replace(slot, Some(&format!("{point}=abort@{nth}")))?;
    let reached = if unit == "sweep" {
        leave_rows_to_sweep(stage, slot).await?
    } else {
        feed_until_aborted(stage, slot, EFFECT_LIMIT).await?
    };
    ensure!(reached, "the failpoint was not reached within {EFFECT_LIMIT:?}");
    Ok(())
}

/// The rows that other relays hold when they die are what a sweep finds. Their successors sweep too, so that it may take
/// more than one death until the sweep of the relay in the slot finds any; whether it did.
async fn leave_rows_to_sweep(stage: &mut Stage, slot: usize) -> Result<bool> {
    /// Longer than a lease and the pause between sweeps.
    const SWEPT_WITHIN: Duration = Duration::from_secs(4);
    let others: Vec<usize> =
        stage.fleet.slots(Role::Relay).into_iter().filter(|&other| other != slot).collect();
    let started = Instant::now();
    while started.elapsed() < EFFECT_LIMIT {
        for &other in &others {
            let point = format!("publish.after_outcome=abort@{}", stage.random.between(1, 3));
            stage.fleet.replace(other, Some(&point))?;
            let died = feed_until_aborted(stage, other, EFFECT_LIMIT).await?;
            ensure!(died, "no confirm came within {EFFECT_LIMIT:?}");
        }
        if feed_until_aborted(stage, slot, SWEPT_WITHIN).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes events until the process in the slot ended at its failpoint; whether it did before the limit.
async fn feed_until_aborted(stage: &mut Stage, slot: usize, limit: Duration) -> Result<bool> {
    const MEAL: Duration = Duration::from_millis(200);
    let started = Instant::now();
    while started.elapsed() < limit {
        if stage.fleet.aborted(slot, MEAL).await? {
            return Ok(true);
        }
        stage.load.grant(FOOD.min(stage.spare()), MEAL);
    }
    Ok(false)
}

pub async fn terminate(stage: &mut Stage, role: Role) -> Result<()> {
    let slot = victim(stage, role);
    stage.fleet.signal(slot, Signal::TERM)?;
    let status = stage.fleet.ended(slot, EFFECT_LIMIT).await?;
    let status = status.ok_or_else(|| anyhow::anyhow!("it still runs {EFFECT_LIMIT:?} after SIGTERM"))?;
    ensure!(status.success(), "it did not drain after SIGTERM: {status}");
    Ok(())
}

pub async fn freeze(stage: &mut Stage, role: Role) -> Result<()> {
    let slot = victim(stage, role);
    stage.fleet.signal(slot, Signal::STOP)?;
    sleep(FROZEN).await;
    stage.fleet.signal(slot, Signal::CONT)
}
