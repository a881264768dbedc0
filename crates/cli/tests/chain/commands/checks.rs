//! Doctor and topology: what they are content with, what they find, and the fixes they name.

use consign_amqp::{FieldTable, QueueDeclaration};

use super::{findings, json, points};
use crate::harness::{Broker, World, connect, url};
use crate::post::{must, run, write};

#[tokio::test(flavor = "multi_thread")]
async fn doctor_is_content_with_a_good_setup() {
    let world = World::migrated().await;
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);

    let output = run(&["doctor", "--json"], &config);

    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let document = json(&output);
    assert_eq!(document["errors"], 0);
    for code in [
        "session-isolation",
        "session-time-zone",
        "outbox-index",
        "outbox-claim-plan",
        "marker-key",
        "broker-version",
        "queue-as-configured",
    ] {
        assert_eq!(findings(&document, code)[0]["severity"], "fine", "{code}");
    }
    let plain = run(&["doctor"], &config);
    assert_eq!(plain.code, 0);
    assert!(plain.stdout.contains("0 errors"), "{}", plain.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_what_would_lose_or_repeat_messages_and_says_how_to_mend_it() {
    let world = World::migrated().await;
    let good = points(&world, &url(Broker::RabbitMq));
    let config = write(&world, "points.toml", &good);
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);
    world.run("ALTER TABLE consumed_operation MODIFY business_key VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci NOT NULL").await;
    world.run("ALTER TABLE outbox_event DROP KEY idx_pending, MODIFY available_at DATETIME NOT NULL").await;
    let name = &world.name;
    let perishable = good.replace(
        &format!("name = \"{name}-audit\"\ntype = \"classic\""),
        &format!("name = \"{name}-audit\"\ntype = \"classic\"\ndurable = false"),
    );
    let config = write(&world, "perishable.toml", &perishable);

    let output = run(&["doctor", "--json"], &config);

    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    let document = json(&output);
    let wanted = [
        ("marker-key-collation", "business_key", "utf8mb4_0900_bin"),
        ("outbox-index", "outbox_event", "consign migrate"),
        ("outbox-date-precision", "available_at", "DATETIME(6)"),
        ("queue-not-durable", "audit", "durable = true"),
        ("queue-differs", "audit", "delete it"),
    ];
    for (code, subject, fix) in wanted {
        let found = findings(&document, code);
        let finding = found
            .iter()
            .find(|finding| finding["severity"] == "error")
            .unwrap_or_else(|| panic!("{code}: {document:#}"));
        assert!(finding["subject"].as_str().unwrap().contains(subject), "{finding}");
        assert!(finding["fix"].as_str().unwrap().contains(fix), "{finding}");
    }
    let plain = run(&["doctor"], &config);
    assert_eq!(plain.code, 1);
    assert!(plain.stdout.starts_with("error"), "the worst comes first: {}", plain.stdout);
    assert!(plain.stdout.contains("fix: ") && plain.stdout.contains("[outbox-index]"), "{}", plain.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn topology_is_applied_checked_and_its_differences_are_named() {
    let world = World::unmigrated().await;
    let name = world.name.clone();
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));

    let before = run(&["topology", "check", "--json"], &config);
    assert_eq!(before.code, 3, "{}", before.stderr);
    assert_eq!(findings(&json(&before), "queue-missing").len(), 2);
    assert_eq!(findings(&json(&before), "exchange-missing").len(), 1);
    assert!(before.stdout.contains("consign topology apply"));

    must(&["topology", "apply"], &config);
    must(&["topology", "apply"], &config);
    let check = run(&["topology", "check"], &config);
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);

    let connection = connect(Broker::RabbitMq).await;
    let channel = connection.open_channel().await.unwrap();
    let audit = format!("{name}-audit");
    channel.queue_delete(&audit, false, false).await.unwrap();
    let missing = run(&["topology", "check"], &config);
    assert_eq!(missing.code, 3, "{}{}", missing.stdout, missing.stderr);
    assert!(
        missing.stdout.contains(&format!("queue \"{audit}\"")) && missing.stdout.contains("[queue-missing]"),
        "{}",
        missing.stdout
    );

    // Something else stands under the name: said clearly, and left alone.
    let other =
        QueueDeclaration::durable(FieldTable::new().with("x-queue-type", "classic").with("x-max-length", 5));
    channel.queue_declare(&audit, &other).await.unwrap();
    let differs = run(&["topology", "check", "--json"], &config);
    assert_eq!(differs.code, 3);
    let finding = &findings(&json(&differs), "queue-differs")[0];
    assert!(finding["text"].as_str().unwrap().contains("x-max-length is 5"), "{finding}");
    let apply = run(&["topology", "apply"], &config);
    assert_eq!(apply.code, 1, "{}", apply.stderr);
    assert!(apply.stderr.contains(&audit) && apply.stderr.contains("x-max-length"), "{}", apply.stderr);
    assert!(apply.stderr.contains("delete it when it is empty"), "{}", apply.stderr);
}
