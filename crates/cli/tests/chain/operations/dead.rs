//! Dead letters of both sides: listed, shown, requeued, discarded.

use serde_json::{Value, json};

use super::on_both;
use super::site::{Site, drain};
use crate::harness::Child;
use crate::post::{must, run};

on_both! {
    a_dead_delivery_is_requeued_and_applied_once_its_account_exists
    a_dead_delivery_is_discarded_and_stays_in_its_table
    a_dead_event_is_requeued_and_sent_under_its_event_id
    an_event_is_discarded_and_never_sent
    everything_that_the_filters_let_through_is_planned_first_and_requeued_then
    filters_alone_choose_what_is_requeued_or_discarded
    dead_letters_at_a_broker_are_named_with_their_queue
    several_outboxes_are_told_apart_by_name
    tables_that_nobody_made_are_told_and_hide_nothing_else
    wrong_names_and_filters_are_refused_before_anything_is_decided
}

fn list(site: &Site, arguments: &[&str]) -> Vec<Value> {
    let document = site.json(&[&["dead", "list"], arguments].concat());
    document["dead"].as_array().unwrap_or_else(|| panic!("{document}")).clone()
}

fn ids(site: &Site, arguments: &[&str]) -> Vec<String> {
    list(site, arguments).iter().map(|letter| letter["id"].as_str().unwrap().to_owned()).collect()
}

/// An award for user 77, who has no account.
async fn dead_delivery(site: &Site) -> (Child, String) {
    let everything = site.start();
    site.pay("e-1", 1, 77, 100).await;
    site.until("SELECT COUNT(*) FROM consign_dead_delivery WHERE resolved_at IS NULL", 1).await;
    let id = ids(site, &[]).pop().unwrap();
    (everything, id)
}

/// An event that a relay gave up, as far as the table tells.
async fn dead_event(site: &Site, id: &str, event_type: &str, reason: &str) {
    site.event(id, event_type, "{\"orderId\":9,\"userId\":7,\"amount\":1}").await;
    site.run(&format!(
        "UPDATE outbox_event SET status = 'DEAD', attempts = 20, last_error = '{reason}' WHERE event_id = '{id}'"
    ))
    .await;
}

async fn a_dead_delivery_is_requeued_and_applied_once_its_account_exists(site: Site) {
    let (everything, id) = dead_delivery(&site).await;
    let letter = &list(&site, &[])[0];
    assert!(id.starts_with("delivery:"), "{letter}");
    for (fact, wanted) in [
        ("side", "inbox"),
        ("consumer", "points-award"),
        ("key", "order:1:paid"),
        ("message_id", "e-1"),
        ("type", "OrderPaid"),
    ] {
        assert_eq!(letter[fact], wanted, "{fact}: {letter}");
    }
    assert!(letter["reason"].as_str().unwrap().contains("row"), "{letter}");
    assert!(letter.get("payload").is_none(), "{letter}");
    let shown = site.json(&["dead", "show", &id])["dead"].clone();
    let payload: Value = serde_json::from_str(shown["payload"]["content"].as_str().unwrap()).unwrap();
    assert_eq!((&payload["userId"], &shown["payload"]["truncated"]), (&77.into(), &false.into()));
    assert!(site.call(&["dead", "show", &id]).stdout.contains("77"));

    site.run("INSERT INTO points_account (user_id, points) VALUES (77, 0)").await;
    let requeued = site.json(&["dead", "requeue", &id, "--actor", "mei", "--note", "the account exists now"]);

    assert_eq!(requeued["requeued"][0]["id"], id.as_str(), "{requeued}");
    site.until("SELECT points FROM points_account WHERE user_id = 77", 100).await;
    site.until("SELECT COUNT(*) FROM consign_parked_delivery", 0).await;
    assert!(ids(&site, &[]).is_empty());
    let audit = site.audit().await;
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!((audit[0].0.as_str(), audit[0].2.as_str()), ("mei", "the account exists now"));
    let again = site.call(&["dead", "requeue", &id]);
    assert_eq!(again.code, 1, "{}", again.stderr);
    assert!(again.stderr.contains("was requeued at"), "{}", again.stderr);
    assert_eq!(site.audit().await.len(), 1);
    assert_eq!(site.points(77).await, 100);
    drain(everything).await;
}

async fn a_dead_delivery_is_discarded_and_stays_in_its_table(site: Site) {
    let (everything, id) = dead_delivery(&site).await;

    let discarded = site.json(&["dead", "discard", &id, "--actor", "mei", "--note", "TICKET-812"]);

    assert_eq!(discarded["discarded"][0]["id"], id.as_str(), "{discarded}");
    assert!(ids(&site, &[]).is_empty());
    assert_eq!(site.json(&["dead", "show", &id])["dead"]["resolution"], "discarded");
    assert_eq!(site.audit().await[0].2, "TICKET-812");
    let requeue = site.call(&["dead", "requeue", &id]);
    assert_eq!(requeue.code, 1);
    assert!(requeue.stderr.contains("was discarded at"), "{}", requeue.stderr);
    assert_eq!(site.number("SELECT COUNT(*) FROM consign_parked_delivery").await, 0);
    drain(everything).await;
}

async fn a_dead_event_is_requeued_and_sent_under_its_event_id(site: Site) {
    dead_event(&site, "e:9", "OrderPaid", "message too large").await;
    let everything = site.start();
    let letters = list(&site, &["--side", "outbox"]);
    assert_eq!(letters.len(), 1, "{letters:?}");
    let letter = &letters[0];
    for (fact, wanted) in [
        ("id", "outbox:e:9"),
        ("side", "outbox"),
        ("event_id", "e:9"),
        ("type", "OrderPaid"),
        ("reason", "message too large"),
    ] {
        assert_eq!(letter[fact], wanted, "{fact}: {letter}");
    }
    assert_eq!(letter["attempts"], 20);
    assert_eq!(site.json(&["dead", "show", "outbox:e:9"])["dead"]["status"], "DEAD");

    let requeued = site.call(&["dead", "requeue", "outbox:e:9", "--actor", "mei"]);

    assert_eq!(requeued.code, 0, "{}", requeued.stderr);
    assert!(requeued.stdout.starts_with("outbox:e:9: requeued"), "{}", requeued.stdout);
    site.until(
        "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'e:9' AND status = 'SENT' AND attempts = 1",
        1,
    )
    .await;
    site.until("SELECT points FROM points_account WHERE user_id = 7", 1).await;
    assert_eq!(site.texts("SELECT event_id FROM consumed_operation").await, ["e:9"]);
    assert_eq!(site.audit().await[0].0, "mei");
    let sent = site.json_of_failure(&["dead", "requeue", "outbox:e:9"]);
    assert!(sent["failed"][0]["error"].as_str().unwrap().contains("the event is SENT"), "{sent}");
    drain(everything).await;
}

async fn an_event_is_discarded_and_never_sent(site: Site) {
    dead_event(&site, "e-1", "OrderPaid", "x").await;
    site.event("e-2", "OrderPaid", "{\"orderId\":2,\"userId\":8,\"amount\":1}").await;

    let discarded = site.json(&["dead", "discard", "outbox:e-1", "outbox:e-2", "--note", "never"]);

    assert_eq!(discarded["discarded"].as_array().unwrap().len(), 2, "dead or still waiting: {discarded}");
    assert_eq!(site.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DISCARDED'").await, 2);
    assert_eq!(site.audit().await.len(), 2);
    let everything = site.start();
    site.pay("e-3", 3, 9, 1).await;
    site.until("SELECT points FROM points_account WHERE user_id = 9", 1).await;
    assert_eq!(site.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DISCARDED'").await, 2);
    assert_eq!((site.points(7).await, site.points(8).await), (0, 0));
    drain(everything).await;
}

async fn everything_that_the_filters_let_through_is_planned_first_and_requeued_then(site: Site) {
    for number in 0..7 {
        dead_event(&site, &format!("paid-{number}"), "OrderPaid", "too large").await;
    }
    dead_event(&site, "other-type", "OrderCreated", "too large").await;
    dead_event(&site, "other-reason", "OrderPaid", "bad header").await;
    let filters = ["--type", "OrderPaid", "--reason", "large"];
    assert_eq!(ids(&site, &filters).len(), 7);
    assert_eq!(ids(&site, &["--older-than", "1h"]).len(), 0);

    let plan = site.json(&[&["dead", "requeue", "--all"] as &[&str], &filters].concat());
    assert_eq!(plan["planned"].as_array().unwrap().len(), 7, "{plan}");
    assert_eq!(
        site.number("SELECT COUNT(*) FROM outbox_event WHERE status = 'DEAD'").await,
        9,
        "nothing was done"
    );
    assert!(site.audit().await.is_empty());

    let few =
        site.json(&[&["dead", "requeue", "--all", "--yes", "--limit", "2"] as &[&str], &filters].concat());
    assert_eq!((few["requeued"].as_array().unwrap().len(), &few["finished"]), (2, &true.into()), "{few}");
    let started = std::time::Instant::now();
    let rest =
        site.json(&[&["dead", "requeue", "--all", "--yes", "--rate", "10/s"] as &[&str], &filters].concat());
    let elapsed = started.elapsed();
    assert_eq!(rest["requeued"].as_array().unwrap().len(), 5, "{rest}");
    assert!(elapsed.as_millis() >= 400, "five at ten per second take four pauses: {elapsed:?}");
    assert_eq!(
        site.texts("SELECT event_id FROM outbox_event WHERE status = 'DEAD' ORDER BY event_id").await,
        ["other-reason", "other-type"]
    );
    assert_eq!(site.audit().await.len(), 7);
}

async fn filters_alone_choose_what_is_requeued_or_discarded(site: Site) {
    for number in 0..30 {
        dead_event(&site, &format!("created-{number:02}"), "OrderCreated", "too large").await;
    }
    dead_event(&site, "paid", "OrderPaid", "bad header").await;
    let dry = site.json(&["dead", "requeue", "--type", "OrderCreated", "--rate", "100", "--dry-run"]);
    assert_eq!(dry["planned"].as_array().unwrap().len(), 30, "{dry}");
    assert!(site.audit().await.is_empty(), "nothing was done");

    let started = std::time::Instant::now();
    let requeued = site.call(&["dead", "requeue", "--type", "OrderCreated", "--rate", "100"]);
    let elapsed = started.elapsed();

    assert_eq!(requeued.code, 0, "{}", requeued.stderr);
    assert!(requeued.stderr.contains("requeued 30"), "{}", requeued.stderr);
    assert!(elapsed.as_millis() >= 200, "three batches of ten take two pauses: {elapsed:?}");
    let fresh = "SELECT COUNT(*) FROM outbox_event WHERE event_type = 'OrderCreated' AND status = 'NEW' \
                 AND attempts = 0 AND available_at <= {now}";
    site.until(&fresh.replace("{now}", site.now()), 30).await;
    let audit = site.audit().await;
    assert_eq!(audit.len(), 30);
    assert!(audit.iter().all(|(_, action, _)| action == "event_requeue"), "{audit:?}");

    let none = site.call(&["dead", "discard", "--reason", "header", "--older-than", "30d"]);
    assert!(none.stderr.contains("discarded 0"), "it is not that old: {}", none.stderr);
    let discarded = site.json(&["dead", "discard", "--reason", "header", "--note", "TICKET-9"]);
    assert_eq!(discarded["discarded"][0]["id"], "outbox:paid", "{discarded}");
    assert_eq!(site.texts("SELECT status FROM outbox_event WHERE event_id = 'paid'").await, ["DISCARDED"]);
    assert_eq!(site.audit().await.last().unwrap().2, "TICKET-9");
}

async fn dead_letters_at_a_broker_are_named_with_their_queue(site: Site) {
    let plain = site.json(&["dead", "list"]);
    assert_eq!(plain["notes"], json!([]));
    let config = site.config_with("elsewhere.toml", |text| {
        text.replace(
            "attempts_max = 2\n",
            "attempts_max = 2\ndead_letter = { destination = \"main\", key = \"dead.points\" }\n",
        )
    });

    let ended = run(&["dead", "list", "--json"], &config);

    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    let note = document["notes"][0].as_str().unwrap_or_else(|| panic!("{document}"));
    for word in ["points-award", "\"main\"", "\"dead.points\"", "dead\""] {
        assert!(note.contains(word), "{word}: {note}");
    }
    assert!(ended.stderr.contains("note: dead letters of consumer"), "{}", ended.stderr);
    let outbox = run(&["dead", "list", "--side", "outbox"], &config);
    assert!(!outbox.stderr.contains("note"), "that side has none elsewhere: {}", outbox.stderr);
}

async fn several_outboxes_are_told_apart_by_name(site: Site) {
    let config = site.config_with("two.toml", |text| {
        format!(
            "{text}\n[[outbox]]\nname = \"orders\"\n\n[[outbox]]\nname = \"bills\"\ntable = \"bill_event\"\n"
        )
    });
    must(&["migrate"], &config);
    dead_event(&site, "e-1", "OrderPaid", "x").await;
    site.run("INSERT INTO bill_event (event_id, aggregate_id, event_type, payload, status, attempts, available_at, created_at) \
              VALUES ('e-1', 1, 'BillPaid', '{}', 'DEAD', 20, {now}, {now})")
        .await;

    let listed = run(&["dead", "list", "--json"], &config);
    let document: Value = serde_json::from_str(&listed.stdout).unwrap();
    let mut names: Vec<&str> =
        document["dead"].as_array().unwrap().iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["outbox/bills:e-1", "outbox/orders:e-1"]);
    let ambiguous = run(&["dead", "requeue", "outbox:e-1"], &config);
    assert_eq!(ambiguous.code, 1);
    assert!(ambiguous.stderr.contains("orders, bills"), "{}", ambiguous.stderr);
    must(&["dead", "requeue", "outbox/bills:e-1"], &config);

    assert_eq!(site.texts("SELECT status FROM bill_event").await, ["NEW"]);
    assert_eq!(site.texts("SELECT status FROM outbox_event").await, ["DEAD"]);
}

async fn tables_that_nobody_made_are_told_and_hide_nothing_else(site: Site) {
    dead_event(&site, "e-1", "OrderPaid", "x").await;
    site.run("DROP TABLE consign_dead_delivery").await;
    site.run("DROP TABLE consign_conflict").await;

    let document = site.json(&["dead", "list"]);
    assert_eq!(document["dead"][0]["id"], "outbox:e-1", "{document}");
    let note = document["notes"][0].as_str().unwrap_or_else(|| panic!("{document}"));
    assert!(note.contains("inbox") && note.contains("consign migrate"), "{note}");
    for command in [
        &["dead", "list", "--side", "inbox"] as &[&str],
        &["dead", "show", "delivery:1"],
        &["conflicts", "list"],
    ] {
        let ended = site.call(command);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{command:?}");
        assert!(ended.stderr.contains("consign migrate"), "{command:?}: {}", ended.stderr);
    }
}

async fn wrong_names_and_filters_are_refused_before_anything_is_decided(site: Site) {
    dead_event(&site, "e-1", "OrderPaid", "x").await;

    for (arguments, code, word) in [
        (&["dead", "requeue", "outbox:e-1", "nonsense"] as &[&str], 1, "delivery:ID"),
        (&["dead", "requeue", "outbox:e-1", "outbox/bills:e-1"], 1, "no outbox \"bills\""),
        (&["dead", "requeue", "delivery:41"], 1, "no dead delivery:41"),
        (&["dead", "discard", "outbox:e-404"], 1, "no event"),
        (&["dead", "show", "delivery:x"], 1, "delivery:ID"),
        (&["dead", "requeue"], 2, "<ID>..."),
        (&["dead", "requeue", "outbox:e-1", "--all"], 2, "--all"),
        (&["dead", "requeue", "outbox:e-1", "--type", "OrderPaid"], 2, "--all"),
        (&["dead", "list", "--destination", "main", "--consumer", "points-award"], 2, "--destination"),
        (&["dead", "list", "--older-than", "2"], 2, "30d"),
        (&["dead", "requeue", "--all", "--rate", "0/s"], 2, "50/s"),
    ] {
        let ended = site.call(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (code, ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word), "{arguments:?}: {}", ended.stderr);
    }

    assert_eq!(site.texts("SELECT status FROM outbox_event").await, ["DEAD"]);
    assert!(site.audit().await.is_empty());
}
