//! Which rare situations walks have met: a run that never meets one proves nothing about it.

use std::fmt;

/// A situation worth meeting.
#[derive(Clone, Copy, Debug)]
pub enum Met {
    AllSent,
    SettleFenced,
    SettleRepeatedAndFoundApplied,
    SettleNarrowed,
    SettleFailed,
    ClaimUnknownButApplied,
    CrashWithPublishesInFlight,
    CrashWithSettleOpen,
    PauseBeyondALease,
    ReleasedForItsMargin,
    CopyAfterTheLeaseWasLost,
    PublishedTwice,
    Swept,
    SweptToDead,
    ClaimedAlone,
    Quarantined,
    PoisonJudged,
    CircuitOpened,
    UnavailableDestination,
    GivenUpByExhaustion,
    UnroutableByPolicy,
    NoRoute,
    Malformed,
    DrainedWithFlights,
    DrainAbandoned,
    LateOutcome,
    FollowedItsAggregate,
    WentBackWithItsAggregate,
    BehindADeadEvent,
    WentOnWithoutADeadEvent,
}

const ALL: [Met; 30] = [
    Met::AllSent,
    Met::SettleFenced,
    Met::SettleRepeatedAndFoundApplied,
    Met::SettleNarrowed,
    Met::SettleFailed,
    Met::ClaimUnknownButApplied,
    Met::CrashWithPublishesInFlight,
    Met::CrashWithSettleOpen,
    Met::PauseBeyondALease,
    Met::ReleasedForItsMargin,
    Met::CopyAfterTheLeaseWasLost,
    Met::PublishedTwice,
    Met::Swept,
    Met::SweptToDead,
    Met::ClaimedAlone,
    Met::Quarantined,
    Met::PoisonJudged,
    Met::CircuitOpened,
    Met::UnavailableDestination,
    Met::GivenUpByExhaustion,
    Met::UnroutableByPolicy,
    Met::NoRoute,
    Met::Malformed,
    Met::DrainedWithFlights,
    Met::DrainAbandoned,
    Met::LateOutcome,
    Met::FollowedItsAggregate,
    Met::WentBackWithItsAggregate,
    Met::BehindADeadEvent,
    Met::WentOnWithoutADeadEvent,
];

/// How often each situation was met.
#[derive(Clone, Default)]
pub struct Witness([u64; ALL.len()]);

impl fmt::Debug for Witness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(ALL.iter().zip(self.0)).finish()
    }
}

impl Witness {
    pub fn meet(&mut self, met: Met) {
        self.0[met as usize] += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    pub fn never_met(&self) -> Vec<String> {
        let unmet = ALL.iter().zip(self.0).filter(|(_, count)| *count == 0);
        unmet.map(|(met, _)| format!("{met:?}")).collect()
    }
}
