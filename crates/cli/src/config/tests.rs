use std::path::Path;
use std::time::Duration;

use consign_core::declared::{DeclaredComparison, ExpectRows};
use consign_core::delivery::Message;
use consign_core::route::DestinationName;

use super::*;

mod comparing;
mod environment;
mod forgetting;
mod guarding;
mod mistakes;
mod reference;
mod retrying;
mod rocketmq;
mod transactions;

/// The smallest config that can be used.
const LEAST: &str = "[store]\nurl = \"sqlite:points.db\"\n";

/// A config with every section, on lines that the tests count on.
const WHOLE: &str = r#"[store]
url = "mysql://app:s3cr3t%40@db.example:3306/points"
time_zone = "+09:00"

[destination.points]
type = "rabbitmq"
url = "amqp://guest:s3cr3t@mq.example/%2f"
exchange = { name = "points" }

[[destination.points.queue]]
name = "points-award"
bindings = ["OrderPaid"]

[[route]]
event_type = "*"
destination = "points"

[[consumer]]
name = "points-award"
source = "points"
queue = "points-award"
key = "order:{order_id}:paid"
compare = ["user_id", "amount"]
bind.order_id = { pointer = "/orderId", type = "integer" }
bind.user_id = { pointer = "/userId", type = "integer" }
bind.amount = { pointer = "/amount", type = "integer" }

[[consumer.statement]]
sql = "UPDATE points_account SET points = points + :amount WHERE user_id = :user_id"
"#;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Environment { variables: variables.iter().map(own).collect() }
}

fn read_with(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::read("consign.toml", text, Path::new("/etc/consign"), &environment(variables))
}

fn read(text: &str) -> Result<Config, ConfigError> {
    read_with(text, &[])
}

/// Every mistake of a text as it is shown.
fn mistakes(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(error) => error.problems.iter().map(ToString::to_string).collect(),
    }
}

/// `WHOLE` with one text in place of another.
fn changed(from: &str, to: &str) -> String {
    assert!(WHOLE.contains(from), "{from:?} is not in the config");
    WHOLE.replacen(from, to, 1)
}

#[test]
fn a_store_alone_is_a_config_with_every_default() {
    let config = read(LEAST).unwrap();

    assert!(
        matches!(&config.store.database, Database::Sqlite { path } if path == Path::new("/etc/consign/points.db"))
    );
    assert_eq!(config.store.connections, 8);
    assert_eq!(config.outboxes.len(), 1);
    assert_eq!(config.outboxes[0].table, "outbox_event");
    assert_eq!(config.inbox.table, "consumed_operation");
    assert_eq!(config.relay.settings.lease, Duration::from_secs(30));
    assert_eq!(config.relay.settings.retry.attempts_max, 20);
}

#[test]
fn every_section_reaches_the_checked_form() {
    let config = read(WHOLE).unwrap();

    let Database::MySql { url, time_zone, .. } = &config.store.database else { panic!("not MySQL") };
    assert_eq!(url.expose(), "mysql://app:s3cr3t%40@db.example:3306/points");
    assert_eq!(time_zone.as_deref(), Some("+09:00"));
    let points = DestinationName::new("points");
    let DestinationConfig::RabbitMq(broker) = &config.destinations[&points] else { panic!("not RabbitMQ") };
    assert_eq!(broker.exchange.as_ref().map(|exchange| exchange.kind), Some(ExchangeKind::Topic));
    assert_eq!(broker.queues[0].kind, QueueKind::Quorum);
    assert_eq!(config.routes.destinations(), std::slice::from_ref(&points));
    let consumer = &config.consumers[0];
    assert_eq!((consumer.source.clone(), consumer.queue.as_str()), (points, "points-award"));
    assert_eq!((consumer.prefetch, consumer.workers, consumer.attempts_max), (200, 4, 5));
    assert_eq!((consumer.batch, consumer.batch_linger), (100, Duration::from_millis(5)));
    assert_eq!(consumer.on_conflict, OnConflict::RecordAndAck);
    assert_eq!(consumer.consumer.statements()[0].expect_rows, ExpectRows::Exactly(1));
}

#[test]
fn a_declared_consumer_reads_messages() {
    let config = read(WHOLE).unwrap();
    let body = br#"{"orderId":42,"userId":7,"amount":100}"#.as_slice();

    let message = Message { body: body.into(), ..Message::default() };
    let (operation, _) = config.consumers[0].consumer.operation(&message).unwrap();

    assert_eq!(operation.key, "order:42:paid");
    assert_eq!(operation.comparison.text(), "user_id=7, amount=100");
}

#[test]
fn the_forms_of_comparisons_and_statements_are_all_read() {
    let columns =
        read(&changed("compare = [\"user_id\", \"amount\"]", "compare = { uid = \"user_id\" }")).unwrap();
    let print = read(&changed("compare = [", "fingerprint = [")).unwrap();
    let key_only = read(&changed("compare = [\"user_id\", \"amount\"]", "compare = []")).unwrap();
    let bound = read(&changed(":user_id\"\n", ":user_id\"\nexpect_rows = \">=2\"\n")).unwrap();
    let number = read(&changed(":user_id\"\n", ":user_id\"\nexpect_rows = 3\n")).unwrap();
    let statement = WHOLE.find("[[consumer.statement]]").unwrap();
    let none = read(&format!("{}statements = \"none\"\n", &WHOLE[..statement])).unwrap();

    assert!(matches!(columns.consumers[0].consumer.comparison(),
        DeclaredComparison::Columns(columns) if columns[0].column == "uid" && columns[0].binding == "user_id"));
    assert!(matches!(print.consumers[0].consumer.comparison(),
        DeclaredComparison::Fingerprint(names) if names.len() == 2));
    assert!(matches!(key_only.consumers[0].consumer.comparison(),
        DeclaredComparison::Columns(columns) if columns.is_empty()));
    assert_eq!(bound.consumers[0].consumer.statements()[0].expect_rows, ExpectRows::AtLeast(2));
    assert_eq!(number.consumers[0].consumer.statements()[0].expect_rows, ExpectRows::Exactly(3));
    assert!(none.consumers[0].consumer.statements().is_empty());
}

#[test]
fn a_batch_that_is_not_written_follows_a_small_prefetch() {
    let batch = |keys: &str| {
        let text = changed("queue = \"points-award\"\n", &format!("queue = \"points-award\"\n{keys}\n"));
        read(&text).unwrap().consumers[0].batch
    };

    assert_eq!(batch("prefetch = 50"), 50);
    assert_eq!(batch("prefetch = 500"), 100);
    assert_eq!(batch("prefetch = 500\nbatch = 500"), 500);
    assert_eq!(batch("batch = 1"), 1);
}

#[test]
fn an_embedded_destination_takes_a_path_and_queues() {
    let text = format!(
        "{LEAST}[destination.demo]\ntype = \"embedded\"\npath = \"queue.db\"\n\
         queue = [{{ name = \"points-award\", bindings = [\"OrderPaid\", \"Sms*\"] }}]\n"
    );

    let config = read(&text).unwrap();

    let DestinationConfig::Embedded(file) = &config.destinations[&DestinationName::new("demo")] else {
        panic!("not embedded")
    };
    assert_eq!(file.path, Path::new("/etc/consign/queue.db"));
    assert_eq!(file.queues[0].bindings, ["OrderPaid", "Sms*"]);
}

/// B88, wagslane/go-rabbitmq#190: no form of output shows a password, whatever goes wrong.
#[test]
fn passwords_are_shown_nowhere() {
    let config = read(WHOLE).unwrap();
    let texts = [
        format!("{config:?}{config:#?}"),
        mistakes(&changed("@db.example:3306/points", "@db.example:port/points")).concat(),
        mistakes(&changed("mysql://", "mysqll://")).concat(),
        mistakes(&changed("url = \"amqp://", "url = \"amqp:/")).concat(),
        mistakes(&changed("url = \"amqp:", "password = \"s3cr3t\"\nurl = \"amqp:")).concat(),
    ];

    for text in texts {
        assert!(!text.is_empty());
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

#[test]
fn the_points_example_can_be_used() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/points");

    let config = Config::load(&folder.join("consign.toml"), &Environment::default()).unwrap();

    let names: Vec<&str> = config.consumers.iter().map(|consumer| consumer.consumer.name()).collect();
    assert_eq!(names, ["points-award", "sms"]);
}

#[test]
fn a_file_that_is_not_there_says_how_to_name_one() {
    let error = Config::load(Path::new("nowhere/consign.toml"), &Environment::default()).unwrap_err();

    assert!(error.to_string().starts_with("nowhere/consign.toml:1: cannot be read: "), "{error}");
    assert!(error.to_string().ends_with("name the config with --config or CONSIGN_CONFIG"), "{error}");
}
