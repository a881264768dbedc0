//! One round: producers write, faults strike one after another, everything recovers, the audit asks.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::audit::{self, Findings};
use crate::fault::{Entry, Place};
use crate::random::Random;
use crate::stage::{Scenery, Stage};

/// Everything committed must be there by then.
const FINISH_LIMIT: Duration = Duration::from_mins(5);

/// What a round is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    pub events: u64,
    /// In the order in which they strike.
    pub faults: Vec<Entry>,
    pub place: Place,
    /// Faults strike one after another; after so many of them everything must have recovered.
    pub together: usize,
    pub seed: u64,
}

/// What a round came to.
#[derive(Debug, Serialize)]
pub struct Report {
    pub seed: u64,
    pub place: Place,
    pub kills: u64,
    /// How often each fault struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// The longest time from the end of each fault to everything sent and applied, in seconds.
    pub recovery_seconds: BTreeMap<&'static str, f64>,
    /// Processes that ended by themselves, and how.
    pub exits: Vec<String>,
    pub rolled_back: u64,
    pub unknown_commits: u64,
    pub seconds: f64,
    #[serde(flatten)]
    pub findings: Findings,
}

/// Runs one round to its audit.
pub async fn run(scenery: &Scenery, program: &Path, plan: &Plan) -> Result<Report> {
    let started = Instant::now();
    let (events, seed) = (plan.events, plan.seed);
    let mut stage = Stage::set(scenery, program, events, Random::new(seed)).await?;
    eprintln!("torture: {:?}, seed {seed}, {events} events, {} faults", plan.place, plan.faults.len());
    let torment = torment(&mut stage, plan).await;
    let (faults, recovery_seconds) = match torment {
        Ok(done) => done,
        Err(error) => return Err(abandon(stage, error)),
    };
    let (kills, exits) = (stage.fleet.kills() + stage.server_kills, std::mem::take(&mut stage.fleet.exits));
    let (rolled_back, unknown_commits) = (stage.load.rolled_back(), stage.load.unknown());
    let findings = match conclude(&mut stage).await {
        Ok(findings) => findings,
        Err(error) => return Err(abandon(stage, error)),
    };
    let seconds = started.elapsed().as_secs_f64();
    let report = Report {
        seed,
        place: plan.place,
        kills,
        faults,
        recovery_seconds,
        exits,
        rolled_back,
        unknown_commits,
        seconds,
        findings,
    };
    // A run of many rounds takes an hour: what a part came to is told at its end, not at the end of all.
    eprintln!("torture: audit {}", serde_json::to_string(&report)?);
    if report.findings.is_clean() {
        stage.drop_database().await?;
        audit::delete_topology(&stage.broker_url, &stage.name).await?;
    } else {
        eprintln!("torture: database {} is kept", stage.name);
        eprintln!("torture: logs are kept in {}", stage.keep_folder().display());
    }
    Ok(report)
}

type Struck = (BTreeMap<&'static str, u64>, BTreeMap<&'static str, f64>);

/// Lets the faults strike, while producers write.
async fn torment(stage: &mut Stage, plan: &Plan) -> Result<Struck> {
    let (mut struck, mut recovery) = Struck::default();
    let strikes = plan.faults.len() as u64;
    for (index, entry) in plan.faults.iter().enumerate() {
        // Half is left for what failpoints take until they are reached, and for the end.
        let share = stage.spare() / (2 * (strikes - index as u64));
        stage.load.grant(share, spread(share));
        sleep(Duration::from_millis(stage.random.between(50, 300))).await;
        let began = Instant::now();
        entry.fault.strike(stage).await.with_context(|| format!("{} (seed {})", entry.name, plan.seed))?;
        let lasted = began.elapsed().as_secs_f64();
        *struck.entry(entry.name).or_default() += 1;
        eprint!("torture: {}/{strikes} {} lasted {lasted:.1} s", index + 1, entry.name);
        if (index + 1) % plan.together == 0 {
            let seconds = stage.recovered().await.with_context(|| format!("after {}", entry.name))?;
            let longest = recovery.entry(entry.name).or_insert(seconds);
            *longest = longest.max(seconds);
            eprint!(", recovered in {seconds:.1} s");
        } else {
            stage.fleet.tend()?;
        }
        eprintln!(", {} events", stage.load.committed());
    }
    let rest = stage.spare();
    stage.load.grant(rest, spread(rest));
    Ok((struck, recovery))
}

/// Over how long a share of the events is spread.
fn spread(events: u64) -> Duration {
    const EVENTS_PER_SECOND: u64 = 400;
    Duration::from_millis(events * 1000 / EVENTS_PER_SECOND)
}

/// Waits until all is done, stops everything and asks.
async fn conclude(stage: &mut Stage) -> Result<Findings> {
    let acknowledged = stage.load.finish(FINISH_LIMIT).await?;
    stage.recovered().await?;
    stage.fleet.stop()?;
    let queue = format!("{}-audit", stage.name);
    audit::audit(&stage.pool, &stage.broker_url, &queue, &acknowledged).await
}

/// Keeps what a failed round left, to be looked at.
fn abandon(stage: Stage, error: anyhow::Error) -> anyhow::Error {
    let name = stage.name.clone();
    let folder = stage.keep_folder();
    error.context(format!("database {name} and logs in {} are kept", folder.display()))
}
