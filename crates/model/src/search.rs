//! Two breadth-first searches of our own: one for very many states, one for the shortest way to what breaks.
//!
//! Both remember states exactly, the first by their codes and nothing else, so that a state takes about twelve bytes; a
//! fingerprint, as stateright keeps it, may be that of another state.

use std::collections::HashSet;
use std::hash::Hash;

use stateright::{Expectation, Model};

/// A model whose states fit into 64 bits.
pub trait Compact: Model {
    /// The state's number; no other state has it.
    fn code(&self, state: &Self::State) -> u64;
    /// The state of a number.
    fn state(&self, code: u64) -> Self::State;
}

/// What an exhaustive search found.
#[derive(Debug)]
pub struct Exhausted {
    /// Different states.
    pub states: u64,
    /// Whether each property holds, in the model's order.
    pub holds: Vec<bool>,
}

/// Looks at every state that can be reached.
pub fn exhaust<M: Compact>(model: &M) -> Exhausted {
    let properties = model.properties();
    let mut seen = Codes::new();
    let mut frontier: Vec<u64> = Vec::new();
    for state in model.init_states() {
        let code = model.code(&state);
        if seen.insert(code) {
            frontier.push(code);
        }
    }
    let mut met = vec![false; properties.len()];
    let mut actions = Vec::new();
    let mut next_frontier = Vec::new();
    while !frontier.is_empty() {
        for code in frontier.drain(..) {
            let state = model.state(code);
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let Some(next) = model.next_state(&state, action) else { continue };
                for (property, met) in properties.iter().zip(&mut met).filter(|(_, met)| !**met) {
                    let condition = (property.condition)(model, &next);
                    *met = condition == (property.expectation == Expectation::Sometimes);
                }
                let code = model.code(&next);
                if seen.insert(code) {
                    next_frontier.push(code);
                }
            }
        }
        std::mem::swap(&mut frontier, &mut next_frontier);
    }
    let holds = properties
        .iter()
        .zip(met)
        .map(|(property, met)| met == (property.expectation == Expectation::Sometimes))
        .collect();
    Exhausted { states: seen.len as u64, holds }
}

/// What broke, and how.
#[derive(Debug)]
pub struct Found<A> {
    /// What broke.
    pub property: &'static str,
    /// The steps from the beginning.
    pub actions: Vec<A>,
}

/// The shortest way to a state in which something that must always hold does not; `None` when there is no such state.
pub fn shortest<M>(model: &M) -> Option<Found<M::Action>>
where
    M: Model,
    M::State: Clone + Hash + Eq,
    M::Action: Clone,
{
    let properties = model.properties();
    let always: Vec<_> =
        properties.iter().filter(|property| property.expectation == Expectation::Always).collect();
    let mut seen: HashSet<M::State> = HashSet::new();
    let mut reached: Vec<Reached<M::State, M::Action>> = Vec::new();
    for state in model.init_states() {
        seen.insert(state.clone());
        reached.push((state, None));
    }
    let mut place = 0;
    let mut actions = Vec::new();
    while place < reached.len() {
        let state = reached[place].0.clone();
        if let Some(broken) = always.iter().find(|property| !(property.condition)(model, &state)) {
            return Some(Found { property: broken.name, actions: way(&reached, place) });
        }
        model.actions(&state, &mut actions);
        for action in actions.drain(..) {
            let Some(next) = model.next_state(&state, action.clone()) else { continue };
            if seen.insert(next.clone()) {
                reached.push((next, Some((place, action))));
            }
        }
        place += 1;
    }
    None
}

/// A state, with the place of the one before it and the step between them.
type Reached<S, A> = (S, Option<(usize, A)>);

fn way<S, A: Clone>(reached: &[Reached<S, A>], place: usize) -> Vec<A> {
    let mut actions = Vec::new();
    let mut place = place;
    while let Some((before, action)) = &reached[place].1 {
        actions.push(action.clone());
        place = *before;
    }
    actions.reverse();
    actions
}

/// A set of codes in one array, with linear probing.
struct Codes {
    slots: Vec<u64>,
    len: usize,
}

/// No code is this large.
const FREE: u64 = u64::MAX;

impl Codes {
    fn new() -> Self {
        Self { slots: vec![FREE; 1 << 16], len: 0 }
    }

    /// True when it is new.
    fn insert(&mut self, code: u64) -> bool {
        assert_ne!(code, FREE, "a code marks free slots");
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let new = put(&mut self.slots, code);
        self.len += usize::from(new);
        new
    }

    fn grow(&mut self) {
        let mut slots = vec![FREE; self.slots.len() * 2];
        for &code in self.slots.iter().filter(|code| **code != FREE) {
            put(&mut slots, code);
        }
        self.slots = slots;
    }
}

fn put(slots: &mut [u64], code: u64) -> bool {
    let mask = slots.len() - 1;
    let mixed = (code ^ code >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut place = usize::try_from(mixed >> 20).expect("64-bit machines") & mask;
    loop {
        if slots[place] == FREE {
            slots[place] = code;
            return true;
        }
        if slots[place] == code {
            return false;
        }
        place = (place + 1) & mask;
    }
}
