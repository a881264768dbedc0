//! `[destination.NAME]`: where events go, and what must exist there.

use std::collections::BTreeMap;
use std::path::PathBuf;

use consign_core::route::DestinationName;

use super::checker::Checker;
use super::raw::{RawDestination, RawExchange, RawQueue};
use super::url::ConnectionUrl;

mod rocketmq;

pub use rocketmq::{
    EmptyBody, GroupConfig, MessageType, RocketMqConfig, StoredStatus, Target, TopicConfig, TopicKind,
    check_relay,
};

/// Keys that only a RocketMQ destination has.
const ROCKETMQ_KEYS: [&str; 8] = [
    "endpoints",
    "name_servers",
    "message_type",
    "delay_seconds",
    "accept_statuses",
    "empty_body",
    "topic",
    "group",
];

/// The longest name an AMQP short string carries, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// One destination.
#[derive(Clone, Debug)]
pub enum DestinationConfig {
    /// A RabbitMQ broker.
    RabbitMq(Box<RabbitMqConfig>),
    /// A RocketMQ cluster.
    RocketMq(Box<RocketMqConfig>),
    /// A queue file on this machine.
    Embedded(EmbeddedConfig),
}

/// A RabbitMQ broker and the topology it must have.
#[derive(Clone, Debug)]
pub struct RabbitMqConfig {
    /// Its url; the path is the virtual host, `None` for `/`.
    pub url: ConnectionUrl,
    /// The files for TLS; all absent without TLS.
    pub tls: TlsFiles,
    /// How many channels publish side by side.
    pub channels: u16,
    /// Longer payloads are rejected before they reach the broker; `None` leaves it to the broker.
    pub message_bytes_max: Option<usize>,
    /// The exchange to publish to; `None` is the default exchange, where the route key is a queue's name.
    pub exchange: Option<ExchangeConfig>,
    /// The queues.
    pub queues: Vec<QueueConfig>,
}

/// Files for TLS, in PEM form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate authorities to trust; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// The client's certificate chain.
    pub client_cert: Option<PathBuf>,
    /// The client's private key.
    pub client_key: Option<PathBuf>,
}

/// An exchange as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeConfig {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ExchangeKind,
    /// Whether it survives a restart of the broker.
    pub durable: bool,
}

/// The types of exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// Routes by the exact key.
    Direct,
    /// Routes by patterns.
    Topic,
    /// Routes everything everywhere.
    Fanout,
    /// Routes by headers.
    Headers,
}

/// A queue as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfig {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: QueueKind,
    /// Whether it survives a restart of the broker.
    pub durable: bool,
    /// The keys that bind it to the destination's exchange.
    pub bindings: Vec<String>,
    /// Where the broker puts what the queue gives up.
    pub dead_letter_exchange: Option<String>,
    /// The key for that; `None` keeps the message's own.
    pub dead_letter_key: Option<String>,
    /// How the broker moves it there; `None` for the broker's default.
    pub dead_letter_strategy: Option<DeadLetterStrategy>,
    /// How often a message may be delivered before the broker gives it up; -1 is for ever.
    pub delivery_limit: Option<i64>,
    /// How many messages it holds.
    pub max_length: Option<u64>,
    /// What happens when it is full; `None` for the broker's default.
    pub overflow: Option<Overflow>,
}

/// The types of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// On one node.
    Classic,
    /// Replicated.
    Quorum,
    /// A replicated log.
    Stream,
}

/// How a queue moves messages to its dead-letter exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterStrategy {
    /// Without confirms.
    AtMostOnce,
    /// With confirms.
    AtLeastOnce,
}

/// What a full queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Drops its oldest message, confirmed or not.
    DropHead,
    /// Refuses the new message with a nack.
    RejectPublish,
    /// The same, and dead-letters the new message.
    RejectPublishDeadLetter,
}

/// A queue file on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// The file.
    pub path: PathBuf,
    /// Its queues and the topics bound to them.
    pub queues: Vec<EmbeddedQueueConfig>,
}

/// A queue of a queue file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedQueueConfig {
    /// Its name.
    pub name: String,
    /// Topics: route keys, or prefixes followed by `*`.
    pub bindings: Vec<String>,
}

impl DestinationConfig {
    /// The names of its queues, or of its consumer groups: what a consumer reads by name.
    pub fn queue_names(&self) -> Vec<&str> {
        match self {
            Self::RabbitMq(broker) => broker.queues.iter().map(|queue| queue.name.as_str()).collect(),
            Self::RocketMq(cluster) => cluster.groups.iter().map(|group| group.name.as_str()).collect(),
            Self::Embedded(file) => file.queues.iter().map(|queue| queue.name.as_str()).collect(),
        }
    }
}

/// Checks every `[destination.NAME]`. One that cannot be used is reported and left out.
pub fn destinations(
    checker: &mut Checker<'_>,
    raw: BTreeMap<String, RawDestination>,
) -> BTreeMap<DestinationName, DestinationConfig> {
    #[derive(Clone, Copy)]
    enum Kind {
        RabbitMq,
        RocketMq,
        Embedded,
    }
    let mut destinations = BTreeMap::new();
    for (name, mut raw) in raw {
        let key = format!("destination.{name}");
        checker.name(&key, &name, 64);
        let kind_key = format!("{key}.type");
        let example = "type = \"rabbitmq\", \"rocketmq\" or \"embedded\"";
        let Some(word) = checker.required(&kind_key, raw.kind.take(), example) else {
            continue;
        };
        let kinds =
            [("rabbitmq", Kind::RabbitMq), ("rocketmq", Kind::RocketMq), ("embedded", Kind::Embedded)];
        let destination = match checker.choice(&kind_key, &word, &kinds) {
            Some(Kind::RabbitMq) => rabbitmq(checker, &key, raw),
            Some(Kind::RocketMq) => rocketmq::rocketmq(checker, &key, raw),
            Some(Kind::Embedded) => embedded(checker, &key, raw),
            None => None,
        };
        if let Some(destination) = destination {
            destinations.insert(DestinationName::new(name), destination);
        }
    }
    destinations
}

fn rabbitmq(checker: &mut Checker<'_>, key: &str, raw: RawDestination) -> Option<DestinationConfig> {
    foreign(checker, key, &["path"], "rabbitmq");
    foreign(checker, key, &ROCKETMQ_KEYS, "rabbitmq");
    let exchange =
        raw.exchange.and_then(|exchange| exchange_of(checker, &format!("{key}.exchange"), exchange));
    let mut queues = Vec::new();
    for (index, queue) in raw.queue.into_iter().enumerate() {
        let queue_key = format!("{key}.queue[{index}]");
        if exchange.is_none() && !queue.bindings.is_empty() && !checker.has(&format!("{key}.exchange")) {
            checker.refuse(
                &format!("{queue_key}.bindings"),
                "the destination has no exchange to bind to: add exchange, or remove the bindings and use the queue's \
                 name as the route key",
            );
        }
        queues.extend(queue_of(checker, &queue_key, queue));
    }
    unique_queues(checker, key, &queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>());
    let tls = tls_files(checker, key, raw.tls_ca_file, raw.tls_client_cert_file, raw.tls_client_key_file);
    let channels = checker.within(&format!("{key}.channels"), raw.channels, 1..=255);
    let bytes_key = format!("{key}.message_bytes_max");
    let message_bytes_max = raw.message_bytes_max.map(|bytes| checker.within(&bytes_key, bytes, 1..=1 << 30));
    let url_key = format!("{key}.url");
    let url = checker.required(&url_key, raw.url, "url = \"amqp://user@host:5672/%2f\"")?;
    let password_key = format!("{key}.password_file");
    let url = checker.url(&url_key, &url, &["amqp", "amqps"], (&password_key, raw.password_file))?;
    check_tls(checker, key, &url, "amqps", &tls);
    check_query(checker, &url_key, &url);
    Some(DestinationConfig::RabbitMq(Box::new(RabbitMqConfig {
        url,
        tls,
        channels,
        message_bytes_max,
        exchange,
        queues,
    })))
}

fn tls_files(
    checker: &mut Checker<'_>,
    key: &str,
    ca: Option<String>,
    client_cert: Option<String>,
    client_key: Option<String>,
) -> TlsFiles {
    TlsFiles {
        ca: checker.file(&format!("{key}.tls_ca_file"), ca),
        client_cert: checker.file(&format!("{key}.tls_client_cert_file"), client_cert),
        client_key: checker.file(&format!("{key}.tls_client_key_file"), client_key),
    }
}

fn check_tls(
    checker: &mut Checker<'_>,
    key: &str,
    url: &ConnectionUrl,
    encrypted: &'static str,
    tls: &TlsFiles,
) {
    if url.scheme != encrypted && *tls != TlsFiles::default() {
        let text = format!("is not encrypted although tls files are given: write {encrypted}://");
        checker.refuse(&format!("{key}.url"), text);
    }
    match (&tls.client_cert, &tls.client_key) {
        (Some(_), None) => {
            checker.refuse(&format!("{key}.tls_client_cert_file"), "needs tls_client_key_file too: add it");
        }
        (None, Some(_)) => {
            checker.refuse(&format!("{key}.tls_client_key_file"), "needs tls_client_cert_file too: add it");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Neither keys nor values are shown: they may be the rest of a password that has a raw question mark.
fn check_query(checker: &mut Checker<'_>, key: &str, url: &ConnectionUrl) {
    if url.query.iter().any(|(name, _)| !matches!(name.as_str(), "heartbeat" | "connection_timeout")) {
        checker
            .refuse(key, "has an unknown key after its question mark: use heartbeat or connection_timeout");
    } else if url.query.iter().any(|(_, seconds)| seconds.parse::<u16>().is_err()) {
        checker.refuse(
            key,
            "has a heartbeat or connection_timeout that is not a whole number of seconds up to 65535",
        );
    }
}

fn exchange_of(checker: &mut Checker<'_>, key: &str, raw: RawExchange) -> Option<ExchangeConfig> {
    let kinds = [
        ("direct", ExchangeKind::Direct),
        ("topic", ExchangeKind::Topic),
        ("fanout", ExchangeKind::Fanout),
        ("headers", ExchangeKind::Headers),
    ];
    let kind = checker.choice(&format!("{key}.type"), &raw.kind, &kinds);
    let name_key = format!("{key}.name");
    let name = checker.required(&name_key, raw.name, "a name, or remove exchange for the default one")?;
    short(checker, &name_key, &name);
    Some(ExchangeConfig { name, kind: kind?, durable: raw.durable })
}

fn queue_of(checker: &mut Checker<'_>, key: &str, raw: RawQueue) -> Option<QueueConfig> {
    let kinds =
        [("classic", QueueKind::Classic), ("quorum", QueueKind::Quorum), ("stream", QueueKind::Stream)];
    let overflows = [
        ("drop-head", Overflow::DropHead),
        ("reject-publish", Overflow::RejectPublish),
        ("reject-publish-dlx", Overflow::RejectPublishDeadLetter),
    ];
    let name_key = format!("{key}.name");
    let name = checker.required(&name_key, raw.name, "name = \"orders\"");
    if let Some(name) = &name {
        short(checker, &name_key, name);
    }
    for (index, binding) in raw.bindings.iter().enumerate() {
        short(checker, &format!("{key}.bindings[{index}]"), binding);
    }
    let overflow = raw.overflow.as_deref();
    let overflow = overflow.and_then(|word| checker.choice(&format!("{key}.overflow"), word, &overflows));
    let kind = checker.choice(&format!("{key}.type"), &raw.kind, &kinds)?;
    check_arguments(checker, key, kind, raw.durable);
    if raw.dead_letter_exchange.is_none() {
        for name in ["dead_letter_key", "dead_letter_strategy"] {
            let key = format!("{key}.{name}");
            if checker.has(&key) {
                checker.refuse(&key, "needs dead_letter_exchange too: add it");
            }
        }
    }
    let strategies = [
        ("at-most-once", DeadLetterStrategy::AtMostOnce),
        ("at-least-once", DeadLetterStrategy::AtLeastOnce),
    ];
    let strategy_key = format!("{key}.dead_letter_strategy");
    let strategy = raw.dead_letter_strategy.as_deref();
    let dead_letter_strategy = strategy.and_then(|word| checker.choice(&strategy_key, word, &strategies));
    if let Some(limit) = raw.delivery_limit.filter(|limit| *limit < -1) {
        let text = format!("{limit} is out of range: use 0 or more, or -1 for no limit");
        checker.refuse(&format!("{key}.delivery_limit"), text);
    }
    let max_length =
        raw.max_length.map(|length| checker.within(&format!("{key}.max_length"), length, 1..=u64::MAX));
    Some(QueueConfig {
        name: name?,
        kind,
        durable: raw.durable,
        bindings: raw.bindings,
        dead_letter_exchange: raw.dead_letter_exchange,
        dead_letter_key: raw.dead_letter_key,
        dead_letter_strategy,
        delivery_limit: raw.delivery_limit,
        max_length,
        overflow,
    })
}

/// Refuses what a broker would refuse, or ignore, for this type of queue.
fn check_arguments(checker: &mut Checker<'_>, key: &str, kind: QueueKind, durable: bool) {
    let (word, without): (_, &[&str]) = match kind {
        QueueKind::Classic => ("classic", &["delivery_limit", "dead_letter_strategy"]),
        QueueKind::Quorum => ("quorum", &[]),
        QueueKind::Stream => {
            let without = &[
                "delivery_limit",
                "max_length",
                "overflow",
                "dead_letter_exchange",
                "dead_letter_key",
                "dead_letter_strategy",
            ];
            ("stream", without)
        }
    };
    for name in without {
        let key = format!("{key}.{name}");
        if checker.has(&key) {
            checker.refuse(&key, format!("does not apply to a {word} queue: remove it or use another type"));
        }
    }
    if kind != QueueKind::Classic && !durable {
        checker.refuse(
            &format!("{key}.durable"),
            format!("a {word} queue is always durable: remove durable = false"),
        );
    }
}

fn embedded(checker: &mut Checker<'_>, key: &str, raw: RawDestination) -> Option<DestinationConfig> {
    const FOREIGN: [&str; 8] = [
        "url",
        "password_file",
        "tls_ca_file",
        "tls_client_cert_file",
        "tls_client_key_file",
        "channels",
        "message_bytes_max",
        "exchange",
    ];
    foreign(checker, key, &FOREIGN, "embedded");
    foreign(checker, key, &ROCKETMQ_KEYS, "embedded");
    let mut queues = Vec::new();
    for (index, queue) in raw.queue.into_iter().enumerate() {
        let key = format!("{key}.queue[{index}]");
        let broker_keys = [
            "type",
            "durable",
            "dead_letter_exchange",
            "dead_letter_key",
            "dead_letter_strategy",
            "delivery_limit",
            "max_length",
            "overflow",
        ];
        foreign(checker, &key, &broker_keys, "embedded");
        for (index, topic) in queue.bindings.iter().enumerate() {
            let key = format!("{key}.bindings[{index}]");
            short(checker, &key, topic);
            if topic.find('*').is_some_and(|at| at + 1 < topic.len()) {
                checker.refuse(&key, format!("{topic:?} has a * that is not at its end: write prefix*"));
            }
        }
        if let Some(name) = checker.required(&format!("{key}.name"), queue.name, "name = \"orders\"") {
            short(checker, &format!("{key}.name"), &name);
            queues.push(EmbeddedQueueConfig { name, bindings: queue.bindings });
        }
    }
    unique_queues(checker, key, &queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>());
    let path = checker.required(&format!("{key}.path"), raw.path, "path = \"queue.db\"")?;
    Some(DestinationConfig::Embedded(EmbeddedConfig { path: checker.path(&path), queues }))
}

fn foreign(checker: &mut Checker<'_>, key: &str, names: &[&str], kind: &str) {
    for name in names {
        let key = format!("{key}.{name}");
        if checker.has(&key) {
            checker.refuse(&key, format!("does not apply to type {kind}: remove it"));
        }
    }
}

fn unique_queues(checker: &mut Checker<'_>, key: &str, names: &[&str]) {
    checker.unique(names, |index| format!("{key}.queue[{index}].name"));
}

fn short(checker: &mut Checker<'_>, key: &str, name: &str) {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        checker.refuse(key, format!("has {} bytes: names and keys have 1 to {NAME_BYTES_MAX}", name.len()));
    }
}
