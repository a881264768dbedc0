//! The state of the inbox model: a queue, two processes, what the database has committed.

/// What a delivery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Processed {
    /// The change is committed.
    Applied,
    /// It had been committed before.
    Duplicate,
    /// Another content has the key; that is recorded.
    Conflict,
    /// It cannot be processed; that is recorded.
    Dead,
}

/// How far a process is with its delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// It has none.
    #[default]
    Idle,
    /// It has one.
    Got,
    /// Its transaction is open.
    Begun,
    /// Its marker is inserted.
    Marked,
    /// Its change is made.
    Changed,
    /// Its COMMIT is on the way.
    Committing,
    /// Its key is taken; its transaction is rolled back.
    Taken,
    /// Another content has the key.
    Conflicting,
    /// The handler refused it.
    Refused,
    /// Nothing of it is known to be committed: it will be handed back.
    Failed,
    /// Its result is committed, and it is to be acknowledged.
    Done(Processed),
}

/// One process of the consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Worker {
    /// How far it is.
    pub phase: Phase,
    /// The delivery's key.
    pub key: usize,
    /// The delivery's content.
    pub content: usize,
    /// The channel it came on is still there.
    pub connected: bool,
}

impl Worker {
    /// Whether it holds an uncommitted marker.
    pub fn has_mark(&self) -> bool {
        matches!(self.phase, Phase::Marked | Phase::Changed | Phase::Committing)
    }

    /// Whether both are about the same operation.
    pub fn same(&self, other: &Self) -> bool {
        (self.key, self.content) == (other.key, other.content)
    }
}

/// What is committed about a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The content of its marker.
    pub marker: Option<usize>,
    /// Effects by content.
    pub effects: [u8; 2],
    /// Conflicts recorded, by content.
    pub conflicts: [bool; 2],
    /// Dead deliveries recorded, by content.
    pub dead: [bool; 2],
}

impl Key {
    /// Whether marker and effects agree.
    pub fn is_whole(&self) -> bool {
        (0..2).all(|content| (self.marker == Some(content)) == (self.effects[content] > 0))
    }

    /// Whether what became of a content is committed.
    pub fn decided(&self, content: usize) -> bool {
        self.marker == Some(content) || self.dead[content] || self.marker.is_some() && self.conflicts[content]
    }
}

/// What may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A process dies.
    pub crashes: u8,
    /// A COMMIT has no answer.
    pub unanswered: u8,
    /// The relay publishes once more.
    pub copies: u8,
    /// A channel is lost.
    pub channels: u8,
    /// The handler refuses.
    pub refusals: u8,
}

/// A property that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// Acknowledged with nothing committed.
    EarlyAck,
    /// Acknowledged though another content has the key, and no record says so.
    SilentConflict,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// Deliveries that wait, by key and content.
    pub queue: [[u8; 2]; 2],
    /// The processes.
    pub workers: [Worker; 2],
    /// The database.
    pub keys: [Key; 2],
    /// Faults still to come.
    pub left: Faults,
    /// What the last step broke.
    pub broken: Option<Broken>,
}

impl State {
    /// Whether every delivery waits, is in hand on a live channel, or is decided.
    pub fn is_conserved(&self, keys: usize) -> bool {
        let in_hand = |key, content| {
            self.workers.iter().any(|worker| {
                worker.phase != Phase::Idle
                    && worker.connected
                    && (worker.key, worker.content) == (key, content)
            })
        };
        (0..keys).all(|key| {
            (0..2).all(|content| {
                self.queue[key][content] > 0 || in_hand(key, content) || self.keys[key].decided(content)
            })
        })
    }

    /// The smallest of the states that differ from this one by names only.
    pub fn representative(&self) -> Self {
        let mut smallest = *self;
        for names in 1..16_u8 {
            let mut other = *self;
            if names & 1 != 0 {
                other.flip(0);
            }
            if names & 2 != 0 {
                other.flip(1);
            }
            if names & 4 != 0 {
                other.keys.swap(0, 1);
                other.queue.swap(0, 1);
                other.workers.iter_mut().filter(|worker| worker.phase != Phase::Idle).for_each(|worker| {
                    worker.key = 1 - worker.key;
                });
            }
            if names & 8 != 0 {
                other.workers.swap(0, 1);
            }
            smallest = smallest.min(other);
        }
        smallest
    }

    /// Gives the contents of a key each other's name.
    fn flip(&mut self, key: usize) {
        self.queue[key].swap(0, 1);
        let committed = &mut self.keys[key];
        committed.marker = committed.marker.map(|content| 1 - content);
        committed.effects.swap(0, 1);
        committed.conflicts.swap(0, 1);
        committed.dead.swap(0, 1);
        for worker in &mut self.workers {
            if worker.phase != Phase::Idle && worker.key == key {
                worker.content = 1 - worker.content;
            }
        }
    }
}
