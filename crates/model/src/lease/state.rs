//! The state of the lease model: rows, the attempts relays make at them, and what may still go wrong.

/// More events than this have no place in a state.
pub const EVENTS_MAX: usize = 3;
/// Attempts at one event that may be under way at the same time: two relays, each with up to two.
pub const PLACES: usize = 4;
/// Relays.
pub const RELAYS: usize = 2;

/// `status` of a row, as in the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Waiting.
    #[default]
    New,
    /// Claimed.
    Sending,
    /// Proved to be at the broker.
    Sent,
    /// Given up.
    Dead,
    /// Put aside by a person.
    Discarded,
}

/// Where a settlement takes its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum To {
    /// `Transition::Sent`.
    Sent,
    /// `Transition::Retry`: the attempt counts.
    Retry,
    /// `Transition::Release`: the attempt is given back.
    Release,
    /// `Transition::Dead`, because the attempts are used up.
    Exhausted,
    /// `Transition::Dead`, because the broker refused this very message.
    Rejected,
}

/// How far a relay is with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The claim is committed, its answer is on the way.
    Asked,
    /// A `Claim`, or a `Pending` that is to be published again on the quarantine lane.
    Held,
    /// Handed to the client; nothing is written yet.
    Started,
    /// The bytes are on their way.
    Written,
    /// The broker has a copy; its confirm is on the way.
    Accepted,
    /// A settlement that the store has not answered; `repeat` when one try may have been applied.
    Settling {
        /// Where to.
        to: To,
        /// `SettleBatch::repeat`.
        repeat: bool,
    },
}

/// One relay's work on one row, under one claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// How far it is.
    pub phase: Phase,
    /// Which claim: equal to the row's while that one is the newest.
    pub claim: u8,
    /// The relay's own clock says that too little of the lease is left.
    pub over: bool,
}

/// A row, the copies of its event, and the attempts at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// `status`.
    pub status: Status,
    /// `locked_until` is in the future.
    pub live: bool,
    /// `lease_token`: 0 for NULL.
    pub claim: u8,
    /// Whose name is the token, when names are tokens (a mutation); 0 otherwise.
    pub owner: u8,
    /// `attempts`.
    pub attempts: u8,
    /// What `attempts` must be: claims, less those given back.
    pub charged: u8,
    /// Copies the broker has taken; no more than 1 where copies are not counted.
    pub copies: u8,
    /// Publishes begun and not turned down by the broker; 0 where they are not counted.
    pub publishes: u8,
    /// Bytes on their way whose sender waits no more.
    pub late: u8,
    /// The attempts, by relay.
    pub places: [Option<Attempt>; PLACES],
}

/// How many faults are left, or were had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A relay dies.
    pub crashes: u8,
    /// A lease ends before its row is settled.
    pub expiries: u8,
    /// A publish ends as Unknown.
    pub doubts: u8,
    /// A COMMIT without an answer.
    pub unanswered: u8,
    /// Somebody requeues, discards or replays an event.
    pub operations: u8,
}

impl Faults {
    /// All of them.
    pub const fn sum(self) -> u8 {
        self.crashes + self.expiries + self.doubts + self.unanswered + self.operations
    }
}

/// A property that a step broke. States carry it, so that the checker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// A settle changed a row that another claim had.
    ForeignSettle,
    /// A status changed in a way the state machine has not.
    Edge,
    /// A publish began without a lease.
    OutsideLease,
    /// DEAD by exhaustion with attempts left.
    EarlyDeath,
}

/// Everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The events.
    pub events: [Event; EVENTS_MAX],
    /// Faults still to come.
    pub left: Faults,
    /// Copies beyond the first of each event.
    pub excess: u8,
    /// What the last step broke.
    pub broken: Option<Broken>,
}
