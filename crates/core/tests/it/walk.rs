//! Random walks: the shipped engine of one to three relays over a store and a broker in memory, with random delays,
//! lost replies, crashes, pauses, dead channels and outages. Safety is checked at every step, and once the faults have
//! stopped everything must drain (liveness).
//!
//! A failing walk prints its seed. `CONSIGN_WALK_SEEDS=7..8 cargo test -p consign-core walk` walks that seed alone, and
//! a longer range explores further; with `--release` a million seeds take minutes.

mod broker;
mod options;
mod queue;
mod store;
mod witness;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use options::Options;
use witness::Witness;
use world::World;

/// The seeds of every test run. Together they must meet every rare situation.
const SEEDS: Range<u64> = 0..20_000;

/// The seeds to walk, and whether they are those of every run.
fn seeds() -> (Range<u64>, bool) {
    let Ok(text) = std::env::var("CONSIGN_WALK_SEEDS") else { return (SEEDS, true) };
    let range = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    (range.expect("CONSIGN_WALK_SEEDS is a range such as 7..8"), false)
}

/// Walks one seed to its end; returns what was met on the way and the hash of everything that happened.
fn walk(seed: u64) -> (Witness, u64) {
    let mut world = World::new(seed);
    world.run();
    world.finish()
}

fn walk_range(seeds: impl Iterator<Item = u64>) -> Witness {
    let mut met = Witness::default();
    for seed in seeds {
        let walked = catch_unwind(AssertUnwindSafe(|| walk(seed)));
        let Ok((witness, _)) = walked else {
            panic!("the walk of seed {seed} failed: {:?}", Options::draw(seed));
        };
        met.merge(&witness);
    }
    met
}

#[test]
fn every_random_walk_is_safe_and_drains_and_together_they_meet_every_rare_situation() {
    const THREADS: usize = 2;
    let (seeds, all) = seeds();
    let walk_part = |thread| {
        let part = seeds.clone().skip(thread).step_by(THREADS);
        thread::spawn(move || walk_range(part))
    };
    let walkers: Vec<_> = (0..THREADS).map(walk_part).collect();
    let mut met = Witness::default();

    for walker in walkers {
        match walker.join() {
            Ok(witness) => met.merge(&witness),
            Err(failure) => resume_unwind(failure),
        }
    }

    println!("{seeds:?} met {met:?}");
    assert!(!all || met.never_met().is_empty(), "never met: {:?}", met.never_met());
}

#[test]
fn the_same_seed_walks_the_same_way() {
    for seed in 0..50 {
        assert_eq!(walk(seed).1, walk(seed).1, "seed {seed}");
    }
}
