//! What was written, key by key, so that two configs can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::raw::Raw;

/// Every key of a config with its value, defaults and overrides included. Values may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Written(BTreeMap<String, String>);

/// What becomes of a config while a relay runs with another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Everything that differs can be changed at once: each key with its old and new value.
    Changeable(Vec<String>),
    /// These keys need a restart.
    NeedsRestart(Vec<String>),
}

/// Keys of `[relay]` that a running relay keeps.
const FIXED: [&str; 8] = [
    "relay.name",
    "relay.mode",
    "relay.on_dead",
    "relay.partitions",
    "relay.partition_lease_seconds",
    "relay.wakeup",
    "relay.attempt_log",
    "relay.attempt_days",
];

impl Written {
    /// The keys of `raw`.
    pub fn of(raw: &Raw) -> Self {
        let mut keys = BTreeMap::new();
        let value = serde_json::to_value(raw).expect("a config is made of plain values and text keys");
        flatten(String::new(), &value, &mut keys);
        Self(keys)
    }

    /// What `new` has that differs. Only changeable values are shown; the others may be secret.
    pub fn difference(&self, new: &Self) -> Difference {
        let keys: BTreeSet<&String> = self.0.keys().chain(new.0.keys()).collect();
        let (mut changed, mut fixed) = (Vec::new(), Vec::new());
        for key in keys {
            let shown = |written: &Self| written.0.get(key).map_or("none", String::as_str).to_owned();
            let (before, after) = (shown(self), shown(new));
            if before == after {
                continue;
            }
            if changeable(key) {
                changed.push(format!("{key} {before} -> {after}"));
            } else {
                fixed.push(key.clone());
            }
        }
        if fixed.is_empty() { Difference::Changeable(changed) } else { Difference::NeedsRestart(fixed) }
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Written({} keys)", self.0.len())
    }
}

fn changeable(key: &str) -> bool {
    let within = |section: &str| key.strip_prefix(section).is_some_and(|rest| rest.starts_with(['.', '[']));
    let of_destination = key
        .strip_prefix("destination.")
        .and_then(|rest| rest.rsplit_once('.'))
        .is_some_and(|(destination, _)| destination.strip_suffix(".retry").is_some());
    (within("relay") && !FIXED.contains(&key)) || within("retry") || within("route") || of_destination
}

/// Values that are not there have no key, so that a missing table and one without entries are the same.
fn flatten(key: String, value: &Value, keys: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(entries) => {
            for (name, value) in entries {
                let name = if name.contains('.') { format!("{name:?}") } else { name.clone() };
                let inner = if key.is_empty() { name } else { format!("{key}.{name}") };
                flatten(inner, value, keys);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                flatten(format!("{key}[{index}]"), value, keys);
            }
        }
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            keys.insert(key, value.to_string());
        }
    }
}
