//! What a seed decides about its consumers before they run.

use std::time::Duration;

use consign_core::consumer::{ConflictPolicy, ConsumerSettings};

use crate::draw::Seeded;
use crate::options::millis;

use super::facts::Rule;

/// What a seed decides about its consumers.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is drawn or set on its own")]
pub struct ConsumerOptions {
    /// The seed of what happens to them.
    pub seed: u64,
    /// Consumer processes.
    pub processes: usize,
    /// Facts that other producers send, besides those of the outbox.
    pub facts: usize,
    /// Streams that those facts belong to.
    pub streams: i64,
    /// Accounts that they add to.
    pub users: i64,
    /// What keeps streams in order.
    pub rule: Rule,
    /// Whether the consumer adds to accounts or only writes entries.
    pub accounts: bool,
    /// Whether it compares fingerprints or columns.
    pub fingerprint: bool,
    /// Whether dead letters go to a destination or into a table.
    pub dead_letters: bool,
    /// How many deliveries a process holds at most.
    pub prefetch: usize,
    /// Whether the broker counts deliveries.
    pub counts: bool,
    /// Whether there is a filter of repeats.
    pub filter: bool,
    /// How long a parked delivery belongs to who took it.
    pub lease: Duration,
    /// How each process runs.
    pub settings: ConsumerSettings,
}

impl ConsumerOptions {
    /// What this seed decides.
    pub fn draw(seed: u64) -> Self {
        const OF_CONSUMERS: u64 = 0x636f_6e73_756d_6572;
        let mut draw = Seeded::new(seed ^ OF_CONSUMERS);
        Self {
            seed: draw.number(),
            processes: if draw.chance(15) { 3 + draw.index(3) } else { 1 + draw.index(2) },
            facts: if draw.chance(4) { 10 + draw.index(30) } else { 1 + draw.index(6) },
            streams: 1 + i64::from(draw.below_u32(3)),
            users: 1 + i64::from(draw.below_u32(3)),
            rule: draw.pick(&[Rule::Unguarded, Rule::ApplyIfNewer, Rule::Sequential]),
            accounts: draw.chance(60),
            fingerprint: draw.chance(30),
            dead_letters: draw.chance(50),
            prefetch: 1 + draw.index(12),
            counts: draw.chance(70),
            filter: draw.chance(40),
            lease: millis(if draw.chance(30) { 150 + draw.below(400) } else { 5_000 }),
            settings: settings(&mut draw),
        }
    }
}

fn settings(draw: &mut Seeded) -> ConsumerSettings {
    let policies = [ConflictPolicy::RecordAndAck, ConflictPolicy::DeadLetter, ConflictPolicy::Stop];
    ConsumerSettings {
        workers: 1 + draw.index(3),
        batch: 1 + draw.index(6),
        batch_bytes: if draw.chance(20) { 100 } else { 10_000 },
        linger: millis(draw.below(20)),
        attempts_max: 2 + draw.below_u32(4),
        retry_delay: millis(50 + draw.below(400)),
        gap_wait: millis(500 + draw.below(5_000)),
        on_conflict: draw.pick(&policies),
        publish_deadline: Duration::from_secs(5),
    }
}
