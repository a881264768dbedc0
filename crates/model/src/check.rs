//! Looks at every state of a model, or for the first thing that breaks.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Instant;

use serde_json::Value;
use stateright::{Checker, Expectation, Model};

use crate::report::{Kind, ModelReport, MutantReport, PropertyReport, Trace};
use crate::search::{self, Compact};

/// Looks at every state with stateright, which remembers each by a fingerprint of 64 bits.
pub fn every_state<M>(id: &'static str, bounds: Value, model: &M) -> ModelReport
where
    M: Model + Clone + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    const THREADS: usize = 2;
    let started = Instant::now();
    let checker = model.clone().checker().threads(THREADS).spawn_bfs().join();
    let found = checker.discoveries();
    let holds = |expectation: &Expectation, name: &str| {
        found.contains_key(name) == matches!(expectation, Expectation::Sometimes)
    };
    let properties = model.properties();
    let properties = properties
        .iter()
        .map(|property| PropertyReport {
            name: property.name,
            kind: kind(&property.expectation),
            holds: holds(&property.expectation, property.name),
        })
        .collect();
    ModelReport {
        id,
        checker: "stateright",
        bounds,
        exhausted: checker.is_done(),
        states: checker.unique_state_count() as u64,
        seconds: started.elapsed().as_secs_f64(),
        properties,
        trace: None,
    }
}

/// Looks at every state of a compact model, which are remembered exactly.
pub fn every_compact_state<M: Compact>(id: &'static str, bounds: Value, model: &M) -> ModelReport {
    let started = Instant::now();
    let exhausted = search::exhaust(model);
    let properties = model.properties();
    let properties = properties
        .iter()
        .zip(&exhausted.holds)
        .map(|(property, holds)| PropertyReport {
            name: property.name,
            kind: kind(&property.expectation),
            holds: *holds,
        })
        .collect();
    ModelReport {
        id,
        checker: "exact",
        bounds,
        // The search ends when nothing new is reached, and at nothing else.
        exhausted: true,
        states: exhausted.states,
        seconds: started.elapsed().as_secs_f64(),
        properties,
        trace: None,
    }
}

/// Looks for the first thing that breaks once a guard is taken away.
pub fn mutant<M>(model_id: &'static str, guard: String, model: &M) -> MutantReport
where
    M: Model,
    M::State: Clone + Hash + Eq,
    M::Action: Clone + Debug,
{
    let trace = search::shortest(model).map(|found| told(&found.actions, found.property));
    MutantReport { model: model_id, guard, trace }
}

/// The shortest way to what a whole model breaks.
pub fn shortest_trace<M>(model: &M) -> Option<Trace>
where
    M: Model,
    M::State: Clone + Hash + Eq,
    M::Action: Clone + Debug,
{
    search::shortest(model).map(|found| told(&found.actions, found.property))
}

fn kind(expectation: &Expectation) -> Kind {
    match expectation {
        Expectation::Always => Kind::Always,
        Expectation::Sometimes => Kind::Sometimes,
        Expectation::Eventually => unreachable!("no model has such a property"),
    }
}

fn told<A: Debug>(actions: &[A], property: &'static str) -> Trace {
    Trace { property, steps: actions.iter().map(|action| words(&format!("{action:?}"))).collect() }
}

/// `ClaimAnswered { event: 0, place: 1 }` as people say it: `claim answered, event 0, place 1`.
fn words(action: &str) -> String {
    let (name, fields) = action.split_once(" {").unwrap_or((action, ""));
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    for field in fields.trim_end_matches('}').split(',').map(str::trim).filter(|field| !field.is_empty()) {
        words.push_str(", ");
        words.push_str(&field.replace(':', ""));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_in_words() {
        assert_eq!(words("ClaimAnswered { event: 0, place: 1 }"), "claim answered, event 0, place 1");
        assert_eq!(words("Age"), "age");
    }
}
