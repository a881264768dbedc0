//! Torture on real servers: processes and servers are killed while producers write, and then the tables are audited.
//!
//! - [`round`]: one round; [`fault`]: what strikes; [`stage`]: where it takes place
//! - [`load`]: the producers; [`fleet`]: relays and consumers; [`servers`]: power over the servers
//! - [`audit`]: lost, doubled, unexplained; [`random`]: choices from a seed
//!
//! Started by `cargo xtask torture`, which builds the program with its failpoints.

mod audit;
mod fault;
mod fleet;
mod load;
mod random;
mod round;
mod servers;
mod stage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;

use fault::{Entry, FAULTS};
use random::Random;
use round::{Plan, Report};
use servers::{MYSQL, RABBITMQ, Servers};

/// Breaks real servers and real processes, and audits what is left.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program under torture, built with the feature `failpoints`.
    #[arg(long)]
    consign: PathBuf,
    /// The task runner, which starts and kills servers.
    #[arg(long, env = "CONSIGN_XTASK")]
    xtask: PathBuf,
    /// How many rounds.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Events of each round.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Only these faults.
    #[arg(long)]
    only: Vec<String>,
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
    let faults = chosen(&arguments.only)?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().map_err(|error| anyhow::anyhow!("no random bytes: {error}"))?),
    };
    let servers = Arc::new(Servers::raise(arguments.xtask.clone(), &[MYSQL, RABBITMQ]).await?);
    let work = rounds(arguments, &servers, &faults, seed);
    let outcome = tokio::select! {
        outcome = work => outcome,
        interrupt = tokio::signal::ctrl_c() => match interrupt {
            Ok(()) => Err(anyhow::anyhow!("interrupted")),
            Err(error) => Err(error).context("cannot listen for ctrl-c"),
        },
    };
    servers.put_back().await?;
    let reports = outcome?;
    tell(arguments, &reports);
    Ok(reports.iter().all(|report| report.findings.is_clean()))
}

async fn rounds(
    arguments: &Arguments,
    servers: &Arc<Servers>,
    faults: &[Entry],
    seed: u64,
) -> Result<Vec<Report>> {
    let mut reports = Vec::new();
    for round in 0..arguments.rounds {
        let seed = seed + round;
        let mut faults = faults.to_vec();
        Random::new(seed).shuffle(&mut faults);
        let plan = Plan { events: arguments.events, faults, seed };
        reports.push(round::run(servers, &arguments.consign, &plan).await?);
    }
    Ok(reports)
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

fn tell(arguments: &Arguments, reports: &[Report]) {
    let sum = |count: fn(&Report) -> u64| reports.iter().map(count).sum::<u64>();
    let document = json!({
        "events": sum(|report| report.findings.committed),
        "kills": sum(|report| report.kills),
        "lost": sum(|report| report.findings.lost),
        "doubled": sum(|report| report.findings.doubled),
        "unexplained_duplicates": sum(|report| report.findings.unexplained_duplicates),
        "rounds": reports,
    });
    if arguments.json {
        println!("{document}");
    } else {
        println!("{document:#}");
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
    fn unknown_fault_is_refused_with_the_known_ones() {
        let error = chosen(&["earthquake".into()]).unwrap_err().to_string();

        assert!(error.contains("`earthquake`") && error.contains("kill-relay"), "{error}");
    }
}
