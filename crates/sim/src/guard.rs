//! The guards that live in SQL, as the simulated store keeps them: each can be taken away to see that it is needed.

macro_rules! store_guards {
    ($($guard:ident $name:literal $meaning:literal,)+) => {
        /// A guard of the store.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StoreGuard {
            $(#[doc = $meaning] $guard,)+
        }

        impl StoreGuard {
            /// Every guard.
            pub const ALL: &[Self] = &[$(Self::$guard,)+];

            /// For instance `settle-token`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$guard => $name,)+ }
            }

            /// What it keeps from happening, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$guard => $meaning,)+ }
            }
        }
    };
}

store_guards! {
    SettleToken "settle-token" "A settle changes a row only under the row's own token.",
    SweepLease "sweep-lease" "A sweep takes only rows whose lease has ended.",
    SweepFlags "sweep-flags" "A row that was swept twice is claimed alone.",
    ClaimStatus "claim-status" "A claim takes only rows that are NEW.",
    ClaimOrder "claim-order" "A claim takes the events of an aggregate in their order.",
    OrderHeld "order-held" "A claim takes nothing of an aggregate of which a row is SENDING.",
    OrderDead "order-dead" "A claim takes nothing behind a dead event, where the policy is to block.",
    RequeueStatus "requeue-status" "Only a dead event is requeued.",
    ReplayStatus "replay-status" "Only a sent event is replayed.",
    DiscardStatus "discard-status" "Only an event that waits or is dead is put aside.",
    PurgeStatus "purge-status" "Only sent events are purged.",
    MarkerUnique "marker-unique" "A key has one marker.",
    FirstStepUnique "first-step-unique" "Only one transaction writes the first progress of an aggregate.",
    ProgressLock "progress-lock" "The progress of an aggregate is locked when it is read.",
    UnparkLease "unpark-lease" "A parked delivery is removed only under its own lease.",
    ParkEndsLease "park-ends-lease" "Parking a delivery again ends the lease on it.",
}
