//! Fuzz targets as ordinary tests on stable Rust.
//!
//! A target is a property of inputs drawn from a [`Source`]. [`run`] draws one input after the other, each from a seed of
//! its own, for [`SMOKE`] or as long as `CONSIGN_FUZZ_SECONDS` says. `CONSIGN_FUZZ_SEED` says where the seeds begin; a
//! failure names its seed, and `CONSIGN_FUZZ_REPLAY=SEED` runs that input alone.

mod source;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

pub use source::Source;

/// How long a target runs when nobody says.
pub const SMOKE: Duration = Duration::from_secs(2);
/// What a report line begins with; `cargo xtask fuzz` looks for it.
pub const REPORT: &str = "fuzz-report ";

/// Draws inputs and holds the property against each; panics with the seed of the first that breaks it.
pub fn run(target: &str, property: impl Fn(&mut Source)) {
    if let Some(seed) = number("CONSIGN_FUZZ_REPLAY") {
        return property(&mut Source::new(seed));
    }
    let time = number("CONSIGN_FUZZ_SECONDS").map_or(SMOKE, Duration::from_secs);
    let first = number("CONSIGN_FUZZ_SEED").unwrap_or(0);
    let started = Instant::now();
    let mut inputs = 0;
    while started.elapsed() < time {
        let seed = first.wrapping_add(inputs);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| property(&mut Source::new(seed)))) {
            eprintln!("fuzz target {target} is broken by CONSIGN_FUZZ_REPLAY={seed}");
            resume_unwind(panic);
        }
        inputs += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        r#"{REPORT}{{"target":"{target}","inputs":{inputs},"first_seed":{first},"seconds":{seconds:.1}}}"#
    );
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_property_is_found() {
        let broken = catch_unwind(|| {
            run("a-property-that-does-not-hold", |source| assert!(source.below(1000) < 990));
        });

        assert!(broken.is_err());
    }
}
