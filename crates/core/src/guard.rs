//! Guards: what keeps an old version, a skipped step or a forbidden change of state from overwriting a newer one.
//!
//! A marker answers "was this very operation applied?". A guard answers another question: "does it still fit what was
//! applied since?". Both are asked in the same transaction.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::safeguard::{Safeguard, stands};

/// The guard of one operation: the aggregate it protects, and the step the operation takes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// What is protected, for instance `order:42`. Each consumer has its own view of it.
    pub aggregate: String,
    /// The step.
    pub step: Step,
}

/// What an operation does to its aggregate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Overwrites: an older version than the applied one is skipped.
    ApplyIfNewer {
        /// The version the message carries.
        version: i64,
    },
    /// Builds on the step before: each version once, in order.
    Sequential {
        /// The version the message carries.
        version: i64,
        /// The version of an aggregate's first step.
        first: i64,
    },
    /// Changes the state.
    Transition {
        /// The state the message announces.
        to: String,
        /// The changes that are allowed.
        allowed: Arc<Transitions>,
    },
}

/// What was applied to an aggregate so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last applied version.
    pub version: Option<i64>,
    /// The state.
    pub state: Option<String>,
}

/// What a guard decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The operation fits; this is the aggregate's progress with it.
    Apply(Progress),
    /// Something newer was applied: nothing is to be done.
    Stale,
    /// A step before this one is missing.
    Gap {
        /// The version that must come first.
        expected: i64,
        /// The version the message carries.
        version: i64,
    },
    /// The change of state is not allowed, at least not now.
    Forbidden {
        /// The state there is; `None` when none was applied yet.
        from: Option<String>,
        /// The state the message announces.
        to: String,
    },
}

/// Why a list of transitions cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTransition {
    /// The text is not a transition.
    #[error("{0:?} is not a transition: write \"FROM->TO\", or \"->TO\" for the first state")]
    Malformed(String),
    /// No state may come first.
    #[error("no transition starts from nothing, so no aggregate could ever begin: add \"->FIRST\"")]
    NoFirst,
}

/// Allowed changes of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transitions(BTreeSet<(Option<String>, String)>);

impl Transitions {
    /// Reads `FROM->TO` texts; `->TO` allows `TO` as an aggregate's first state.
    ///
    /// # Errors
    /// A text is no transition, or none allows a first state.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, InvalidTransition> {
        let mut allowed = BTreeSet::new();
        for text in texts {
            let malformed = || InvalidTransition::Malformed(text.to_owned());
            let (from, to) = text.split_once("->").ok_or_else(malformed)?;
            let (from, to) = (from.trim(), to.trim());
            if to.is_empty() || to.contains("->") {
                return Err(malformed());
            }
            allowed.insert(((!from.is_empty()).then(|| from.to_owned()), to.to_owned()));
        }
        if allowed.iter().all(|(from, _)| from.is_some()) {
            return Err(InvalidTransition::NoFirst);
        }
        Ok(Self(allowed))
    }

    fn allows(&self, from: Option<&str>, to: &str) -> bool {
        self.0.iter().any(|(known, target)| known.as_deref() == from && target == to)
    }

    /// True when steps lead from `start` to `goal`.
    fn leads(&self, start: &str, goal: &str) -> bool {
        let mut seen = BTreeSet::from([start]);
        let mut open = vec![start];
        while let Some(state) = open.pop() {
            for (from, to) in &self.0 {
                if from.as_deref() == Some(state) && seen.insert(to) {
                    open.push(to);
                }
            }
        }
        start != goal && seen.contains(goal)
    }
}

impl Guard {
    /// Decides about the operation, given what was applied to its aggregate before.
    pub fn judge(&self, applied: Option<&Progress>) -> Verdict {
        let last = applied.and_then(|progress| progress.version);
        match &self.step {
            Step::ApplyIfNewer { version } => match last {
                Some(last) if last >= *version && stands(Safeguard::NewerVersion) => Verdict::Stale,
                Some(_) | None => Verdict::Apply(Progress { version: Some(*version), state: None }),
            },
            Step::Sequential { version, first } => {
                // A version past the last one of 64 bits cannot come.
                let expected = last.map_or(*first, |last| last.saturating_add(1));
                if last.is_some_and(|last| *version <= last) || *version < expected {
                    Verdict::Stale
                } else if *version == expected || !stands(Safeguard::NextVersion) {
                    Verdict::Apply(Progress { version: Some(*version), state: None })
                } else {
                    Verdict::Gap { expected, version: *version }
                }
            }
            Step::Transition { to, allowed } => {
                let from = applied.and_then(|progress| progress.state.as_deref());
                if allowed.allows(from, to) {
                    return Verdict::Apply(Progress { version: None, state: Some(to.clone()) });
                }
                match from {
                    // What was applied lies behind the announced state: the message comes late.
                    Some(from) if from == to || allowed.leads(to, from) => Verdict::Stale,
                    Some(_) | None => Verdict::Forbidden { from: from.map(str::to_owned), to: to.clone() },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(version: i64) -> Progress {
        Progress { version: Some(version), state: None }
    }

    fn judge(step: Step, applied: Option<&Progress>) -> Verdict {
        Guard { aggregate: "order:1".into(), step }.judge(applied)
    }

    #[test]
    fn apply_if_newer_skips_what_is_not_newer() {
        let step = |version| Step::ApplyIfNewer { version };

        assert_eq!(judge(step(1), None), Verdict::Apply(at(1)));
        assert_eq!(judge(step(7), Some(&at(3))), Verdict::Apply(at(7)), "versions may be skipped");
        assert_eq!(judge(step(3), Some(&at(3))), Verdict::Stale);
        assert_eq!(judge(step(2), Some(&at(3))), Verdict::Stale);
    }

    #[test]
    fn sequential_applies_each_version_once_and_in_order() {
        let step = |version| Step::Sequential { version, first: 1 };

        assert_eq!(judge(step(1), None), Verdict::Apply(at(1)));
        assert_eq!(judge(step(2), None), Verdict::Gap { expected: 1, version: 2 });
        assert_eq!(judge(step(0), None), Verdict::Stale);
        assert_eq!(judge(step(4), Some(&at(3))), Verdict::Apply(at(4)));
        assert_eq!(judge(step(5), Some(&at(3))), Verdict::Gap { expected: 4, version: 5 });
        assert_eq!(judge(step(3), Some(&at(3))), Verdict::Stale);
        assert_eq!(judge(step(i64::MAX), Some(&at(i64::MAX))), Verdict::Stale);
    }

    #[test]
    fn transitions_apply_wait_or_come_late() {
        let allowed = Arc::new(
            Transitions::parse(["->NEW", "NEW->PAID", "PAID->SHIPPED", "NEW -> CANCELLED"]).unwrap(),
        );
        let step = |to: &str| Step::Transition { to: to.into(), allowed: Arc::clone(&allowed) };
        let state = |state: &str| Progress { version: None, state: Some(state.into()) };

        assert_eq!(judge(step("NEW"), None), Verdict::Apply(state("NEW")));
        assert_eq!(judge(step("PAID"), Some(&state("NEW"))), Verdict::Apply(state("PAID")));
        assert_eq!(judge(step("NEW"), Some(&state("PAID"))), Verdict::Stale);
        assert_eq!(judge(step("PAID"), Some(&state("PAID"))), Verdict::Stale);
        assert_eq!(
            judge(step("SHIPPED"), Some(&state("NEW"))),
            Verdict::Forbidden { from: Some("NEW".into()), to: "SHIPPED".into() }
        );
        assert_eq!(
            judge(step("PAID"), Some(&state("CANCELLED"))),
            Verdict::Forbidden { from: Some("CANCELLED".into()), to: "PAID".into() }
        );
        assert_eq!(judge(step("PAID"), None), Verdict::Forbidden { from: None, to: "PAID".into() });
    }

    #[test]
    fn a_cycle_of_states_is_not_stale() {
        let allowed = Arc::new(Transitions::parse(["->OPEN", "OPEN->SHUT", "SHUT->OPEN"]).unwrap());
        let shut = Progress { version: None, state: Some("SHUT".into()) };

        let verdict = judge(Step::Transition { to: "OPEN".into(), allowed }, Some(&shut));

        assert_eq!(verdict, Verdict::Apply(Progress { version: None, state: Some("OPEN".into()) }));
    }

    #[test]
    fn transitions_are_checked_when_they_are_read() {
        assert_eq!(
            Transitions::parse(["->NEW", "NEW=>PAID"]),
            Err(InvalidTransition::Malformed("NEW=>PAID".into()))
        );
        assert_eq!(Transitions::parse(["->NEW", "NEW->"]), Err(InvalidTransition::Malformed("NEW->".into())));
        assert_eq!(
            Transitions::parse(["->A", "A->B->C"]),
            Err(InvalidTransition::Malformed("A->B->C".into()))
        );
        assert_eq!(Transitions::parse(["NEW->PAID"]), Err(InvalidTransition::NoFirst));
        assert_eq!(Transitions::parse([]), Err(InvalidTransition::NoFirst));
    }
}
