//! Which bounds are exhausted, and which guards are taken away.

use serde_json::json;

use crate::chain::{self, Chain, OnDead};
use crate::check::{every_compact_state, every_state, mutant, shortest_trace};
use crate::checkback::{self, CheckBack};
use crate::inbox::{self, Inbox};
use crate::lease::{self, Lease, Steps};
use crate::report::{ModelReport, MutantReport};

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What every change is checked with, in about a minute.
    Ci,
    /// What is run by hand.
    Full,
}

/// Every model within the bounds of an extent; `done` is told each as it ends.
pub fn models(extent: Extent, mut done: impl FnMut(&ModelReport)) -> Vec<ModelReport> {
    let full = extent == Extent::Full;
    let mut reports = Vec::new();
    let mut add = |report: ModelReport| {
        done(&report);
        reports.push(report);
    };
    add(lease_events(if full { 3 } else { 1 }));
    add(lease_steps("lease-steps", LEASE_ONE));
    add(lease_steps("lease-hands", LEASE_HANDS));
    add(lease_steps("lease-pair", if full { LEASE_PAIR_FULL } else { LEASE_PAIR }));
    add(inbox(if full { INBOX_FULL } else { INBOX }));
    let chain_faults = if full { CHAIN_FULL } else { CHAIN };
    let unshared_faults = if full { CHAIN } else { CHAIN_UNSHARED };
    add(chain("chain-block", chain_bounds(OnDead::Block, true, chain_faults)));
    add(chain("chain-skip", chain_bounds(OnDead::Skip, true, chain_faults)));
    add(chain("chain-unshared-block", chain_bounds(OnDead::Block, false, unshared_faults)));
    add(chain("chain-unshared-skip", chain_bounds(OnDead::Skip, false, unshared_faults)));
    add(check_back(CHECK_BACK));
    reports
}

/// Every guard taken away, one at a time.
pub fn mutants(mut done: impl FnMut(&MutantReport)) -> Vec<MutantReport> {
    let mut reports = Vec::new();
    let mut add = |report: MutantReport| {
        done(&report);
        reports.push(report);
    };
    for guard in lease::Guard::ALL {
        // Only a relay with two attempts at one event can take its own name for the token of a claim.
        let two = guard == lease::Guard::TokenPerClaim;
        let bounds = if two { LEASE_HANDS } else { LEASE_ONE };
        let bounds = lease::Bounds { symmetry: false, ..bounds };
        add(mutant("lease", format!("{guard:?}"), &Lease { bounds, removed: Some(guard) }));
    }
    for guard in inbox::Guard::ALL {
        let bounds = inbox::Bounds { keys: 1, faults: INBOX, symmetry: false };
        add(mutant("inbox", format!("{guard:?}"), &Inbox { bounds, removed: Some(guard) }));
    }
    for guard in chain::Guard::ALL {
        // Nobody comes between look and lock while a partition is shared.
        let alone = matches!(guard, chain::Guard::LockedRowsAreNew | chain::Guard::UnbrokenChain);
        let bounds = chain_bounds(OnDead::Block, !alone, CHAIN);
        let bounds = chain::Bounds { symmetry: false, ..bounds };
        add(mutant("chain", format!("{guard:?}"), &Chain { bounds, removed: Some(guard) }));
    }
    for guard in checkback::Guard::ALL {
        let bounds = checkback::Bounds { faults: CHECK_BACK };
        add(mutant("check-back", format!("{guard:?}"), &CheckBack { bounds, removed: Some(guard) }));
    }
    reports
}

const LEASE_FAULTS: lease::state::Faults =
    lease::state::Faults { crashes: 2, expiries: 2, doubts: 2, unanswered: 2, operations: 1 };

/// Every step of the protocol, one event.
const LEASE_ONE: lease::Bounds = lease::Bounds {
    events: 1,
    hold: 1,
    hands: 1,
    steps: Steps::Fine,
    attempts_max: 2,
    faults: LEASE_FAULTS,
    counts: true,
    symmetry: true,
};

/// One event, of which a relay may have two attempts in its hands.
const LEASE_HANDS: lease::Bounds = lease::Bounds {
    hold: 2,
    hands: 2,
    faults: lease::state::Faults { crashes: 1, expiries: 2, doubts: 1, unanswered: 1, operations: 0 },
    ..LEASE_ONE
};

/// Every step of the protocol, two events.
const LEASE_PAIR: lease::Bounds = lease::Bounds {
    events: 2,
    faults: lease::state::Faults { crashes: 1, expiries: 1, doubts: 1, unanswered: 1, operations: 0 },
    ..LEASE_ONE
};

const LEASE_PAIR_FULL: lease::Bounds =
    lease::Bounds { events: 2, faults: LEASE_FAULTS, counts: false, ..LEASE_ONE };

/// Three events in merged steps; a relay has up to `hold` of them in its hands.
fn lease_events(hold: usize) -> ModelReport {
    let bounds = lease::Bounds { events: 3, hold, steps: Steps::Merged, counts: false, ..LEASE_ONE };
    let model = Lease { bounds, removed: None };
    let report = every_compact_state("lease", lease_json(&bounds), &model);
    with_trace(report, &Lease { bounds: lease::Bounds { symmetry: false, ..bounds }, removed: None })
}

fn lease_steps(id: &'static str, bounds: lease::Bounds) -> ModelReport {
    let report = every_state(id, lease_json(&bounds), &Lease { bounds, removed: None });
    with_trace(report, &Lease { bounds: lease::Bounds { symmetry: false, ..bounds }, removed: None })
}

fn lease_json(bounds: &lease::Bounds) -> serde_json::Value {
    let lease::state::Faults { crashes, expiries, doubts, unanswered, operations } = bounds.faults;
    json!({
        "relays": lease::state::RELAYS,
        "events": bounds.events,
        "rows_per_relay": bounds.hold,
        "attempts_per_relay_and_event": bounds.hands,
        "steps": if bounds.steps == Steps::Fine { "fine" } else { "merged" },
        "attempts_max": bounds.attempts_max,
        "crashes": crashes,
        "lease_expiries": expiries,
        "unknown_outcomes": doubts,
        "lost_commit_replies": unanswered,
        "operator_actions": operations,
    })
}

const INBOX: inbox::Faults = inbox::Faults { crashes: 2, unanswered: 1, copies: 1, channels: 1, refusals: 1 };

const INBOX_FULL: inbox::Faults =
    inbox::Faults { crashes: 2, unanswered: 2, copies: 1, channels: 1, refusals: 1 };

fn inbox(faults: inbox::Faults) -> ModelReport {
    let bounds = inbox::Bounds { keys: 2, faults, symmetry: true };
    let told = json!({
        "consumers": 2,
        "keys": bounds.keys,
        "payloads_per_key": 2,
        "crashes": faults.crashes,
        "lost_commit_replies": faults.unanswered,
        "further_copies": faults.copies,
        "lost_channels": faults.channels,
        "refusals": faults.refusals,
    });
    let report = every_state("inbox", told, &Inbox { bounds, removed: None });
    with_trace(report, &Inbox { bounds: inbox::Bounds { symmetry: false, ..bounds }, removed: None })
}

const CHAIN: chain::Faults =
    chain::Faults { crashes: 1, expiries: 1, doubts: 1, unanswered: 1, handovers: 1, operations: 0 };

/// Where nobody shares, two claims can cross; they need little more for it.
const CHAIN_UNSHARED: chain::Faults =
    chain::Faults { crashes: 0, expiries: 1, doubts: 1, unanswered: 0, handovers: 0, operations: 0 };

const CHAIN_FULL: chain::Faults =
    chain::Faults { crashes: 1, expiries: 1, doubts: 1, unanswered: 1, handovers: 1, operations: 1 };

fn chain_bounds(on_dead: OnDead, partition: bool, faults: chain::Faults) -> chain::Bounds {
    chain::Bounds { events: 3, on_dead, partition, attempts_max: 2, faults, symmetry: true }
}

fn chain(id: &'static str, bounds: chain::Bounds) -> ModelReport {
    let faults = bounds.faults;
    let told = json!({
        "relays": 2,
        "aggregates": 1,
        "events": bounds.events,
        "partitions": u8::from(bounds.partition),
        "on_dead": if bounds.on_dead == OnDead::Block { "block" } else { "skip" },
        "attempts_max": bounds.attempts_max,
        "crashes": faults.crashes,
        "lease_expiries": faults.expiries,
        "unknown_outcomes": faults.doubts,
        "lost_commit_replies": faults.unanswered,
        "partition_handovers": if bounds.partition { faults.handovers } else { 0 },
        "operator_actions": faults.operations,
    });
    let report = every_state(id, told, &Chain { bounds, removed: None });
    with_trace(report, &Chain { bounds: chain::Bounds { symmetry: false, ..bounds }, removed: None })
}

const CHECK_BACK: checkback::Faults = checkback::Faults { crashes: 1, unanswered: 2, asks: 4, losses: 2 };

fn check_back(faults: checkback::Faults) -> ModelReport {
    let told = json!({
        "transactions": 1,
        "members_asked_at_once": 2,
        "crashes": faults.crashes,
        "lost_commit_replies": faults.unanswered,
        "asks": faults.asks,
        "lost_messages": faults.losses,
    });
    let model = CheckBack { bounds: checkback::Bounds { faults }, removed: None };
    with_trace(every_state("check-back", told, &model), &model)
}

/// When something is broken: how that comes, by the shortest way and without symmetry.
fn with_trace<M>(report: ModelReport, model: &M) -> ModelReport
where
    M: stateright::Model,
    M::State: Clone + std::hash::Hash + Eq,
    M::Action: Clone + std::fmt::Debug,
{
    let trace = if report.is_broken() { shortest_trace(model) } else { None };
    ModelReport { trace, ..report }
}
