//! M3, the ordered chain: two relays, one aggregate, its events in their order, one partition.
//!
//! | here | in the product |
//! |---|---|
//! | `Look` | `ordered_page.sql` and `ordered_chain.sql`, then `plan` (`store/src/order/plan.rs`) |
//! | `HeldAggregate` | `held` in both files: a SENDING row of the aggregate holds it up |
//! | `DeadBlocks` | `dead` in both files, under `on_dead = "block"` |
//! | `HeadFirst` | `head` is the earliest NEW row, due or not; `Waiting::is_ready` ends the chain at a row that is not due |
//! | `Lock`, `LockedRowsAreNew` | `ordered_lock.sql` with `status = 'NEW'`, then `claim_mark.sql`, in the transaction of `Look` |
//! | `UnbrokenChain` | `plan::unbroken`: a chain ends before its first row that was not had |
//! | `ClaimUnanswered` | `Relay::claim_failed` |
//! | the chain of a relay | `Chains` (`core/src/relay/chains.rs`): `enlist`, `next`, `ending`, `cut`, its `heads` and followers |
//! | `Start`, `LeaseCheck` | `Claim::start` |
//! | `FollowAfterSettle` | `Relay::settled`, then `follow` |
//! | `FailureCuts`, `DeathCuts` | `Chains::ending`: Retry, Release, and Dead under `block` give the followers back |
//! | `Settle`, `SettleToken` | `settle_*.sql`, in the order of `Relay::settlements`, one by one; after `Settled::Fenced`, `Relay::cut_chain` |
//! | `Sweep` | `sweep_return.sql`, `sweep_dead.sql`, row by row |
//! | `Take`, `Give`, `PartitionLease` | `partition_lock.sql`, `partition_take.sql`, `partition_give.sql`; `Holder` (`store/src/order/share.rs`) |
//! | `PartitionFence` | `partition_held.sql`, and the compared tokens in `Fence::held` |
//! | `PartitionLock` | `LOCK IN SHARE MODE` in `partition_held.sql`: no partition changes hands during a claim |
//!
//! A settle is one row in one transaction here, a batch in the product: one by one only allows more to happen in between.
//! How many rows of a chain one claim takes is left open. Not in the model: several aggregates, which share nothing but relays;
//! the suspect rule; `available_at` beyond "due or not yet"; replays, which repeat what consumers have had.
//!
//! One thing this model says about the product: events are *handed over* in order always, but an event that was given up
//! (DEAD and skipped, or discarded) may still have bytes under way, and they may arrive after later events. That is the situation
//! "an event that was given up may arrive late". And one about partitions: while they are shared, no other relay can come between
//! look and lock, so that the locks matter only where nobody shares (`partitions = 0`, SQLite). The model is run both ways.

mod state;
mod step;

use stateright::{Model, Property};

pub use state::{Faults, State};
pub use step::Action;

use state::{Broken, EVENTS, Status};

/// A guard that a mutation takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// A SENDING row holds its aggregate up.
    HeldAggregate,
    /// Under `block` a DEAD row holds up what is behind it.
    DeadBlocks,
    /// The earliest NEW row comes first, due or not.
    HeadFirst,
    /// What is locked must still be NEW.
    LockedRowsAreNew,
    /// A chain ends before its first row that was not had.
    UnbrokenChain,
    /// The next event takes off when the settle of the one before was applied.
    FollowAfterSettle,
    /// Followers go back with a head that goes back.
    FailureCuts,
    /// Under `block` followers go back when their head is DEAD.
    DeathCuts,
    /// Nothing is published without enough of the lease.
    LeaseCheck,
    /// A settle needs the row's token.
    SettleToken,
    /// A claim looks only into partitions its relay holds.
    PartitionFence,
    /// No partition changes hands during a claim.
    PartitionLock,
    /// A partition is taken only when its lease is over.
    PartitionLease,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::HeldAggregate,
        Self::DeadBlocks,
        Self::HeadFirst,
        Self::LockedRowsAreNew,
        Self::UnbrokenChain,
        Self::FollowAfterSettle,
        Self::FailureCuts,
        Self::DeathCuts,
        Self::LeaseCheck,
        Self::SettleToken,
        Self::PartitionFence,
        Self::PartitionLock,
        Self::PartitionLease,
    ];
}

/// What a DEAD row means for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDead {
    /// They wait.
    Block,
    /// They go on.
    Skip,
}

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events of the aggregate, up to three.
    pub events: usize,
    /// The policy.
    pub on_dead: OnDead,
    /// Relays share the aggregates by a partition; else each claims everything.
    pub partition: bool,
    /// `attempts_max`.
    pub attempts_max: u8,
    /// How many of each fault.
    pub faults: Faults,
    /// Take states for one that differ by the names of relays only.
    pub symmetry: bool,
}

/// The model, whole or with a guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// How far it goes.
    pub bounds: Bounds,
    /// The guard that is missing.
    pub removed: Option<Guard>,
}

impl Chain {
    fn lacks(&self, guard: Guard) -> bool {
        self.removed == Some(guard)
    }
}

impl Model for Chain {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds.faults)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.offer(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(self.act(state, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(
                "an event is handed over only when all before it are finished",
                |_, state: &State| state.broken != Some(Broken::Overtaken),
            ),
            Property::always("first copies come in order, but for events given up", |_, state: &State| {
                state.broken != Some(Broken::Disorder)
            }),
            Property::always("SENT implies a copy at the broker", |_, state: &State| {
                state.rows.iter().all(|row| row.status != Status::Sent || row.copied)
            }),
            Property::always("a settle changes only the row of its own claim", |_, state: &State| {
                state.broken != Some(Broken::ForeignSettle)
            }),
            Property::always("a claim takes NEW rows only", |_, state: &State| {
                state.broken != Some(Broken::Edge)
            }),
            Property::always("a publish begins only inside its lease", |_, state: &State| {
                state.broken != Some(Broken::OutsideLease)
            }),
        ];
        if self.bounds.partition {
            properties.extend([
                Property::always("only the owner of the partition's epoch claims", |_, state: &State| {
                    state.broken != Some(Broken::NotOwner)
                }),
                Property::always("a partition is taken only when its lease is over", |_, state: &State| {
                    state.broken != Some(Broken::Stolen)
                }),
            ]);
        }
        properties.extend(self.situations());
        properties
    }
}

impl Chain {
    fn situations(&self) -> Vec<Property<Self>> {
        let mut situations = vec![
            Property::sometimes("all events are SENT", |model: &Self, state: &State| {
                state.rows[..model.bounds.events].iter().all(|row| row.status == Status::Sent)
            }),
            Property::sometimes("a relay holds the whole chain", |model: &Self, state: &State| {
                state.relays.iter().any(|relay| 1 + relay.followers.len() == model.bounds.events)
            }),
            Property::sometimes("a relay holds an event under two claims", |_, state: &State| {
                state.relays.iter().any(|relay| {
                    relay.flights.iter().any(|flight| {
                        relay.followers.iter().any(|follower| follower.event == flight.held.event)
                    })
                })
            }),
            Property::sometimes("an event is DEAD and others wait or went on", |_, state: &State| {
                (0..EVENTS - 1).any(|event| {
                    let behind = &state.rows[event + 1];
                    state.rows[event].status == Status::Dead
                        && (behind.attempts > 0 || behind.status == Status::New)
                })
            }),
            Property::sometimes("a settle is about to be fenced", |_, state: &State| {
                state.relays.iter().any(|relay| {
                    relay
                        .settlements
                        .first()
                        .is_some_and(|settlement| settlement.held.claim == 0 && !settlement.repeat)
                })
            }),
            Property::sometimes("bytes may still arrive after SENT", |_, state: &State| {
                state.rows.iter().any(|row| row.status == Status::Sent && row.late > 0)
            }),
        ];
        if self.bounds.faults.unanswered > 0 {
            situations.push(Property::sometimes(
                "a settle without an answer had been applied",
                |_, state: &State| {
                    state.relays.iter().any(|relay| {
                        relay.settlements.first().is_some_and(|settlement| {
                            settlement.repeat && state.rows[settlement.held.event].status == Status::Sent
                        })
                    })
                },
            ));
        }
        if self.bounds.partition {
            situations.push(Property::sometimes(
                "the partition changed hands while its rows were under way",
                |_, state: &State| {
                    (0..2).any(|relay| {
                        state.partition.owner == Some(1 - relay)
                            && state.relays[relay].flights.iter().any(|flight| flight.held.claim != 0)
                    })
                },
            ));
        } else {
            situations.push(Property::sometimes(
                "two claims have chosen the same row",
                |_, state: &State| {
                    let [left, right] = &state.relays;
                    left.plan.iter().any(|event| right.plan.contains(event))
                },
            ));
        }
        if self.bounds.faults.operations > 0 || self.bounds.on_dead == OnDead::Skip {
            situations.push(Property::sometimes(
                "an event that was given up may arrive late",
                |_, state: &State| {
                    (0..EVENTS).any(|event| {
                        let row = &state.rows[event];
                        let overtaken = state.rows[event + 1..].iter().any(|later| later.copied);
                        row.given_up && row.late > 0 && !row.copied && overtaken
                    })
                },
            ));
        }
        situations
    }
}
