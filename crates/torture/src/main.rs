//! Torture on real servers: processes and servers are killed while producers write, and then the tables are audited.
//!
//! - [`round`]: one round; [`fault`]: what strikes; [`stage`]: where it takes place
//! - [`place`]: the servers, and what this machine cannot have
//! - [`load`]: the producers; [`fleet`]: relays and consumers; [`servers`]: power over the servers
//! - [`audit`]: lost, doubled, unexplained; [`random`]: choices from a seed
//!
//! Started by `cargo xtask torture`, which builds the program with its failpoints.

mod audit;
mod fault;
mod fleet;
mod load;
mod place;
mod random;
mod round;
mod servers;
mod stage;

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;

use fault::{Entry, FAULTS, Place};
use place::{Impossible, Ready};
use random::Random;
use round::{Plan, Report};

/// All faults strike once for so many events.
const EVENTS_PER_PASS: u64 = 50_000;

/// Breaks real servers and real processes, and audits what is left.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program under torture, built with the feature `failpoints`.
    #[arg(long)]
    consign: PathBuf,
    /// The task runner, which starts and kills servers.
    #[arg(long, env = "CONSIGN_XTASK")]
    xtask: PathBuf,
    /// Where the servers live. One torture at a time breaks them.
    #[arg(long, env = "CONSIGN_SERVICES_DIR")]
    services: PathBuf,
    /// How many rounds.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Events of each round, at least 1000.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1000..))]
    events: u64,
    /// Only these faults.
    #[arg(long)]
    only: Vec<String>,
    /// The short version: every failpoint, and the death of each process and server.
    #[arg(long, conflicts_with = "only")]
    short: bool,
    /// The seed of the first round; the next one adds 1.
    #[arg(long)]
    seed: Option<u64>,
    /// One line of JSON on stdout.
    #[arg(long)]
    json: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("torture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &Arguments) -> Result<bool> {
    let _alone = alone(&arguments.services)?;
    let faults = if arguments.short { fault::short() } else { chosen(&arguments.only)? };
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?),
    };
    let mut outcome = Outcome::default();
    for round in 0..arguments.rounds {
        for place in Place::ALL {
            let Some(plan) = plan(arguments, &faults, place, seed + round) else { continue };
            match Ready::prepare(place, &arguments.xtask).await? {
                Ok(ready) => outcome.reports.push(visit(ready, &arguments.consign, &plan).await?),
                Err(Impossible(why)) => {
                    eprintln!("torture: not possible here: {why}");
                    let faults: Vec<&str> = plan.faults.iter().map(|entry| entry.name).collect();
                    outcome.impossible.insert(faults.join(" "), why);
                }
            }
        }
    }
    outcome.tell(arguments.json);
    Ok(outcome.reports.iter().all(|report| report.findings.is_clean()))
}

/// Holds the servers of `folder` until the file is dropped: a second torture would take this one's faults for failures, and
/// end its servers.
fn alone(folder: &Path) -> Result<File> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join("torture.lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another torture breaks the servers in {} just now: wait for its end, or name another folder in \
             CONSIGN_SERVICES_DIR and another CONSIGN_SERVICES_PORT_BASE",
            folder.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock {}", path.display()))
        }
    }
}

/// The part of a round that takes place there.
fn plan(arguments: &Arguments, faults: &[Entry], place: Place, seed: u64) -> Option<Plan> {
    let here = |place: Place| faults.iter().filter(move |entry| entry.fault.place() == place).copied();
    let mut random = Random::new(seed);
    // All in one order, then all in another one.
    let passes = if arguments.only.is_empty() { arguments.events.div_ceil(EVENTS_PER_PASS) } else { 1 };
    let mut chosen = Vec::new();
    for _ in 0..passes {
        let mut pass: Vec<Entry> = here(place).collect();
        random.shuffle(&mut pass);
        chosen.extend(pass);
    }
    if chosen.is_empty() {
        return None;
    }
    // The places other than the usual one have a tenth of the events each.
    let others = Place::ALL.iter().filter(|&&other| other != Place::Usual && here(other).next().is_some());
    let (others, usual) = (others.count() as u64, here(Place::Usual).next().is_some());
    let events = match place {
        Place::Usual => arguments.events - arguments.events / 10 * others,
        Place::Cluster | Place::SmallDisk if usual => arguments.events / 10,
        Place::Cluster | Place::SmallDisk => arguments.events / others,
    };
    let together = if arguments.short { 4 } else { 1 };
    Some(Plan { events, faults: chosen, place, together, seed })
}

/// One part of a round, in a place that is left as it was found.
async fn visit(ready: Ready, program: &Path, plan: &Plan) -> Result<Report> {
    let outcome = tokio::select! {
        outcome = round::run(&ready.scenery, program, plan) => outcome,
        interrupt = tokio::signal::ctrl_c() => match interrupt {
            Ok(()) => Err(anyhow::anyhow!("interrupted")),
            Err(error) => Err(error).context("cannot listen for ctrl-c"),
        },
    };
    ready.leave().await?;
    outcome
}

/// The faults that `--only` names, or all.
fn chosen(only: &[String]) -> Result<Vec<Entry>> {
    if only.is_empty() {
        return Ok(FAULTS.to_vec());
    }
    let mut chosen = Vec::new();
    for wanted in only {
        let Some(entry) = FAULTS.iter().find(|entry| entry.name == wanted) else {
            let known: Vec<_> = FAULTS.iter().map(|entry| entry.name).collect();
            bail!("no fault is called `{wanted}`; known are: {}", known.join(" "));
        };
        chosen.push(*entry);
    }
    Ok(chosen)
}

/// What a run came to.
#[derive(Debug, Default)]
struct Outcome {
    reports: Vec<Report>,
    /// Places that this machine cannot have, and why.
    impossible: BTreeMap<String, String>,
}

impl Outcome {
    fn tell(&self, one_line: bool) {
        let sum = |count: fn(&Report) -> u64| self.reports.iter().map(count).sum::<u64>();
        let document = json!({
            "events": sum(|report| report.findings.committed),
            "kills": sum(|report| report.kills),
            "lost": sum(|report| report.findings.lost),
            "doubled": sum(|report| report.findings.doubled),
            "unexplained_duplicates": sum(|report| report.findings.unexplained_duplicates),
            "rounds": self.reports,
            "impossible": self.impossible,
        });
        if one_line {
            println!("{document}");
        } else {
            println!("{document:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_name_and_all_when_none_is_named() {
        let names = |only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(ToString::to_string).collect();
            chosen(&only).unwrap().iter().map(|entry| entry.name).collect()
        };

        assert_eq!(names(&["storm"]), ["storm"]);
        assert_eq!(names(&[]).len(), FAULTS.len());
    }

    #[test]
    fn second_torture_of_the_same_servers_is_refused_until_the_first_one_is_over() {
        let folder = tempfile::tempdir().unwrap();

        let first = alone(folder.path()).unwrap();
        let error = alone(folder.path()).unwrap_err().to_string();

        assert!(error.contains("another torture"), "{error}");
        drop(first);
        alone(folder.path()).unwrap();
    }

    #[test]
    fn unknown_fault_is_refused_with_the_known_ones() {
        let error = chosen(&["earthquake".into()]).unwrap_err().to_string();

        assert!(error.contains("`earthquake`") && error.contains("kill-relay"), "{error}");
    }
}
