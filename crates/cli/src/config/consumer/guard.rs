//! `[consumer.guard]`: what keeps an old version from overwriting a new one.

use std::sync::Arc;
use std::time::Duration;

use consign_core::declared::{DeclaredGuard, DeclaredRule, VersionSource};
use consign_core::guard::Transitions;

use super::declared::template;
use crate::config::checker::Checker;
use crate::config::raw::RawGuard;

/// The longest a delivery may wait for the step before it: a week.
const GAP_MAX: u64 = 7 * 86_400;

/// How many characters a state may have: the contract's `state VARCHAR(64)`.
const STATE_CHARACTERS_MAX: usize = 64;

#[derive(Clone, Copy)]
enum Rule {
    ApplyIfNewer,
    Sequential,
    Transition,
}

/// Checks the guard. A sequential one comes with the time that a gap waits.
pub fn guard(
    checker: &mut Checker<'_>,
    key: &str,
    raw: RawGuard,
) -> Option<(DeclaredGuard, Option<Duration>)> {
    let rules = [
        ("apply_if_newer", Rule::ApplyIfNewer),
        ("sequential", Rule::Sequential),
        ("transition", Rule::Transition),
    ];
    let rule_key = format!("{key}.rule");
    let example = "rule = \"apply_if_newer\", \"sequential\" or \"transition\"";
    let word = checker.required(&rule_key, raw.rule, example);
    let rule = word.as_deref().and_then(|word| checker.choice(&rule_key, word, &rules));
    let aggregate =
        template(checker, &format!("{key}.aggregate"), raw.aggregate, "aggregate = \"order:{order_id}\"");
    let (rule, word) = (rule?, word?);
    let foreign: &[&str] = match rule {
        Rule::ApplyIfNewer => &["first", "gap_seconds", "state", "allowed"],
        Rule::Sequential => &["state", "allowed"],
        Rule::Transition => &["version", "first", "gap_seconds"],
    };
    for part in foreign {
        let key = format!("{key}.{part}");
        if checker.has(&key) {
            checker.refuse(&key, format!("does not apply to rule {word}: remove it"));
        }
    }
    let version = raw.version.map_or(VersionSource::Header, VersionSource::Binding);
    let (rule, wait) = match rule {
        Rule::ApplyIfNewer => (DeclaredRule::ApplyIfNewer(version), None),
        Rule::Sequential => {
            let wait = checker.seconds(&format!("{key}.gap_seconds"), raw.gap_seconds, 1..=GAP_MAX);
            (DeclaredRule::Sequential { version, first: raw.first }, Some(wait))
        }
        Rule::Transition => (transition(checker, key, raw.state, &raw.allowed)?, None),
    };
    Some((DeclaredGuard { aggregate: aggregate?, rule }, wait))
}

fn transition(
    checker: &mut Checker<'_>,
    key: &str,
    state: Option<String>,
    allowed: &[String],
) -> Option<DeclaredRule> {
    let state = checker.required(&format!("{key}.state"), state, "state = \"BINDING\"");
    let allowed_key = format!("{key}.allowed");
    let states = allowed.iter().flat_map(|text| text.split("->"));
    if let Some(long) = states.map(str::trim).find(|state| state.chars().count() > STATE_CHARACTERS_MAX) {
        let text = format!(
            "{long:?} is longer than the {STATE_CHARACTERS_MAX} characters that fit: use shorter states"
        );
        checker.refuse(&allowed_key, text);
    }
    match Transitions::parse(allowed.iter().map(String::as_str)) {
        Ok(allowed) => Some(DeclaredRule::Transition { state: state?, allowed: Arc::new(allowed) }),
        Err(problem) => {
            checker.refuse(&allowed_key, problem);
            None
        }
    }
}
