//! What is printed: a table for people, one JSON document for programs.

use std::fmt::Write;

use serde_json::{Value, json};

/// Whether a property must hold in every state or in some state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In every state.
    Always,
    /// In at least one, so that the others hold of something.
    Sometimes,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Sometimes => "sometimes",
        }
    }
}

/// One property of one model.
#[derive(Debug)]
pub struct PropertyReport {
    /// What it says.
    pub name: &'static str,
    /// Of which states.
    pub kind: Kind,
    /// Whether it is so.
    pub holds: bool,
}

/// A way from the beginning to a state that breaks something.
#[derive(Debug)]
pub struct Trace {
    /// What is broken.
    pub property: &'static str,
    /// The steps, in words.
    pub steps: Vec<String>,
}

/// One model within its bounds.
#[derive(Debug)]
pub struct ModelReport {
    /// Its name.
    pub id: &'static str,
    /// What looked at its states.
    pub checker: &'static str,
    /// Its bounds.
    pub bounds: Value,
    /// Every state within the bounds was looked at.
    pub exhausted: bool,
    /// How many there are.
    pub states: u64,
    /// How long it took.
    pub seconds: f64,
    /// What was found.
    pub properties: Vec<PropertyReport>,
    /// When something that must always hold does not: how that comes.
    pub trace: Option<Trace>,
}

impl ModelReport {
    /// Whether everything is as it should be.
    pub fn passed(&self) -> bool {
        self.exhausted && self.properties.iter().all(|property| property.holds)
    }

    /// Whether something is broken that must always hold.
    pub fn is_broken(&self) -> bool {
        self.properties.iter().any(|property| property.kind == Kind::Always && !property.holds)
    }
}

/// One model without one of its guards.
#[derive(Debug)]
pub struct MutantReport {
    /// The model.
    pub model: &'static str,
    /// What was taken away.
    pub guard: String,
    /// What that broke; `None` when it broke nothing.
    pub trace: Option<Trace>,
}

/// Everything of one run.
#[derive(Debug)]
pub struct Report {
    /// `ci` or `full`.
    pub plan: &'static str,
    /// The models.
    pub models: Vec<ModelReport>,
    /// The mutations.
    pub mutants: Vec<MutantReport>,
}

impl Report {
    /// Whether everything is as it should be.
    pub fn passed(&self) -> bool {
        self.models.iter().all(ModelReport::passed)
            && self.mutants.iter().all(|mutant| mutant.trace.is_some())
    }

    fn caught(&self) -> usize {
        self.mutants.iter().filter(|mutant| mutant.trace.is_some()).count()
    }

    /// The whole of it.
    pub fn json(&self) -> Value {
        let models: Vec<Value> = self.models.iter().map(model_json).collect();
        let each: Vec<Value> = self
            .mutants
            .iter()
            .map(|mutant| {
                json!({
                    "model": mutant.model,
                    "guard": mutant.guard,
                    "caught": mutant.trace.is_some(),
                    "by": mutant.trace.as_ref().map(|trace| trace.property),
                    "steps": mutant.trace.as_ref().map(|trace| &trace.steps),
                })
            })
            .collect();
        json!({
            "plan": self.plan,
            "models": models,
            "mutants": { "caught": self.caught(), "of": self.mutants.len(), "each": each },
            "passed": self.passed(),
        })
    }

    /// For people.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for model in &self.models {
            tell_model(&mut text, model);
        }
        let _ = writeln!(text, "\nguards taken away, one at a time:");
        for mutant in &self.mutants {
            let verdict = mutant.trace.as_ref().map_or_else(
                || "NOT CAUGHT".to_owned(),
                |trace| format!("{} steps break \"{}\"", trace.steps.len(), trace.property),
            );
            let _ = writeln!(text, "  {:<11} {:<28} {verdict}", mutant.model, mutant.guard);
        }
        let _ = writeln!(text, "caught {} of {}", self.caught(), self.mutants.len());
        let _ = writeln!(text, "{}", if self.passed() { "all as it should be" } else { "FAILED" });
        text
    }
}

impl Trace {
    /// One line for each step.
    pub fn text(&self) -> String {
        let mut text = format!("\"{}\" is broken by\n", self.property);
        for (number, step) in self.steps.iter().enumerate() {
            let _ = writeln!(text, "  {:>3}  {step}", number + 1);
        }
        text
    }
}

fn model_json(model: &ModelReport) -> Value {
    let properties: Vec<Value> = model
        .properties
        .iter()
        .map(|property| json!({"name": property.name, "kind": property.kind.word(), "holds": property.holds}))
        .collect();
    json!({
        "id": model.id,
        "checker": model.checker,
        "bounds": model.bounds,
        "exhausted": model.exhausted,
        "states": model.states,
        "seconds": (model.seconds * 10.0).round() / 10.0,
        "properties": properties,
        "counterexample": model.trace.as_ref().map(|trace| &trace.steps),
    })
}

fn tell_model(text: &mut String, model: &ModelReport) {
    let ModelReport { id, checker, states, seconds, .. } = model;
    let end = if model.exhausted { "exhausted" } else { "NOT EXHAUSTED" };
    let _ = writeln!(text, "{id}: {end}, {states} states, {seconds:.1} s ({checker})");
    let _ = writeln!(text, "  bounds {}", model.bounds);
    for property in &model.properties {
        let verdict = match (property.kind, property.holds) {
            (Kind::Always, true) => "holds  ",
            (Kind::Always, false) => "BROKEN ",
            (Kind::Sometimes, true) => "reached",
            (Kind::Sometimes, false) => "MISSED ",
        };
        let _ = writeln!(text, "  {verdict}  {}", property.name);
    }
    if let Some(trace) = &model.trace {
        text.push_str(&trace.text());
    }
}
