//! `cargo xtask fuzz`: the fuzz targets, which are tests, for as long as one likes.

use std::io::{BufRead, BufReader};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::test::FAILPOINTS;
use crate::workspace;

/// What a target prints when it held; see crates/fuzz.
const REPORT: &str = "fuzz-report ";
/// How long a target runs when nobody says: ten minutes, as before a release.
const SECONDS: u64 = 600;

#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// The beginning of the names of the targets to run; empty means all.
    target: String,
    seconds: u64,
    seed: u64,
    json: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options = Self { target: String::new(), seconds: SECONDS, seed: 0, json: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().copied().with_context(|| format!("{word} needs a value"));
            match word {
                "--target" => value()?.clone_into(&mut options.target),
                "--seconds" => {
                    options.seconds = value()?.parse().context("--seconds takes a whole number")?;
                }
                "--seed" => options.seed = value()?.parse().context("--seed takes a whole number")?,
                "--json" => options.json = true,
                other => bail!(
                    "unknown option `{other}` of `xtask fuzz`; known are --target, --seconds, --seed and --json"
                ),
            }
        }
        Ok(options)
    }
}

/// Runs `cargo xtask fuzz`.
pub fn run(words: &[&str]) -> Result<ExitCode> {
    let options = Options::parse(words)?;
    let mut cargo = workspace::cargo();
    cargo.args(["test", "--quiet", "--workspace", "--no-fail-fast", "--lib", "--bins", "--tests"]);
    // As the tests are built, so that nothing is built twice.
    cargo.args(["--features", FAILPOINTS, "--"]);
    cargo.arg(format!("fuzz::{}", options.target)).arg("--nocapture");
    cargo.env("CONSIGN_FUZZ_SECONDS", options.seconds.to_string());
    cargo.env("CONSIGN_FUZZ_SEED", options.seed.to_string());
    let mut tests = cargo.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let output = tests.stdout.take().context("the output of cargo is piped")?;
    let mut reports = Vec::new();
    for line in BufReader::new(output).lines() {
        let line = line?;
        if let Some(report) = report(&line)? {
            if !options.json {
                println!("{report}");
            }
            reports.push(report);
        }
    }
    let held = tests.wait()?.success();
    ensure!(!reports.is_empty() || !held, "no fuzz target is called `{}`", options.target);
    if options.json {
        println!("{}", json!({ "targets": reports, "held": held }));
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The report in a line of a test's output; the test runner may have begun the line.
fn report(line: &str) -> Result<Option<Value>> {
    let Some((_, report)) = line.split_once(REPORT) else { return Ok(None) };
    let report = serde_json::from_str(report).with_context(|| format!("{report} is no report"))?;
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_is_found_behind_what_the_test_runner_wrote() {
        let found = report(r#"test fuzz::x ... fuzz-report {"target":"x","inputs":7}"#).unwrap().unwrap();

        assert_eq!(found["inputs"], 7);
        assert_eq!(report("test fuzz::x ... ok").unwrap(), None);
    }

    #[test]
    fn targets_run_for_ten_minutes_unless_somebody_says_otherwise() {
        assert_eq!(Options::parse(&[]).unwrap().seconds, 600);
        assert_eq!(Options::parse(&["--seconds", "5", "--target", "json"]).unwrap().seconds, 5);
        assert!(Options::parse(&["--seconds"]).is_err());
        assert!(Options::parse(&["--minutes", "5"]).is_err());
    }
}
