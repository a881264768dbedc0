//! `consume --check` and `consume --dry-run`: what they find on real servers, and that they leave everything alone.

use std::path::{Path, PathBuf};

use serde_json::Value;
use sqlx::{Connection, SqliteConnection};

use super::{json, points};
use crate::harness::{Broker, World, url};
use crate::post::{Ended, must, run, write};

const PAID: &str = r#"{"orderId":42,"userId":7,"amount":10}"#;

/// The findings of a code over all lines, as JSON objects.
fn found(document: &Value, code: &str) -> Vec<Value> {
    let lines = document["checks"].as_array().unwrap().iter();
    let all = lines.flat_map(|line| line["findings"].as_array().unwrap());
    all.filter(|finding| finding["code"] == code).cloned().collect()
}

/// The line of a subject.
fn line<'a>(document: &'a Value, subject: &str) -> &'a Value {
    let lines = document["checks"].as_array().unwrap();
    lines.iter().find(|line| line["subject"] == subject).unwrap_or_else(|| panic!("{subject}: {document:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn check_is_content_with_a_good_setup_and_consumes_nothing() {
    let world = World::migrated().await;
    let text = points(&world, &url(Broker::RabbitMq)).replace(
        "delivery_limit = 50",
        "delivery_limit = 50\ndead_letter_strategy = \"at-least-once\"\noverflow = \"reject-publish\"",
    );
    let config = write(&world, "points.toml", &text);
    must(&["migrate"], &config);
    must(&["topology", "apply"], &config);

    let output = run(&["consume", "--check"], &config);

    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    let queue = format!("{}-points", world.name);
    assert!(
        output.stdout.contains(&format!("ok       points-award: reads {queue:?} of main\n")),
        "{}",
        output.stdout
    );
    assert!(
        output
            .stdout
            .contains("ok       points-award statement 1: takes 2 values; rows expected: exactly 1\n"),
        "{}",
        output.stdout
    );
    assert_eq!(world.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
    let document = json(&run(&["consume", "--check", "--json"], &config));
    assert_eq!(document["errors"], 0);
    assert_eq!(line(&document, "points-award statement 1")["statement"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_finds_what_would_stop_a_consumer_and_says_how_to_mend_it() {
    let world = World::migrated().await;
    let good = points(&world, &url(Broker::RabbitMq));
    let guarded = format!(
        "{}[[consumer.statement]]\nsql = \"INSERT INTO nowhere (a) VALUES (:amount)\"\n\
         [consumer.guard]\nrule = \"apply_if_newer\"\naggregate = \"order:{{order_id}}\"\n",
        good.replace("SET points = points", "SET pointz = points").replace(
            "compare = [\"user_id\", \"amount\"]",
            "compare = [\"user_id\", \"amount\", \"currency\"]\ncompare_version = 2\n\
             bind.currency = { pointer = \"/currency\", type = \"string\" }"
        )
    );
    let config = write(&world, "bad.toml", &guarded);
    world.run("DROP TABLE consign_progress").await;
    world.run("ALTER TABLE consumed_operation MODIFY amount DOUBLE NULL").await;

    let output = run(&["consume", "--check", "--json"], &config);

    assert_eq!(output.code, 3, "{}{}", output.stdout, output.stderr);
    let document = json(&output);
    for (code, text, fix) in [
        ("queue-missing", "the broker does not have it", "consign topology apply"),
        ("comparison-column-missing", "lacks currency, which points-award compares", "consign migrate"),
        ("comparison-column-type", "rounds", "DECIMAL"),
        ("comparison-history", "version 1 would stop the consumer", "compare_history"),
        ("inbox-table-missing", "there is no such table", "consign migrate"),
        ("statement-refused", "pointz", "correct its sql"),
        ("statement-refused", "nowhere", "correct its sql"),
    ] {
        let findings = found(&document, code);
        let fits = |finding: &&Value| {
            finding["text"].as_str().unwrap().contains(text) && finding["fix"].as_str().unwrap().contains(fix)
        };
        assert!(findings.iter().any(|finding| fits(&finding)), "{code}: {document:#}");
    }
    assert_eq!(line(&document, "points-award")["ok"], false);
    assert_eq!(line(&document, "points-award statement 2")["ok"], false);
    let plain = run(&["consume", "--check"], &config);
    assert_eq!(plain.code, 3);
    assert!(plain.stdout.contains("error    points-award statement 2: "), "{}", plain.stdout);
    assert!(plain.stdout.contains("\n         fix: "), "{}", plain.stdout);
}

/// One message in a file, looked at.
fn look(world: &World, config: &Path, payload: &str, more: &[&str]) -> Ended {
    let file = world.folder.path().join("message.json");
    std::fs::write(&file, payload).unwrap();
    let mut arguments = vec!["consume", "--json", "--dry-run", file.to_str().unwrap()];
    arguments.extend(more);
    run(&arguments, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_shows_what_a_message_would_do_and_leaves_no_trace() {
    let world = World::migrated().await;
    // No broker listens there: none is needed.
    let config = write(&world, "points.toml", &points(&world, "amqp://guest@127.0.0.1:1/%2f"));
    must(&["migrate"], &config);

    let applied = look(&world, &config, PAID, &[]);

    assert_eq!(applied.code, 0, "{}{}", applied.stdout, applied.stderr);
    let document = json(&applied);
    assert_eq!(document["result"], "applied");
    assert_eq!(document["key"], "order:42:paid");
    assert_eq!(document["comparison"], "user_id=7, amount=10");
    assert_eq!(document["statements"][0]["rows"], 1);
    assert_eq!(document["statements"][0]["expected"], "exactly 1");
    assert_eq!(document["committed"], false);
    assert_eq!(world.number("SELECT COUNT(*) FROM consumed_operation").await, 0);
    assert_eq!(world.number("SELECT SUM(points) FROM points_account").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_tells_duplicates_conflicts_and_refusals_apart() {
    let world = World::migrated().await;
    let config = write(&world, "points.toml", &points(&world, "amqp://guest@127.0.0.1:1/%2f"));
    must(&["migrate"], &config);
    world
        .run(
            "INSERT INTO consumed_operation (consumer_name, business_key, event_id, user_id, amount)
             VALUES ('points-award', 'order:42:paid', 'e-1', 7, 10)",
        )
        .await;

    for (payload, result, code, reason) in [
        (PAID, "duplicate", 0, "applied before"),
        (r#"{"orderId":42,"userId":7,"amount":11}"#, "conflict", 3, "amount=10"),
        (r#"{"orderId":43,"userId":6,"amount":10}"#, "refused", 3, "matched 0 rows, expected exactly 1"),
        (r#"{"orderId":"43","userId":7,"amount":10}"#, "refused", 3, "payload field /orderId is a string"),
        ("oops", "refused", 3, "the payload is not valid JSON"),
    ] {
        let output = look(&world, &config, payload, &[]);

        assert_eq!(output.code, code, "{payload}: {}{}", output.stdout, output.stderr);
        let document = json(&output);
        assert_eq!(document["result"], result, "{document:#}");
        assert!(document["reason"].as_str().unwrap().contains(reason), "{document:#}");
    }
    assert_eq!(world.number("SELECT COUNT(*) FROM consumed_operation").await, 1);
    assert_eq!(world.number("SELECT COUNT(*) FROM consign_conflict").await, 0);
    assert_eq!(world.number("SELECT SUM(points) FROM points_account").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_asks_the_guard() {
    let world = World::migrated().await;
    let text = format!(
        "{}[consumer.guard]\nrule = \"sequential\"\naggregate = \"order:{{order_id}}\"\n",
        points(&world, "amqp://guest@127.0.0.1:1/%2f")
    );
    let config = write(&world, "points.toml", &text);
    must(&["migrate"], &config);
    let version = |version: &str| {
        let header = format!("consign-aggregate-version={version}");
        json(&look(&world, &config, PAID, &["--header", &header]))
    };

    assert_eq!(version("1")["result"], "applied");
    assert_eq!(version("2")["result"], "gap");
    world
        .run(
            "INSERT INTO consign_progress (consumer_name, aggregate, version, updated_at)
             VALUES ('points-award', 'order:42', 1, NOW(6))",
        )
        .await;

    assert_eq!(version("1")["result"], "stale");
    assert_eq!(version("2")["result"], "applied");
    assert_eq!(version("2")["aggregate"], "order:42");
    assert_eq!(version("x")["result"], "refused");
    assert_eq!(look(&world, &config, PAID, &[]).code, 3, "without a version");
    assert_eq!(world.number("SELECT version FROM consign_progress").await, 1);
}

/// A folder with a config on SQLite, its tables made; `more` is added to the consumer.
async fn on_sqlite(more: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("consign.toml");
    let text = format!(
        r#"
[store]
url = "sqlite:points.db"
[destination.q]
type = "embedded"
path = "queue.db"
queue = [{{ name = "points-award", bindings = ["OrderPaid"] }}]
[[consumer]]
name = "points-award"
source = "q"
queue = "points-award"
key = "order:{{order_id}}:paid"
compare = ["user_id", "paid_at"]
bind.order_id = {{ pointer = "/orderId", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}
bind.amount = {{ pointer = "/amount", type = "decimal" }}
bind.paid_at = {{ pointer = "/paidAt", type = "timestamp" }}
{more}
[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount, paid_at = :paid_at WHERE user_id = :user_id"
"#
    );
    std::fs::write(&config, text).unwrap();
    must(&["migrate"], &config);
    let mut connection =
        SqliteConnection::connect(&format!("sqlite:{}", folder.path().join("points.db").display()))
            .await
            .unwrap();
    sqlx::raw_sql(
        "CREATE TABLE points_account (user_id BIGINT PRIMARY KEY, points BIGINT, paid_at TEXT);
         INSERT INTO points_account VALUES (7, 0, NULL);
         INSERT INTO consumed_operation (consumer_name, business_key, event_id, user_id, paid_at)
         VALUES ('points-award', 'order:1:paid', 'e-1', 7, '2026-01-31 23:00:00.5')",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    (folder, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn looking_works_on_sqlite_too_and_compares_times_by_instant() {
    let (folder, config) = on_sqlite("").await;
    let file = folder.path().join("message.json");
    let look = |order: u32, at: &str| {
        let payload = format!(r#"{{"orderId":{order},"userId":7,"amount":1.5,"paidAt":"{at}"}}"#);
        std::fs::write(&file, payload).unwrap();
        json(&run(&["consume", "--json", "--dry-run", file.to_str().unwrap()], &config))
    };

    let check = run(&["consume", "--check"], &config);
    assert_eq!(check.code, 0, "{}{}", check.stdout, check.stderr);
    assert_eq!(look(1, "2026-02-01T08:00:00.500+09:00")["result"], "duplicate");
    assert_eq!(look(1, "2026-01-31T23:00:00.501Z")["result"], "conflict");
    assert_eq!(look(2, "2026-01-31T23:00:00Z")["statements"][0]["rows"], 1);
    assert_eq!(look(2, "2026-01-31T23:00:00")["result"], "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_prepares_every_statement_on_sqlite() {
    let more = "[[consumer.statement]]\nsql = \"DELETE FROM points_accounts WHERE user_id = :user_id\"\n\
                [[consumer.statement]]\nsql = \"UPDATE points_account SET point = 1\"";
    let (_folder, config) = on_sqlite(more).await;

    let output = run(&["consume", "--check", "--json"], &config);

    assert_eq!(output.code, 3, "{}", output.stderr);
    let document = json(&output);
    let texts: Vec<String> =
        found(&document, "statement-refused").iter().map(|finding| finding["text"].to_string()).collect();
    assert_eq!(texts.len(), 2, "{document:#}");
    assert!(texts[0].contains("points_accounts") && texts[1].contains("point"), "{texts:?}");
    assert_eq!(line(&document, "points-award statement 3")["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_that_make_no_sense_together_are_usage_errors() {
    let (folder, config) = on_sqlite("").await;
    let missing = folder.path().join("nowhere.json");
    let missing = missing.to_str().unwrap();

    for (arguments, code, text) in [
        (&["consume", "--check", "--dry-run", "x.json"][..], 2, "cannot be used with"),
        (&["consume", "--json"], 2, "required"),
        (&["consume", "--id", "e-1"], 2, "--dry-run"),
        (&["consume", "--dry-run", missing, "--header", "x"], 2, "name=value"),
        (&["consume", "--dry-run", missing, "--consumer", "nobody"], 2, "one of points-award"),
        (&["consume", "--dry-run", missing], 1, "cannot read the message in"),
    ] {
        let output = run(arguments, &config);

        assert_eq!(output.code, code, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.contains(text), "{arguments:?}: {}", output.stderr);
    }
}
