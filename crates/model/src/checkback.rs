//! M4, the check-back of transaction messages: a producer with a local transaction, a broker with a half message, two members of
//! the producer group who are asked what became of it.
//!
//! No adapter for such a broker is in this repository yet. The model is of the protocol as it is designed, and comes before the
//! code:
//!
//! | here | in the design |
//! |---|---|
//! | `Begin`, `Mark`, `Change`, `SendCommit` | the half message first, then one local transaction with the business change and a row in `consign_transaction` |
//! | `MarkerInTransaction`, `ChangeInTransaction` | that it is one transaction |
//! | `Commit`, `CommitUnanswered`, `UnsureSendsNothing` | a COMMIT without an answer: the producer says nothing to the broker |
//! | `SendEnd`, `End`, `LoseEnd` | the final commit or rollback is sent and forgotten |
//! | `EndIsNoProof` | so it proves nothing: no event is SENT on it |
//! | `Ask` | the broker asks any member of the group, and may ask several |
//! | `Read`, `AnswersNeedMarkers`, `ReadsCommitted` | the answer comes from the committed row |
//! | `ForeignIsUnknown` | a member without this database knows nothing of the row: it answers "unknown" |
//! | `Patience`, `Age` | an absent row is "unknown" while the transaction may still run |
//! | `Fence`, `RollbackIsFenced` | after that ROLLBACK is answered by inserting a rollback marker under the same key |
//! | `OneKey` | the key is unique: a transaction that finds the rollback marker cannot commit, and the other way round |
//! | `TakenIsReadAgain` | a member whose insert finds the key taken reads what is there |
//! | `Reply`, `LoseReply`, `GiveUp` | answers may come late or never; at last the broker gives up |
//! | `Repair` | what the broker gave up on is found by its marker and published with a confirm |
//!
//! That a member waits until a transaction is old keeps nothing safe: the fence does. It spares healthy transactions, and has a
//! property of its own, since its mutation would break no other.

mod state;
mod step;

use stateright::{Model, Property};

pub use state::{Faults, State};
pub use step::Action;

use state::{Answer, Broken, Half, Marker, Member, Producer};

/// A guard that a mutation takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// The marker is written in the transaction of the change.
    MarkerInTransaction,
    /// The change is made in the transaction of the marker.
    ChangeInTransaction,
    /// A transaction has one marker.
    OneKey,
    /// No marker, no COMMIT.
    AnswersNeedMarkers,
    /// ROLLBACK is answered behind a rollback marker.
    RollbackIsFenced,
    /// A key that is taken is read again.
    TakenIsReadAgain,
    /// Only committed markers are believed.
    ReadsCommitted,
    /// A member without this database knows nothing.
    ForeignIsUnknown,
    /// A young transaction is left alone.
    Patience,
    /// A producer that is unsure says nothing.
    UnsureSendsNothing,
    /// No event is SENT on the final commit.
    EndIsNoProof,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::MarkerInTransaction,
        Self::ChangeInTransaction,
        Self::OneKey,
        Self::AnswersNeedMarkers,
        Self::RollbackIsFenced,
        Self::TakenIsReadAgain,
        Self::ReadsCommitted,
        Self::ForeignIsUnknown,
        Self::Patience,
        Self::UnsureSendsNothing,
        Self::EndIsNoProof,
    ];
}

/// How far the model goes: one transaction, two members asked at a time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many of each fault, and how often the broker asks.
    pub faults: Faults,
}

/// The model, whole or with a guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct CheckBack {
    /// How far it goes.
    pub bounds: Bounds,
    /// The guard that is missing.
    pub removed: Option<Guard>,
}

impl CheckBack {
    fn lacks(self, guard: Guard) -> bool {
        self.removed == Some(guard)
    }
}

impl Model for CheckBack {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            producer: Producer::Ready,
            half: Half::Undecided,
            end: None,
            marker: None,
            changed: false,
            old: false,
            members: [Member::Idle; 2],
            repaired: false,
            sent: false,
            left: self.bounds.faults,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.offer(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(self.act(state, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always("COMMIT is answered only behind a committed marker", |_, state: &State| {
                let commits = state.members.contains(&Member::Replying(Answer::Commit));
                !commits || state.marker == Some(Marker::Committed)
            }),
            Property::always("what was rolled back never commits", |_, state: &State| {
                let rolled_back = state.half == Half::RolledBack
                    || state.members.contains(&Member::Replying(Answer::Rollback));
                !(rolled_back && state.changed)
            }),
            Property::always("a visible message has its business change", |_, state: &State| {
                !state.is_visible() || state.changed
            }),
            Property::always("a commit marker is there exactly when the change is", |_, state: &State| {
                (state.marker == Some(Marker::Committed)) == state.changed
            }),
            Property::always("a young transaction is not fenced", |_, state: &State| {
                state.broken != Some(Broken::Impatient)
            }),
            Property::always("SENT implies a visible message", |_, state: &State| {
                !state.sent || state.is_visible()
            }),
        ];
        properties.extend(situations());
        properties
    }
}

fn situations() -> Vec<Property<CheckBack>> {
    vec![
        Property::sometimes(
            "the final commit makes the message visible",
            |model: &CheckBack, state: &State| {
                state.half == Half::Visible && state.left.asks == model.bounds.faults.asks
            },
        ),
        Property::sometimes(
            "a check-back makes the message of a dead producer visible",
            |_, state: &State| {
                state.half == Half::Visible && state.producer == Producer::Gone && state.end.is_none()
            },
        ),
        Property::sometimes(
            "a rollback marker is there while the transaction is open",
            |_, state: &State| {
                state.marker == Some(Marker::RolledBack)
                    && matches!(state.producer, Producer::Ready | Producer::Open)
            },
        ),
        Property::sometimes("a member waits for the marker of an open transaction", |_, state: &State| {
            state.members.contains(&Member::Fencing) && state.producer.has_mark()
        }),
        Property::sometimes("an unknown answer is given", |_, state: &State| {
            state.members.contains(&Member::Replying(Answer::Unknown))
        }),
        Property::sometimes("two members answer at once", |_, state: &State| {
            state.members.iter().all(|member| matches!(member, Member::Replying(Answer::Commit)))
        }),
        Property::sometimes("the broker gives up on a committed transaction", |_, state: &State| {
            state.half == Half::GivenUp && state.changed
        }),
        Property::sometimes("a given-up message is repaired", |_, state: &State| {
            state.half == Half::GivenUp && state.repaired
        }),
        Property::sometimes("a message is visible twice", |_, state: &State| {
            state.half == Half::Visible && state.repaired
        }),
        Property::sometimes("a COMMIT without an answer had been applied", |_, state: &State| {
            state.producer == Producer::Unsure && state.changed
        }),
    ]
}
