//! M1, the lease: two relays compete for the rows of one outbox, leases end under them, relays die, answers get lost.
//!
//! | here | in the product |
//! |---|---|
//! | `Claim` | `claim_select.sql` and `claim_mark.sql` in one transaction (`store/src/mysql/claim.rs`); a fresh token from `ClaimRequest::new` |
//! | `ClaimStatus` | `status = 'NEW'` in both files, and the compared row count |
//! | `ClaimAnswered`, `LeaseFromBeforeTheClaim` | `ClaimRequest::lease`: the end is counted from `asked_at`, before the claim was sent |
//! | `ClaimUnanswered`, `UnansweredClaimIsNotOwned` | `Relay::claim_failed`: nothing is owned |
//! | `Start`, `LeaseCheck` | `Claim::start` and `Pending::publish` (`core/src/lease.rs`) |
//! | `Withdraw` | `Relay::withdraw`, `Claim::release`: too little lease, a closed circuit, a drain |
//! | `Write`, `Accept`, `Confirm` | the AMQP client; `Outcome::Confirmed` in `Relay::landed` |
//! | `Refuse`, `ReleaseRefunds` | `Outcome::Refused`; `attempts - 1` in `settle_release.sql` |
//! | `Return`, `ReturnBeforeAck` | `Outcome::Unroutable`; `amqp/src/confirms.rs` pairs a return with the ack behind it |
//! | `Reject` | `Outcome::Rejected` |
//! | `Doubt`, `UnknownIsNotSent` | `Outcome::Unknown`, judged by `Relay::unknown`: the attempt counts or does not |
//! | `JudgeCap` | `RetryPolicy::exhausted` in `Relay::count_attempt` |
//! | `ChannelClosed` | `Relay::quarantine`, then `Pending::publish` under the same lease |
//! | `OneLayerRetries` | the client sends nothing again by itself |
//! | `Settle`, `SettleToken` | `settle_{sent,retry,release,dead}.sql`: `status = 'SENDING' AND lease_token = ?` |
//! | `TokenPerClaim` | 128 random bits for every claim, not a name |
//! | `SettleUnanswered` | `Relay::settle_failed` with `CommitUnknown`: the batch goes out again with `repeat` |
//! | `Crash` | the process dies |
//! | `Expire` | `locked_until <= NOW(6)` |
//! | `Sweep`, `SweepStatus`, `SweepLeaseEnd` | `sweep_select.sql`, `sweep_return.sql` |
//! | `SweepCap` | `attempts >= attempts_max` before `sweep_dead.sql` (`store/src/mysql/sweep.rs`) |
//! | `Requeue`, `Discard`, `Replay` | `dead_event_requeue.sql`, `event_discard.sql`, `event_replay.sql`, each with its status |
//!
//! What is left out, and why nothing is lost by it: `available_at` (here a NEW row is always due, which only allows more);
//! batches (every row of a batch is guarded by its own columns); the minimum age before DEAD, the brake and the suspect
//! rule (they only make DEAD rarer). That `status = 'SENDING'` is not needed beside the token is a finding of this model: a row that is not
//! SENDING has no token. So only the two together have a mutation.
//!
//! # Merged steps
//!
//! Three events with every step by itself are too many states. In merged steps a relay's attempt is either held or on its way, and
//! an outcome and its settle are one step. Nothing is lost by it: an answer on the way to a relay is a row it holds and does
//! nothing with; a message not written yet is one on its way that takes long; an outcome that waits for its settle is an
//! outcome that comes late, since nobody but its relay sees it before; a copy the broker has before its confirm arrives only
//! counts later, and the properties ask for more copies at SENT, never for fewer. A settle whose answer is lost is
//! a settle: the relay would have its hands full for longer, which allows less. A test compares both for one event: whatever
//! rows, copies and late bytes come about in single steps while no relay holds anything, come about in merged ones with no
//! more faults. Rows of different events meet in nothing but their relays.
//!
//! # Clocks
//!
//! Clocks are not modelled. A lease may end at any moment after its claim. The one assumption is that a relay's own
//! clock calls a lease over no later than the database does, which is what counting from before the claim, and the
//! margin, are for.

pub mod code;
mod property;
pub mod state;
mod step;
#[cfg(test)]
mod tests;

use stateright::{Model, Property};

pub use step::Action;

use state::{Event, Faults, State};

/// A guard that a mutation takes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// A claim takes NEW rows only.
    ClaimStatus,
    /// A claim whose COMMIT got no answer is not owned.
    UnansweredClaimIsNotOwned,
    /// The lease is counted from before the claim was sent.
    LeaseFromBeforeTheClaim,
    /// Nothing is published without enough of the lease.
    LeaseCheck,
    /// A settle needs the row's token.
    SettleToken,
    /// A settle needs the row's token and SENDING.
    SettleTokenAndStatus,
    /// Every claim has a token of its own.
    TokenPerClaim,
    /// A publish without an answer is not SENT.
    UnknownIsNotSent,
    /// An ack behind a return is no proof.
    ReturnBeforeAck,
    /// Only the relay publishes again.
    OneLayerRetries,
    /// A release gives the attempt back.
    ReleaseRefunds,
    /// The judge gives up at the cap.
    JudgeCap,
    /// A sweep takes SENDING rows only.
    SweepStatus,
    /// A sweep takes ended leases only.
    SweepLeaseEnd,
    /// A sweep gives up at the cap.
    SweepCap,
    /// Only DEAD events are requeued.
    RequeueStatus,
    /// Only NEW and DEAD events are discarded.
    DiscardStatus,
    /// Only SENT events are replayed.
    ReplayStatus,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::ClaimStatus,
        Self::UnansweredClaimIsNotOwned,
        Self::LeaseFromBeforeTheClaim,
        Self::LeaseCheck,
        Self::SettleToken,
        Self::SettleTokenAndStatus,
        Self::TokenPerClaim,
        Self::UnknownIsNotSent,
        Self::ReturnBeforeAck,
        Self::OneLayerRetries,
        Self::ReleaseRefunds,
        Self::JudgeCap,
        Self::SweepStatus,
        Self::SweepLeaseEnd,
        Self::SweepCap,
        Self::RequeueStatus,
        Self::DiscardStatus,
        Self::ReplayStatus,
    ];
}

/// How much one step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Each step of the protocol by itself.
    Fine,
    /// What a relay does without anybody seeing it is one step with what follows.
    Merged,
}

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Events, up to three.
    pub events: usize,
    /// Rows one relay has in its hands at a time.
    pub hold: usize,
    /// Attempts at one event that a relay may have at a time, one or two: its lease was lost, and it claimed again.
    pub hands: usize,
    /// How much one step does.
    pub steps: Steps,
    /// `attempts_max`.
    pub attempts_max: u8,
    /// How many of each fault.
    pub faults: Faults,
    /// Count copies and publishes per event, rather than whether there is a copy.
    pub counts: bool,
    /// Take states for one that differ by the names of relays or events only.
    pub symmetry: bool,
}

/// The model, whole or with a guard taken away.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// How far it goes.
    pub bounds: Bounds,
    /// The guard that is missing.
    pub removed: Option<Guard>,
}

impl Lease {
    fn lacks(&self, guard: Guard) -> bool {
        self.removed == Some(guard)
    }
}

impl Model for Lease {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let events = [Event::default(); state::EVENTS_MAX];
        vec![State { events, left: self.bounds.faults, excess: 0, broken: None }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.offer(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(self.act(state, action))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all(self)
    }
}
