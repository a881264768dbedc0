//! Every guard is needed: without it an invariant breaks.

use consign_sim::mutants::{SEEDS_MAX, run_mutants, text};

#[test]
fn every_guard_that_is_taken_away_is_missed_within_ten_thousand_seeds() {
    let verdicts = run_mutants(SEEDS_MAX, 2);

    println!("{}", text(&verdicts));
    let alive: Vec<_> = verdicts.iter().filter(|verdict| verdict.caught.is_none()).collect();
    assert!(alive.is_empty(), "{alive:?}");
}
