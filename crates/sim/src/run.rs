//! Many seeds, on several threads, and what they came to together.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use crate::book::Violation;
use crate::options::{Cut, Options, Strikes};
use crate::situation::{Entry, Witness, all};
use crate::trace::{Step, combine};
use crate::world::World;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What must not have happened.
    pub violation: Option<Violation>,
    /// Situations met.
    pub met: Witness,
    /// Faults that struck.
    pub strikes: Strikes,
    /// How many strikes were drawn.
    pub struck: u32,
    /// How many steps it took.
    pub steps: u64,
    /// The hash of everything that happened.
    pub trace_hash: u64,
    /// The steps, if they were kept.
    pub trace: Vec<Step>,
}

/// Runs a seed as it is.
pub fn run_seed(seed: u64) -> Outcome {
    run_options(Options::draw(seed), Cut::default(), false)
}

/// Runs these options less what is cut; `keep` the steps. A panic of an engine is a violation like any other.
pub fn run_options(options: Options, cut: Cut, keep: bool) -> Outcome {
    let seed = options.seed;
    let ended = catch_unwind(AssertUnwindSafe(|| World::new(options, cut, keep).run()));
    match ended {
        Ok(ending) => Outcome {
            seed,
            violation: ending.book.violation,
            met: ending.book.met,
            strikes: ending.strikes,
            struck: ending.struck,
            steps: ending.book.trace.steps(),
            trace_hash: ending.book.trace.hash(),
            trace: ending.book.trace.kept(),
        },
        Err(panic) => Outcome {
            seed,
            violation: Some(Violation {
                invariant: "panic",
                row: None,
                what: panic_text(&*panic),
                at: consign_core::time::Monotonic::default(),
            }),
            met: Witness::default(),
            strikes: Strikes::default(),
            struck: 0,
            steps: 0,
            trace_hash: 0,
            trace: Vec::new(),
        },
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("an engine panicked").to_owned()
}

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many seeds ran.
    pub seeds: u64,
    /// Steps in all.
    pub steps: u64,
    /// Seeds that broke an invariant, ascending.
    pub violations: Vec<(u64, Violation)>,
    /// Situations met.
    pub met: Witness,
    /// Faults that struck.
    pub strikes: Strikes,
    /// A hash over the traces of all seeds, whatever the number of threads.
    pub trace_hash: u64,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.met.merge(&outcome.met);
        self.strikes.merge(&outcome.strikes);
        // A sum does not depend on the order in which threads finish.
        self.trace_hash = self.trace_hash.wrapping_add(combine(outcome.seed, outcome.trace_hash));
        if let Some(violation) = outcome.violation {
            self.violations.push((outcome.seed, violation));
        }
    }

    fn merge(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.met.merge(&other.met);
        self.strikes.merge(&other.strikes);
        self.trace_hash = self.trace_hash.wrapping_add(other.trace_hash);
        self.violations.extend(other.violations);
        self.violations.sort_by_key(|(seed, _)| *seed);
    }

    /// Situations that no seed met.
    pub fn missed(&self) -> Vec<&'static Entry> {
        self.met.counts().filter(|(_, count)| *count == 0).map(|(entry, _)| entry).collect()
    }

    /// How many situations were met.
    pub fn situations(&self) -> usize {
        all().count() - self.missed().len()
    }
}

/// Runs a range of seeds. `progress` hears, from any thread, how many more seeds are done.
pub fn run_range(seeds: Range<u64>, threads: usize, progress: &(impl Fn(u64) + Sync)) -> Report {
    const CHUNK: usize = 256;
    let threads = threads.max(1);
    let part = |thread: usize| {
        let mut report = Report::default();
        let mut done = 0;
        for seed in seeds.clone().skip(thread).step_by(threads) {
            report.add(run_seed(seed));
            done += 1;
            if done == CHUNK {
                progress(done as u64);
                done = 0;
            }
        }
        progress(done as u64);
        report
    };
    thread::scope(|scope| {
        let part = &part;
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let mut report = Report::default();
        for worker in workers {
            report.merge(worker.join().expect("a panic of a seed is caught"));
        }
        report
    })
}
