//! What the reductions rest on, checked.

use std::collections::{HashMap, HashSet};

use stateright::{Checker, Model};

use super::state::{Event, Faults, State};
use super::{Bounds, Lease, Steps};
use crate::search::{Compact, exhaust};

const BOUNDS: Bounds = Bounds {
    events: 1,
    hold: 1,
    hands: 1,
    steps: Steps::Merged,
    attempts_max: 2,
    faults: Faults { crashes: 1, expiries: 1, doubts: 1, unanswered: 1, operations: 1 },
    counts: false,
    symmetry: true,
};

fn reached(bounds: Bounds) -> HashSet<State> {
    let model = Lease { bounds, removed: None };
    let mut seen: HashSet<State> = model.init_states().into_iter().collect();
    let mut waiting: Vec<State> = seen.iter().copied().collect();
    while let Some(state) = waiting.pop() {
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        for action in actions {
            let next = model.act(&state, action);
            if seen.insert(next) {
                waiting.push(next);
            }
        }
    }
    seen
}

/// The faults left in states where no relay holds anything, by what the world outside sees.
fn quiet(states: &HashSet<State>) -> HashMap<([Event; 3], u8), Vec<Faults>> {
    let mut quiet: HashMap<_, Vec<Faults>> = HashMap::new();
    let idle = |state: &&State| state.events.iter().all(|row| row.places.iter().all(Option::is_none));
    for state in states.iter().filter(idle) {
        quiet.entry((state.events, state.excess)).or_default().push(state.left);
    }
    quiet
}

#[test]
fn whatever_single_steps_come_to_merged_ones_come_to_with_no_more_faults() {
    let merged = quiet(&reached(BOUNDS));
    let fine = quiet(&reached(Bounds { steps: Steps::Fine, ..BOUNDS }));
    let covers = |more: &Faults, less: &Faults| {
        more.crashes >= less.crashes
            && more.expiries >= less.expiries
            && more.doubts >= less.doubts
            && more.unanswered >= less.unanswered
            && more.operations >= less.operations
    };

    assert!(fine.len() > 50, "{}", fine.len());
    for (world, faults) in &fine {
        let merged = merged.get(world).unwrap_or_else(|| panic!("merged steps miss {world:?}"));
        assert!(faults.iter().all(|less| merged.iter().any(|more| covers(more, less))), "{world:?}");
    }
}

#[test]
fn two_checkers_count_the_same_states() {
    let model = Lease { bounds: Bounds { events: 2, ..BOUNDS }, removed: None };
    let theirs = model.checker().spawn_bfs().join().unique_state_count();

    assert_eq!(exhaust(&model).states, theirs as u64);
    assert!(theirs > 1000);
}

#[test]
fn codes_are_read_back_as_the_states_they_stand_for() {
    let model = Lease { bounds: BOUNDS, removed: None };
    for state in reached(BOUNDS) {
        assert_eq!(model.state(model.code(&state)), state);
    }
}

#[test]
fn symmetry_hides_no_state_of_the_world() {
    let model = Lease { bounds: BOUNDS, removed: None };
    let all = reached(Bounds { symmetry: false, ..BOUNDS });
    let representatives: HashSet<State> = all.iter().map(|state| model.representative(state)).collect();

    assert_eq!(representatives, reached(BOUNDS));
    assert!(all.len() > representatives.len());
}
