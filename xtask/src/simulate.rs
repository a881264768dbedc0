//! The simulator: 100,000 seeds that no commit before has run, and the guards taken away one at a time.

use std::ops::Range;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::workspace;

/// Seeds of one run.
const SEEDS: u64 = 100_000;

/// Runs the simulator's tests in its profile, over seeds that move with the commit.
pub fn run() -> Result<()> {
    let seeds = seeds(&commit())?;
    println!("seeds {seeds:?}, by the commit; one alone: consign sim --replay SEED");
    let mut cargo = workspace::cargo();
    cargo.args([
        "test",
        "-p",
        "consign-sim",
        "--profile",
        "sim",
        "--features",
        "mutants",
        "--",
        "--nocapture",
    ]);
    cargo.env("CONSIGN_SIM_SEEDS", format!("{}..{}", seeds.start, seeds.end));
    let status = cargo.status().context("cannot run the simulator")?;
    if !status.success() {
        bail!("{status}; the seeds were {seeds:?}");
    }
    Ok(())
}

/// Runs `cargo xtask mutants`.
pub fn mutants(words: &[&str]) -> Result<ExitCode> {
    if words.iter().any(|word| *word != "--json") {
        bail!("`xtask mutants` knows no option but --json");
    }
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "-p", "consign-sim", "--profile", "sim", "--features", "mutants"]);
    let status = cargo.args(["--example", "mutants", "--"]).args(words).status();
    let status = status.context("cannot run the simulator")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The commit; that of an export without a history is all zeros.
fn commit() -> String {
    let mut git = Command::new("git");
    let output = git.args(["rev-parse", "HEAD"]).current_dir(workspace::root()).output();
    let found = output.ok().filter(|output| output.status.success());
    found.map_or_else(|| "0".repeat(40), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The seeds of a commit: two commits share none, but for one in sixteen million.
fn seeds(commit: &str) -> Result<Range<u64>> {
    let digits =
        commit.get(..6).with_context(|| format!("`{commit}` is no commit: run this in a checkout"))?;
    let base = u64::from_str_radix(digits, 16).with_context(|| format!("`{commit}` is no commit"))? * SEEDS;
    Ok(base..base + SEEDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_move_with_the_commit() {
        assert_eq!(seeds("00000a9f13").unwrap(), 1_000_000..1_100_000);
        assert_ne!(seeds("abcdef").unwrap(), seeds("abcdee").unwrap());
        assert!(seeds("").is_err() && seeds("no commit").is_err());
    }
}
