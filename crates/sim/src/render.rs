//! A trace as a table that people can read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::options::{Cut, Fault, Options};
use crate::run::Outcome;
use crate::trace::{Actor, Step};

/// No table is longer, in lines.
const LINES_MAX: usize = 30;

/// The steps of a run that explain its end, as a table: of a failure, those of the event concerned and of the processes
/// that touched it; of a run that went well, its last ones. `all` shows every step.
pub fn table(outcome: &Outcome, all: bool) -> String {
    let row = outcome.violation.as_ref().and_then(|violation| violation.row);
    let actors: BTreeSet<Actor> =
        outcome.trace.iter().filter(|step| row.is_none() || step.row == row).map(|step| step.actor).collect();
    let about = |step: &&Step| match (step.row, row) {
        _ if all => true,
        (Some(of), Some(row)) => of == row,
        (Some(_), None) => true,
        (None, _) => actors.contains(&step.actor) || matches!(step.actor, Actor::World | Actor::Broker(_)),
    };
    let steps: Vec<&Step> = outcome.trace.iter().filter(about).collect();
    let hidden = if all { 0 } else { steps.len().saturating_sub(LINES_MAX) };
    let mut table = format!("{:>9}  {:<10}  {:<24}  {:<7}  change\n", "time", "actor", "event", "row");
    if hidden > 0 {
        let _ = writeln!(table, "{:>9}  ({hidden} earlier steps)", "");
    }
    let start = outcome.trace.first().map(|step| step.at);
    for step in &steps[hidden..] {
        let at = step.at.since(start.unwrap_or(step.at));
        let row = step.row.map_or_else(String::new, |row| row.to_string());
        let change = step.change.map_or_else(String::new, |(from, to)| format!("{from} -> {to}"));
        let line = format!(
            "{:>8.3}s  {:<10}  {:<24}  {row:<7}  {change}",
            at.as_secs_f64(),
            actor(step.actor),
            step.what
        );
        table.push_str(line.trim_end());
        table.push('\n');
    }
    if let Some(violation) = &outcome.violation {
        let of = violation.row.map_or_else(String::new, |row| format!(", event {row}"));
        let _ = writeln!(table, "violated: {}{of}: {}", violation.invariant, violation.what);
    }
    table
}

/// What a seed decided, and what is left out of it.
pub fn world(options: &Options, cut: &Cut) -> String {
    let kinds = options.faults.kinds().filter(|fault| !cut.faults.contains(fault));
    let faults: Vec<&str> = kinds.map(Fault::name).collect();
    let settings = &options.settings;
    format!(
        "{} relays, {} events, {} destinations, {:?}, lease {:?}, window {}, batch {}\nfaults: {}",
        options.relays - cut.relays.len(),
        options.rows - cut.rows.len(),
        options.destinations,
        settings.order,
        settings.lease,
        settings.window,
        settings.batch_rows,
        if faults.is_empty() { "none".into() } else { faults.join(", ") },
    )
}

fn actor(actor: Actor) -> String {
    match actor {
        Actor::World => "world".into(),
        Actor::Producer => "producer".into(),
        Actor::Operator => "operator".into(),
        Actor::Store => "store".into(),
        Actor::Relay(place) => format!("relay {place}"),
        Actor::Broker(place) => format!("broker {}", crate::world::DESTINATIONS[place]),
        Actor::Consumer(place) => format!("consumer {place}"),
    }
}
