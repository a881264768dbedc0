//! Leases: who may publish and settle a row, and until when.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::{Event, EventId};
use crate::outcome::Proof;
use crate::route::Route;
use crate::safeguard::{Safeguard, stands};
use crate::settle::{Settlement, Transition};
use crate::time::Monotonic;

/// The fencing token of one claim: 128 random bits. It proves that a settle belongs to the claim.
///
/// Neither `Clone` nor `Default`; only a [`ClaimRequest`] makes one.
///
/// ```compile_fail,E0423
/// # use consign_core::lease::LeaseToken;
/// let forged = LeaseToken([0; 16]);
/// ```
#[derive(PartialEq, Eq)]
pub struct LeaseToken([u8; 16]);

impl LeaseToken {
    /// The bits, for a store in memory.
    pub const fn bits(&self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// The token as stored: 32 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        let halves = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        halves.map(|half| DIGITS[usize::from(half)]).collect()
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.to_hex())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) token: Arc<LeaseToken>,
    pub(crate) ends: Monotonic,
}

/// One claim about to be made: how many rows, how many bytes, for how long, under which token.
///
/// Made by the relay engine; the store writes the token and turns rows into [`Claim`]s with it.
#[derive(Debug)]
pub struct ClaimRequest {
    /// At most this many rows.
    pub limit: u32,
    /// At most this many payload bytes, but always at least one row.
    pub bytes_max: usize,
    /// The lease's length; the store adds it to the database's clock.
    pub length: Duration,
    token: Arc<LeaseToken>,
    asked_at: Monotonic,
}

impl ClaimRequest {
    /// A request made at `asked_at`, before it is sent: the lease is counted from here, so a slow answer
    /// shortens it and never lengthens it.
    pub fn new(
        limit: u32,
        bytes_max: usize,
        length: Duration,
        random: [u8; 16],
        asked_at: Monotonic,
    ) -> Self {
        Self { limit, bytes_max, length, token: Arc::new(LeaseToken(random)), asked_at }
    }

    /// The token the store binds in its UPDATE.
    pub fn token(&self) -> &LeaseToken {
        &self.token
    }

    /// The claim on `event`, whose row now counts `attempt` attempts and was created `age` ago.
    pub fn claim(&self, event: Event, attempt: u32, age: Duration) -> Claim {
        Claim { event: Arc::new(event), attempt, age, suspect: false, lease: self.lease() }
    }

    /// A row that was claimed but cannot become an event: it is settled DEAD with the reason.
    pub fn malformed(&self, id: EventId, reason: impl Into<String>) -> Settlement {
        Settlement::new(id, self.lease(), Transition::Dead { reason: reason.into() })
    }

    fn lease(&self) -> Lease {
        Lease { token: Arc::clone(&self.token), ends: self.asked_at.plus(self.length) }
    }
}

/// A claimed row: the right to start publishing it, once.
///
/// ```
/// # use consign_core::{lease::Claim, settle::Settlement};
/// fn give_back(claim: Claim) -> Settlement {
///     claim.release(std::time::Duration::ZERO, "")
/// }
/// ```
///
/// A claim cannot be used twice, nor cloned to that end:
///
/// ```compile_fail,E0382
/// # use consign_core::{lease::Claim, settle::Settlement};
/// fn give_back_twice(claim: Claim) -> [Settlement; 2] {
///     [claim.release(std::time::Duration::ZERO, ""), claim.release(std::time::Duration::ZERO, "")]
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use consign_core::{lease::Claim, settle::Settlement};
/// fn give_back_twice(claim: &Claim) -> Settlement {
///     let copy: Claim = claim.clone();
///     copy.release(std::time::Duration::ZERO, "")
/// }
/// ```
///
/// Nor made without a [`ClaimRequest`], whose token a store has written:
///
/// ```compile_fail,E0451
/// # use consign_core::{event::Event, lease::{Claim, LeaseToken}};
/// # use std::{sync::Arc, time::Duration};
/// fn forge(event: Arc<Event>) -> Claim {
///     Claim { event, attempt: 1, age: Duration::ZERO, suspect: false, ..unreachable!() }
/// }
/// ```
#[must_use = "a dropped claim stays SENDING until its lease ends"]
#[derive(Debug)]
pub struct Claim {
    pub(crate) event: Arc<Event>,
    pub(crate) attempt: u32,
    pub(crate) age: Duration,
    pub(crate) suspect: bool,
    pub(crate) lease: Lease,
}

impl Claim {
    /// Marks the row as one whose lease was swept twice: the relay publishes it with nothing else in its hands,
    /// so that a row which kills relays takes only itself to DEAD.
    pub fn suspected(mut self) -> Self {
        self.suspect = true;
        self
    }

    /// The event's weight against byte limits.
    pub fn weight(&self) -> usize {
        self.event.weight()
    }

    /// The only door to publishing: splits the claim into what goes to the broker and the right to settle.
    ///
    /// # Errors
    /// Less of the lease is left than `margin` plus the time a publish needs at least: the row must not be
    /// published any more; the settlement releases it under its token.
    pub fn start(
        self,
        now: Monotonic,
        limits: PublishLimits,
        route: Route,
    ) -> Result<(Publish, Pending), Settlement> {
        let Self { event, attempt, age, lease, .. } = self;
        Pending { event, attempt, age, lease, started: now }.publish(now, limits, route)
    }

    /// Gives the row back untouched, without counting the attempt.
    pub fn release(self, delay: Duration, why: impl Into<String>) -> Settlement {
        let why = why.into();
        Settlement::new(self.event.id.clone(), self.lease, Transition::Release { delay, why })
    }

    /// Ends the row: it can never be published.
    pub fn dead(self, reason: impl Into<String>) -> Settlement {
        Settlement::new(self.event.id.clone(), self.lease, Transition::Dead { reason: reason.into() })
    }

    /// The claimed event.
    pub fn event(&self) -> &Event {
        &self.event
    }
}

/// How long a publish may take, and how much of the lease must remain after it.
#[derive(Clone, Copy, Debug)]
pub struct PublishLimits {
    /// The longest wait for an outcome.
    pub deadline: Duration,
    /// What must be left of the lease when the wait ends, for settling.
    pub margin: Duration,
}

/// The right to settle a row whose publish is under way. Stays in the engine; holds the lease token.
///
/// ```
/// # use consign_core::{lease::{Pending, PublishLimits}, route::Route, time::Monotonic};
/// fn publish(pending: Pending, now: Monotonic, limits: PublishLimits, route: Route) {
///     let again = pending.publish(now, limits, route);
/// }
/// ```
///
/// It is used up by whatever is done with it, so one publish cannot be settled twice:
///
/// ```compile_fail,E0382
/// # use consign_core::{lease::{Pending, PublishLimits}, route::Route, time::Monotonic};
/// fn publish_twice(pending: Pending, now: Monotonic, limits: PublishLimits, route: Route) {
///     let once = pending.publish(now, limits, route.clone());
///     let twice = pending.publish(now, limits, route);
/// }
/// ```
///
/// Without a proof only the engine settles, by its rules:
///
/// ```compile_fail,E0624
/// # use consign_core::{lease::Pending, settle::{Settlement, Transition}};
/// fn bury(pending: Pending) -> Settlement {
///     pending.settle(Transition::Dead { reason: String::new() })
/// }
/// ```
#[must_use = "a dropped pending publish stays SENDING until its lease ends"]
#[derive(Debug)]
pub struct Pending {
    pub(crate) event: Arc<Event>,
    pub(crate) attempt: u32,
    pub(crate) age: Duration,
    pub(crate) lease: Lease,
    pub(crate) started: Monotonic,
}

impl Pending {
    /// Publishes again under the same lease, as when a channel died and its messages are tried one by one.
    ///
    /// # Errors
    /// Too little of the lease is left; the settlement releases the row.
    pub fn publish(
        mut self,
        now: Monotonic,
        limits: PublishLimits,
        route: Route,
    ) -> Result<(Publish, Self), Settlement> {
        // A publish that could not wait even this long would end as Unknown almost surely.
        const LEAST_WAIT: Duration = Duration::from_millis(500);
        let latest = self.lease.ends.minus(limits.margin);
        if now.plus(LEAST_WAIT.min(limits.deadline)) > latest && stands(Safeguard::LeaseBudget) {
            return Err(self.release(Duration::ZERO, "too little of the lease was left to publish"));
        }
        let patience = now.plus(limits.deadline);
        let deadline = if stands(Safeguard::DeadlineInLease) { patience.min(latest) } else { patience };
        self.started = now;
        Ok((Publish { event: Arc::clone(&self.event), route, deadline }, self))
    }

    /// The outcome became a transition, or the row goes back unpublished.
    pub(crate) fn settle(self, to: Transition) -> Settlement {
        Settlement::new(self.event.id.clone(), self.lease, to)
    }

    /// Settles the row SENT on its proof; what a relay without an engine needs.
    pub fn confirmed(self, proof: Proof) -> Settlement {
        self.settle(Transition::Sent(proof))
    }

    fn release(self, delay: Duration, why: &str) -> Settlement {
        self.settle(Transition::Release { delay, why: why.into() })
    }
}

/// What a destination is asked to publish. It holds no token: the broker side can never settle.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The event; every copy carries its id and payload unchanged.
    pub event: Arc<Event>,
    /// Where to.
    pub route: Route,
    /// When the destination must have resolved, on the process's monotonic clock.
    pub deadline: Monotonic,
}

/// Names one attempt in flight. One relay may hold two attempts of one event (lease lost, claimed again), so a
/// late outcome of the first must not settle the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublishId(pub u64);
