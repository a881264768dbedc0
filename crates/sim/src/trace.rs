//! What happened, step by step: always as a hash, and in full when a seed is replayed.

use consign_core::time::Monotonic;

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// Nobody in it: time, power, the network.
    World,
    /// The application that inserts events.
    Producer,
    /// A person with the command line.
    Operator,
    /// The database.
    Store,
    /// A relay process, by its place.
    Relay(usize),
    /// A destination of the broker.
    Broker(usize),
    /// A consumer process, by its place.
    Consumer(usize),
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, on the one true clock of the world.
    pub at: Monotonic,
    /// Who.
    pub actor: Actor,
    /// What.
    pub what: &'static str,
    /// Which event of the outbox it was about.
    pub row: Option<usize>,
    /// A number that tells more: a token's, a count, a span in milliseconds.
    pub detail: u64,
    /// How the row changed.
    pub change: Option<(&'static str, &'static str)>,
}

/// The steps of one seed.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    steps: u64,
    kept: Option<Vec<Step>>,
}

impl Trace {
    /// Nothing has happened. `keep` the steps to print them.
    pub fn new(keep: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, steps: 0, kept: keep.then(Vec::new) }
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        let micros = u64::try_from(step.at.since_origin().as_micros()).unwrap_or(u64::MAX);
        self.mix(micros);
        self.mix(match step.actor {
            Actor::World => 0,
            Actor::Producer => 1,
            Actor::Operator => 2,
            Actor::Store => 3,
            Actor::Relay(place) => 1_000 + place as u64,
            Actor::Broker(place) => 2_000 + place as u64,
            Actor::Consumer(place) => 3_000 + place as u64,
        });
        self.mix_text(step.what);
        self.mix(step.row.map_or(0, |row| row as u64 + 1));
        self.mix(step.detail);
        if let Some((from, to)) = step.change {
            self.mix_text(from);
            self.mix_text(to);
        }
        self.steps += 1;
        if let Some(kept) = &mut self.kept {
            kept.push(step);
        }
    }

    fn mix_text(&mut self, text: &str) {
        for chunk in text.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(bytes));
        }
    }

    fn mix(&mut self, number: u64) {
        self.hash = combine(self.hash, number);
    }

    /// A hash of everything that happened. Two runs of a seed have the same.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many steps there were.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The steps, if they were kept.
    pub fn kept(self) -> Vec<Step> {
        self.kept.unwrap_or_default()
    }
}

/// A hash of two.
pub fn combine(hash: u64, number: u64) -> u64 {
    let mixed = (hash ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
