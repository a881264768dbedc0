//! Guards taken away one at a time: the simulator must notice each of them, or its checks prove nothing.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use consign_core::safeguard::{Safeguard, remove};

use crate::guard::StoreGuard;
use crate::options::{Cut, Options};
use crate::report::{joined, quoted};
use crate::run::run_options;

/// A mutant that lives longer than this many seeds is not caught.
pub const SEEDS_MAX: u64 = 10_000;

/// A guard that can be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// In the engines of the product.
    Engine(Safeguard),
    /// In the SQL of the stores; here, in the simulated store.
    Store(StoreGuard),
}

impl Mutant {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let engine = Safeguard::ALL.iter().copied().map(Self::Engine);
        engine.chain(StoreGuard::ALL.iter().copied().map(Self::Store)).collect()
    }

    /// For instance `lease-budget`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine(safeguard) => safeguard.name(),
            Self::Store(guard) => guard.name(),
        }
    }

    /// What the guard keeps from happening.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Engine(safeguard) => safeguard.meaning(),
            Self::Store(guard) => guard.meaning(),
        }
    }

    /// Where the guard lives.
    pub const fn place(self) -> &'static str {
        match self {
            Self::Engine(_) => "engine",
            Self::Store(_) => "sql",
        }
    }
}

/// What became of one mutant.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// The guard that was missing.
    pub mutant: Mutant,
    /// After how many seeds an invariant broke, and which one; `None` when none did.
    pub caught: Option<(u64, &'static str)>,
}

/// Runs every mutant until an invariant breaks, at most so many seeds.
pub fn run_mutants(seeds: u64, threads: usize) -> Vec<Verdict> {
    let mutants = Mutant::all();
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut verdicts = Vec::new();
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
            verdicts.push(run_mutant(*mutant, seeds));
        }
        verdicts
    };
    let mut verdicts: Vec<Verdict> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(worker)).collect();
        let verdicts = workers.into_iter().map(|worker| worker.join().expect("a panic of a seed is caught"));
        verdicts.flatten().collect()
    });
    verdicts.sort_by_key(|verdict| mutants.iter().position(|mutant| *mutant == verdict.mutant));
    verdicts
}

fn run_mutant(mutant: Mutant, seeds: u64) -> Verdict {
    let missing = match mutant {
        Mutant::Engine(safeguard) => {
            remove(Some(safeguard));
            None
        }
        Mutant::Store(guard) => Some(guard),
    };
    let caught = (0..seeds).find_map(|seed| {
        let options = Options { missing, ..Options::draw(seed) };
        let violation = run_options(options, Cut::default(), false).violation?;
        Some((seed + 1, violation.invariant))
    });
    remove(None);
    Verdict { mutant, caught }
}

/// The verdicts as one JSON document.
pub fn json(verdicts: &[Verdict]) -> String {
    let caught = verdicts.iter().filter(|verdict| verdict.caught.is_some()).count();
    let mutants = verdicts.iter().map(|verdict| {
        let (name, place) = (verdict.mutant.name(), verdict.mutant.place());
        let (seeds, invariant) = match verdict.caught {
            Some((seeds, invariant)) => (seeds.to_string(), quoted(invariant)),
            None => ("null".into(), "null".into()),
        };
        format!(
            r#"{{"guard":"{name}","place":"{place}","caught_after_seeds":{seeds},"invariant":{invariant}}}"#
        )
    });
    format!(r#"{{"caught":{caught},"of":{},"mutants":[{}]}}"#, verdicts.len(), joined(mutants))
}

/// The same for people.
pub fn text(verdicts: &[Verdict]) -> String {
    let mut text = format!("{:<28}  {:<6}  {:<12}  violated\n", "without", "place", "caught after");
    for verdict in verdicts {
        let (seeds, invariant) = match verdict.caught {
            Some((1, invariant)) => ("1 seed".into(), invariant),
            Some((seeds, invariant)) => (format!("{seeds} seeds"), invariant),
            None => ("never".into(), "nothing"),
        };
        let (name, place) = (verdict.mutant.name(), verdict.mutant.place());
        let _ = writeln!(text, "{name:<28}  {place:<6}  {seeds:<12}  {invariant}");
    }
    let caught = verdicts.iter().filter(|verdict| verdict.caught.is_some()).count();
    let _ = writeln!(text, "caught: {caught} of {}", verdicts.len());
    text
}
