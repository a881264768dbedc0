//! Destinations and groups of RocketMQ: what is read, and what is refused with its fix.

use super::*;

/// A config of RocketMQ on lines that the tests count on.
const CLUSTER: &str = r#"[store]
url = "mysql://app@db.example/points"

[destination.points]
type = "rocketmq"
url = "rocketmq://access:s3cr3t@mq.example"
endpoints = ["mq-2.example:8082"]
name_servers = ["ns.example"]

[[destination.points.topic]]
name = "points"

[[destination.points.group]]
name = "points-award"
topic = "points"
tags = ["OrderPaid"]

[[route]]
event_type = "*"
destination = "points"
key = "points"

[[consumer]]
name = "points-award"
source = "points"
group = "points-award"
key = "order:{order_id}:paid"
compare = []
statements = "none"
bind.order_id = { pointer = "/orderId", type = "integer" }
"#;

fn altered(from: &str, to: &str) -> String {
    assert!(CLUSTER.contains(from), "{from:?} is not in the config");
    CLUSTER.replacen(from, to, 1)
}

fn cluster(text: &str) -> RocketMqConfig {
    match read(text).unwrap().destinations.remove(&DestinationName::new("points")) {
        Some(DestinationConfig::RocketMq(cluster)) => *cluster,
        other => panic!("not RocketMQ: {other:?}"),
    }
}

#[test]
fn a_cluster_with_topics_and_groups_reaches_the_checked_form() {
    let cluster = cluster(CLUSTER);

    let proxies: Vec<String> = cluster.proxies.iter().map(ToString::to_string).collect();
    assert_eq!(proxies, ["mq.example:8081", "mq-2.example:8082"]);
    assert_eq!(cluster.name_servers[0].to_string(), "ns.example:9876");
    assert_eq!(cluster.url.user.as_deref(), Some("access"));
    assert_eq!((cluster.message_type, cluster.accepted.as_slice()), (MessageType::Normal, [].as_slice()));
    assert_eq!((cluster.topics[0].kind, cluster.topics[0].queues), (TopicKind::Normal, 8));
    let group = &cluster.groups[0];
    assert_eq!((group.ordered, group.retries, group.broker_retries), (false, 16, false));
    assert_eq!(
        (group.tags.as_slice(), group.invisible),
        (["OrderPaid".to_owned()].as_slice(), Duration::from_mins(5))
    );
    let consumer = &read(CLUSTER).unwrap().consumers[0];
    assert_eq!(consumer.queue, "points-award");
}

#[test]
fn a_fifo_topic_makes_its_groups_ordered_unless_they_say_otherwise() {
    let fifo = altered("name = \"points\"\n", "name = \"points\"\ntype = \"fifo\"\n")
        .replace("type = \"rocketmq\"", "type = \"rocketmq\"\nmessage_type = \"fifo\"")
        .replace("[destination.points]", "[relay]\nmode = \"ordered\"\n\n[destination.points]");
    let parallel = fifo.replace("tags =", "ordered = false\ntags =");

    assert!(cluster(&fifo).groups[0].ordered);
    assert!(!cluster(&parallel).groups[0].ordered);
    assert_eq!(cluster(&fifo).message_type, MessageType::Fifo);
}

#[test]
fn statuses_are_accepted_by_their_names_only() {
    let named = altered("endpoints", "accept_statuses = [\"HA_NOT_AVAILABLE\"]\nendpoints");
    let unsafe_name = altered("endpoints", "accept_statuses = [\"HA_NOT_AVAILBLE\"]\nendpoints");

    assert_eq!(cluster(&named).accepted, [StoredStatus::HaNotAvailable]);
    assert_eq!(
        mistakes(&unsafe_name),
        [
            "consign.toml:7: destination.points.accept_statuses[0]: \"HA_NOT_AVAILBLE\" is not known: did you mean \"HA_NOT_AVAILABLE\"?"
        ]
    );
}

/// Research §1.3: clients drop a message group or a delay in silence; here the combination is refused.
#[test]
fn kinds_of_messages_that_exclude_each_other_are_refused() {
    for (from, to, mistake) in [
        (
            "endpoints",
            "message_type = \"fifo\"\ndelay_seconds = 60\nendpoints",
            "8: destination.points.delay_seconds: 60 does not go with message_type = \"fifo\": RocketMQ's types exclude each other; remove it and let rows wait by available_at, or write message_type = \"delay\"",
        ),
        (
            "endpoints",
            "message_type = \"transaction\"\ndelay_seconds = 60\nendpoints",
            "8: destination.points.delay_seconds: 60 does not go with message_type = \"transaction\": RocketMQ's types exclude each other; remove it and let rows wait by available_at, or write message_type = \"delay\"",
        ),
        (
            "endpoints",
            "message_type = \"transaction\"\nendpoints",
            "7: destination.points.message_type: \"transaction\" is not what a relay sends: transaction messages are sent by a TransactionProducer in the service, see [transaction]; use normal, fifo or delay",
        ),
        (
            "endpoints",
            "delay_seconds = 60\nendpoints",
            "7: destination.points.delay_seconds: 60 does not go with message_type = \"normal\": RocketMQ's types exclude each other; remove it and let rows wait by available_at, or write message_type = \"delay\"",
        ),
        (
            "endpoints",
            "message_type = \"delay\"\nendpoints",
            "4: destination.points.delay_seconds: is missing: write delay_seconds = 60, or use another message_type",
        ),
        (
            "endpoints",
            "message_type = \"delay\"\ndelay_seconds = 86401\nendpoints",
            "8: destination.points.delay_seconds: 86401 is out of range: use 1 to 86400",
        ),
        (
            "endpoints",
            "message_type = \"fifo\"\nendpoints",
            "7: destination.points.message_type: \"fifo\" keeps no order while relay.mode is \"competing\", which sends events of one aggregate side by side: write relay.mode = \"ordered\", or use normal",
        ),
        (
            "name = \"points\"\n",
            "name = \"points\"\ntype = \"fifo\"\n",
            "22: route[0].key: \"points\" is a topic of type fifo, which takes no messages of type normal: use another topic, or change message_type of [destination.points]",
        ),
        (
            "name = \"points\"\n",
            "name = \"points\"\ntype = \"transaction\"\n",
            "22: route[0].key: \"points\" is a topic of type transaction, which takes no messages of type normal: use another topic, or change message_type of [destination.points]",
        ),
        (
            "statements = \"none\"",
            "statements = \"none\"\ndead_letter = { destination = \"points\", key = \"point\" }",
            "30: consumer[0].dead_letter.key: \"point\" is unknown: did you mean \"points\"?",
        ),
        (
            "tags =",
            "ordered = true\ntags =",
            "16: destination.points.group[0].ordered: true has no effect on a topic of type normal: make the topic fifo, or remove it",
        ),
    ] {
        let found = mistakes(&altered(from, to));

        assert!(found.contains(&format!("consign.toml:{mistake}")), "{mistake}\n{found:#?}");
    }
}

/// Research §1.5: a member of a group acknowledges what it did not ask for.
#[test]
fn a_group_has_one_subscription_and_one_reader() {
    let second = "[[destination.points.group]]\nname = \"points-award\"\ntopic = \"points\"\n\n[[route]]";
    let elsewhere = "[destination.again]\ntype = \"rocketmq\"\nurl = \"rocketmq://mq-2.example:8082\"\n\n\
        [[destination.again.topic]]\nname = \"points\"\n\n\
        [[destination.again.group]]\nname = \"points-award\"\ntopic = \"points\"\n\n[[route]]";
    let reader = format!(
        "{CLUSTER}\n[[consumer]]\nname = \"sms\"\nsource = \"points\"\ngroup = \"points-award\"\nkey = \"{{order_id}}\"\n\
         compare = []\nstatements = \"none\"\nbind.order_id = {{ pointer = \"/orderId\", type = \"integer\" }}\n"
    );

    let twice = mistakes(&altered("[[route]]", second));
    let by_two_names = mistakes(&altered("[[route]]", elsewhere));
    let shared = mistakes(&reader);

    let rule = "members of a group need one and the same subscription, because the proxy acknowledges what a member did \
                not ask for; give every subscription a group of its own";
    assert_eq!(
        twice,
        [format!(
            "consign.toml:19: destination.points.group[1].name: \"points-award\" is used twice: {rule}"
        )]
    );
    assert_eq!(
        by_two_names,
        [format!(
            "consign.toml:14: destination.points.group[0].name: \"points-award\" is a group of another destination at the same proxy: {rule}"
        )]
    );
    assert_eq!(
        shared,
        [
            "consign.toml:35: consumer[1].group: \"points-award\" is read by consumer \"points-award\" too, and a group delivers each message to one of its members: give every consumer a group of its own"
        ]
    );
}

#[test]
fn a_group_that_takes_deliveries_back_too_early_is_refused() {
    for (from, to, mistake) in [
        (
            "tags =",
            "invisible_seconds = 15\ntags =",
            "27: consumer[0].group: \"points-award\" hides a delivery for 15 s, and the last of 200 deliveries may be at work for 15.005 s: raise invisible_seconds of the group to 16 or more, or lower prefetch",
        ),
        (
            "compare = []",
            "compare = []\nprefetch = 1000\nworkers = 1\nbatch = 20",
            "26: consumer[0].group: \"points-award\" hides a delivery for 300 s, and the last of 1000 deliveries may be at work for 750.005 s: raise invisible_seconds of the group to 751 or more, or lower prefetch",
        ),
        (
            "tags =",
            "invisible_seconds = 9\ntags =",
            "16: destination.points.group[0].invisible_seconds: 9 is out of range: use 10 to 43200",
        ),
        (
            "tags =",
            "broker_retries = true\nretries = 3\ntags =",
            "25: consumer[0].attempts_max: 5 tries are more than the 4 deliveries of group \"points-award\", after which the broker moves a message to its dead-letter topic: lower it, or raise retries of the group",
        ),
    ] {
        let found = mistakes(&altered(from, to));

        assert!(found.contains(&format!("consign.toml:{mistake}")), "{mistake}\n{found:#?}");
    }
    assert!(read(&altered("tags =", "invisible_seconds = 16\ntags =")).is_ok());
    assert!(
        read(&altered("tags =", "retries = 3\ntags =")).is_ok(),
        "refused deliveries wait in the database"
    );
}

#[test]
fn names_addresses_and_keys_that_cannot_work_are_refused() {
    for (from, to, mistake) in [
        (
            "name = \"points\"\n",
            "name = \"points.v1\"\n",
            "11: destination.points.topic[0].name: \"points.v1\" is not a name for RocketMQ: use 1 to 127 letters, digits, _ and -",
        ),
        (
            "name = \"points\"\n",
            "name = \"points\"\ntype = \"fifi\"\n",
            "12: destination.points.topic[0].type: \"fifi\" is not known: did you mean \"fifo\"?",
        ),
        (
            "topic = \"points\"",
            "topic = \"point\"",
            "15: destination.points.group[0].topic: \"point\" is unknown: did you mean \"points\"?",
        ),
        (
            "[\"OrderPaid\"]",
            "[\"A || B\"]",
            "16: destination.points.group[0].tags[0]: \"A || B\" is not a tag: write one event type, or tags = [] for all of them",
        ),
        (
            "key = \"points\"",
            "key = \"orders\"",
            "21: route[0].key: \"orders\" is unknown: the route key is the topic, add it to the topics of [destination.points]",
        ),
        (
            "group = \"points-award\"",
            "group = \"points-awards\"",
            "26: consumer[0].group: \"points-awards\" is unknown: did you mean \"points-award\"?",
        ),
        (
            "group = \"points-award\"",
            "queue = \"points-award\"",
            "26: consumer[0].queue: does not apply to a source of type rocketmq: write group = \"NAME\"",
        ),
        (
            "mq.example\"",
            "mq.example,mq-2.example\"",
            "6: destination.points.url: names several proxies: keep the first and move the others to endpoints",
        ),
        (
            "mq.example\"",
            "mq.example/x\"",
            "6: destination.points.url: has a path, and RocketMQ has none: remove it, or write ?namespace=NAME",
        ),
        (
            "access:s3cr3t@",
            "access@",
            "6: destination.points.url: has an access key or a secret key alone: write both, or neither, or add password_file",
        ),
        (
            "mq.example\"",
            "mq.example?namespce=a\"",
            "6: destination.points.url: has an unknown key after its question mark: use namespace, connection_timeout, request_timeout or access_points_only",
        ),
        (
            "mq.example\"",
            "mq.example?request_timeout=0\"",
            "6: destination.points.url: has a value after its question mark that does not fit: timeouts are whole seconds from 1 to 65535, access_points_only is true or false",
        ),
        (
            "[\"ns.example\"]",
            "[\"http://ns.example\"]",
            "8: destination.points.name_servers[0]: is a url where an address is wanted: write host:9876",
        ),
        (
            "[\"mq-2.example:8082\"]",
            "[\"access:s3cr3t@mq-2.example\"]",
            "7: destination.points.endpoints[0]: has more than a host and a port: write host:8081",
        ),
        (
            "endpoints",
            "tls_ca_file = \"/etc/hostname\"\nendpoints",
            "6: destination.points.url: is not encrypted although tls files are given: write rocketmqs://",
        ),
        (
            "endpoints",
            "exchange = { name = \"x\" }\nendpoints",
            "7: destination.points.exchange: does not apply to type rocketmq: remove it",
        ),
        ("endpoints", "endpoint", "7: destination.points.endpoint: unknown key, did you mean \"endpoints\"?"),
    ] {
        let found = mistakes(&altered(from, to));

        assert!(found.contains(&format!("consign.toml:{mistake}")), "{mistake}\n{found:#?}");
        assert!(!found.concat().contains("s3cr3t"), "{found:?}");
    }
    let elsewhere = changed("url = \"amqp:", "message_type = \"fifo\"\nurl = \"amqp:");
    assert_eq!(
        mistakes(&elsewhere),
        ["consign.toml:7: destination.points.message_type: does not apply to type rabbitmq: remove it"]
    );
    let group = changed("queue = \"points-award\"", "group = \"points-award\"");
    assert!(
        mistakes(&group).contains(
            &"consign.toml:21: consumer[0].group: applies to a source of type rocketmq only: write queue = \"NAME\"".to_owned()
        ),
        "{:?}",
        mistakes(&group)
    );
}
