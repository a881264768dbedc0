//! Ranges of seeds.

use std::ops::Range;
use std::time::Instant;

use consign_sim::run::{Report, run_range, run_seed};

/// The seeds of every plain test run; `cargo xtask test` runs 100,000 others in a faster profile.
const SEEDS: Range<u64> = 0..4_000;

fn run(seeds: Range<u64>, threads: usize) -> Report {
    run_range(seeds, threads, &|_| {})
}

/// The seeds to run.
fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("CONSIGN_SIM_SEEDS") else { return SEEDS };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    range.expect("CONSIGN_SIM_SEEDS is a range such as 7..8")
}

#[test]
fn every_seed_is_safe_and_drains_and_a_long_range_meets_every_rare_situation() {
    let seeds = seeds();
    let began = Instant::now();

    let report = run(seeds.clone(), 2);

    println!("seeds {seeds:?}: {}", report.text(began.elapsed()));
    let failed: Vec<_> = report.violations.iter().take(5).collect();
    assert!(failed.is_empty(), "{} of {} seeds failed: {failed:?}", report.violations.len(), report.seeds);
    let missed: Vec<_> = report.missed().into_iter().map(|entry| entry.name).collect();
    assert!(report.passed(), "never met: {missed:?}");
}

#[test]
fn the_same_seed_runs_the_same_way() {
    for seed in 0..50 {
        assert_eq!(run_seed(seed).trace_hash, run_seed(seed).trace_hash, "seed {seed}");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    assert_eq!(run(0..200, 1).trace_hash, run(0..200, 3).trace_hash);
}
