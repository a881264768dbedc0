//! `consign sim`: the deterministic simulator. It needs no config, no database and no broker.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use consign_sim::options::{Cut, Options};
use consign_sim::render;
use consign_sim::run::{run_options, run_range};
use consign_sim::shrink::shrink;

use crate::exit::Exit;
use crate::output::{self, Progress};

/// What `consign sim` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign sim --seeds 0..100000\n  consign sim --seeds 0..100000 --threads 2 --json\n  \
                  consign sim --replay 4711\n  consign sim --replay 4711 --all\n  consign sim --mutants\n\n\
                  The engines are those of the relay and of the consumers; the database, the broker, the network and the clock are \
                  simulated, and go wrong. A seed decides everything, so that it runs the same way again. A failure is shrunk \
                  to what it needs and printed as a table. Exit code 1 when an invariant broke, or when a range of 100,000 seeds \
                  or more never met one of the named situations."
)]
pub struct Arguments {
    /// Seeds to run, from the first up to and without the last.
    #[arg(long, value_name = "A..B", default_value = "0..10000", value_parser = range)]
    seeds: Range<u64>,
    /// Threads [default: one per processor].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Run this seed alone and print its trace.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "threads", "json"])]
    replay: Option<u64>,
    /// Print every step of the replayed seed, also of a failure, as it is.
    #[arg(long, requires = "replay")]
    all: bool,
    /// Take guards away, one at a time, and tell after how many seeds an invariant broke. Needs a binary built with
    /// `--features mutants`, which none that is shipped is.
    #[arg(long, conflicts_with_all = ["seeds", "replay"])]
    mutants: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let ends = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    match ends {
        Some(ends) if ends.start < ends.end => Ok(ends),
        Some(_) | None => Err("a range of seeds is written A..B, such as 0..100000, with A below B".into()),
    }
}

/// Runs seeds, replays one, or takes guards away.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = arguments.threads.map_or(processors, usize::from);
    // A panic of an engine is a failure of its seed, and told as such.
    std::panic::set_hook(Box::new(|_| {}));
    let exit = if arguments.mutants {
        mutants(threads, arguments.json)
    } else if let Some(seed) = arguments.replay {
        replay(seed, arguments.all)
    } else {
        seeds(arguments.seeds.clone(), threads, arguments.json)
    };
    let _ = std::panic::take_hook();
    exit
}

fn seeds(range: Range<u64>, threads: usize, json: bool) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let all = range.end - range.start;
    let done = AtomicU64::new(0);
    let progress = Mutex::new(Progress::new());
    let report = run_range(range, threads, &|seeds| {
        let done = done.fetch_add(seeds, Ordering::Relaxed) + seeds;
        if let Ok(mut progress) = progress.lock() {
            progress.tell(|| format!("{done} of {all} seeds"));
        }
    });
    let took = began.elapsed();
    if json {
        output::print(report.json(took) + "\n")?;
    } else {
        output::print(report.text(took))?;
        if let Some((seed, _)) = report.violations.first() {
            output::print(failure(*seed))?;
        }
    }
    Ok(if report.passed() { Exit::Fine } else { Exit::Failed })
}

/// A failure, shrunk, as a table.
fn failure(seed: u64) -> String {
    let Some(shrunk) = shrink(&Options::draw(seed)) else {
        return format!("seed {seed} does not fail again\n");
    };
    let table = render::table(&shrunk.outcome, false);
    format!(
        "\nseed {seed}, shrunk in {} runs:\n{}\n{table}",
        shrunk.runs,
        render::world(&Options::draw(seed), &shrunk.cut)
    )
}

fn replay(seed: u64, all: bool) -> anyhow::Result<Exit> {
    let outcome = run_options(Options::draw(seed), Cut::default(), true);
    let failed = outcome.violation.is_some();
    if failed && !all {
        output::print(failure(seed))?;
    } else {
        let world = render::world(&Options::draw(seed), &Cut::default());
        output::print(format!("seed {seed}:\n{world}\n{}", render::table(&outcome, all)))?;
    }
    output::print(format!("trace hash {:016x}\n", outcome.trace_hash))?;
    Ok(if failed { Exit::Failed } else { Exit::Fine })
}

#[cfg(feature = "mutants")]
fn mutants(threads: usize, json: bool) -> anyhow::Result<Exit> {
    use consign_sim::mutants::{SEEDS_MAX, json as as_json, run_mutants, text};

    let verdicts = run_mutants(SEEDS_MAX, threads);
    output::print(if json { as_json(&verdicts) + "\n" } else { text(&verdicts) })?;
    let caught = verdicts.iter().all(|verdict| verdict.caught.is_some());
    Ok(if caught { Exit::Fine } else { Exit::Failed })
}

#[cfg(not(feature = "mutants"))]
#[expect(clippy::unnecessary_wraps, reason = "a binary whose guards can be taken away may fail to print")]
fn mutants(_: usize, _: bool) -> anyhow::Result<Exit> {
    eprintln!(
        "error: the guards of this binary cannot be taken away: run `cargo xtask mutants`, or build it with \
         `--features mutants`"
    );
    Ok(Exit::Usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_seeds_has_a_first_and_a_last() {
        assert_eq!(range("7..8"), Ok(7..8));
        for wrong in ["7", "8..7", "7..7", "a..b", "0..=9"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_failure_is_told_only_of_a_seed_that_fails() {
        assert_eq!(failure(0), "seed 0 does not fail again\n");
    }
}
