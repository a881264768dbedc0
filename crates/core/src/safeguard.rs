//! The guards that everything rests on, by name, so that a test can take one away and see that somebody notices.
//!
//! In every build but that of a test with the feature `mutants` each of them stands, and asking costs nothing.

macro_rules! safeguards {
    ($($safeguard:ident $name:literal $meaning:literal,)+) => {
        /// A guard of an engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Safeguard {
            $(#[doc = $meaning] $safeguard,)+
        }

        impl Safeguard {
            /// Every guard.
            pub const ALL: &[Self] = &[$(Self::$safeguard,)+];

            /// For instance `lease-budget`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$safeguard => $name,)+ }
            }

            /// What it keeps from happening, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$safeguard => $meaning,)+ }
            }
        }
    };
}

safeguards! {
    LeaseBudget "lease-budget" "Nothing is published when too little of its lease is left.",
    DeadlineInLease "deadline-in-lease" "A publish is waited for only as long as its lease allows.",
    FreshToken "fresh-token" "Every claim has a token of its own.",
    UnknownIsNotSent "unknown-is-not-sent" "Only a proof makes a row SENT; silence does not.",
    RefusalRefunds "refusal-refunds" "A refusal gives the attempt back.",
    OutageIsNoFault "outage-is-no-fault" "Silence counts against a row only when its destination answered others, or it was alone.",
    ChannelDeathBlamesNobody "channel-death-blames-nobody" "The messages of a dead channel are tried one by one before any of them is blamed.",
    MinimumAge "minimum-age" "A young row is never given up, however many attempts it had.",
    RetryPause "retry-pause" "A row is not tried again at once.",
    OneClaim "one-claim-at-a-time" "One claim at a time.",
    RoomBeforeClaim "room-before-claim" "Nothing is claimed that there is no room for.",
    NoClaimWhileUnsettled "no-claim-while-unsettled" "Nothing is claimed while settles fail.",
    NoClaimInDrain "no-claim-in-drain" "A relay that is told to stop claims nothing.",
    Window "window" "A destination has only so many publishes in flight.",
    WindowBytes "window-bytes" "A destination has only so many bytes in flight.",
    Unavailable "unavailable" "Nothing is published to a destination that is known to be away.",
    OneProbe "one-probe" "An open circuit lets one message through.",
    QuarantineOneByOne "quarantine-one-by-one" "Suspects of a dead channel are published one at a time.",
    SuspectAlone "suspect-alone" "A row that was swept twice is published with nothing beside it.",
    OneSettle "one-settle-at-a-time" "One settle at a time.",
    SettleAgain "settle-again" "A settle that failed goes out again.",
    RepeatIsKnown "repeat-is-known" "A settle whose COMMIT got no answer says that it is a repeat.",
    Chain "chain" "The events of an aggregate are published one after the other.",
    ChainGoesBack "chain-goes-back" "What follows an event that goes back goes back with it.",
    ChainStopsAtLoss "chain-stops-at-loss" "What follows an event that was lost to another relay goes back.",
    ChainStopsAtDead "chain-stops-at-dead" "What follows a dead event waits for people.",
    DrainReleases "drain-releases" "A relay that is told to stop gives back what it has not published.",
    SweepCap "sweep-cap" "A sweep gives up a row only after its last attempt.",
    CommitBeforeAck "commit-before-ack" "A delivery is acknowledged after its COMMIT was answered.",
    UnknownIsNotCommitted "unknown-is-not-committed" "A COMMIT without an answer does not count as done.",
    RollbackIsNotCommitted "rollback-is-not-committed" "A COMMIT that was rolled back does not count as done.",
    MarkerInTransaction "marker-in-transaction" "The marker is written in the transaction of its effect.",
    TakenRollsBack "taken-rolls-back" "A unit of which a key is taken is rolled back whole.",
    RefusalRollsBack "refusal-rolls-back" "A unit of which a delivery is refused is rolled back whole.",
    CopiesInTurn "copies-in-turn" "Copies of one operation in a batch follow each other.",
    ConflictIsRecorded "conflict-is-recorded" "The same key with other content is recorded as a conflict.",
    ConflictRecordCommitted "conflict-record-committed" "A conflict counts as recorded once that is committed.",
    NewerVersion "newer-version" "A version that is not newer changes nothing.",
    NextVersion "next-version" "A version that comes too early waits.",
    ProgressIsSaved "progress-is-saved" "How far an aggregate came is written with the effect.",
    HintIsChecked "hint-is-checked" "What the filter takes for a repeat is looked up before it counts as one.",
    FilterHearsCommits "filter-hears-commits" "The filter is told only of what is committed.",
    AckByDelivery "ack-by-delivery" "What was refused in a batch is not acknowledged with the rest of it.",
    ParkCommitted "park-committed" "A delivery counts as parked once that is committed.",
    DeadRecordCommitted "dead-record-committed" "A delivery counts as dead once its record is committed.",
    DeadLetterProof "dead-letter-proof" "A dead letter counts as taken only with a proof.",
    LastAttempt "last-attempt" "A delivery that is refused too often is put aside.",
    GapEnds "gap-ends" "The wait for a missing step has an end.",
}

/// True unless a test has taken the guard away.
#[cfg(not(feature = "mutants"))]
#[inline]
pub(crate) const fn stands(_: Safeguard) -> bool {
    true
}

#[cfg(feature = "mutants")]
pub use removal::remove;
#[cfg(feature = "mutants")]
pub(crate) use removal::stands;

#[cfg(feature = "mutants")]
mod removal {
    use std::cell::Cell;

    use super::Safeguard;

    thread_local! {
        static REMOVED: Cell<Option<Safeguard>> = const { Cell::new(None) };
    }

    /// Takes a guard away from the engines of this thread; `None` puts all of them back.
    pub fn remove(safeguard: Option<Safeguard>) {
        REMOVED.set(safeguard);
    }

    pub(crate) fn stands(safeguard: Safeguard) -> bool {
        REMOVED.get() != Some(safeguard)
    }
}
