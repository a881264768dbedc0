//! `type = "rocketmq"`: proxies, the kind of messages, topics and consumer groups.
//!
//! RocketMQ's kinds of messages exclude each other, and a topic takes one kind. What does not fit together is refused
//! here: a client that drops a message group or a delay in silence breaks an order or a promise.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use consign_core::relay::Order;
use consign_core::route::DestinationName;

use super::{DestinationConfig, TlsFiles, check_tls, foreign, tls_files};
use crate::config::checker::Checker;
use crate::config::raw::{RawDestination, RawGroup, RawTopic};
use crate::config::url::ConnectionUrl;

/// The longest name of a topic or group, in bytes.
const NAME_BYTES_MAX: usize = 127;
/// The port of a proxy.
const PROXY_PORT: u16 = 8081;
/// The port of a name server.
const NAME_SERVER_PORT: u16 = 9876;
/// The longest delay that a proxy takes unless it is told otherwise (`maxDelayTimeMills`).
const DELAY_MAX: u64 = 86_400;
/// The spans that a proxy takes for the invisible time of a receive.
const INVISIBLE: std::ops::RangeInclusive<u64> = 10..=43_200;

/// A RocketMQ cluster and what must exist in it.
#[derive(Clone, Debug)]
pub struct RocketMqConfig {
    /// The first proxy; the user is the access key, the password the secret key.
    pub url: ConnectionUrl,
    /// Every proxy, the first one included.
    pub proxies: Vec<NetworkAddress>,
    /// The name servers, for topology and findings; empty when administration is not at hand.
    pub name_servers: Vec<NetworkAddress>,
    /// The files for TLS; all absent without TLS.
    pub tls: TlsFiles,
    /// What kind of messages the relay sends.
    pub message_type: MessageType,
    /// Answers that count as proof although the message is not yet safe.
    pub accepted: Vec<StoredStatus>,
    /// What becomes of an event without a payload.
    pub empty_body: EmptyBody,
    /// Longer payloads are rejected before they reach the proxy; `None` takes the broker's own default.
    pub message_bytes_max: Option<usize>,
    /// The topics.
    pub topics: Vec<TopicConfig>,
    /// The consumer groups.
    pub groups: Vec<GroupConfig>,
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkAddress {
    /// Host name or address; IPv6 addresses without brackets.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// What kind of messages a relay sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// Without order.
    Normal,
    /// In order within an aggregate.
    Fifo,
    /// Delivered so long after the event was written.
    Delay(Duration),
}

/// Answers that say "stored, not yet safe".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStatus {
    /// The master did not flush in time.
    MasterPersistenceTimeout,
    /// A slave did not follow in time.
    SlavePersistenceTimeout,
    /// There was no slave to follow.
    HaNotAvailable,
}

/// What becomes of an event whose payload is empty: a proxy takes no empty body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyBody {
    /// It is rejected.
    Reject,
    /// One zero byte stands for it.
    Placeholder,
}

/// What a topic takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicKind {
    /// Messages without order.
    Normal,
    /// Messages in order within a message group.
    Fifo,
    /// Messages with a time of delivery.
    Delay,
    /// Transaction messages.
    Transaction,
    /// Messages of every kind.
    Mixed,
}

/// A topic as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// Its name.
    pub name: String,
    /// What it takes.
    pub kind: TopicKind,
    /// How many queues it has on each broker.
    pub queues: u32,
}

/// A consumer group as it must be, with its one subscription: what differs between members of a group is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Its name.
    pub name: String,
    /// The topic it reads.
    pub topic: String,
    /// The tags it wants; all when there are none.
    pub tags: Vec<String>,
    /// Messages of one message group are delivered one after another.
    pub ordered: bool,
    /// How often the broker delivers a message again before it moves it to the group's dead-letter topic.
    pub retries: u32,
    /// Refused deliveries go back to the broker instead of waiting in the database.
    pub broker_retries: bool,
    /// What is put aside goes to the group's dead-letter topic too, once it is recorded.
    pub dead_letter_topic: bool,
    /// How long a delivery stays hidden from others.
    pub invisible: Duration,
}

impl MessageType {
    const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Fifo => "fifo",
            Self::Delay(_) => "delay",
        }
    }
}

impl TopicKind {
    const ALL: [(&'static str, Self); 5] = [
        ("normal", Self::Normal),
        ("fifo", Self::Fifo),
        ("delay", Self::Delay),
        ("transaction", Self::Transaction),
        ("mixed", Self::Mixed),
    ];

    /// The word for it in the config.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(word, _)| word)
    }

    /// Whether messages of this type may be sent to it.
    pub const fn takes(self, message: MessageType) -> bool {
        matches!(
            (self, message),
            (Self::Mixed, _)
                | (Self::Normal, MessageType::Normal)
                | (Self::Fifo, MessageType::Fifo)
                | (Self::Delay, MessageType::Delay(_))
        )
    }
}

impl StoredStatus {
    const ALL: [(&'static str, Self); 3] = [
        ("MASTER_PERSISTENCE_TIMEOUT", Self::MasterPersistenceTimeout),
        ("SLAVE_PERSISTENCE_TIMEOUT", Self::SlavePersistenceTimeout),
        ("HA_NOT_AVAILABLE", Self::HaNotAvailable),
    ];

    /// RocketMQ's name for it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, status)| *status == self).map_or("", |(word, _)| word)
    }
}

impl GroupConfig {
    /// True when a refused delivery goes back to the broker, which counts its attempts.
    pub const fn keeps_refused(&self) -> bool {
        self.ordered || self.broker_retries
    }
}

impl fmt::Display for NetworkAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

impl RocketMqConfig {
    /// The declared topic of this name.
    pub fn topic(&self, name: &str) -> Option<&TopicConfig> {
        self.topics.iter().find(|topic| topic.name == name)
    }

    /// The declared group of this name.
    pub fn group(&self, name: &str) -> Option<&GroupConfig> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// True when both name a proxy of the same cluster.
    fn is_same_cluster(&self, other: &Self) -> bool {
        self.proxies.iter().any(|proxy| other.proxies.contains(proxy))
            && query(&self.url, "namespace") == query(&other.url, "namespace")
    }
}

fn query<'a>(url: &'a ConnectionUrl, key: &str) -> Option<&'a str> {
    url.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// Checks a destination of type rocketmq.
pub fn rocketmq(checker: &mut Checker<'_>, key: &str, raw: RawDestination) -> Option<DestinationConfig> {
    foreign(checker, key, &["path", "channels", "exchange", "queue"], "rocketmq");
    let message_type = message_type(checker, key, raw.message_type.as_deref(), raw.delay_seconds);
    let statuses_key = format!("{key}.accept_statuses");
    let mut accepted = Vec::new();
    for (index, word) in raw.accept_statuses.iter().enumerate() {
        accepted.extend(checker.choice(&format!("{statuses_key}[{index}]"), word, &StoredStatus::ALL));
    }
    let topics: Vec<_> = raw
        .topic
        .into_iter()
        .enumerate()
        .filter_map(|(index, raw)| topic(checker, &format!("{key}.topic[{index}]"), raw))
        .collect();
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    checker.unique(&names, |index| format!("{key}.topic[{index}].name"));
    let groups: Vec<_> = raw
        .group
        .into_iter()
        .enumerate()
        .filter_map(|(index, raw)| group(checker, &format!("{key}.group[{index}]"), raw, &topics))
        .collect();
    for (index, group) in groups.iter().enumerate() {
        if groups[..index].iter().any(|earlier| earlier.name == group.name) {
            let text = format!("{:?} is used twice: {}", group.name, ONE_SUBSCRIPTION);
            checker.refuse(&format!("{key}.group[{index}].name"), text);
        }
    }
    let bodies = [("reject", EmptyBody::Reject), ("placeholder", EmptyBody::Placeholder)];
    let empty_body = raw.empty_body.as_deref().unwrap_or("reject");
    let empty_body = checker.choice(&format!("{key}.empty_body"), empty_body, &bodies);
    let bytes_key = format!("{key}.message_bytes_max");
    let message_bytes_max = raw.message_bytes_max.map(|bytes| checker.within(&bytes_key, bytes, 1..=1 << 30));
    let tls = tls_files(checker, key, raw.tls_ca_file, raw.tls_client_cert_file, raw.tls_client_key_file);
    let mut proxies = addresses(checker, &format!("{key}.endpoints"), &raw.endpoints, PROXY_PORT);
    let name_servers =
        addresses(checker, &format!("{key}.name_servers"), &raw.name_servers, NAME_SERVER_PORT);
    let url = url(checker, key, raw.url, raw.password_file)?;
    check_tls(checker, key, &url, "rocketmqs", &tls);
    proxies.insert(0, NetworkAddress { host: url.host.clone(), port: url.port.unwrap_or(PROXY_PORT) });
    Some(DestinationConfig::RocketMq(Box::new(RocketMqConfig {
        url,
        proxies,
        name_servers,
        tls,
        message_type: message_type?,
        accepted,
        empty_body: empty_body?,
        message_bytes_max,
        topics,
        groups,
    })))
}

const ONE_SUBSCRIPTION: &str = "members of a group need one and the same subscription, because the proxy acknowledges \
                                what a member did not ask for; give every subscription a group of its own";

fn url(
    checker: &mut Checker<'_>,
    key: &str,
    url: Option<String>,
    password_file: Option<String>,
) -> Option<ConnectionUrl> {
    let url_key = format!("{key}.url");
    let url = checker.required(&url_key, url, "url = \"rocketmq://access-key@host:8081\"")?;
    let password_key = format!("{key}.password_file");
    let url = checker.url(&url_key, &url, &["rocketmq", "rocketmqs"], (&password_key, password_file))?;
    if url.host.contains(',') {
        checker.refuse(&url_key, "names several proxies: keep the first and move the others to endpoints");
    }
    if url.path.is_some() {
        checker.refuse(&url_key, "has a path, and RocketMQ has none: remove it, or write ?namespace=NAME");
    }
    if url.user.is_some() != url.password.is_some() {
        let text = "has an access key or a secret key alone: write both, or neither, or add password_file";
        checker.refuse(&url_key, text);
    }
    // Neither keys nor values are shown: they may be the rest of a password that has a raw question mark.
    let known = |name: &str| {
        matches!(name, "namespace" | "connection_timeout" | "request_timeout" | "access_points_only")
    };
    let fits = |(name, value): &(String, String)| match name.as_str() {
        "connection_timeout" | "request_timeout" => value.parse::<u16>().is_ok_and(|seconds| seconds > 0),
        "access_points_only" => value.parse::<bool>().is_ok(),
        _ => true,
    };
    if !url.query.iter().all(|(name, _)| known(name)) {
        let text = "has an unknown key after its question mark: use namespace, connection_timeout, request_timeout or \
                    access_points_only";
        checker.refuse(&url_key, text);
    } else if !url.query.iter().all(fits) {
        let text = "has a value after its question mark that does not fit: timeouts are whole seconds from 1 to 65535, \
                    access_points_only is true or false";
        checker.refuse(&url_key, text);
    }
    Some(url)
}

fn addresses(checker: &mut Checker<'_>, key: &str, written: &[String], port: u16) -> Vec<NetworkAddress> {
    let mut addresses = Vec::new();
    for (index, text) in written.iter().enumerate() {
        let key = format!("{key}[{index}]");
        let example = format!("write host:{port}");
        if text.contains("://") {
            checker.refuse(&key, format!("is a url where an address is wanted: {example}"));
            continue;
        }
        let Some(url) = checker.url(&key, &format!("rocketmq://{text}"), &["rocketmq"], ("", None)) else {
            continue;
        };
        if url.user.is_some() || url.path.is_some() || !url.query.is_empty() || url.host.contains(',') {
            checker.refuse(&key, format!("has more than a host and a port: {example}"));
        }
        addresses.push(NetworkAddress { host: url.host, port: url.port.unwrap_or(port) });
    }
    addresses
}

fn message_type(
    checker: &mut Checker<'_>,
    key: &str,
    word: Option<&str>,
    delay: Option<u64>,
) -> Option<MessageType> {
    #[derive(Clone, Copy, PartialEq)]
    enum Word {
        Normal,
        Fifo,
        Delay,
        Transaction,
    }
    let words = [
        ("normal", Word::Normal),
        ("fifo", Word::Fifo),
        ("delay", Word::Delay),
        ("transaction", Word::Transaction),
    ];
    let (type_key, delay_key) = (format!("{key}.message_type"), format!("{key}.delay_seconds"));
    let word = word.unwrap_or("normal");
    let chosen = checker.choice(&type_key, word, &words)?;
    if chosen == Word::Transaction {
        checker.refuse(
            &type_key,
            "\"transaction\" is not what a relay sends: transaction messages are sent by a TransactionProducer in the \
             service, see [transaction]; use normal, fifo or delay",
        );
    }
    match (chosen, delay) {
        (Word::Delay, Some(seconds)) => {
            Some(MessageType::Delay(checker.seconds(&delay_key, seconds, 1..=DELAY_MAX)))
        }
        (Word::Delay, None) => {
            checker.refuse(&delay_key, "is missing: write delay_seconds = 60, or use another message_type");
            None
        }
        (Word::Normal | Word::Fifo | Word::Transaction, Some(seconds)) => {
            checker.refuse(
                &delay_key,
                format!(
                    "{seconds} does not go with message_type = {word:?}: RocketMQ's types exclude each other; remove \
                     it and let rows wait by available_at, or write message_type = \"delay\""
                ),
            );
            None
        }
        (Word::Normal, None) => Some(MessageType::Normal),
        (Word::Fifo, None) => Some(MessageType::Fifo),
        (Word::Transaction, None) => None,
    }
}

fn topic(checker: &mut Checker<'_>, key: &str, raw: RawTopic) -> Option<TopicConfig> {
    let name_key = format!("{key}.name");
    let name = checker.required(&name_key, raw.name, "name = \"orders\"");
    if let Some(name) = &name {
        check_name(checker, &name_key, name);
    }
    let kind = checker.choice(&format!("{key}.type"), &raw.kind, &TopicKind::ALL);
    let queues = checker.within(&format!("{key}.queues"), raw.queues, 1..=1024);
    Some(TopicConfig { name: name?, kind: kind?, queues })
}

fn group(checker: &mut Checker<'_>, key: &str, raw: RawGroup, topics: &[TopicConfig]) -> Option<GroupConfig> {
    let (name_key, topic_key) = (format!("{key}.name"), format!("{key}.topic"));
    let name = checker.required(&name_key, raw.name, "name = \"points-award\"");
    if let Some(name) = &name {
        check_name(checker, &name_key, name);
    }
    let topic = checker.required(&topic_key, raw.topic, "topic = \"orders\"");
    let mut kind = None;
    if let Some(topic) = &topic {
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        checker.known(&topic_key, topic, &names, "add it to the topics of the destination");
        kind = topics.iter().find(|known| known.name == *topic).map(|known| known.kind);
    }
    for (index, tag) in raw.tags.iter().enumerate() {
        if tag.trim().is_empty() || tag.contains(['|', ' ', '*']) || tag.chars().any(char::is_control) {
            let text = format!("{tag:?} is not a tag: write one event type, or tags = [] for all of them");
            checker.refuse(&format!("{key}.tags[{index}]"), text);
        }
    }
    if let (Some(true), Some(kind)) = (raw.ordered, kind)
        && !matches!(kind, TopicKind::Fifo | TopicKind::Mixed)
    {
        let text = format!(
            "true has no effect on a topic of type {}: make the topic fifo, or remove it",
            kind.word()
        );
        checker.refuse(&format!("{key}.ordered"), text);
    }
    let retries = checker.within(&format!("{key}.retries"), raw.retries, 0..=1000);
    let invisible = checker.seconds(&format!("{key}.invisible_seconds"), raw.invisible_seconds, INVISIBLE);
    Some(GroupConfig {
        name: name?,
        topic: topic?,
        tags: raw.tags,
        ordered: raw.ordered.unwrap_or(kind == Some(TopicKind::Fifo)),
        retries,
        broker_retries: raw.broker_retries,
        dead_letter_topic: raw.dead_letter_topic,
        invisible,
    })
}

fn check_name(checker: &mut Checker<'_>, key: &str, name: &str) {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
    if name.len() > NAME_BYTES_MAX || !name.bytes().all(valid) {
        let text = format!(
            "{name:?} is not a name for RocketMQ: use 1 to {NAME_BYTES_MAX} letters, digits, _ and -"
        );
        checker.refuse(key, text);
    }
}

/// Where a relay or a consumer publishes: the key it stands at, the destination and the route key as written.
pub struct Target {
    /// The key of the config.
    pub key: String,
    /// The destination's name.
    pub destination: Option<String>,
    /// The route key: a topic when it has no placeholder.
    pub topic: Option<String>,
}

/// Checks what destinations, routes and relay make of each other.
pub fn check_relay(
    checker: &mut Checker<'_>,
    destinations: &BTreeMap<DestinationName, DestinationConfig>,
    order: Order,
    targets: &[Target],
) {
    let clusters = destinations.iter().filter_map(|(name, destination)| match destination {
        DestinationConfig::RocketMq(cluster) => Some((name, cluster.as_ref())),
        DestinationConfig::RabbitMq(_) | DestinationConfig::Embedded(_) => None,
    });
    let clusters: Vec<(&DestinationName, &RocketMqConfig)> = clusters.collect();
    for (index, (name, cluster)) in clusters.iter().enumerate() {
        if cluster.message_type == MessageType::Fifo && order == Order::Competing {
            checker.refuse(
                &format!("destination.{name}.message_type"),
                "\"fifo\" keeps no order while relay.mode is \"competing\", which sends events of one aggregate side by \
                 side: write relay.mode = \"ordered\", or use normal",
            );
        }
        for (_, earlier) in clusters[..index].iter().filter(|(_, earlier)| earlier.is_same_cluster(cluster)) {
            for (at, group) in cluster.groups.iter().enumerate() {
                if earlier.group(&group.name).is_some() {
                    let text = format!(
                        "{:?} is a group of another destination at the same proxy: {ONE_SUBSCRIPTION}",
                        group.name
                    );
                    checker.refuse(&format!("destination.{name}.group[{at}].name"), text);
                }
            }
        }
    }
    for target in targets {
        let named = clusters.iter().find(|(name, _)| Some(name.as_str()) == target.destination.as_deref());
        if let (Some((name, cluster)), Some(topic)) = (named, &target.topic) {
            check_target(checker, &target.key, name, cluster, topic);
        }
    }
}

fn check_target(
    checker: &mut Checker<'_>,
    key: &str,
    name: &DestinationName,
    cluster: &RocketMqConfig,
    topic: &str,
) {
    if topic.contains('{') {
        return;
    }
    let names: Vec<&str> = cluster.topics.iter().map(|topic| topic.name.as_str()).collect();
    let fix = format!("the route key is the topic, add it to the topics of [destination.{name}]");
    if !checker.known(key, topic, &names, &fix) {
        return;
    }
    let Some(declared) = cluster.topic(topic).filter(|declared| !declared.kind.takes(cluster.message_type))
    else {
        return;
    };
    checker.refuse(
        key,
        format!(
            "{topic:?} is a topic of type {}, which takes no messages of type {}: use another topic, or change \
             message_type of [destination.{name}]",
            declared.kind.word(),
            cluster.message_type.word()
        ),
    );
}
