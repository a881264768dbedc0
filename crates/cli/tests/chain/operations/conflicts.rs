//! Conflicts: listed, shown, kept, reprocessed.

use super::on_both;
use super::site::{Site, drain};
use crate::harness::Child;

on_both! {
    a_conflict_is_listed_shown_and_kept_and_opens_again_with_the_same_content
    a_reprocessed_conflict_is_applied_by_the_running_consumer_on_top_of_the_first
    a_message_of_which_only_a_part_was_kept_cannot_be_reprocessed
    a_decision_about_nothing_is_an_error_and_changes_nothing
    a_list_is_narrowed_by_consumer_and_key_and_says_when_there_is_more
}

/// Order 1 applied with 100 points, and refused with 999.
async fn conflict(site: &Site) -> Child {
    let everything = site.start();
    site.pay("e-1", 1, 7, 100).await;
    site.until("SELECT points FROM points_account WHERE user_id = 7", 100).await;
    site.pay("e-2", 1, 7, 999).await;
    site.until("SELECT COUNT(*) FROM consign_conflict", 1).await;
    everything
}

async fn a_conflict_is_listed_shown_and_kept_and_opens_again_with_the_same_content(site: Site) {
    let everything = conflict(&site).await;

    let document = site.json(&["conflicts", "list"]);
    let conflicts = document["conflicts"].as_array().unwrap();
    assert_eq!(conflicts.len(), 1, "{document}");
    let listed = &conflicts[0];
    for (fact, wanted) in [
        ("consumer", "points-award"),
        ("key", "order:1:paid"),
        ("event_id", "e-2"),
        ("existing_event_id", "e-1"),
        ("comparison", "user_id=7, amount=999"),
        ("existing", "user_id=7, amount=100"),
        ("message_type", "OrderPaid"),
    ] {
        assert_eq!(listed[fact], wanted, "{fact}: {listed}");
    }
    assert_eq!((&listed["count"], &listed["resolution"]), (&1.into(), &serde_json::Value::Null));
    assert!(listed.get("payload").is_none(), "payloads are shown one by one: {listed}");
    let id = listed["id"].to_string();

    let shown = site.json(&["conflicts", "show", &id])["conflict"].clone();
    let payload: serde_json::Value =
        serde_json::from_str(shown["payload"]["content"].as_str().unwrap()).unwrap();
    let existing = shown["existing_payload"]["content"].as_str();
    let existing: serde_json::Value = serde_json::from_str(existing.expect("the outbox has it")).unwrap();
    assert_eq!((&payload["amount"], &existing["amount"]), (&999.into(), &100.into()));
    assert_eq!(shown["reprocessable"], true);
    let plain = site.call(&["conflicts", "show", &id]).stdout;
    let sides = plain.lines().find(|line| line.starts_with("comparison")).unwrap();
    assert!(sides.contains("amount=999") && sides.contains("amount=100"), "side by side: {plain}");

    let kept =
        site.json(&["conflicts", "resolve", &id, "--keep", "--actor", "mei", "--note", "typing error"]);
    assert_eq!(
        (kept["resolved"][0]["id"].to_string(), &kept["resolved"][0]["done"]),
        (id.clone(), &"kept".into())
    );
    assert_eq!(site.json(&["conflicts", "list"])["conflicts"], serde_json::json!([]));
    let all = site.json(&["conflicts", "list", "--all"]);
    assert_eq!(all["conflicts"][0]["resolution"], "kept", "{all}");
    let audit = site.audit().await;
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!((audit[0].0.as_str(), audit[0].2.as_str()), ("mei", "typing error"));
    let again = site.call(&["conflicts", "resolve", &id, "--keep"]);
    assert_eq!(again.code, 1);
    assert!(again.stderr.contains("was kept at"), "{}", again.stderr);
    assert_eq!(site.audit().await.len(), 1, "what was decided before is no new decision");

    site.pay("e-3", 1, 7, 999).await;
    site.until("SELECT count FROM consign_conflict", 2).await;
    assert_eq!(site.json(&["conflicts", "list"])["conflicts"][0]["id"].to_string(), id);
    assert_eq!(site.json(&["status"])["inbox"]["conflicts"], 1);
    assert_eq!(site.points(7).await, 100, "nothing but the first content took effect");
    drain(everything).await;
}

async fn a_reprocessed_conflict_is_applied_by_the_running_consumer_on_top_of_the_first(site: Site) {
    let everything = conflict(&site).await;
    let id = site.json(&["conflicts", "list"])["conflicts"][0]["id"].to_string();

    let ended =
        site.call(&["conflicts", "resolve", &id, "--reprocess", "--actor", "mei", "--note", "both count"]);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("the effect of the first one stays"), "{}", ended.stdout);
    site.until("SELECT points FROM points_account WHERE user_id = 7", 1099).await;
    site.until("SELECT COUNT(*) FROM consign_parked_delivery", 0).await;
    assert_eq!(site.texts("SELECT event_id FROM consumed_operation").await, ["e-2"]);
    let all = site.json(&["conflicts", "list", "--all"]);
    assert_eq!(all["conflicts"][0]["resolution"], "reprocessed", "{all}");
    let audit = site.audit().await;
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!((audit[0].0.as_str(), audit[0].2.as_str()), ("mei", "both count"));
    assert!(audit[0].1.contains("reprocess"), "{audit:?}");

    // From now on the second content is the applied one.
    site.pay("e-4", 1, 7, 999).await;
    site.pay("e-5", 1, 7, 100).await;
    site.until("SELECT COUNT(*) FROM consign_conflict", 2).await;
    assert_eq!(site.points(7).await, 1099);
    drain(everything).await;
}

async fn a_message_of_which_only_a_part_was_kept_cannot_be_reprocessed(site: Site) {
    let everything = site.start();
    site.pay("e-1", 1, 7, 100).await;
    site.until("SELECT points FROM points_account WHERE user_id = 7", 100).await;
    let long = "x".repeat(70_000);
    site.event("e-2", "OrderPaid", &format!(r#"{{"orderId":1,"userId":7,"amount":9,"note":"{long}"}}"#))
        .await;
    site.until("SELECT COUNT(*) FROM consign_conflict", 1).await;
    let id = site.json(&["conflicts", "list"])["conflicts"][0]["id"].to_string();

    let shown = site.json(&["conflicts", "show", &id])["conflict"].clone();
    let refused = site.json_of_failure(&["conflicts", "resolve", &id, "--reprocess"]);

    assert_eq!((&shown["reprocessable"], &shown["payload"]["truncated"]), (&false.into(), &true.into()));
    assert!(shown["payload_bytes"].as_u64() > Some(70_000), "the real length: {}", shown["payload_bytes"]);
    assert_eq!(refused["resolved"], serde_json::json!([]));
    let error = refused["failed"][0]["error"].as_str().unwrap();
    assert!(!error.contains("xxx"), "no payload in messages: {error}");
    assert_eq!(site.number("SELECT COUNT(*) FROM consumed_operation").await, 1, "the marker stays");
    assert_eq!(site.number("SELECT COUNT(*) FROM consign_parked_delivery").await, 0);
    assert!(site.audit().await.is_empty());
    drain(everything).await;
}

async fn a_decision_about_nothing_is_an_error_and_changes_nothing(site: Site) {
    let empty = site.json(&["conflicts", "list"]);
    assert_eq!(empty["conflicts"], serde_json::json!([]));

    let missing = site.json_of_failure(&["conflicts", "resolve", "41", "--keep"]);
    let error = missing["failed"][0]["error"].as_str().unwrap();
    assert!(error.contains("no conflict 41"), "{missing}");
    for wrong in ["abc", "0", "1.5", "99999999999999999999"] {
        let ended = site.call(&["conflicts", "show", wrong]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{wrong}");
        assert!(ended.stderr.contains("conflicts list"), "{}", ended.stderr);
    }
    for incomplete in [
        &["conflicts", "resolve", "1"] as &[&str],
        &["conflicts", "resolve", "1", "--keep", "--reprocess"],
        &["conflicts", "resolve", "--keep"],
        &["conflicts", "list", "--limit", "0"],
    ] {
        assert_eq!(site.call(incomplete).code, 2, "{incomplete:?}");
    }
    assert!(site.audit().await.is_empty());
}

async fn a_list_is_narrowed_by_consumer_and_key_and_says_when_there_is_more(site: Site) {
    let everything = conflict(&site).await;
    site.pay("e-3", 2, 8, 5).await;
    site.until("SELECT points FROM points_account WHERE user_id = 8", 5).await;
    site.pay("e-4", 2, 8, 6).await;
    site.until("SELECT COUNT(*) FROM consign_conflict", 2).await;

    let keys = |arguments: &[&str]| -> (Vec<String>, bool) {
        let document = site.json(&[&["conflicts", "list"], arguments].concat());
        let keys = document["conflicts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|conflict| conflict["key"].as_str().unwrap().into());
        (keys.collect(), document["more"].as_bool().unwrap())
    };

    assert_eq!(keys(&[]), (vec!["order:2:paid".into(), "order:1:paid".into()], false), "the newest first");
    assert_eq!(keys(&["--limit", "1"]), (vec!["order:2:paid".into()], true));
    assert_eq!(keys(&["--key", "order:1:paid"]).0, ["order:1:paid"]);
    assert_eq!(keys(&["--key", "ORDER:1:PAID"]).0, Vec::<String>::new(), "keys are what they are");
    assert_eq!(keys(&["--consumer", "sms"]).0, Vec::<String>::new());
    drain(everything).await;
}
