//! `consign lab` on embedded parts, as a user runs it; `rocketmq`: on MySQL and RocketMQ.

mod rocketmq;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Every window that exists on embedded parts.
const WINDOWS: [&str; 18] = [
    "commit-then-send",
    "send-then-commit",
    "claim-without-lease",
    "durable-without-confirms",
    "confirm-without-mandatory",
    "timeout-marked-sent",
    "settle-without-token",
    "retry-with-new-id",
    "ack-before-commit",
    "lost-ack-without-marker",
    "marker-outside-transaction",
    "select-then-insert",
    "id-only-dedup",
    "batch-ack-over-unfinished",
    "redelivery-storm",
    "poison-at-the-head",
    "stale-overwrite",
    "purge-before-horizon",
];

/// Where the lab finds servers that nobody named.
const SERVERS: [&str; 5] = [
    "CONSIGN_TEST_MYSQL_URL",
    "CONSIGN_TEST_RABBITMQ_URL",
    "CONSIGN_TEST_REDIS_URL",
    "CONSIGN_TEST_ROCKETMQ_URL",
    "CONSIGN_TEST_ROCKETMQ_NAMESRV",
];

/// A whole run of the lab keeps a machine busy: two at once would take each other's time for a window.
static WHOLE_RUN: Mutex<()> = Mutex::new(());

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consign"));
    command.arg("lab").args(arguments).env_remove("CONSIGN_CONFIG");
    command
}

fn lab(arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    for variable in SERVERS {
        command.env_remove(variable);
    }
    command.output().expect("consign starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

#[test]
fn every_naive_side_shows_its_defect_and_no_side_with_consign_has_one() {
    let _alone = WHOLE_RUN.lock().unwrap_or_else(PoisonError::into_inner);

    let output = lab(&["--json"]);

    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert_proven(&output, "embedded", &WINDOWS);
}

/// The document has these scenarios: every naive side shows its defect, and no side with consign has one.
fn assert_proven(output: &Output, backend: &str, windows: &[&str]) {
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let scenarios = document["scenarios"].as_array().unwrap();
    let ids: Vec<&str> = scenarios.iter().map(|scenario| scenario["id"].as_str().unwrap()).collect();
    assert_eq!(ids, windows);
    for scenario in scenarios {
        let figures =
            |side: &str| ["lost", "doubled", "wrong"].map(|word| scenario[side][word].as_i64().unwrap());
        assert_eq!(scenario["backend"], backend);
        assert!(figures("naive").iter().any(|count| *count > 0), "{scenario}");
        assert_eq!(figures("consign"), [0, 0, 0], "{scenario}");
    }
    assert_eq!(document["passed"], true);
}

#[test]
fn the_document_has_the_promised_shape() {
    let output = lab(&["--json", "--only", "ack-before-commit"]);

    let compact: String = text(&output.stdout).split_whitespace().collect();
    assert_eq!(
        compact,
        r#"{"scenarios":[{"id":"ack-before-commit","backend":"embedded","naive":{"lost":1,"doubled":0,"wrong":0},"consign":{"lost":0,"doubled":0,"wrong":0}}],"passed":true}"#
    );
}

#[test]
fn the_report_is_one_page_that_needs_nothing_else_in_either_language() {
    let folder = tempfile::tempdir().unwrap();
    for (language, code, dies) in [("en", "en", "dies"), ("zh", "zh-CN", "进程死亡")] {
        let file = folder.path().join(format!("{language}.html"));
        let path = file.to_str().unwrap();

        let output = lab(&["--only", "send-then-commit", "--html", path, "--language", language]);

        assert!(output.status.success(), "{}", text(&output.stderr));
        let page = std::fs::read_to_string(&file).unwrap();
        assert!(page.contains(&format!("<html lang=\"{code}\">")));
        assert_eq!(page.matches("<svg").count(), 2, "a picture for each side");
        assert_eq!(page.matches("class=\"cross\"").count(), 2, "each side's death is drawn");
        assert!(page.contains(dies) && page.contains("send-then-commit"));
        for foreign in
            ["http:", "https:", "<script", "<link", "<img", "url(", "@import", path_of(folder.path())]
        {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}

fn path_of(folder: &Path) -> &str {
    folder.to_str().unwrap()
}

#[test]
fn a_word_that_means_nothing_is_a_usage_error_that_names_what_there_is() {
    let output = lab(&["--only", "everything"]);

    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("\"everything\"") && error.contains("poison-at-the-head"), "{error}");
}

#[test]
fn a_backend_without_its_servers_is_a_usage_error() {
    for (arguments, missing) in [
        (&["--only", "rabbitmq"][..], "--mysql and --rabbitmq"),
        (&["--only", "redis"], "--mysql, --rabbitmq and --redis"),
        (&["--only", "rocketmq"], "--mysql, --rocketmq and --rocketmq-name-servers"),
        (
            &["--mysql", "mysql://root@127.0.0.1/x", "--rocketmq", "rocketmq://127.0.0.1:1"],
            "--rocketmq-name-servers: is needed",
        ),
        (&["--only", "redis-setnx-alone"], "other backends"),
        (&["--mysql", "mysql://root@127.0.0.1/x"], "--rabbitmq: or --rocketmq is needed"),
        (
            &["--mysql", "postgres://root@127.0.0.1/x", "--rabbitmq", "amqp://127.0.0.1/"],
            "--mysql: must begin with mysql://",
        ),
    ] {
        let output = lab(arguments);

        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(missing), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_server_that_is_not_there_is_named_and_the_password_is_not() {
    let output = lab(&["--mysql", "mysql://root:s3cret@127.0.0.1:1/x", "--rabbitmq", "amqp://127.0.0.1:1/"]);

    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("cannot reach MySQL at 127.0.0.1:1"), "{error}");
    assert!(!error.contains("s3cret"), "{error}");
}
