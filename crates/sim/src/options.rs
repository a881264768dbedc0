//! What a seed decides before it runs. Each seed enables a random subset of the faults (swarm testing), which meets
//! more rare situations than all of them at once.

use std::fmt;
use std::time::Duration;

use consign_core::lease::PublishLimits;
use consign_core::relay::{DeadHead, Order, RelaySettings};
use consign_core::retry::{RetryPolicy, UnroutablePolicy};

use crate::draw::Seeded;
use crate::guard::StoreGuard;
use crate::inbox::options::ConsumerOptions;

macro_rules! faults {
    ($($fault:ident $name:literal $meaning:literal,)+) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Fault {
            $(#[doc = $meaning] $fault,)+
        }

        impl Fault {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$fault,)+];

            /// For instance `deadlocks`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fault => $name,)+ }
            }

            /// What it is, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$fault => $meaning,)+ }
            }
        }

        const FAULTS: usize = [$($name,)+].len();
    };
}

faults! {
    Deadlocks "deadlocks" "A unit of work is a deadlock's victim: rolled back whole, at once.",
    LockWaits "lock-waits" "A unit of work waits for a lock until its time is over, and is rolled back.",
    StoreFailures "store-failures" "A unit of work finds the database unavailable or read-only.",
    LostCommits "lost-commits" "COMMIT gets no answer, whether or not it was applied.",
    SlowStore "slow-store" "A unit of work takes seconds, there or back.",
    LockedRows "locked-rows" "Another session keeps rows locked for a while.",
    ClockJumps "clock-jumps" "The database's clock jumps, forwards or backwards.",
    Rollbacks "rollbacks" "A producer's transaction rolls back after it inserted its event.",
    Crashes "crashes" "A relay process is killed at any moment.",
    CrashPoints "crash-points" "A relay process is killed between two steps of its work.",
    Pauses "pauses" "A relay process stands still, as under SIGSTOP.",
    Drains "drains" "A relay is told to stop, and another one takes its place.",
    Reconfigurations "reconfigurations" "A running relay gets other settings.",
    Wakeups "wakeups" "Relays are woken up for nothing.",
    Refusals "refusals" "The broker refuses a message that it could take.",
    LostConfirms "lost-confirms" "A confirm never comes, whether or not the message arrived.",
    SlowConfirms "slow-confirms" "A confirm takes nearly as long as the deadline allows.",
    Poison "poison" "Messages that kill the channel they are published on.",
    LostConnections "lost-connections" "The connection of a relay breaks: some of what it had sent was taken.",
    Outages "outages" "A destination is unavailable to everybody for a while.",
    BlockedBroker "blocked-broker" "A destination blocks its publishers: it answers nothing for a while.",
    TopologyChanges "topology-changes" "A destination has no queue bound for a while.",
    OddRows "odd-rows" "Events that can never be delivered, each in its way.",
    Operators "operators" "People requeue, discard and replay events.",
    Purges "purges" "Sent events are deleted while everything goes on.",
    HotAggregate "hot-aggregate" "Most events belong to one aggregate.",
    DeadRelays "dead-relays" "Relays stay dead once the faults have stopped, though never all of them.",
    SlowInbox "slow-inbox" "The consumers' database takes seconds, there or back.",
    LostSessions "lost-sessions" "A consumer's connection to its database breaks at a statement.",
    InboxDeadlocks "inbox-deadlocks" "A consumer's transaction is a deadlock's victim: rolled back whole.",
    InboxLockWaits "inbox-lock-waits" "A consumer's wait for a lock ends soon, and its statement fails.",
    LostInboxCommits "lost-inbox-commits" "A consumer's COMMIT gets no answer: applied, not applied, or applied later.",
    RolledBackCommits "rolled-back-commits" "A consumer's COMMIT is answered by a rollback.",
    ReadOnlyInbox "read-only-inbox" "The consumers' database is read-only for a while.",
    SlowFarewells "slow-farewells" "The server notices late that the client of a transaction is gone.",
    ForeignLocks "foreign-locks" "Another session keeps accounts locked for a while.",
    ConsumerCrashes "consumer-crashes" "A consumer process is killed at any moment.",
    ConsumerStalls "consumer-stalls" "A consumer process stands still, as under SIGSTOP.",
    ConsumerDrains "consumer-drains" "A consumer is told to stop, and another one takes its place.",
    LostChannels "lost-channels" "A consumer's channel is replaced: what it holds comes again.",
    LostAcks "lost-acks" "An acknowledgement is lost together with its channel.",
    Reordering "reordering" "Messages come in any order, and come back anywhere in the queue.",
    Duplicates "duplicates" "Copies of a message arrive that nobody can tell from redeliveries.",
    Conflicts "conflicts" "The same business key arrives with other content.",
    Rewraps "rewraps" "The same fact arrives under another event id.",
    OddMessages "odd-messages" "Messages that can never be applied, each in its way.",
    LateAccounts "late-accounts" "What a message needs is there only later: it is refused until then.",
    LyingFilter "lying-filter" "The filter of repeats answers anything.",
    DeadLetterFailures "dead-letter-failures" "A dead letter is not taken, or its proof is lost.",
}

/// Which faults may happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Faults([bool; FAULTS]);

impl Faults {
    /// None.
    pub const NONE: Self = Self([false; FAULTS]);

    fn draw(draw: &mut Seeded) -> Self {
        if draw.chance(3) {
            return Self::NONE;
        }
        let percent = 8 + draw.below(45);
        let mut faults = Self::NONE;
        for enabled in &mut faults.0 {
            *enabled = draw.chance(percent);
        }
        faults
    }

    /// True when this kind may happen.
    pub const fn may(&self, fault: Fault) -> bool {
        self.0[fault as usize]
    }

    /// The same without this kind.
    #[must_use]
    pub fn without(mut self, fault: Fault) -> Self {
        self.0[fault as usize] = false;
        self
    }

    /// Those that may happen.
    pub fn kinds(&self) -> impl Iterator<Item = Fault> {
        Fault::ALL.iter().copied().filter(|fault| self.may(*fault))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.kinds()).finish()
    }
}

/// How often each kind of fault struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strikes([u64; FAULTS]);

impl Default for Strikes {
    fn default() -> Self {
        Self([0; FAULTS])
    }
}

impl Strikes {
    /// One more.
    pub const fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds those of another seed.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// By kind.
    pub fn by_kind(&self) -> impl Iterator<Item = (Fault, u64)> {
        Fault::ALL.iter().copied().zip(self.0)
    }
}

/// What a seed decides before it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed.
    pub seed: u64,
    /// Relay processes.
    pub relays: usize,
    /// Events that producers insert.
    pub rows: usize,
    /// Destinations, at most two.
    pub destinations: usize,
    /// Aggregates that events belong to.
    pub aggregates: usize,
    /// When the faults stop.
    pub faults_end: Duration,
    /// Faults that may happen.
    pub faults: Faults,
    /// How the relays work.
    pub settings: RelaySettings,
    /// A guard of the store that is missing; none, unless a mutant runs.
    pub missing: Option<StoreGuard>,
    /// What consumers there are, if any.
    pub consumers: Option<ConsumerOptions>,
}

impl Options {
    /// What this seed decides.
    pub fn draw(seed: u64) -> Self {
        let mut draw = Seeded::new(seed);
        let faults = Faults::draw(&mut draw);
        // Mostly small worlds, so that many of them fit into a minute.
        let (rows, aggregates) = match draw.below(200) {
            0 => (60 + draw.index(140), 1 + draw.index(50)),
            1..8 => (12 + draw.index(40), 1 + draw.index(12)),
            _ => (1 + draw.index(12), 1 + draw.index(4)),
        };
        let relays = if draw.chance(8) { 3 + draw.index(3) } else { 1 + draw.index(2) };
        let stage = Stage::draw(seed);
        let (relays, rows) = if stage == Stage::Consumers { (0, 0) } else { (relays, rows) };
        Self {
            seed,
            relays,
            rows,
            destinations: 1 + draw.index(2),
            aggregates,
            faults_end: millis(1_000 + draw.below(8_000)),
            faults,
            settings: settings(&mut draw, rows > 12),
            missing: None,
            consumers: (stage != Stage::Relays).then(|| ConsumerOptions::draw(seed)),
        }
    }
}

/// Which half of the story a seed plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// From the outbox to the broker.
    Relays,
    /// From the queue to the effect.
    Consumers,
    /// From the outbox to the effect.
    Both,
}

impl Stage {
    /// Half of the seeds play the relays' half alone, and each of the others a quarter.
    fn draw(seed: u64) -> Self {
        const OF_STAGES: u64 = 0x7374_6167_6573;
        match Seeded::new(seed ^ OF_STAGES).below(4) {
            0 => Self::Consumers,
            1 => Self::Both,
            _ => Self::Relays,
        }
    }
}

fn settings(draw: &mut Seeded, large: bool) -> RelaySettings {
    let (lease, deadline, margin) = match draw.below(10) {
        0 => (30_000, 15_000, 5_000),
        1..5 => (2_000, 1_000, 300),
        _ => (6_000, 3_000, 1_000),
    };
    let batch_rows = if large { 4 + draw.below_u32(60) } else { 1 + draw.below_u32(5) };
    RelaySettings {
        batch_rows,
        batch_bytes: 600 + draw.index(4_000) * batch_rows as usize,
        window: 1 + draw.index(if large { 16 } else { 4 }),
        window_bytes: 400 + draw.index(3_000) * batch_rows as usize,
        held_rows: draw.index(if large { 200 } else { 12 }),
        held_bytes: 800 + draw.index(6_000) * batch_rows as usize,
        lease: millis(lease),
        publish: PublishLimits { deadline: millis(deadline), margin: millis(margin) },
        sweep_rows: 1 + draw.below_u32(if large { 60 } else { 6 }),
        sweep_delay: Duration::from_secs(1),
        drain: Duration::from_secs(2 + draw.below(4)),
        retry: RetryPolicy {
            base: millis(200),
            cap: Duration::from_secs(2),
            attempts_max: 3 + draw.below_u32(5),
            min_age_before_dead: Duration::from_secs(10),
            jitter: 1.0,
            max_age: None,
            unroutable: if draw.chance(20) { UnroutablePolicy::Dead } else { UnroutablePolicy::Retry },
        },
        order: match draw.below(5) {
            0 => Order::PerAggregate { dead: DeadHead::Block },
            1 => Order::PerAggregate { dead: DeadHead::Skip },
            _ => Order::Competing,
        },
        ..RelaySettings::default()
    }
}

/// So many milliseconds.
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What is left out of a seed to find out what its failure needs. Nothing, unless a failure is being shrunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Kinds of faults that do not happen.
    pub faults: Vec<Fault>,
    /// Single strikes that do not happen, by their number in the order they are drawn.
    pub strikes: Vec<u32>,
    /// Events that are not inserted.
    pub rows: Vec<usize>,
    /// Relays that never start.
    pub relays: Vec<usize>,
}
