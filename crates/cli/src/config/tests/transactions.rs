//! `[transaction]`: what is read, and what is refused with its fix.

use super::*;

/// A config that answers for transaction messages, on lines that the tests count on.
const ANSWERING: &str = r#"[store]
url = "mysql://app@db.example/points"

[destination.points]
type = "rocketmq"
url = "rocketmq://mq.example"
topic = [{ name = "orders", type = "transaction" }, { name = "plain" }, { name = "chain", type = "fifo" }, { name = "all", type = "mixed" }]

[transaction]
destination = "points"
topics = ["orders"]
store = "orders-db"
longest_local_seconds = 30
"#;

fn altered(from: &str, to: &str) -> String {
    assert!(ANSWERING.contains(from), "{from:?} is not in the config");
    ANSWERING.replacen(from, to, 1)
}

#[test]
fn the_section_is_read_with_the_defaults_of_the_engine() {
    let transaction = read(ANSWERING).unwrap().transaction.unwrap();

    assert_eq!(transaction.topics, ["orders"]);
    assert_eq!(transaction.store.as_str(), "orders-db");
    assert_eq!(transaction.spans.longest(), Duration::from_secs(30));
    assert_eq!(transaction.spans.horizon(), Duration::from_hours(72));
    assert_eq!((transaction.first_check, transaction.repair_every), (None, Duration::from_mins(1)));
    assert!(read(LEAST).unwrap().transaction.is_none());
}

/// Research §1.3 and §1.4: other types take no half messages, and for MIXED no proxy asks anybody.
#[test]
fn sections_that_cannot_work_are_refused() {
    for (from, to, mistake) in [
        (
            "[\"orders\"]",
            "[\"order\"]",
            "11: transaction.topics[0]: \"order\" is unknown: did you mean \"orders\"?",
        ),
        (
            "[\"orders\"]",
            "[]",
            "11: transaction.topics: names no topic: list the topics of type transaction to answer for",
        ),
        (
            "[\"orders\"]",
            "[\"orders\", \"orders\"]",
            "11: transaction.topics[1]: \"orders\" is used twice: give every entry its own",
        ),
        (
            "[\"orders\"]",
            "[\"chain\"]",
            "11: transaction.topics[0]: \"chain\" is a topic of type fifo, which takes no transaction messages: RocketMQ's types exclude each other; use a topic of type transaction",
        ),
        (
            "[\"orders\"]",
            "[\"plain\"]",
            "11: transaction.topics[0]: \"plain\" is a topic of type normal, which takes no transaction messages: RocketMQ's types exclude each other; use a topic of type transaction",
        ),
        (
            "[\"orders\"]",
            "[\"all\"]",
            "11: transaction.topics[0]: \"all\" is a topic of type mixed, for which a proxy asks nobody about half messages: use a topic of type transaction",
        ),
        (
            "\"orders-db\"",
            "\"orders db\"",
            "12: transaction.store: marker store name \"orders db\" does not do: use 1 to 64 of a-z, A-Z, 0-9, '-', '_', '.' and ':'",
        ),
        (
            "= 30",
            "= 30\nfirst_check_seconds = 20",
            "14: transaction.first_check_seconds: 20 is less than longest_local_seconds, which is 30: the broker would ask about transactions that are still running, and take no commit of theirs after that; raise it, or remove it",
        ),
        (
            "= 30",
            "= 30\nfirst_check_seconds = 3601",
            "14: transaction.first_check_seconds: 3601 is out of range: use 1 to 3600",
        ),
        (
            "= 30",
            "= 7200\nhorizon_hours = 1",
            "13: transaction.longest_local_seconds: 7200 reaches horizon_hours, which is 1: a transaction must be over before the broker stops asking; lower it, or raise horizon_hours",
        ),
        (
            "= 30",
            "= 30\nkeep_hours = 72",
            "14: transaction.keep_hours: 72 is less than horizon_hours and one, which is 73: the broker may still ask about what is forgotten; raise it, or lower horizon_hours",
        ),
        (
            "= 30",
            "= 30\nkeep_unconfirmed_hours = 10",
            "14: transaction.keep_unconfirmed_hours: 10 is less than horizon_hours and one, which is 73: the broker may still ask about what is forgotten; raise it, or lower horizon_hours",
        ),
        (
            "= 30",
            "= 30\nkeep_message = \"never\"",
            "14: transaction.keep_message: \"never\" is not known: use one of until_confirmed, digest",
        ),
        (
            "destination = \"points\"",
            "destination = \"point\"",
            "10: transaction.destination: \"point\" is unknown: did you mean \"points\"?",
        ),
        (
            "longest_local_seconds",
            "longest_seconds",
            "13: transaction.longest_seconds: unknown key, did you mean \"longest_local_seconds\"?",
        ),
    ] {
        let found = mistakes(&altered(from, to));

        assert!(found.contains(&format!("consign.toml:{mistake}")), "{mistake}\n{found:#?}");
    }
    let rabbit =
        format!("{WHOLE}\n[transaction]\ndestination = \"points\"\ntopics = [\"x\"]\nstore = \"a\"\n");
    assert_eq!(
        mistakes(&rabbit),
        [
            "consign.toml:32: transaction.destination: \"points\" is not of type rocketmq: only RocketMQ has transaction messages"
        ]
    );
}
