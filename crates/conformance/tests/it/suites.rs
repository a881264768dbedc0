//! The suites' lists: a behaviour that is written and not listed would never run.

fn written<'s>(sources: &[&'s str]) -> Vec<&'s str> {
    let marked = |source: &'s str| {
        source.lines().filter_map(|line| {
            let (name, rest) = line.strip_prefix("pub async fn ")?.split_once('<')?;
            (rest.contains("Fixture>()") && rest.contains(": ")).then_some(name)
        })
    };
    let mut names: Vec<&str> = sources.iter().flat_map(|source| marked(source)).collect();
    names.sort_unstable();
    names
}

fn listed(suite: &str) -> Vec<&str> {
    let (_, rest) = suite.split_once("expand_suite! {").expect("the suite expands");
    let (list, _) = rest.split_once("};").unwrap_or((rest, ""));
    let mut names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
        .filter(|name| {
            name.contains('_') && name.chars().all(|next| next.is_ascii_lowercase() || next == '_')
        })
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn every_store_behaviour_is_listed() {
    let sources = [
        include_str!("../../src/store/cancel.rs"),
        include_str!("../../src/store/claim.rs"),
        include_str!("../../src/store/payload.rs"),
        include_str!("../../src/store/settle.rs"),
        include_str!("../../src/store/sweep.rs"),
    ];
    let names = written(&sources);
    assert!(names.len() > 40, "the sources were read: {names:?}");
    assert_eq!(names, listed(include_str!("../../src/store.rs")));
}

#[test]
fn every_inbox_behaviour_is_listed() {
    let sources = [
        include_str!("../../src/inbox/batch.rs"),
        include_str!("../../src/inbox/guard.rs"),
        include_str!("../../src/inbox/keys.rs"),
        include_str!("../../src/inbox/parking.rs"),
        include_str!("../../src/inbox/process.rs"),
        include_str!("../../src/inbox/race.rs"),
        include_str!("../../src/inbox/record.rs"),
        include_str!("../../src/inbox/rollback.rs"),
    ];
    let names = written(&sources);
    assert!(names.len() > 20, "the sources were read: {names:?}");
    assert_eq!(names, listed(include_str!("../../src/inbox.rs")));
}

#[test]
fn every_broker_behaviour_is_listed() {
    let sources = [
        include_str!("../../src/broker/consume.rs"),
        include_str!("../../src/broker/fault.rs"),
        include_str!("../../src/broker/publish.rs"),
    ];
    let names = written(&sources);
    assert!(names.len() > 25, "the sources were read: {names:?}");
    assert_eq!(names, listed(include_str!("../../src/broker.rs")));
}
