//! Everything in the program that reads what people wrote.

use std::collections::BTreeMap;
use std::path::Path;

use seeded_fuzz::{Source, run};

use crate::config::{Config, ConnectionUrl, Environment};
use crate::{age, pace};

const SECRET: &str = "s3cr3tcanary";
/// A config with every section.
const WHOLE: &str = r#"[store]
url = "mysql://app:s3cr3tcanary@db.example:3306/points"
time_zone = "+09:00"
connections = 8

[[outbox]]
table = "shop.outbox_event"
columns = { event_id = "id" }

[inbox]
retention_days = 90

[relay]
lease_seconds = 30
wakeup = "udp:127.0.0.1:7171"

[retry]
base_seconds = 1
jitter = 0.5

[destination.points]
type = "rabbitmq"
url = "amqp://guest:s3cr3tcanary@mq.example/%2f"
exchange = { name = "points", type = "topic" }

[[destination.points.queue]]
name = "points-award"
bindings = ["OrderPaid"]

[[route]]
event_type = "Order*"
destination = "points"
key = "{event_type}.{aggregate_id}"

[[consumer]]
name = "points-award"
source = "points"
queue = "points-award"
key = "order:{order_id}:paid"
compare = ["user_id"]
dead_letter = { destination = "points", key = "dead" }
bind.order_id = { pointer = "/orderId", type = "integer" }
bind.user_id = { pointer = "/userId", type = "integer" }

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + 1 WHERE user_id = :user_id"
expect_rows = 1
"#;

fn read(text: &str, variables: BTreeMap<String, String>) -> Result<Config, String> {
    let environment = Environment { variables };
    Config::read("consign.toml", text, Path::new("/etc/consign"), &environment)
        .map_err(|error| error.to_string())
}

/// `WHOLE` with lines left out, doubled, moved and bent.
fn config(source: &mut Source) -> String {
    const LINES: [&str; 12] = [
        "url = \"sqlite:points.db\"",
        "[destination.points.retry]",
        "attempts_max = 99999999999999999999",
        "lease_seconds = -1",
        "type = \"embedded\"",
        "path = \"queue.db\"",
        "[consumer.guard]",
        "rule = \"sequential\"",
        "password_file = \"/dev/null/none\"",
        "key = \"{event_type\"",
        "name = 7",
        "[[consumer]]",
    ];
    let mut lines: Vec<&str> = WHOLE.lines().collect();
    for _ in 0..source.below(6) {
        let at = source.index(lines.len());
        match source.below(4) {
            0 => drop(lines.remove(at)),
            1 => lines.insert(at, *source.pick(&LINES)),
            2 => lines.insert(at, lines[at]),
            _ => {
                let other = source.index(lines.len());
                lines.swap(at, other);
            }
        }
    }
    let text = lines.join("\n");
    if source.one_in(2) {
        text
    } else {
        String::from_utf8_lossy(&source.mutated(text.as_bytes())).into_owned()
    }
}

/// A config is used or refused with every mistake named, and no message holds a password.
#[test]
fn config_files() {
    assert!(read(WHOLE, BTreeMap::new()).is_ok(), "the config that everything begins with can be used");
    run("config_files", |source| {
        if let Err(message) = read(&config(source), BTreeMap::new()) {
            assert!(!message.is_empty());
            // A broken password is still a password, as far as it goes.
            assert!(!message.contains(&SECRET[..8]), "{message}");
        }
    });
}

/// The same for overrides from the environment.
#[test]
fn config_overrides() {
    run("config_overrides", |source| {
        let words = [
            "STORE",
            "URL",
            "RELAY",
            "LEASE_SECONDS",
            "CONSUMER",
            "POINTS_AWARD",
            "0",
            "BIND",
            "DESTINATION",
        ];
        let name = (0..=source.below(4)).map(|_| *source.pick(&words)).collect::<Vec<_>>().join("__");
        let value =
            source.text(6, &["1", "true", "[", "{ a = 1 }", "\"text\"", "mysql://app:s3cr3tcanary@db/x"]);
        let variables = BTreeMap::from([(format!("CONSIGN__{name}"), value)]);
        if let Err(message) = read(WHOLE, variables) {
            assert!(!message.contains(SECRET), "{message}");
        }
    });
}

/// A url that was read is written so that it is read again as the same one.
#[test]
fn connection_urls() {
    let variable = |name: &str| (name == "PASSWORD").then(|| "p:/?@#%".to_owned());
    run("connection_urls", |source| {
        let words = [
            "mysql://",
            "app",
            ":",
            "@",
            "db.example",
            "${PASSWORD}",
            "/",
            "?",
            "&",
            "=",
            "%40",
            "[::1]",
            ":1",
        ];
        let text = source.text(10, &words);
        let text = if source.one_in(2) { format!("mysql://{text}") } else { text };
        if let Ok(url) = ConnectionUrl::parse(&text, variable) {
            let exposed = url.expose();
            assert_eq!(ConnectionUrl::parse(&exposed, |_| None), Ok(url), "{text:?} became {exposed:?}");
        }
    });
}

/// Ages and rates are read or refused; an age that was read is shown as it can be read again.
#[test]
fn ages_and_rates() {
    run("ages_and_rates", |source| {
        let text = source.text(5, &["1", "30", "s", "m", "h", "d", "w", "/s", "/m", "99999999999"]);
        if let Ok(read) = age::parse(&text) {
            assert_eq!(age::parse(&age::shown(read)), Ok(read), "{text:?}");
        }
        if let Ok(rate) = pace::parse_rate(&text) {
            let items = source.bits();
            assert!(rate.span(items) <= rate.span(u64::MAX), "{text:?}");
        }
    });
}
