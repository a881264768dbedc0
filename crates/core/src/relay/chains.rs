//! Chains: the claimed events of one aggregate go one after the other, the next one only after the previous is SENT.
//!
//! ```text
//! claimed A1 A2 A3 B1 ──► A1, B1 take off; A2, A3 follow
//! A1 settled SENT     ──► A2 takes off
//! A2 goes back        ──► A3 goes back too, for as long
//! ```
//!
//! Only rows of this relay's own claims are in a chain. That no earlier event of the aggregate is unfinished elsewhere
//! is the store's claim to make.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::EventId;
use crate::lease::Claim;
use crate::safeguard::{Safeguard, stands};
use crate::settle::{Settlement, Transition};
use crate::time::{Draw, Monotonic};

use super::Relay;
use super::settings::{DeadHead, Order};

/// How long the followers of a DEAD event wait before they are looked at again.
const BLOCKED_DELAY: Duration = Duration::from_secs(30);
/// How long followers wait whose head was lost to somebody else.
const LOST_DELAY: Duration = Duration::from_secs(1);
const BEHIND: &str = "an earlier event of its aggregate is not SENT yet";
const BEHIND_DEAD: &str = "an earlier event of its aggregate is DEAD";

type AggregateKey = (Option<String>, String);

/// Whose claim is at the head of a chain. An event may have been claimed before, and what became of that claim may be
/// told late: it is no news of this one.
#[derive(Debug)]
struct Head {
    aggregate: AggregateKey,
    token: u128,
}

/// The chains of every aggregate whose events the relay holds.
#[derive(Debug)]
pub(super) struct Chains {
    order: Order,
    followers: BTreeMap<AggregateKey, VecDeque<Claim>>,
    /// The event of each aggregate that is on its way.
    heads: BTreeMap<EventId, Head>,
    rows: usize,
    weight: usize,
}

impl Chains {
    pub(super) fn new(order: Order) -> Self {
        Self { order, followers: BTreeMap::new(), heads: BTreeMap::new(), rows: 0, weight: 0 }
    }

    /// How many rows wait for another one.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Their weight.
    pub(super) fn weight(&self) -> usize {
        self.weight
    }

    /// Takes a claim to where it belongs; gives it back when nothing is before it.
    pub(super) fn enlist(&mut self, claim: Claim) -> Option<Claim> {
        if self.order == Order::Competing || !stands(Safeguard::Chain) {
            return Some(claim);
        }
        let aggregate = &claim.event.aggregate;
        let Some(id) = &aggregate.id else { return Some(claim) };
        let key = (aggregate.kind.clone(), id.clone());
        if let Some(followers) = self.followers.get_mut(&key) {
            self.rows += 1;
            self.weight += claim.weight();
            followers.push_back(claim);
            return None;
        }
        self.lead(&claim, key.clone());
        self.followers.insert(key, VecDeque::new());
        Some(claim)
    }

    fn lead(&mut self, claim: &Claim, aggregate: AggregateKey) {
        let token = claim.lease.token.bits();
        self.heads.insert(claim.event.id.clone(), Head { aggregate, token });
    }

    /// The chain that the claim of `settlement` is the head of; it has none from here on.
    fn leave(&mut self, settlement: &Settlement) -> Option<AggregateKey> {
        let token = settlement.token().bits();
        let head = self.heads.get(settlement.id())?;
        if head.token != token {
            return None;
        }
        self.heads.remove(settlement.id()).map(|head| head.aggregate)
    }

    /// The next event of the aggregate whose event is finished, now on its way.
    fn next(&mut self, finished: &Settlement) -> Option<Claim> {
        let key = self.leave(finished)?;
        let Some(claim) = self.followers.get_mut(&key).and_then(VecDeque::pop_front) else {
            self.followers.remove(&key);
            return None;
        };
        self.rows -= 1;
        self.weight -= claim.weight();
        self.lead(&claim, key);
        Some(claim)
    }

    /// What goes back together with `settlement`: when it does not finish its event, all that follow.
    pub(super) fn ending(&mut self, settlement: &Settlement) -> Vec<Settlement> {
        let (delay, why) = match (settlement.to(), self.order) {
            (Transition::Sent(_), _)
            | (Transition::Dead { .. }, Order::PerAggregate { dead: DeadHead::Skip })
            | (_, Order::Competing) => return Vec::new(),
            (Transition::Dead { .. }, Order::PerAggregate { dead: DeadHead::Block })
                if !stands(Safeguard::ChainStopsAtDead) =>
            {
                return Vec::new();
            }
            (Transition::Dead { .. }, Order::PerAggregate { dead: DeadHead::Block }) => {
                (BLOCKED_DELAY, BEHIND_DEAD)
            }
            _ if !stands(Safeguard::ChainGoesBack) => return Vec::new(),
            (Transition::Retry { delay, .. } | Transition::Release { delay, .. }, _) => (*delay, BEHIND),
        };
        self.cut(settlement, delay, why)
    }

    /// Ends the chain behind the event of `settlement`.
    fn cut(&mut self, settlement: &Settlement, delay: Duration, why: &str) -> Vec<Settlement> {
        let key = self.leave(settlement);
        let followers = key.and_then(|key| self.followers.remove(&key)).unwrap_or_default();
        self.rows -= followers.len();
        self.weight -= followers.iter().map(Claim::weight).sum::<usize>();
        followers.into_iter().map(|claim| claim.release(delay, why)).collect()
    }

    /// Gives back everything that waits; what is on its way stays.
    pub(super) fn release_followers(&mut self) -> Vec<Settlement> {
        (self.rows, self.weight) = (0, 0);
        let all = self.followers.values_mut().flat_map(|followers| followers.drain(..));
        all.map(|claim| claim.release(Duration::ZERO, "")).collect()
    }

    /// Forgets everything, as when its leases are left to end by themselves.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.order);
    }
}

impl<D: Draw> Relay<D> {
    /// An event is finished in the store: the next one of its aggregate takes off.
    pub(super) fn follow(&mut self, now: Monotonic, finished: &Settlement) {
        if let Some(claim) = self.chains.next(finished) {
            self.accept(now, claim);
        }
    }

    /// The row is out of this relay's hands: what follows it must not overtake it.
    pub(super) fn cut_chain(&mut self, now: Monotonic, lost: &Settlement) {
        for settlement in self.chains.cut(lost, LOST_DELAY, BEHIND) {
            self.push_settlement(now, settlement);
        }
    }
}
