//! The state of the chain model: the rows of one aggregate, two relays with their chains, one partition.

/// More events than this have no place in a state.
pub const EVENTS: usize = 3;

/// `status` of a row.
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

/// One row.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and all of them are states")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Row {
    /// `status`.
    pub status: Status,
    /// `available_at` has come.
    pub due: bool,
    /// `locked_until` has not.
    pub live: bool,
    /// `lease_token`: 0 for NULL.
    pub claim: u8,
    /// `attempts`.
    pub attempts: u8,
    /// The broker has a copy.
    pub copied: bool,
    /// Bytes on their way whose sender waits no more.
    pub late: u8,
    /// It was DEAD or DISCARDED once.
    pub given_up: bool,
}

/// A claimed row in a relay's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Held {
    /// The event.
    pub event: usize,
    /// The claim; 0 once the row has lost it.
    pub claim: u8,
    /// The relay's own clock says that too little of the lease is left.
    pub over: bool,
}

/// An event on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flight {
    /// The row.
    pub held: Held,
    /// The message was handed to the client; before that it waits.
    pub started: bool,
}

/// Where a settlement takes its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum To {
    /// SENT.
    Sent,
    /// NEW, the attempt counts.
    Retry,
    /// NEW, the attempt is given back.
    Release,
    /// DEAD.
    Dead,
}

/// A settlement that waits for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Settlement {
    /// The row.
    pub held: Held,
    /// Where to.
    pub to: To,
    /// One try may have been applied.
    pub repeat: bool,
}

/// One relay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Relay {
    /// It knows the token under which it owns the partition.
    pub knows: bool,
    /// What its claim, now open, has chosen.
    pub plan: Vec<usize>,
    /// `Chains::followers` has the aggregate.
    pub chained: bool,
    /// `Chains::heads`, by event.
    pub heads: [bool; EVENTS],
    /// Those that wait for another one, in order.
    pub followers: Vec<Held>,
    /// Those on their way.
    pub flights: Vec<Flight>,
    /// Those to settle, in order.
    pub settlements: Vec<Settlement>,
}

/// The partition's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    /// `relay`.
    pub owner: Option<usize>,
    /// `lease_until` has not come.
    pub live: bool,
}

/// What may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Faults {
    /// A relay dies.
    pub crashes: u8,
    /// The lease of a claim ends.
    pub expiries: u8,
    /// A publish ends as Unknown.
    pub doubts: u8,
    /// A COMMIT has no answer.
    pub unanswered: u8,
    /// The lease of the partition ends, or it is given away.
    pub handovers: u8,
    /// Somebody requeues or discards an event.
    pub operations: u8,
}

/// A property that a step broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// A publish began before an earlier event was finished.
    Overtaken,
    /// A first copy came after one of a later event.
    Disorder,
    /// A settle changed a row that another claim had.
    ForeignSettle,
    /// A row that was not NEW was claimed.
    Edge,
    /// A publish began without a lease.
    OutsideLease,
    /// A claim of a relay without the partition.
    NotOwner,
    /// A live partition was taken away.
    Stolen,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The rows, in the order of the aggregate.
    pub rows: [Row; EVENTS],
    /// The relays.
    pub relays: [Relay; 2],
    /// The partition.
    pub partition: Partition,
    /// Faults still to come.
    pub left: Faults,
    /// What the last step broke.
    pub broken: Option<Broken>,
}

impl State {
    /// Nothing is claimed, nobody has the partition.
    pub fn new(faults: Faults) -> Self {
        let row = Row {
            status: Status::New,
            due: true,
            live: false,
            claim: 0,
            attempts: 0,
            copied: false,
            late: 0,
            given_up: false,
        };
        Self {
            rows: [row; EVENTS],
            relays: [Relay::default(), Relay::default()],
            partition: Partition::default(),
            left: faults,
            broken: None,
        }
    }

    /// Every claimed row in a relay's hands.
    pub fn holds(&mut self) -> impl Iterator<Item = &mut Held> {
        self.relays.iter_mut().flat_map(|relay| {
            let flights = relay.flights.iter_mut().map(|flight| &mut flight.held);
            let settlements = relay.settlements.iter_mut().map(|settlement| &mut settlement.held);
            relay.followers.iter_mut().chain(flights).chain(settlements)
        })
    }

    /// Calls claims by the first row that has them, and forgets those no row has.
    pub fn rename(&mut self) {
        let mut names = [0; EVENTS];
        let old = self.rows.map(|row| row.claim);
        for event in 0..EVENTS {
            let first = (0..=event).find(|&other| old[other] == old[event]).unwrap_or(event);
            names[event] = if old[event] == 0 { 0 } else { u8::try_from(first + 1).unwrap_or(0) };
        }
        for held in self.holds() {
            held.claim = if held.claim == old[held.event] { names[held.event] } else { 0 };
            // Without its claim a row's lease is over by every clock.
            held.over |= held.claim == 0;
        }
        for (row, name) in self.rows.iter_mut().zip(names) {
            row.claim = name;
        }
    }

    /// The smaller of this state and the one with the relays' names exchanged.
    pub fn representative(self) -> Self {
        let mut other = self.clone();
        other.relays.swap(0, 1);
        other.partition.owner = other.partition.owner.map(|owner| 1 - owner);
        self.min(other)
    }
}
