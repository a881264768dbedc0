//! The state of the check-back model.

/// How far the producer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Producer {
    /// The broker has the half message.
    Ready,
    /// The local transaction is open.
    Open,
    /// Its marker is inserted.
    Marked,
    /// Its business change is made.
    Changed,
    /// Its COMMIT is on the way.
    Committing,
    /// It is committed.
    Committed,
    /// It is rolled back.
    RolledBack,
    /// Its COMMIT has no answer.
    Unsure,
    /// The producer has nothing more to do.
    Over,
    /// The producer died.
    Gone,
}

impl Producer {
    /// Whether it holds an uncommitted marker.
    pub fn has_mark(self) -> bool {
        matches!(self, Self::Marked | Self::Changed | Self::Committing)
    }
}

/// The half message at the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// Nobody sees it yet.
    Undecided,
    /// Consumers get it.
    Visible,
    /// It is dropped.
    RolledBack,
    /// The broker asks no more, and drops it.
    GivenUp,
}

/// A row in `consign_transaction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// The transaction is committed.
    Committed,
    /// It is not, and can no more be.
    RolledBack,
}

/// What the broker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Make it visible.
    Commit,
    /// Drop it.
    Rollback,
    /// Ask again.
    Unknown,
}

/// A member of the producer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// It was not asked.
    Idle,
    /// It was asked, and has this database or another one.
    Asked {
        /// The producer's database is its own.
        home: bool,
    },
    /// It found no marker and inserts one.
    Fencing,
    /// Its answer is on the way.
    Replying(Answer),
}

/// What may still go wrong, and how often the broker asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// The producer dies.
    pub crashes: u8,
    /// A COMMIT has no answer.
    pub unanswered: u8,
    /// The broker asks.
    pub asks: u8,
    /// A final commit or an answer is lost.
    pub losses: u8,
}

/// A property that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Broken {
    /// A transaction was fenced that had not had its time.
    Impatient,
}

/// Everything.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all of them are states")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The producer.
    pub producer: Producer,
    /// The half message.
    pub half: Half,
    /// The final commit or rollback on its way.
    pub end: Option<Answer>,
    /// The committed marker.
    pub marker: Option<Marker>,
    /// The committed business change.
    pub changed: bool,
    /// The transaction has had its time.
    pub old: bool,
    /// The members.
    pub members: [Member; 2],
    /// A copy was published with a confirm.
    pub repaired: bool,
    /// The event is marked SENT.
    pub sent: bool,
    /// What is still to come.
    pub left: Faults,
    /// What the last step broke.
    pub broken: Option<Broken>,
}

impl State {
    /// Whether consumers get the message.
    pub fn is_visible(&self) -> bool {
        self.half == Half::Visible || self.repaired
    }
}
