//! Failures are made small, and their traces are readable and the same again.

use consign_sim::guard::StoreGuard;
use consign_sim::options::{Cut, Options};
use consign_sim::render::table;
use consign_sim::run::run_options;
use consign_sim::shrink::shrink;

/// The first seed that fails in a store without this guard.
fn failing(guard: StoreGuard) -> Options {
    let options = |seed| Options { missing: Some(guard), ..Options::draw(seed) };
    let fails = |options: &Options| run_options(options.clone(), Cut::default(), false).violation.is_some();
    (0..2_000).map(options).find(fails).expect("the guard is needed")
}

#[test]
fn a_failure_shrinks_to_a_table_that_fits_on_a_screen() {
    for guard in [StoreGuard::OrderDead, StoreGuard::SettleToken, StoreGuard::SweepLease] {
        let shrunk = shrink(&failing(guard)).expect("it fails");

        let table = table(&shrunk.outcome, false);

        println!("{guard:?}, {} runs\n{table}", shrunk.runs);
        let lines = table.lines().count();
        assert!(lines <= 33, "{lines} lines");
        assert!(table.contains("violated: "), "{table}");
    }
}

#[test]
fn a_shrunk_failure_runs_the_same_way_again() {
    let options = failing(StoreGuard::SettleToken);
    let shrunk = shrink(&options).expect("it fails");

    let again = run_options(options, shrunk.cut, true);

    assert_eq!(again.violation, shrunk.outcome.violation);
    assert_eq!((again.trace_hash, again.trace), (shrunk.outcome.trace_hash, shrunk.outcome.trace));
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    assert!(shrink(&Options::draw(0)).is_none());
}
