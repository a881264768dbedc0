//! `[[route]]`: which event types go where.

use std::collections::BTreeMap;

use consign_core::retry::RetryPolicy;
use consign_core::route::{DestinationName, RouteTable, Rule, Template};

use super::checker::Checker;
use super::raw::RawRoute;
use super::retry;

/// The retry policies that routes build on.
pub struct Policies {
    /// The relay's own.
    pub relay: RetryPolicy,
    /// Those of destinations that have one.
    pub destinations: BTreeMap<DestinationName, RetryPolicy>,
}

/// Checks every `[[route]]` against the destinations' names; the table, and the policies of its rules.
pub fn routes(
    checker: &mut Checker<'_>,
    raw: Vec<RawRoute>,
    names: &[&str],
    policies: &Policies,
) -> (RouteTable, Vec<RetryPolicy>) {
    let mut rules: Vec<Rule> = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("route[{index}]");
        let event_type_key = format!("{key}.event_type");
        let event_type =
            checker.required(&event_type_key, raw.event_type, "event_type = \"OrderPaid\", or \"*\"");
        if let Some(event_type) = &event_type {
            check_event_type(checker, &event_type_key, event_type, &rules);
        }
        let destination_key = format!("{key}.destination");
        let destination = checker.required(&destination_key, raw.destination, "destination = \"NAME\"");
        if let Some(name) = &destination {
            checker.known(&destination_key, name, names, &format!("add [destination.{name}]"));
        }
        let template = Template::parse(&raw.key);
        if let Err(problem) = &template {
            checker.refuse(&format!("{key}.key"), problem);
        }
        let destination = destination.map(DestinationName::new);
        let retry = raw.retry.map(|part| {
            let own = destination.as_ref().and_then(|name| policies.destinations.get(name));
            let under = *own.unwrap_or(&policies.relay);
            retry::overridden(checker, &format!("{key}.retry"), &part, under)
        });
        if let (Some(event_type), Some(destination), Ok(key)) = (event_type, destination, template) {
            rules.push(Rule { event_type, destination, key, retry });
        }
    }
    let of_rules = rules.iter().filter_map(|rule| rule.retry).collect();
    let table = RouteTable::new(rules, names.iter().map(|name| DestinationName::new(*name)).collect());
    (table.with_retry(policies.destinations.clone()), of_rules)
}

fn check_event_type(checker: &mut Checker<'_>, key: &str, event_type: &str, earlier: &[Rule]) {
    if event_type.find('*').is_some_and(|at| at + 1 < event_type.len()) {
        checker.refuse(
            key,
            format!("{event_type:?} has a * that is not at its end: write an exact type or prefix*"),
        );
        return;
    }
    // The first match wins, so an earlier rule that takes everything this one takes leaves nothing to it.
    let covers = |rule: &&Rule| match rule.event_type.strip_suffix('*') {
        Some(prefix) => event_type.starts_with(prefix),
        None => rule.event_type == event_type,
    };
    if let Some(rule) = earlier.iter().find(covers) {
        checker.refuse(
            key,
            format!(
                "{event_type:?} is never reached, because {:?} above takes it first: move it up",
                rule.event_type
            ),
        );
    }
}
