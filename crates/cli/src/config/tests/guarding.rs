//! Guards and the history of comparisons.

use std::sync::Arc;

use consign_core::declared::{DeclaredRule, VersionSource};
use consign_core::guard::{Step, Transitions};

use super::*;

/// `WHOLE` with a version and a state to guard by.
fn bound(guard: &str) -> String {
    let bindings = "bind.version = { pointer = \"/version\", type = \"integer\" }\n\
                    bind.state = { pointer = \"/state\", type = \"string\" }\n\
                    bind.maybe = { pointer = \"/maybe\", type = \"integer\", required = false }\n\n\
                    [[consumer.statement]]";
    format!("{}[consumer.guard]\n{guard}\n", changed("\n[[consumer.statement]]", bindings))
}

const AGGREGATE: &str = "aggregate = \"order:{order_id}\"";

#[test]
fn each_rule_is_read_with_its_defaults() {
    let consumer = |guard: &str| read(&bound(&format!("{AGGREGATE}\n{guard}"))).unwrap().consumers.remove(0);
    let rule = |guard: &str| consumer(guard).consumer.guard().unwrap().rule.clone();
    let allowed = ["->NEW", "NEW->PAID"];

    assert_eq!(rule("rule = \"apply_if_newer\""), DeclaredRule::ApplyIfNewer(VersionSource::Header));
    assert_eq!(
        rule("rule = \"apply_if_newer\"\nversion = \"version\""),
        DeclaredRule::ApplyIfNewer(VersionSource::Binding("version".into()))
    );
    assert_eq!(
        rule("rule = \"sequential\""),
        DeclaredRule::Sequential { version: VersionSource::Header, first: 1 }
    );
    assert_eq!(
        rule("rule = \"sequential\"\nfirst = 0\nversion = \"version\""),
        DeclaredRule::Sequential { version: VersionSource::Binding("version".into()), first: 0 }
    );
    assert_eq!(
        rule("rule = \"transition\"\nstate = \"state\"\nallowed = [\"->NEW\", \"NEW->PAID\"]"),
        DeclaredRule::Transition {
            state: "state".into(),
            allowed: Arc::new(Transitions::parse(allowed).unwrap())
        }
    );
    assert_eq!(consumer("rule = \"sequential\"").gap_wait, Some(Duration::from_mins(5)));
    assert_eq!(consumer("rule = \"sequential\"\ngap_seconds = 9").gap_wait, Some(Duration::from_secs(9)));
    assert_eq!(consumer("rule = \"apply_if_newer\"").gap_wait, None);
    assert!(read(WHOLE).unwrap().consumers[0].consumer.guard().is_none());
}

#[test]
fn guards_and_filters_can_be_overridden_by_the_environment() {
    let text = bound(&format!("rule = \"sequential\"\n{AGGREGATE}"));

    let config = read_with(
        &text,
        &[
            ("CONSIGN__CONSUMER__POINTS_AWARD__GUARD__GAP_SECONDS", "9"),
            ("CONSIGN__FILTER__TYPE", "redis"),
            ("CONSIGN__FILTER__URL", "redis://:s3cr3t@cache.example"),
        ],
    )
    .unwrap();

    assert_eq!(config.consumers[0].gap_wait, Some(Duration::from_secs(9)));
    assert_eq!(config.filter.unwrap().url.host, "cache.example");
}

#[test]
fn a_guarded_consumer_reads_the_step_from_the_message() {
    let guard = format!("{AGGREGATE}\nrule = \"apply_if_newer\"\nversion = \"version\"");
    let config = read(&bound(&guard)).unwrap();
    let body = br#"{"orderId":42,"userId":7,"amount":100,"version":3,"state":"PAID"}"#.as_slice();

    let message = Message { body: body.into(), ..Message::default() };
    let (operation, _) = config.consumers[0].consumer.operation(&message).unwrap();

    let guard = operation.guard.unwrap();
    assert_eq!((guard.aggregate.as_str(), guard.step), ("order:42", Step::ApplyIfNewer { version: 3 }));
}

#[test]
fn guards_that_cannot_work_are_refused() {
    let newer = format!("rule = \"apply_if_newer\"\n{AGGREGATE}");
    let sequential = format!("rule = \"sequential\"\n{AGGREGATE}");
    let transition = format!("rule = \"transition\"\n{AGGREGATE}\nstate = \"state\"");
    let long = "x".repeat(65);
    for (guard, mistake) in [
        (
            AGGREGATE.to_owned(),
            "33: consumer[0].guard.rule: is missing: write rule = \"apply_if_newer\", \"sequential\" or \"transition\"".to_owned(),
        ),
        (
            format!("{AGGREGATE}\nrule = \"newer\""),
            "35: consumer[0].guard.rule: \"newer\" is not known: use one of apply_if_newer, sequential, transition".into(),
        ),
        (
            "rule = \"sequential\"".into(),
            "33: consumer[0].guard.aggregate: is missing: write aggregate = \"order:{order_id}\"".into(),
        ),
        (
            newer.replace("{order_id}", "{ordr_id}"),
            "35: consumer[0].guard.aggregate: \"order:{ordr_id}\" uses unknown name \"ordr_id\": did you mean \"order_id\"?".into(),
        ),
        (
            newer.replace("{order_id}", "{maybe}"),
            "35: consumer[0].guard.aggregate: \"order:{maybe}\" uses \"maybe\", which is optional: a key needs it in every message, remove required = false".into(),
        ),
        (
            newer.replace("{order_id}", "{order_id"),
            "35: consumer[0].guard.aggregate: \"order:{order_id\" has an unpaired brace: write placeholders as {name}".into(),
        ),
        (
            format!("{newer}\nversion = \"vresion\""),
            "36: consumer[0].guard.version: \"vresion\" is not bound: did you mean \"version\"?".into(),
        ),
        (
            format!("{newer}\nversion = \"state\""),
            "36: consumer[0].guard.version: \"state\" has type a string, and the guard needs an integer: bind another field".into(),
        ),
        (
            format!("{newer}\nversion = \"maybe\""),
            "36: consumer[0].guard.version: \"maybe\" may be absent, and a guard needs it in every message: bind a payload field without required = false".into(),
        ),
        (
            format!("{newer}\nfirst = 1"),
            "36: consumer[0].guard.first: does not apply to rule apply_if_newer: remove it".into(),
        ),
        (
            format!("{newer}\ngap_seconds = 10"),
            "36: consumer[0].guard.gap_seconds: does not apply to rule apply_if_newer: remove it".into(),
        ),
        (
            format!("{sequential}\nallowed = []"),
            "36: consumer[0].guard.allowed: does not apply to rule sequential: remove it".into(),
        ),
        (
            format!("{sequential}\ngap_seconds = 0"),
            "36: consumer[0].guard.gap_seconds: 0 is out of range: use 1 to 604800".into(),
        ),
        (
            format!("{transition}\nallowed = [\"->NEW\"]\nversion = \"version\""),
            "38: consumer[0].guard.version: does not apply to rule transition: remove it".into(),
        ),
        (
            transition.clone(),
            "33: consumer[0].guard.allowed: no transition starts from nothing, so no aggregate could ever begin: add \"->FIRST\"".into(),
        ),
        (
            format!("{transition}\nallowed = [\"->NEW\", \"NEW=>PAID\"]"),
            "37: consumer[0].guard.allowed: \"NEW=>PAID\" is not a transition: write \"FROM->TO\", or \"->TO\" for the first state".into(),
        ),
        (
            format!("{transition}\nallowed = [\"->{long}\"]"),
            format!("37: consumer[0].guard.allowed: \"{long}\" is longer than the 64 characters that fit: use shorter states"),
        ),
        (
            format!("{transition}\nallowed = [\"->NEW\"]").replace("\"state\"", "\"version\""),
            "36: consumer[0].guard.state: \"version\" has type an integer, and the guard needs a string: bind another field".into(),
        ),
        (
            format!("{newer}\ngap_second = 1"),
            "36: consumer[0].guard.gap_second: unknown key, did you mean \"gap_seconds\"?".into(),
        ),
    ] {
        assert_eq!(mistakes(&bound(&guard)), [format!("consign.toml:{mistake}")], "{guard}");
    }
}

/// `WHOLE` with more keys under its comparison, which stands on line 23.
fn versioned(keys: &str) -> String {
    let compare = "compare = [\"user_id\", \"amount\"]\n";
    changed(compare, &format!("{compare}{keys}\n"))
}

#[test]
fn earlier_comparisons_are_read_under_their_versions() {
    let text = versioned(
        "compare_version = 3\ncompare_history = [{ version = 1, compare = [\"user_id\"] }, \
         { version = 2, fingerprint = [\"user_id\", \"amount\"] }]",
    );

    let config = read(&text).unwrap();

    let consumer = &config.consumers[0].consumer;
    assert_eq!(consumer.comparison_version(), 3);
    assert_eq!(consumer.earlier().iter().map(|earlier| earlier.version).collect::<Vec<_>>(), [1, 2]);
    assert!(consumer.uses_fingerprint());
    assert_eq!(read(WHOLE).unwrap().consumers[0].consumer.comparison_version(), 1);
}

#[test]
fn histories_that_cannot_be_told_apart_are_refused() {
    let first = "compare_version = 2\ncompare_history = [{ version = 1, compare = [\"user_id\"] }";
    for (keys, mistake) in [
        ("compare_version = 0", "24: consumer[0].compare_version: 0 is out of range: use 1 to 1000000"),
        (
            "compare_history = [{ version = 1, compare = [] }]",
            "24: consumer[0].compare_history[0].version: version 1 is not earlier than compare_version, which is 1: raise compare_version whenever the comparison changes",
        ),
        (
            "compare_version = 2\ncompare_history = [{ version = 0, compare = [] }]",
            "25: consumer[0].compare_history[0].version: version 0 does not exist: count from 1",
        ),
        (
            &format!("{first}, {{ version = 1, compare = [] }}]"),
            "25: consumer[0].compare_history[1].version: version 1 is listed twice: keep the comparison that was deployed under it",
        ),
        (
            &format!("{first}, {{ compare = [] }}]"),
            "25: consumer[0].compare_history[1].version: is missing: write the version whose comparison this was",
        ),
        (
            "compare_version = 2\ncompare_history = [{ version = 1 }]",
            "25: consumer[0].compare_history[0].compare: is missing: list the fields that must be equal for a repeat, compare = [] when the key says it all, or use fingerprint",
        ),
        (
            "compare_version = 2\ncompare_history = [{ version = 1, compare = [\"userid\"] }]",
            "25: consumer[0].compare_history[0].compare: \"userid\" is not bound: did you mean \"user_id\"?",
        ),
        (
            "compare_version = 2\ncompare_history = [{ version = 1, fingerprint = [\"userid\"] }]",
            "25: consumer[0].compare_history[0].fingerprint: \"userid\" is not bound: did you mean \"user_id\"?",
        ),
        (
            "compare_version = 2\ncompare_history = [{ version = 1, compare = { business_key = \"user_id\" } }]",
            "25: consumer[0].compare_history[0].compare: \"business_key\" is a column of consumed_operation that consign writes itself: compare another one",
        ),
    ] {
        assert_eq!(mistakes(&versioned(keys)), [format!("consign.toml:{mistake}")]);
    }
}
