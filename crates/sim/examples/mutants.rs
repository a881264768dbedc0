//! Takes every guard away, one at a time, and tells after how many seeds the simulator noticed.
//!
//! `cargo run -p consign-sim --profile sim --features mutants --example mutants -- [--json]`

use std::process::ExitCode;

use consign_sim::mutants::{SEEDS_MAX, json, run_mutants, text};

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Engines may panic without their guards: that is a way of being caught.
    std::panic::set_hook(Box::new(|_| {}));
    let verdicts = run_mutants(SEEDS_MAX, threads);
    if std::env::args().any(|argument| argument == "--json") {
        println!("{}", json(&verdicts));
    } else {
        print!("{}", text(&verdicts));
    }
    if verdicts.iter().all(|verdict| verdict.caught.is_some()) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
