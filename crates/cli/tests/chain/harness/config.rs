//! consign.toml for a test.

use std::fmt::Write as _;
use std::path::PathBuf;

use toml::{Table, Value};

use super::World;

/// Times that suit tests.
pub const TIMES: &str = "
[relay]
lease_seconds = 3
publish_deadline_seconds = 1
margin_seconds = 1
sweep_seconds = 1
sweep_delay_seconds = 1
poll_max_milliseconds = 100
drain_seconds = 10

[retry]
base_seconds = 1
cap_seconds = 2
";

/// A config in the making. Its consumers are those of the points story, its destination is called `main`.
#[derive(Clone)]
pub struct Config {
    folder: PathBuf,
    text: String,
    changes: Vec<(String, String)>,
}

impl Config {
    /// The exchange is called as the world; the queues add `-points`, `-sms`, `-dead` and, for everything, `-audit`.
    pub(super) fn new(world: &World, broker: &str) -> Self {
        let name = &world.name;
        let store = world.store_url();
        let mut text = format!(
            r#"
[store]
url = "{store}"

{TIMES}
[destination.main]
type = "rabbitmq"
url = "{broker}"
exchange = {{ name = "{name}", type = "topic", durable = true }}

[[route]]
event_type = "*"
destination = "main"
key = "{{event_type}}"
"#
        );
        // The audit must read every copy exactly once. A quorum queue may forget the last acknowledgements of a channel
        // that closes right behind them; a classic one takes both in their order.
        let queues = [
            ("points", "quorum", r#""OrderPaid""#),
            ("sms", "quorum", r#""OrderCreated", "OrderPaid""#),
            ("dead", "quorum", r#""points-award.dead", "sms.dead""#),
            ("audit", "classic", r##""#""##),
        ];
        for (queue, kind, bindings) in queues {
            write!(
                text,
                "[[destination.main.queue]]\nname = \"{name}-{queue}\"\ntype = \"{kind}\"\nbindings = [{bindings}]\n"
            )
            .unwrap();
        }
        text.push_str(&consumers(name));
        Self { folder: world.folder.path().into(), text, changes: Vec::new() }
    }

    /// Leads to another address of the broker, for instance a proxy's.
    #[must_use]
    pub fn broker(self, url: impl Into<String>) -> Self {
        self.set("destination.main.url", &Value::String(url.into()).to_string())
    }

    /// Sets one value, written as in TOML, under its dotted key; entries of lists are named by their index.
    #[must_use]
    pub fn set(mut self, key: &str, toml_value: &str) -> Self {
        self.changes.push((key.into(), toml_value.into()));
        self
    }

    /// Adds text to the file.
    #[must_use]
    pub fn raw(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// The type of all queues but the audit queue.
    #[must_use]
    pub fn queue_type(self, kind: &str) -> Self {
        let kind = format!("{kind:?}");
        (0..3).fold(self, |config, queue| config.set(&format!("destination.main.queue.{queue}.type"), &kind))
    }

    /// Writes the file into the world's folder and gives its path.
    pub fn write(self, file: &str) -> PathBuf {
        let mut table: Table = self.text.parse().expect("the test's config is TOML");
        for (key, value) in &self.changes {
            let mut value: Table = format!("value = {value}").parse().expect("the test's value is TOML");
            put(&mut table, key, value.remove("value").unwrap());
        }
        let path = self.folder.join(file);
        std::fs::write(&path, table.to_string()).unwrap();
        path
    }
}

fn consumers(name: &str) -> String {
    format!(
        r#"
[[consumer]]
name = "points-award"
source = "main"
queue = "{name}-points"
key = "order:{{order_id}}:paid"
compare = ["user_id", "amount"]
dead_letter = {{ destination = "main", key = "points-award.dead" }}
bind.order_id = {{ pointer = "/orderId", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}
bind.amount = {{ pointer = "/amount", type = "integer" }}

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id"
expect_rows = 1

[[consumer]]
name = "sms"
source = "main"
queue = "{name}-sms"
key = "order:{{order_id}}:{{event_type}}"
compare = ["user_id"]
dead_letter = {{ destination = "main", key = "sms.dead" }}
bind.order_id = {{ pointer = "/orderId", type = "integer" }}
bind.user_id = {{ pointer = "/userId", type = "integer" }}

[[consumer.statement]]
sql = "INSERT INTO sms_message (order_id, user_id, event_type) VALUES (:order_id, :user_id, :event_type)"
expect_rows = 1
"#
    )
}

fn put(table: &mut Table, key: &str, value: Value) {
    let Some((first, rest)) = key.split_once('.') else {
        table.insert(key.into(), value);
        return;
    };
    match table.entry(first).or_insert_with(|| Value::Table(Table::new())) {
        Value::Table(inner) => put(inner, rest, value),
        Value::Array(entries) => {
            let (index, rest) = rest.split_once('.').expect("a key below an entry of the list");
            let entry = &mut entries[index.parse::<usize>().expect("an index")];
            put(entry.as_table_mut().expect("an entry with keys"), rest, value);
        }
        other => panic!("{first} is {other} and has no keys"),
    }
}
