//! The commands as people and scripts meet them: exit codes, messages with their fix, JSON, and no secrets anywhere.

use std::path::Path;

use serde_json::Value;
use sqlx::AssertSqlSafe;

use crate::harness::{Broker, Child, World, url};
use crate::post::{Ended, SOON, beginning, call, catch_all, cell, must, run, store_url, write};

mod away;
mod checks;
mod looking;

/// The points story under the world's names, as short as it can be.
fn points(world: &World, broker: &str) -> String {
    let name = &world.name;
    format!(
        "{}\n[[destination.main.queue]]\nname = \"{name}-points\"\ntype = \"quorum\"\ndelivery_limit = 50\n\
         dead_letter_exchange = \"{name}\"\ndead_letter_key = \"dead\"\nbindings = [\"OrderPaid\"]\n\n\
         [[consumer]]\nname = \"points-award\"\nsource = \"main\"\nqueue = \"{name}-points\"\nkey = \"order:{{order_id}}:paid\"\n\
         compare = [\"user_id\", \"amount\"]\n\
         bind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n\
         bind.user_id = {{ pointer = \"/userId\", type = \"integer\" }}\n\
         bind.amount = {{ pointer = \"/amount\", type = \"integer\" }}\n\n\
         [[consumer.statement]]\nsql = \"UPDATE points_account SET points = points + :amount WHERE user_id = :user_id\"\n",
        catch_all(world, broker, "")
    )
}

/// The JSON document on stdout.
fn json(output: &Ended) -> Value {
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}{}", output.stdout, output.stderr))
}

/// The findings of a code, as JSON objects.
fn findings(document: &Value, code: &str) -> Vec<Value> {
    let all = document["findings"].as_array().unwrap();
    all.iter().filter(|finding| finding["code"] == code).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_in_a_config_are_reported_with_line_key_value_and_fix() {
    let world = World::unmigrated().await;
    let good = points(&world, &url(Broker::RabbitMq));
    // What is written wrong, where it is reported, and what the report must say.
    let mistakes: [(&str, &str, &str, &[&str]); 6] = [
        (
            "poll_max_milliseconds = 50",
            "poll_max_millisecond = 50",
            "relay.poll_max_millisecond",
            &["unknown key", "\"poll_max_milliseconds\""],
        ),
        (
            "lease_seconds = 10",
            "lease_seconds = 6",
            "relay.lease_seconds",
            &["lease of 6 s", "deadline of 5 s", "margin of 2 s", "7"],
        ),
        (
            "/%2f\"\nexchange",
            "/%2f?hearbeat=5\"\nexchange",
            "destination.main.url",
            &["unknown key", "heartbeat"],
        ),
        (
            "destination = \"main\"\n",
            "destination = \"mian\"\n",
            "route[0].destination",
            &["\"mian\"", "did you mean \"main\""],
        ),
        (
            "compare = [\"user_id\", \"amount\"]",
            "compare = [\"user_id\", \"amuont\"]",
            "consumer[0].compare",
            &["\"amuont\"", "\"amount\""],
        ),
        (
            "SET points = points + :amount",
            "SET points = points + :total",
            "consumer[0].statement[0].sql",
            &["total", "bind"],
        ),
    ];
    for (right, wrong, key, words) in mistakes {
        assert_eq!(good.matches(right).count(), 1, "{right}");
        let bad = good.replace(right, wrong);
        let line = bad[..bad.find(wrong).unwrap()].matches('\n').count() + 1;
        let config = write(&world, "bad.toml", &bad);
        for command in [
            &["relay"] as &[&str],
            &["consume"],
            &["status", "--json"],
            &["migrate", "--print"],
            &["doctor"],
            &["topology", "check"],
        ] {
            let output = run(command, &config);
            assert_eq!(output.code, 2, "{command:?}: {}", output.stderr);
            assert_eq!(output.stdout, "", "{command:?}");
            let place = format!("bad.toml:{line}: {key}: ");
            assert!(output.stderr.contains(&place), "{place} is not in {}", output.stderr);
            for word in words {
                assert!(output.stderr.contains(word), "{word} is not in {}", output.stderr);
            }
        }
    }
    // All mistakes come at once.
    let both = good
        .replace("lease_seconds = 10", "lease_seconds = 6")
        .replace("destination = \"main\"\n", "destination = \"mian\"\n");
    let output = run(&["relay"], &write(&world, "both.toml", &both));
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("2 problems"), "{}", output.stderr);
    assert!(output.stderr.contains("lease of 6 s") && output.stderr.contains("mian"), "{}", output.stderr);
    let missing = call(&["status", "--config", "nowhere.toml"]);
    assert_eq!(missing.code, 2, "{}", missing.stderr);
    assert!(missing.stderr.contains("nowhere.toml"), "{}", missing.stderr);
}

async fn schema(world: &World) -> Vec<String> {
    let columns = "SELECT CAST(CONCAT_WS(' ', table_name, column_name, column_type, is_nullable, collation_name) AS CHAR) \
                   FROM information_schema.columns WHERE table_schema = DATABASE() ORDER BY table_name, ordinal_position";
    let mut schema: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(columns)).fetch_all(&world.pool).await.unwrap();
    let indexes = "SELECT CAST(CONCAT_WS(' ', table_name, index_name, seq_in_index, column_name) AS CHAR) \
                   FROM information_schema.statistics WHERE table_schema = DATABASE() ORDER BY 1";
    schema.extend(
        sqlx::query_scalar::<_, String>(AssertSqlSafe(indexes)).fetch_all(&world.pool).await.unwrap(),
    );
    schema
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_prints_what_it_would_run_and_changes_nothing() {
    let world = World::unmigrated().await;
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));

    // The contract's tables are there: columns are added, all nullable.
    let before = schema(&world).await;
    let output = run(&["migrate", "--print"], &config);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(schema(&world).await, before);
    assert!(
        output.stdout.contains("ALTER TABLE `outbox_event`") && output.stdout.contains("`last_error`"),
        "{}",
        output.stdout
    );
    assert!(!output.stdout.contains("NOT NULL DEFAULT 'NEW'"), "the table exists: {}", output.stdout);

    // Without them, everything is created, the columns consumers compare by included.
    world.run("DROP TABLE outbox_event").await;
    world.run("DROP TABLE consumed_operation").await;
    let before = schema(&world).await;
    let output = run(&["migrate", "--print"], &config);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert_eq!(schema(&world).await, before);
    for words in [
        "CREATE TABLE `outbox_event`",
        "CREATE TABLE `consumed_operation`",
        "`consign_conflict`",
        "`consign_dead_delivery`",
        "`consign_attempt`",
    ] {
        assert!(output.stdout.contains(words), "{words} is not in {}", output.stdout);
    }
    for column in ["`user_id` BIGINT NULL", "`amount` BIGINT NULL"] {
        let spaced = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            spaced.contains(&format!("ALTER TABLE `consumed_operation` ADD COLUMN {column}")),
            "{column}: {}",
            output.stdout
        );
    }

    // What was printed is what a database administrator can run.
    sqlx::raw_sql(AssertSqlSafe(output.stdout)).execute(&world.pool).await.unwrap();
    let again = run(&["migrate", "--print"], &config);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{}", again.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn migrate_may_be_repeated_and_keeps_rows() {
    let world = World::unmigrated().await;
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));
    world.insert("e-1", "OrderPaid", "{\"orderId\": 1}").await;
    world
        .run("INSERT INTO consumed_operation (consumer_name, business_key, event_id) VALUES ('c', 'k', 'e')")
        .await;

    let first = run(&["migrate"], &config);
    let migrated = schema(&world).await;
    let second = run(&["migrate"], &config);

    assert_eq!((first.code, second.code), (0, 0), "{}{}", first.stderr, second.stderr);
    assert!(second.stderr.contains("everything is in place"), "{}", second.stderr);
    assert_eq!(schema(&world).await, migrated);
    assert_eq!(world.count("NEW").await, 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
}

/// The indented block after `START TRANSACTION;` in a readme, without its indentation.
fn statements_of(readme: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(folder.join(readme)).unwrap();
    let lines = text.lines().map(str::trim).skip_while(|line| *line != "START TRANSACTION;");
    let block: Vec<&str> = lines.take_while(|line| *line != "COMMIT;").collect();
    assert!(block.len() > 3, "{readme} holds no transaction");
    format!("{}\nCOMMIT;", block.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_plain_sql_works_as_written_on_the_contracts_tables() {
    // The contract's tables, and nothing of consign's own: no migration has run.
    let world = World::unmigrated().await;
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));
    must(&["topology", "apply"], &config);
    world.run("REPLACE INTO points_account (user_id, points) VALUES (7, 0)").await;
    world.run("REPLACE INTO purchase_order (id, status) VALUES (42, 'CREATED')").await;

    let everything = Child::start("run", &config, &[]);
    for readme in ["README.md", "README.zh-CN.md", "examples/points/README.md"] {
        world.run("DELETE FROM outbox_event").await;
        world.run("DELETE FROM consumed_operation").await;
        let before = world.number("SELECT points FROM points_account WHERE user_id = 7").await;

        sqlx::raw_sql(AssertSqlSafe(statements_of(readme))).execute(&world.pool).await.unwrap();

        world
            .eventually(SOON, "the points are there and the row is SENT", async || {
                world.count("SENT").await == 1
                    && world.number("SELECT points FROM points_account WHERE user_id = 7").await
                        == before + 100
            })
            .await;
        let marker = cell(&world, "SELECT CONCAT_WS('|', m.consumer_name, m.user_id, m.amount) FROM consumed_operation m JOIN outbox_event e USING (event_id)").await;
        assert_eq!(marker, "points-award|7|100", "{readme}");
        assert_eq!(
            world
                .number("SELECT COUNT(*) FROM outbox_event WHERE attempts = 1 AND lease_token IS NULL")
                .await,
            1
        );
    }
    assert_eq!(cell(&world, "SELECT status FROM purchase_order WHERE id = 42").await, "PAID");
    drop(everything);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_counts_what_is_in_the_tables() {
    let world = World::migrated().await;
    let config = write(&world, "points.toml", &points(&world, &url(Broker::RabbitMq)));
    must(&["migrate"], &config);
    let rows = [("NEW", 3), ("SENDING", 2), ("SENT", 5), ("DEAD", 1), ("DISCARDED", 4)];
    for (status, count) in rows {
        for row in 0..count {
            let id = format!("{status}-{row}");
            world.insert(&id, "OrderPaid", "{}").await;
            let locked = if row == 0 { "NOW(6) - INTERVAL 1 MINUTE" } else { "NOW(6) + INTERVAL 1 HOUR" };
            let lease = if status == "SENDING" {
                format!(", lease_token = 't', locked_until = {locked}")
            } else {
                String::new()
            };
            world
                .run(&format!("UPDATE outbox_event SET status = '{status}'{lease} WHERE event_id = '{id}'"))
                .await;
        }
    }
    world
        .run("UPDATE outbox_event SET created_at = NOW(6) - INTERVAL 100 SECOND WHERE event_id = 'NEW-1'")
        .await;
    // Waiting as its producer wished, so not pending; sent long ago, so not pending either.
    world.run("UPDATE outbox_event SET created_at = NOW(6) - INTERVAL 1 DAY, available_at = NOW(6) + INTERVAL 1 DAY WHERE event_id = 'NEW-2'").await;
    world.run("UPDATE outbox_event SET created_at = NOW(6) - INTERVAL 2 DAY WHERE status = 'SENT'").await;
    world.run("INSERT INTO consign_attempt (event_id, lease_token, relay, recorded_at, outcome) VALUES ('e', 't', 'r', NOW(6), 'fenced'), ('f', 't', 'r', NOW(6), 'fenced')").await;
    world
        .run("INSERT INTO consumed_operation (consumer_name, business_key, event_id) VALUES ('c', 'k', 'e')")
        .await;

    let output = run(&["status", "--json"], &config);

    assert_eq!(output.code, 0, "{}", output.stderr);
    let document = json(&output);
    let outbox = &document["outbox"][0];
    let counts =
        ["new", "sending", "sent", "dead", "discarded", "expired", "fenced"].map(|key| outbox[key].as_u64());
    assert_eq!(counts, [3, 2, 5, 1, 4, 1, 2].map(Some), "{document}");
    assert_eq!(outbox["name"], "outbox");
    let age = outbox["oldest_pending_seconds"].as_f64().unwrap();
    assert!((100.0..220.0).contains(&age), "{age}");
    assert_eq!(
        document["inbox"],
        serde_json::json!({ "markers": 1, "conflicts": 0, "dead_deliveries": 0, "parked_deliveries": 0 })
    );

    let plain = run(&["status"], &config).stdout;
    assert!(plain.contains("oldest_pending_seconds") && plain.contains("outbox"), "{plain}");
    world.run("DELETE FROM outbox_event WHERE status IN ('NEW', 'SENDING')").await;
    assert_eq!(
        json(&run(&["status", "--json"], &config))["outbox"][0]["oldest_pending_seconds"],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_loses_and_doubles_nothing_while_its_processes_are_killed() {
    let output = tokio::task::spawn_blocking(|| call(&["demo", "--events", "300", "--json"])).await.unwrap();

    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let document = json(&output);
    for (key, wanted) in [("lost", 0), ("doubled", 0), ("events", 300), ("sent", 300)] {
        assert_eq!(document[key], wanted, "{key}: {document}");
    }
    assert!(document["relay_kills"].as_u64() >= Some(3), "{document}");
    assert!(document["consumer_kills"].as_u64() >= Some(3), "{document}");
    assert_eq!(document["finished"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_errors_end_with_two_and_help_with_zero() {
    for wrong in [&["publish"] as &[&str], &["status", "--jsno"], &["topology"], &["demo", "--events", "1"]] {
        let output = call(wrong);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{wrong:?}: {}", output.stderr);
        assert!(output.stderr.contains("error"), "{}", output.stderr);
    }
    for help in [&["--help"] as &[&str], &["status", "--help"], &["--version"]] {
        let output = call(help);
        assert_eq!(output.code, 0, "{help:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{help:?}: {}", output.stderr);
    }
    // A relay without a destination, and consumers that nobody declared.
    let world = World::unmigrated().await;
    let bare = write(&world, "bare.toml", &beginning(&store_url(&world)));
    for (command, fix) in [("relay", "[destination.NAME]"), ("consume", "[[consumer]]")] {
        let output = run(&[command], &bare);
        assert_eq!(output.code, 1, "{command}: {}", output.stderr);
        assert!(output.stderr.contains(fix), "{command}: {}", output.stderr);
    }
}
