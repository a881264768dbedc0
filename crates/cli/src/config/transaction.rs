//! `[transaction]`: whose transaction messages this process answers for, and how long they are remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::route::DestinationName;
use consign_core::transaction::message::StoreName;
use consign_core::transaction::{InvalidSpans, Spans};
use consign_store::transaction::MessageCopy;

use super::checker::Checker;
use super::destination::{DestinationConfig, TopicKind};
use super::raw::RawTransaction;

/// The longest immunity that a proxy takes (`recoverOrphanedTransaction`).
const FIRST_CHECK_MAX: u64 = 3600;
/// The longest local transaction: what takes longer is no transaction.
const LOCAL_MAX: u64 = 86_400;
/// Two years.
const HOURS_MAX: u64 = 24 * 732;

/// The service that answers check-backs and sends again what the broker gave up on.
#[derive(Clone, Debug)]
pub struct TransactionConfig {
    /// The cluster.
    pub destination: DestinationName,
    /// The topics whose questions are answered here.
    pub topics: Vec<String>,
    /// The marker store's name, which every half message carries.
    pub store: StoreName,
    /// Whether a marker keeps its message until that was found in its topic.
    pub copy: MessageCopy,
    /// How long after its commit a message is first looked for.
    pub first_look: Duration,
    /// How long transactions take and how long they are remembered.
    pub spans: Spans,
    /// When the broker asks for the first time; `None` leaves it to the broker.
    pub first_check: Option<Duration>,
    /// The pause between two looks for unconfirmed transactions.
    pub repair_every: Duration,
}

/// Checks `[transaction]`.
pub fn transaction(
    checker: &mut Checker<'_>,
    raw: Option<RawTransaction>,
    destinations: &BTreeMap<DestinationName, DestinationConfig>,
    names: &[&str],
) -> Option<TransactionConfig> {
    let raw = raw?;
    let spans = spans(checker, &raw);
    let first_check = first_check(checker, raw.first_check_seconds, raw.longest_local_seconds);
    let copies = [("until_confirmed", MessageCopy::UntilConfirmed), ("digest", MessageCopy::Digest)];
    let copy = checker.choice("transaction.keep_message", &raw.keep_message, &copies);
    let first_look = checker.seconds("transaction.first_look_seconds", raw.first_look_seconds, 1..=86_400);
    let repair_every = checker.seconds("transaction.repair_seconds", raw.repair_seconds, 1..=86_400);
    let store = checker.required("transaction.store", raw.store, "store = \"orders-db\"");
    let store = store.and_then(|name| match StoreName::new(name) {
        Ok(name) => Some(name),
        Err(problem) => {
            checker.refuse("transaction.store", problem);
            None
        }
    });
    let destination =
        checker.required("transaction.destination", raw.destination, "destination = \"NAME\"")?;
    let fix = format!("add [destination.{destination}]");
    checker.known("transaction.destination", &destination, names, &fix);
    let destination = DestinationName::new(destination);
    check_topics(checker, &destination, destinations.get(&destination)?, &raw.topics);
    Some(TransactionConfig {
        destination,
        topics: raw.topics,
        store: store?,
        copy: copy?,
        first_look,
        spans: spans?,
        first_check,
        repair_every,
    })
}

fn spans(checker: &mut Checker<'_>, raw: &RawTransaction) -> Option<Spans> {
    let mut hours = |key: &str, hours: u64| {
        let hours: u64 = checker.within(&format!("transaction.{key}"), hours, 1..=HOURS_MAX);
        Duration::from_hours(hours)
    };
    let horizon = hours("horizon_hours", raw.horizon_hours);
    let keep = hours("keep_hours", raw.keep_hours);
    let keep_unconfirmed = hours("keep_unconfirmed_hours", raw.keep_unconfirmed_hours);
    let local_key = "transaction.longest_local_seconds";
    let longest = checker.seconds(local_key, raw.longest_local_seconds, 1..=LOCAL_MAX);
    match Spans::new(longest, horizon, keep, keep_unconfirmed) {
        Ok(spans) => Some(spans),
        Err(InvalidSpans::LongestReachesHorizon { .. }) => {
            checker.refuse(
                local_key,
                format!(
                    "{} reaches horizon_hours, which is {}: a transaction must be over before the broker stops asking; \
                     lower it, or raise horizon_hours",
                    raw.longest_local_seconds, raw.horizon_hours
                ),
            );
            None
        }
        Err(InvalidSpans::ForgetsTooEarly { field, span, .. }) => {
            let key = if field == "keep" { "keep_hours" } else { "keep_unconfirmed_hours" };
            checker.refuse(
                &format!("transaction.{key}"),
                format!(
                    "{} is less than horizon_hours and one, which is {}: the broker may still ask about what is forgotten; \
                     raise it, or lower horizon_hours",
                    span.as_secs() / 3600,
                    raw.horizon_hours + 1
                ),
            );
            None
        }
    }
}

fn first_check(checker: &mut Checker<'_>, seconds: Option<u64>, longest_local: u64) -> Option<Duration> {
    let key = "transaction.first_check_seconds";
    let seconds = seconds?;
    if seconds < longest_local {
        checker.refuse(
            key,
            format!(
                "{seconds} is less than longest_local_seconds, which is {longest_local}: the broker would ask about \
                 transactions that are still running, and take no commit of theirs after that; raise it, or remove it"
            ),
        );
    }
    Some(checker.seconds(key, seconds, 1..=FIRST_CHECK_MAX))
}

fn check_topics(
    checker: &mut Checker<'_>,
    name: &DestinationName,
    destination: &DestinationConfig,
    topics: &[String],
) {
    let DestinationConfig::RocketMq(cluster) = destination else {
        checker.refuse(
            "transaction.destination",
            format!("\"{name}\" is not of type rocketmq: only RocketMQ has transaction messages"),
        );
        return;
    };
    if topics.is_empty() {
        checker.refuse(
            "transaction.topics",
            "names no topic: list the topics of type transaction to answer for",
        );
    }
    let known: Vec<&str> = cluster.topics.iter().map(|topic| topic.name.as_str()).collect();
    for (index, topic) in topics.iter().enumerate() {
        let key = format!("transaction.topics[{index}]");
        let fix = format!("add it to the topics of [destination.{name}] with type = \"transaction\"");
        if !checker.known(&key, topic, &known, &fix) {
            continue;
        }
        match cluster.topic(topic).map(|declared| declared.kind) {
            None | Some(TopicKind::Transaction) => {}
            Some(TopicKind::Mixed) => checker.refuse(
                &key,
                format!(
                    "{topic:?} is a topic of type mixed, for which a proxy asks nobody about half messages: use a topic of \
                     type transaction"
                ),
            ),
            Some(kind @ (TopicKind::Normal | TopicKind::Fifo | TopicKind::Delay)) => checker.refuse(
                &key,
                format!(
                    "{topic:?} is a topic of type {}, which takes no transaction messages: RocketMQ's types exclude each \
                     other; use a topic of type transaction",
                    kind.word()
                ),
            ),
        }
    }
    let names: Vec<&str> = topics.iter().map(String::as_str).collect();
    checker.unique(&names, |index| format!("transaction.topics[{index}]"));
}
