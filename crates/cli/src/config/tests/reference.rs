//! The reference page and the code say the same.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::raw::{
    RawBinding, RawConsumer, RawDeadLetter, RawDestination, RawExchange, RawFilter, RawGroup, RawGuard,
    RawHistory, RawInbox, RawOutbox, RawQueue, RawRelay, RawRetry, RawRetryPart, RawRoute, RawSetup,
    RawStatement, RawStore, RawTopic, RawTransaction,
};
use super::super::shape::defaults;

/// Keys of a section with their defaults, as the page shows them.
type Keys = BTreeMap<String, String>;

/// B79, spring-projects/spring-modulith#818: the documentation states one default and the code has another.
#[test]
fn the_reference_lists_every_key_with_the_default_that_the_code_has() {
    let page = include_str!("../../../../../docs/reference/config.md");

    let documented = tables(page);

    let keys = |section: &str| documented.get(section).cloned().unwrap_or_default();
    for (section, expected) in [
        ("[store]", shown(defaults::<RawStore>())),
        ("[[outbox]]", shown(defaults::<RawOutbox>())),
        ("[inbox]", shown(defaults::<RawInbox>())),
        ("[relay]", shown(defaults::<RawRelay>())),
        ("[retry]", shown(defaults::<RawRetry>())),
        ("[destination.NAME]", shown(defaults::<RawDestination>())),
        ("[destination.NAME.retry]", shown(defaults::<RawRetryPart>())),
        ("exchange", shown(defaults::<RawExchange>())),
        ("[[destination.NAME.queue]]", shown(defaults::<RawQueue>())),
        ("[[destination.NAME.topic]]", shown(defaults::<RawTopic>())),
        ("[[destination.NAME.group]]", required("topic", shown(defaults::<RawGroup>()))),
        ("[[route]]", shown(defaults::<RawRoute>())),
        ("[[consumer]]", shown(defaults::<RawConsumer>())),
        ("[[consumer.compare_history]]", required("version", shown(defaults::<RawHistory>()))),
        ("[consumer.guard]", shown(defaults::<RawGuard>())),
        ("dead_letter", shown(defaults::<RawDeadLetter>())),
        ("bind.NAME", shown(defaults::<RawBinding>())),
        ("[[consumer.statement]]", shown(defaults::<RawStatement>())),
        ("[transaction]", required("store", shown(defaults::<RawTransaction>()))),
        ("[filter]", shown(defaults::<RawFilter>())),
        ("[setup]", shown(defaults::<RawSetup>())),
    ] {
        assert_eq!(keys(section), expected, "section {section}");
    }
    assert_eq!(documented.len(), 21, "a section of the page is unknown: {:?}", documented.keys());
}

/// Tables of the page by heading: `## ` or `### ` with the section in backticks; rows `| `key` | default | meaning |`.
fn tables(page: &str) -> BTreeMap<&str, Keys> {
    let mut tables: BTreeMap<&str, Keys> = BTreeMap::new();
    let mut section = "";
    for line in page.lines() {
        if line.starts_with('#') {
            section = line.split('`').nth(1).unwrap_or("");
        } else if line.starts_with("| `") {
            let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
            let key = cells.next().unwrap_or_default().trim_matches('`');
            let default = cells.next().unwrap_or_default();
            assert!(cells.next().is_some_and(|meaning| !meaning.is_empty()), "{key} has no meaning");
            tables.entry(section).or_default().insert(key.to_owned(), default.trim_matches('`').to_owned());
        }
    }
    tables
}

/// Defaults as the page writes them; a key without one is `required` or `none`, which only people can tell.
fn shown(defaults: Vec<(String, Value)>) -> Keys {
    defaults.into_iter().map(|(key, value)| (key.clone(), default_text(&key, &value))).collect()
}

/// A key that is optional in other sections.
fn required(key: &str, mut keys: Keys) -> Keys {
    keys.insert(key.to_owned(), "required".to_owned());
    keys
}

fn default_text(key: &str, value: &Value) -> String {
    const REQUIRED: [&str; 17] = [
        "rule",
        "aggregate",
        "url",
        "type",
        "path",
        "name",
        "event_type",
        "destination",
        "source",
        "queue",
        "group",
        "key",
        "compare",
        "fingerprint",
        "pointer",
        "header",
        "sql",
    ];
    match value {
        Value::Null if REQUIRED.contains(&key) => "required".into(),
        Value::Null => "none".into(),
        Value::Array(items) if items.is_empty() => "[]".into(),
        Value::Object(entries) if entries.is_empty() => "{}".into(),
        Value::String(text) if key == "expect_rows" => text.clone(),
        other => other.to_string(),
    }
}
