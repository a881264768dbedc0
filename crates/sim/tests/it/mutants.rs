//! Every guard is needed: without it an invariant breaks.

use consign_sim::mutants::run_mutants;

/// A mutant that lives longer than this many seeds is not caught.
const SEEDS_MAX: u64 = 10_000;

#[test]
fn every_guard_that_is_taken_away_is_missed_within_ten_thousand_seeds() {
    let verdicts = run_mutants(SEEDS_MAX, 2);

    for verdict in &verdicts {
        println!("{:28} {:6} {:?}", verdict.mutant.name(), verdict.mutant.place(), verdict.caught);
    }
    let alive: Vec<_> = verdicts.iter().filter(|verdict| verdict.caught.is_none()).collect();
    assert!(alive.is_empty(), "{alive:?}");
}
