//! What people write into rows: large and odd payloads, ids, types, dates and headers arrive as written, or the row
//! goes DEAD with a reason and its neighbours go through.

use std::collections::BTreeSet;

use sqlx::Executor;

use crate::harness::{Broker, Child, World, url};
use crate::post::{Post, SOON, Taken, catch_all, cell, must, run, write};

/// Declares the exchange and the audit queue, with which everything here is published.
fn prepared(world: &World) -> std::path::PathBuf {
    let config = write(world, "rows.toml", &catch_all(world, &url(Broker::RabbitMq), ""));
    must(&["topology", "apply"], &config);
    config
}

/// Waits until `sent` rows are SENT and `dead` are DEAD, and takes what arrived.
async fn arrived(world: &World, sent: i64, dead: i64) -> Vec<Taken> {
    world
        .eventually(SOON, "every row has come to its end", async || {
            world.count("SENT").await == sent && world.count("DEAD").await == dead
        })
        .await;
    let post = Post::open(Broker::RabbitMq).await;
    let queue = format!("{}-audit", world.name);
    post.take_all(&queue).await
}

fn find<'t>(taken: &'t [Taken], id: &str) -> &'t Taken {
    taken.iter().find(|taken| taken.id == id).unwrap_or_else(|| panic!("{id:?} did not arrive"))
}

async fn payload_as(world: &World, column: &str) {
    world.run(&format!("ALTER TABLE outbox_event MODIFY payload {column}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_eight_mebibytes_arrives_whole() {
    let world = World::unmigrated().await;
    let config = prepared(&world);
    let payload = format!("{{\"blob\": \"{}end\"}}", "0123456789abcdef".repeat(8 << 16));
    world.insert("large", "OrderPaid", &payload).await;
    world.insert("small", "OrderPaid", "{}").await;

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 2, 0).await;

    let body = &find(&taken, "large").body;
    assert_eq!(body.len(), payload.len());
    assert!(body == payload.as_bytes(), "the payload changed on its way");
}

#[tokio::test(flavor = "multi_thread")]
async fn nul_emoji_and_whole_numbers_up_to_64_bits_survive_a_json_column() {
    let world = World::unmigrated().await;
    let config = prepared(&world);
    let payload = r#"{"id": 9007199254740993, "max": 18446744073709551615, "min": -9223372036854775808, "text": "a\u0000b😀"}"#;
    world.insert("odd", "OrderPaid", payload).await;

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 1, 0).await;

    let body = std::str::from_utf8(&taken[0].body).unwrap();
    for number in ["9007199254740993", "18446744073709551615", "-9223372036854775808"] {
        assert!(body.contains(number), "{body}");
    }
    let read: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(read["text"], "a\0b😀");
}

/// MySQL's JSON type keeps values, not text: these numbers come out changed, whatever consign does.
#[tokio::test(flavor = "multi_thread")]
async fn text_and_blob_columns_keep_every_byte_and_doctor_warns_of_json() {
    const EXACT: &str =
        "{ \"z\":1,\"a\": 0.1234567890123456789, \"big\":18446744073709551617,  \"one\":1.0,\"e\":1e2 }\n";
    for (column, kind) in [("LONGTEXT NOT NULL", "text"), ("LONGBLOB NOT NULL", "blob")] {
        let world = World::unmigrated().await;
        payload_as(&world, column).await;
        let config = prepared(&world);
        world.insert("exact", "OrderPaid", EXACT).await;
        let doctor = run(&["doctor"], &config);
        assert!(!doctor.stdout.contains("outbox-payload-json"), "{}", doctor.stdout);

        let _relay = Child::start("relay", &config, &[]);
        let taken = arrived(&world, 1, 0).await;

        assert_eq!(std::str::from_utf8(&taken[0].body).unwrap(), EXACT, "{kind}");
    }
    let world = World::unmigrated().await;
    let config = prepared(&world);
    world.insert("rounded", "OrderPaid", EXACT).await;

    let doctor = run(&["doctor"], &config);
    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 1, 0).await;

    assert_eq!(doctor.code, 0, "a warning is no failure: {}", doctor.stdout);
    assert!(
        doctor.stdout.contains("outbox-payload-json") && doctor.stdout.contains("LONGBLOB"),
        "{}",
        doctor.stdout
    );
    let body = std::str::from_utf8(&taken[0].body).unwrap();
    assert!(!body.contains("0.1234567890123456789"), "MySQL kept it: the warning is out of date ({body})");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_differ_in_case_or_a_space_at_the_end_are_different_events() {
    let world = World::migrated().await;
    let config = prepared(&world);
    let ids = ["order-a", "order-A", "order-a ", "ORDER-A", "órder-a", " order-a"];
    for id in ids {
        world.insert(id, "OrderPaid", "{}").await;
    }

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 6, 0).await;

    assert_eq!(taken.len(), 6);
    let arrived: BTreeSet<&str> = taken.iter().map(|taken| taken.id.as_str()).collect();
    assert_eq!(arrived, BTreeSet::from(ids));
}

#[tokio::test(flavor = "multi_thread")]
async fn event_types_are_sent_up_to_255_bytes_and_longer_ones_die_with_a_reason() {
    let world = World::migrated().await;
    world.run("ALTER TABLE outbox_event MODIFY event_type VARCHAR(255) NOT NULL").await;
    let config = prepared(&world);
    let long = "t".repeat(255);
    world.insert("empty", "", "{}").await;
    world.insert("long", &long, "{}").await;
    world.insert("bytes", &"ü".repeat(255), "{}").await;
    world.insert("plain", "OrderPaid", "{}").await;

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 3, 1).await;

    assert_eq!(find(&taken, "empty").kind, None);
    assert_eq!(find(&taken, "long").kind.as_deref(), Some(long.as_str()));
    assert_eq!(find(&taken, "plain").kind.as_deref(), Some("OrderPaid"));
    let dead =
        cell(&world, "SELECT CONCAT(event_id, ' ', last_error) FROM outbox_event WHERE status = 'DEAD'")
            .await;
    assert_eq!(dead, "bytes event_type has 510 bytes: shorten it to at most 255");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_due_later_waits_for_its_time() {
    let world = World::migrated().await;
    let config = prepared(&world);
    world.run(
        "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) VALUES \
         ('later', 1, 'OrderPaid', '{}', 'NEW', NOW(6) + INTERVAL 3 SECOND, NOW(6)), \
         ('now', 2, 'OrderPaid', '{}', 'NEW', NOW(6), NOW(6)), \
         ('tomorrow', 3, 'OrderPaid', '{}', 'NEW', NOW(6) + INTERVAL 1 DAY, NOW(6))",
    )
    .await;

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 2, 0).await;

    let ids: Vec<&str> = taken.iter().map(|taken| taken.id.as_str()).collect();
    assert_eq!(ids, ["now", "later"]);
    let early = "SELECT COUNT(*) FROM outbox_event WHERE status = 'SENT' AND sent_at < available_at";
    assert_eq!(world.number(early).await, 0, "a row was sent before its time");
    let waiting =
        "SELECT COUNT(*) FROM outbox_event WHERE event_id = 'tomorrow' AND status = 'NEW' AND attempts = 0";
    assert_eq!(world.number(waiting).await, 1);
}

/// B52 (humanmade/Cavalcade#55, kestra-io/kestra#13006): a DATETIME has no zone, so a producer whose session lies nine
/// hours ahead writes dates that are nine hours away for everybody else.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_in_the_producers_time_zone_sends_at_once_and_tells_the_true_time() {
    let world = World::unmigrated().await;
    let elsewhere = prepared(&world);
    let here = catch_all(&world, &url(Broker::RabbitMq), "").replacen(
        "[store]\n",
        "[store]\ntime_zone = \"+09:00\"\n",
        1,
    );
    let configured = write(&world, "configured.toml", &here);
    let mut producer = world.pool.acquire().await.unwrap();
    producer.execute("SET time_zone = '+09:00'").await.unwrap();
    producer
        .execute(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) \
             VALUES ('tokyo', 1, 'OrderPaid', '{}', 'NEW', NOW(6), NOW(6))",
        )
        .await
        .unwrap();
    producer.execute("SET time_zone = @@GLOBAL.time_zone").await.unwrap();
    drop(producer);

    // For a relay in the server's zone the row is not due; a later row of that zone shows that it has looked.
    world.insert("server", "OrderPaid", "{}").await;
    let mut default = Child::start("relay", &elsewhere, &[]);
    world.eventually(SOON, "the other row is SENT", async || world.count("SENT").await == 1).await;
    assert_eq!(cell(&world, "SELECT status FROM outbox_event WHERE event_id = 'tokyo'").await, "NEW");
    default.terminate();
    assert!(default.wait(SOON).await.success());

    let relay = Child::start("relay", &configured, &[]);
    let taken = arrived(&world, 2, 0).await;
    drop(relay);

    let time = find(&taken, "tokyo").header("cloudEvents:time").unwrap().to_owned();
    let age = format!(
        "SELECT ABS(TIMESTAMPDIFF(SECOND, CAST('{}' AS DATETIME(6)), UTC_TIMESTAMP(6)))",
        time.trim_end_matches('Z')
    );
    assert!(world.number(&age).await < 600, "{time} is not about now in UTC");
    let doctor = run(&["doctor"], &configured);
    assert!(doctor.stdout.contains("+09:00"), "{}", doctor.stdout);
}

/// B57 (DBZ-6760, DBZ-5654): NULL may mean a tombstone, an empty payload means an empty payload.
#[tokio::test(flavor = "multi_thread")]
async fn null_and_empty_payloads_both_arrive_and_are_told_apart() {
    for column in ["LONGTEXT NULL", "LONGBLOB NULL", "JSON NULL"] {
        let world = World::migrated().await;
        payload_as(&world, column).await;
        let config = prepared(&world);
        world.run(
            "INSERT INTO outbox_event (event_id, aggregate_id, event_type, payload, status, available_at, created_at) VALUES \
             ('null', 1, 'OrderPaid', NULL, 'NEW', NOW(6), NOW(6))",
        )
        .await;
        let rest = if column == "JSON NULL" { ("json", "null") } else { ("empty", "") };
        world.insert(rest.0, "OrderPaid", rest.1).await;

        let _relay = Child::start("relay", &config, &[]);
        let taken = arrived(&world, 2, 0).await;

        let null = find(&taken, "null");
        assert_eq!((null.header("consign-null"), null.body.len()), (Some("1"), 0), "{column}");
        let other = find(&taken, rest.0);
        assert_eq!((other.header("consign-null"), &other.body[..]), (None, rest.1.as_bytes()), "{column}");
    }
}

/// B93 (watt-mind/factory#1479): one row whose headers do not parse stops nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_broken_headers_dies_with_its_reason_and_its_neighbours_are_sent() {
    let world = World::migrated().await;
    world.run("ALTER TABLE outbox_event MODIFY headers LONGTEXT NULL").await;
    let config = prepared(&world);
    let headers = [
        ("e-0", "{\"traceparent\": \"00-ab"),
        ("e-1", "{\"traceparent\": \"00-ab-cd-01\", \"n\": 1.50, \"yes\": true, \"no\": null}"),
        ("e-2", "[1, 2]"),
        ("e-3", ""),
        ("e-4", "null"),
    ];
    for (id, json) in headers {
        world.insert(id, "OrderPaid", "{}").await;
        let update = "UPDATE outbox_event SET headers = ? WHERE event_id = ?";
        sqlx::query(update).bind(json).bind(id).execute(&world.pool).await.unwrap();
    }
    for row in 5..30 {
        world.insert(&format!("e-{row}"), "OrderPaid", "{}").await;
    }

    let _relay = Child::start("relay", &config, &[]);
    let taken = arrived(&world, 27, 3).await;

    let good = find(&taken, "e-1");
    assert_eq!(good.header("traceparent"), Some("00-ab-cd-01"));
    assert_eq!((good.header("n"), good.header("yes"), good.header("no")), (Some("1.5"), Some("true"), None));
    let dead = cell(&world, "SELECT GROUP_CONCAT(event_id, ' ', last_error ORDER BY event_id SEPARATOR '; ') FROM outbox_event WHERE status = 'DEAD'").await;
    assert!(dead.starts_with("e-0 headers: not valid JSON at byte"), "{dead}");
    assert!(dead.contains("e-2 headers: an array instead of an object"), "{dead}");
    assert!(dead.contains("e-3 headers: not valid JSON"), "{dead}");
}
