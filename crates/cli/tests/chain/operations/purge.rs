//! Old markers go, and only those that no copy of their event can need any more.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::on_both;
use super::site::{Site, drain};
use crate::harness::{self, Child};
use crate::post::{must, run};

on_both! {
    markers_are_purged_beyond_the_horizon_and_refused_within_it
    what_to_purge_and_how_old_must_be_said
    an_interrupted_purge_stops_between_two_batches_and_says_how_far_it_came
    old_sent_rows_are_counted_first_and_purged_then
    a_relay_purges_sent_rows_and_attempts_beyond_their_retention
    an_outbox_that_keeps_nothing_deletes_what_was_sent
}

/// Markers of orders that were paid long ago, three months to be precise.
async fn old_markers(site: &Site, count: u32) {
    for first in (0..count).step_by(500) {
        let rows: Vec<String> = (first..count.min(first + 500))
            .map(|number| format!("('points-award', 'order:{number}:old', 'e', {{long_ago}})"))
            .collect();
        site.run(&format!(
            "INSERT INTO consumed_operation (consumer_name, business_key, event_id, applied_at) VALUES {}",
            rows.join(", ")
        ))
        .await;
    }
}

async fn markers_are_purged_beyond_the_horizon_and_refused_within_it(site: Site) {
    // A table from before consign, whose markers have no dates.
    site.run(
        "DROP TABLE consumed_operation; \
         CREATE TABLE consumed_operation (consumer_name VARCHAR(64), business_key VARCHAR(128), event_id VARCHAR(64), \
         user_id BIGINT, amount INT, PRIMARY KEY (consumer_name, business_key)); \
         INSERT INTO consumed_operation (consumer_name, business_key, event_id) VALUES ('points-award', 'undated', 'e')",
    )
    .await;
    must(&["migrate"], &site.config);
    let everything = site.start();
    site.pay("e-1", 1, 7, 100).await;
    site.until("SELECT points FROM points_account WHERE user_id = 7", 100).await;
    old_markers(&site, 25).await;

    // The default replay horizon is a week.
    let refused = site.call(&["purge", "--markers", "--older-than", "7d", "--yes"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    for number in ["604800 s", "604800 s of replay", "of publishing", "of consuming", "--older-than 8d"] {
        assert!(refused.stderr.contains(number), "{number}: {}", refused.stderr);
    }
    let plan = site.json(&["purge", "--markers", "--older-than", "30d"]);
    assert_eq!(
        (&plan["would_purge"], &plan["examined"], &plan["undated"]),
        (&25.into(), &27.into(), &1.into()),
        "{plan}"
    );
    assert!(plan["oldest_applied_at"].as_str().unwrap().starts_with("20"), "{plan}");
    assert_eq!(site.number("SELECT COUNT(*) FROM consumed_operation").await, 27, "a plan deletes nothing");

    let purged = site.json(&["purge", "--markers", "--older-than", "30d", "--batch", "10", "--yes"]);

    assert_eq!(
        (&purged["purged"], &purged["examined"], &purged["finished"]),
        (&25.into(), &27.into(), &true.into()),
        "{purged}"
    );
    assert!(purged["batches"].as_u64() >= Some(3), "{purged}");
    assert_eq!(
        site.texts("SELECT business_key FROM consumed_operation ORDER BY business_key").await,
        ["order:1:paid", "undated"]
    );
    // What is still kept still keeps.
    site.pay("e-1-again", 1, 7, 100).await;
    site.until("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'", 2).await;
    drain(everything).await;
    assert_eq!(site.points(7).await, 100);
}

async fn what_to_purge_and_how_old_must_be_said(site: Site) {
    old_markers(&site, 3).await;

    let nothing = site.call(&["purge"]);
    assert_eq!(nothing.code, 2);
    assert!(nothing.stderr.contains("--markers"), "{}", nothing.stderr);
    let ageless = site.call(&["purge", "--markers", "--yes"]);
    assert_eq!(ageless.code, 2);
    assert!(ageless.stderr.contains("retention_days"), "{}", ageless.stderr);

    let config = site.config_with("kept.toml", |text| format!("{text}\n[inbox]\nretention_days = 30\n"));
    let plan = run(&["purge", "--markers"], &config);
    assert_eq!(plan.code, 0, "{}", plan.stderr);
    assert!(plan.stdout.starts_with("3 of 3 markers are older"), "{}", plan.stdout);
    assert!(plan.stderr.contains("--yes"), "{}", plan.stderr);
    let purged = run(&["purge", "--markers", "--yes"], &config);
    assert_eq!(purged.code, 0, "{}", purged.stderr);
    assert_eq!(site.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
}

async fn an_interrupted_purge_stops_between_two_batches_and_says_how_far_it_came(site: Site) {
    const MARKERS: u32 = 5000;
    old_markers(&site, MARKERS).await;
    let arguments = [
        "purge",
        "--markers",
        "--older-than",
        "30d",
        "--batch",
        "1",
        "--yes",
        "--json",
        "--config",
        harness::text(&site.config),
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_consign"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("so far") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended before it told its progress");
    }

    kill_process(Pid::from_child(&child), Signal::INT).unwrap();

    let mut told = String::new();
    stderr.read_to_string(&mut told).unwrap();
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(document["finished"], false, "it was interrupted in the middle: {document}");
    let left = site.number("SELECT COUNT(*) FROM consumed_operation").await;
    assert!(left > 0);
    assert_eq!(document["purged"], i64::from(MARKERS) - left, "{document}");
    assert!(told.contains(&format!("stopped after {}", document["purged"])), "{told}");
}

/// Sent events, three months ago.
async fn old_sent_rows(site: &Site, count: u32) {
    for first in (0..count).step_by(500) {
        let rows: Vec<String> = (first..count.min(first + 500))
            .map(|number| format!("('old-{number}', 1, 'OrderPaid', '{{}}', 'SENT', {{long_ago}}, {{long_ago}}, {{long_ago}})"))
            .collect();
        site.run(&format!(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at, \
             sent_at) VALUES {}",
            rows.join(", ")
        ))
        .await;
    }
}

async fn old_sent_rows_are_counted_first_and_purged_then(site: Site) {
    old_sent_rows(&site, 700).await;
    site.run(
        "INSERT INTO outbox_event (event_id, event_type, status, available_at, created_at, sent_at) VALUES \
         ('young', 'T', 'SENT', {now}, {now}, {now}), ('replayed', 'T', 'SENT', {long_ago}, {long_ago}, {now}), \
         ('dead', 'T', 'DEAD', {long_ago}, {long_ago}, NULL)",
    )
    .await;

    for (arguments, word) in [
        (&["purge", "--sent"] as &[&str], "retention_days"),
        (&["purge", "--sent", "--older-than", "6d", "--yes"], "replay_horizon_days is 7"),
        (&["purge", "--sent", "--markers", "--older-than", "30d"], "--markers"),
    ] {
        let ended = site.call(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{arguments:?}: {}", ended.stderr);
    }
    let plan = site.json(&["purge", "--sent", "--older-than", "7d", "--dry-run"]);
    assert_eq!((&plan["would_purge"], &plan["purged"]), (&700.into(), &0.into()), "{plan}");
    assert_eq!(site.number("SELECT COUNT(*) FROM outbox_event").await, 703, "nothing was done");

    let purged = site.json(&["purge", "--sent", "--older-than", "7d", "--yes"]);

    assert_eq!((&purged["purged"], &purged["finished"]), (&700.into(), &true.into()), "{purged}");
    assert!(purged["batches"].as_u64().unwrap() >= 3, "the first batches are small: {purged}");
    assert_eq!(
        site.texts("SELECT event_id FROM outbox_event ORDER BY event_id").await,
        ["dead", "replayed", "young"]
    );
}

async fn a_relay_purges_sent_rows_and_attempts_beyond_their_retention(site: Site) {
    old_sent_rows(&site, 1500).await;
    site.run(
        "INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome) VALUES \
         ('old-1', 't', 'r', {long_ago}, 'confirmed'), ('old-2', 't', 'r', {long_ago}, 'fenced')",
    )
    .await;
    let forgetful =
        site.config_with("forgetful.toml", |text| format!("{text}\n[[outbox]]\nretention_days = 7\n"));
    let everything = Child::start("run", &forgetful, &[("CONSIGN_LOG", "info,sqlx=off")]);

    site.pay("e-1", 1, 7, 100).await;
    site.until("SELECT COUNT(*) FROM outbox_event WHERE event_id <> 'e-1'", 0).await;
    site.until("SELECT COUNT(*) FROM consign_attempt WHERE event_id <> 'e-1'", 0).await;
    site.until("SELECT points FROM points_account WHERE user_id = 7", 100).await;
    site.until("SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT'", 1).await;

    let attempt = "SELECT outcome FROM consign_attempt WHERE event_id = 'e-1' AND started_at <= recorded_at";
    assert_eq!(site.texts(attempt).await, ["confirmed"]);
    drain(everything).await;
}

async fn an_outbox_that_keeps_nothing_deletes_what_was_sent(site: Site) {
    let forgetful =
        site.config_with("forgetful.toml", |text| format!("{text}\n[[outbox]]\non_sent = \"delete\"\n"));
    let everything = Child::start("run", &forgetful, &[("CONSIGN_LOG", "info,sqlx=off")]);

    for number in 1..=20 {
        site.pay(&format!("e-{number}"), number, 8, 1).await;
    }

    site.until("SELECT points FROM points_account WHERE user_id = 8", 20).await;
    site.until("SELECT COUNT(*) FROM outbox_event", 0).await;
    assert_eq!(site.number("SELECT COUNT(*) FROM consign_attempt WHERE outcome = 'confirmed'").await, 20);
    drain(everything).await;
}
