//! Sent events are published again under the same event ids.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::on_both;
use super::site::{Site, drain};
use crate::harness;

on_both! {
    sent_events_are_planned_first_and_replayed_under_their_ids_then
    ids_aggregates_and_dates_choose
    an_interrupted_replay_goes_on_behind_its_key_and_repeats_nothing
    events_older_than_the_replay_horizon_are_refused_unless_forced
    an_unmigrated_table_dates_events_by_when_they_were_written
    what_is_replayed_must_be_said
}

/// Sent events `e-000` and so on, each of its own aggregate.
async fn sent(site: &Site, count: u32, event_type: &str, sent_at: &str) {
    let rows: Vec<String> = (0..count)
        .map(|number| {
            format!(
                "('{event_type}-{number:03}', '{number}', '{event_type}', '{{\"orderId\":{number},\"userId\":7,\"amount\":1}}', \
                 'SENT', 3, {sent_at}, {sent_at}, {sent_at})"
            )
        })
        .collect();
    site.run(&format!(
        "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, attempts, available_at, \
         created_at, sent_at) VALUES {}",
        rows.join(", ")
    ))
    .await;
}

const FRESH: &str = "SELECT COUNT(*) FROM outbox_event WHERE status = 'NEW' AND attempts = 0";

async fn sent_events_are_planned_first_and_replayed_under_their_ids_then(site: Site) {
    sent(&site, 25, "OrderCreated", "{now}").await;
    sent(&site, 5, "OrderPaid", "{now}").await;

    let plan = site.json(&["replay", "--type", "OrderCreated", "--since", "1h", "--dry-run"]);
    assert_eq!((&plan["events"], &plan["seconds"]), (&25.into(), &0.25.into()), "{plan}");
    assert_eq!((&plan["dated_by"], &plan["refused"]), (&"sent_at".into(), &json!(null)), "{plan}");
    assert!(plan["oldest"].as_str().unwrap() <= plan["newest"].as_str().unwrap(), "{plan}");
    assert_eq!(site.number(FRESH).await, 0, "nothing was done");

    let done = site.json(&[
        "replay",
        "--type",
        "OrderCreated",
        "--since",
        "1h",
        "--rate",
        "1000",
        "--actor",
        "mei",
        "--note",
        "T-1",
    ]);

    assert_eq!((&done["replayed"], &done["finished"]), (&25.into(), &true.into()), "{done}");
    assert_eq!(site.number(FRESH).await, 25);
    let audit = site.audit().await;
    assert_eq!(audit.len(), 25);
    assert_eq!(audit[0], ("mei".to_owned(), "event_replay".to_owned(), "T-1".to_owned()));
    let everything = site.start();
    site.until("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'", 30).await;
    assert_eq!(site.number("SELECT COUNT(DISTINCT event_id) FROM outbox_event").await, 30);
    drain(everything).await;
}

async fn ids_aggregates_and_dates_choose(site: Site) {
    sent(&site, 9, "OrderCreated", "{now}").await;
    sent(&site, 9, "OrderPaid", "{long_ago}").await;
    let count = |arguments: &[&str]| {
        site.json(&[&["replay", "--dry-run"] as &[&str], arguments].concat())["events"].as_u64().unwrap()
    };

    assert_eq!(count(&["--id", "OrderPaid-001", "--id", "OrderCreated-002", "--id", "none"]), 2);
    assert_eq!(count(&["--aggregate", "4"]), 2);
    assert_eq!(count(&["--aggregate", "4", "--type", "OrderPaid"]), 1);
    assert_eq!(count(&["--since", "1h"]), 9);
    assert_eq!(count(&["--until", "1h"]), 9);
    assert_eq!(count(&["--since", "2020-01-01"]), 18);
    assert_eq!(count(&["--since", "2020-01-01", "--until", "2020-01-02 00:00"]), 0);
    assert_eq!(count(&["--destination", "main"]), 0);
    site.run("UPDATE outbox_event SET destination = 'main' WHERE event_type = 'OrderPaid'").await;
    assert_eq!(count(&["--destination", "main"]), 9);
}

async fn an_interrupted_replay_goes_on_behind_its_key_and_repeats_nothing(site: Site) {
    sent(&site, 200, "OrderCreated", "{now}").await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_consign"))
        .args(["replay", "--type", "OrderCreated", "--since", "1h", "--rate", "40"])
        .args(["--config", harness::text(&site.config)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    // Progress comes after two seconds of five.
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("--after"), "{line}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest}");
    let first = site.number(FRESH).await;
    assert!(first > 0 && first < 200, "{first}");
    assert!(rest.contains(&format!("stopped after {first} events")), "{rest}");
    let key = rest.trim().rsplit(' ').next().unwrap().to_owned();

    // What was replayed is sent again before the rest is.
    site.run("UPDATE outbox_event SET status = 'SENT', sent_at = {now} WHERE status = 'NEW'").await;
    let again = site.json(&["replay", "--type", "OrderCreated", "--after", &key, "--rate", "100000"]);

    assert_eq!(again["replayed"], 200 - first, "{again}");
    let audit = "SELECT COUNT(DISTINCT subject) FROM consign_audit";
    assert_eq!((site.number(audit).await, site.audit().await.len()), (200, 200), "each of them once");
}

async fn events_older_than_the_replay_horizon_are_refused_unless_forced(site: Site) {
    sent(&site, 3, "OrderCreated", "{long_ago}").await;

    let refused = site.call(&["replay", "--type", "OrderCreated"]);

    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    for word in ["is 90.0 days old", "replay_horizon_days is 7", "--force", "kept for ever"] {
        assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
    }
    let plan = site.json(&["replay", "--type", "OrderCreated", "--dry-run"]);
    assert!(plan["refused"].as_str().unwrap().contains("90.0 days"), "{plan}");
    assert_eq!((site.number(FRESH).await, site.audit().await.len()), (0, 0));
    let forced = site.json(&["replay", "--type", "OrderCreated", "--force"]);
    assert_eq!(forced["replayed"], 3, "{forced}");
    assert_eq!(site.number(FRESH).await, 3);
}

async fn an_unmigrated_table_dates_events_by_when_they_were_written(site: Site) {
    site.run(
        "DROP TABLE outbox_event; \
         CREATE TABLE outbox_event (event_id VARCHAR(64) PRIMARY KEY, aggregate_id BIGINT, event_type VARCHAR(64), \
         payload JSON, status VARCHAR(16), attempts INT DEFAULT 0, available_at DATETIME(6), \
         lease_token VARCHAR(64) NULL, locked_until DATETIME(6) NULL, created_at DATETIME(6))",
    )
    .await;
    site.run(
        "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, attempts, available_at, \
         created_at) VALUES ('e-1', 9007199254740993, 'OrderCreated', '{}', 'SENT', 1, {now}, {now}), \
         ('e-2', 9007199254740992, 'OrderCreated', '{}', 'SENT', 1, {now}, {now}), \
         ('e-3', 1, 'OrderCreated', '{}', 'SENT', 1, {now}, {long_ago})",
    )
    .await;

    let plan = site.call(&["replay", "--type", "OrderCreated", "--since", "1h", "--dry-run"]);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stderr.contains("dated by created_at"), "{}", plan.stderr);
    assert!(plan.stdout.starts_with("2 events would be replayed"), "{}", plan.stdout);
    let one = site.json(&["replay", "--aggregate", "9007199254740993"]);
    assert_eq!(one["replayed"], 1, "B48: no key passes through a float: {one}");
    assert_eq!(site.texts("SELECT event_id FROM outbox_event WHERE status = 'NEW'").await, ["e-1"]);
    let destination = site.call(&["replay", "--destination", "main"]);
    assert_eq!(destination.code, 1);
    assert!(destination.stderr.contains("consign migrate"), "{}", destination.stderr);
}

async fn what_is_replayed_must_be_said(site: Site) {
    sent(&site, 1, "OrderCreated", "{now}").await;

    for (arguments, word) in [
        (&["replay"] as &[&str], "--type"),
        (&["replay", "--dry-run", "--rate", "5"], "--id"),
        (&["replay", "--since", "yesterday"], "1h"),
        (&["replay", "--since", "2026-03-01T12:00:00Z"], "without an offset"),
        (&["replay", "--type", "OrderCreated", "--after", "41"], "FROM..UNTIL/POSITION"),
    ] {
        let ended = site.call(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{arguments:?}: {}", ended.stderr);
    }
    assert_eq!(site.number(FRESH).await, 0);
}
