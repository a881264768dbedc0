//! M2, the inbox: two processes of one consumer take deliveries from one queue; keys come in two contents each.
//!
//! | here | in the product |
//! |---|---|
//! | `Take` | the broker delivers; `Delivery` with its receipt (`core/src/delivery.rs`) |
//! | `Begin` | `InboxStore::begin` in `unit::apply` (`core/src/inbox/unit.rs`) |
//! | `Look`, `FilterIsAHint` | `Batch::look` before the first transaction (`core/src/inbox/batch.rs`): the filter only decides whether to look, the marker decides |
//! | `Mark`, `UniqueKey` | `marker_insert.sql`: a plain INSERT, the primary key waits for its holder and then refuses |
//! | `MarkerInTransaction`, `ChangeInTransaction` | `steps` in `unit.rs`: marker and handler in one transaction |
//! | `TakenRollsBack` | `Halt::Taken`, then `roll_back` |
//! | `Change` | `Handler::apply_each` |
//! | `Refuse` | `HandlerError::Refused`: everything is rolled back |
//! | `RollBack` | a deadlock, a lost connection, `CommitError::RolledBack`: `Halt::Whole(Contended)`, run again |
//! | `Commit` | `InboxTransaction::commit` |
//! | `CommitUnanswered`, `UnansweredCommitIsNotAcked` | `CommitError::Unknown` becomes `Failed`, which has no `ack` |
//! | `Compare`, `SameKeyIsCompared` | `markers`, then `Operation::same_as` |
//! | `LookReadsCommitted` | `marker_select.sql` at READ COMMITTED or with `LOCK IN SHARE MODE` |
//! | `RecordConflict`, `ConflictIsRecorded` | `conflict_record.sql`, committed before `Processed::Conflict` |
//! | `RecordDead`, `DeadIsRecorded` | `Failed::record_dead`: acknowledged after the record is committed |
//! | `HandBack` | `Failed::retry` |
//! | `Acknowledge`, `AckAfterCommit` | `Committed::ack`: only core makes an `AckPermit`, after a commit |
//! | `LoseChannel`, `ReceiptOfItsChannel` | the receipt owns its channel's incarnation: `ReceiptLost` on any other |
//! | `Crash`, `CrashInCommit` | the process dies; an open transaction is rolled back, one in COMMIT is or is not |
//! | `Copy` | the relay publishes again; a new event id around the same operation is the same here |
//!
//! What is left out: consumers of other names (their markers have other keys, they share nothing); batches (each delivery
//! comes to what it would have come to alone, which property tests of the engine check); guards, parked deliveries, and
//! the purge of markers.

mod state;
mod step;

use stateright::{Model, Property};

pub use state::{Faults, State};
pub use step::Action;

use state::{Broken, Key, Phase, Processed, Worker};

/// A guard that a mutation takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// The marker is written in the transaction of the change.
    MarkerInTransaction,
    /// The change is made in the transaction of the marker.
    ChangeInTransaction,
    /// A key has one marker; a second writer waits for the first.
    UniqueKey,
    /// A taken key rolls back before anything is changed.
    TakenRollsBack,
    /// The same key is compared by content.
    SameKeyIsCompared,
    /// Only committed markers are believed.
    LookReadsCommitted,
    /// A conflict is recorded before it is acknowledged.
    ConflictIsRecorded,
    /// A dead delivery is recorded before it is acknowledged.
    DeadIsRecorded,
    /// Acknowledged after the commit.
    AckAfterCommit,
    /// A COMMIT without an answer is not acknowledged.
    UnansweredCommitIsNotAcked,
    /// A filter's hit does not decide.
    FilterIsAHint,
    /// A receipt acknowledges on its own channel only.
    ReceiptOfItsChannel,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::MarkerInTransaction,
        Self::ChangeInTransaction,
        Self::UniqueKey,
        Self::TakenRollsBack,
        Self::SameKeyIsCompared,
        Self::LookReadsCommitted,
        Self::ConflictIsRecorded,
        Self::DeadIsRecorded,
        Self::AckAfterCommit,
        Self::UnansweredCommitIsNotAcked,
        Self::FilterIsAHint,
        Self::ReceiptOfItsChannel,
    ];
}

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Keys, one or two, with two contents each.
    pub keys: usize,
    /// How many of each fault.
    pub faults: Faults,
    /// Take states for one that differ by the names of processes, keys and contents only.
    pub symmetry: bool,
}

/// The model, whole or with a guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct Inbox {
    /// How far it goes.
    pub bounds: Bounds,
    /// The guard that is missing.
    pub removed: Option<Guard>,
}

impl Inbox {
    fn lacks(&self, guard: Guard) -> bool {
        self.removed == Some(guard)
    }
}

impl Model for Inbox {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut queue = [[0; 2]; 2];
        queue[..self.bounds.keys].fill([1; 2]);
        vec![State {
            queue,
            workers: [Worker::default(); 2],
            keys: [Key::default(); 2],
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
            Property::always("a marker is there exactly when its effect is", |_, state: &State| {
                state.keys.iter().all(Key::is_whole)
            }),
            Property::always("at most one effect per key", |_, state: &State| {
                state.keys.iter().all(|key| key.effects[0] + key.effects[1] <= 1)
            }),
            Property::always("nothing is acknowledged before its result is committed", |_, state: &State| {
                state.broken != Some(Broken::EarlyAck)
            }),
            Property::always("no conflict is silent", |_, state: &State| {
                state.broken != Some(Broken::SilentConflict)
            }),
            Property::always(
                "every delivery waits, is in hand, or is decided",
                |model: &Inbox, state: &State| state.is_conserved(model.bounds.keys),
            ),
        ];
        properties.extend(situations());
        properties
    }
}

fn situations() -> Vec<Property<Inbox>> {
    vec![
        Property::sometimes("every delivery is decided and acknowledged", |_, state: &State| {
            state.queue == [[0; 2]; 2] && state.workers.iter().all(|worker| worker.phase == Phase::Idle)
        }),
        Property::sometimes("a delivery is a duplicate", |_, state: &State| {
            state.workers.iter().any(|worker| worker.phase == Phase::Done(Processed::Duplicate))
        }),
        Property::sometimes("a conflict is recorded", |_, state: &State| {
            state.workers.iter().any(|worker| worker.phase == Phase::Done(Processed::Conflict))
        }),
        Property::sometimes("a delivery is recorded as dead", |_, state: &State| {
            state.keys.iter().any(|key| key.dead.contains(&true))
        }),
        Property::sometimes("a COMMIT without an answer had been applied", |_, state: &State| {
            state.workers.iter().any(|worker| {
                worker.phase == Phase::Failed && state.keys[worker.key].marker == Some(worker.content)
            })
        }),
        Property::sometimes("a process waits for another one's marker", |_, state: &State| {
            let waits = |one: &Worker, other: &Worker| {
                one.phase == Phase::Begun && other.has_mark() && one.key == other.key
            };
            let [left, right] = &state.workers;
            waits(left, right) || waits(right, left)
        }),
        Property::sometimes("a delivery comes again after its effect", |_, state: &State| {
            (0..2).any(|key| {
                (0..2).any(|content| state.queue[key][content] > 0 && state.keys[key].marker == Some(content))
            })
        }),
        Property::sometimes("both processes work on the same delivery", |_, state: &State| {
            let [left, right] = &state.workers;
            let busy = |worker: &Worker| worker.has_mark() || worker.phase == Phase::Begun;
            busy(left) && busy(right) && left.same(right) && left.connected != right.connected
        }),
        Property::sometimes("a result is committed and its channel is gone", |_, state: &State| {
            state
                .workers
                .iter()
                .any(|worker| worker.phase == Phase::Done(Processed::Applied) && !worker.connected)
        }),
    ]
}
