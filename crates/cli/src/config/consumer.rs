//! `[[consumer]]`: consumers declared with a key, a comparison and SQL statements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use consign_core::declared::DeclaredConsumer;
use consign_core::route::{DestinationName, Route};

use super::checker::Checker;
use super::destination::DestinationConfig;
use super::raw::{RawConsumer, RawDeadLetter};
use super::store::InboxConfig;
use crate::schema::{PayloadSchema, Validated};

mod declared;
mod guard;
mod source;

/// One consumer.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// What it does with a message.
    pub consumer: Arc<DeclaredConsumer>,
    /// What payloads must look like before anything else looks at them.
    pub schema: Option<Arc<PayloadSchema>>,
    /// Where its messages come from.
    pub source: DestinationName,
    /// The queue there, or the consumer group.
    pub queue: String,
    /// How many deliveries may be unacknowledged.
    pub prefetch: u16,
    /// How many deliveries are processed side by side.
    pub workers: usize,
    /// How many deliveries share a transaction at most.
    pub batch: usize,
    /// How long a delivery waits for others to share its transaction.
    pub batch_linger: Duration,
    /// What becomes of a delivery whose key was applied with another content.
    pub on_conflict: OnConflict,
    /// How long a delivery waits for the step before it, when a sequential guard misses that; then it is put aside.
    pub gap_wait: Option<Duration>,
    /// How often a delivery that fails is tried before it is put aside.
    pub attempts_max: u32,
    /// How long it waits between tries.
    pub retry_delay: Duration,
    /// Where it is published when it is put aside; `None` records it in `consign_dead_delivery`.
    pub dead_letter: Option<Route>,
}

impl ConsumerConfig {
    /// What reads its messages.
    pub fn interpreter(&self) -> Validated {
        Validated { consumer: Arc::clone(&self.consumer), schema: self.schema.clone() }
    }
}

/// What becomes of a delivery that contradicts an applied one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    /// It is acknowledged once `consign_conflict` holds it.
    RecordAndAck,
    /// It is recorded, then put aside as dead.
    DeadLetter,
    /// It is recorded, and the consumer stops.
    Stop,
}

/// The checked parts that consumers refer to.
pub struct Surroundings<'a> {
    /// Every destination that can be used.
    pub destinations: &'a BTreeMap<DestinationName, DestinationConfig>,
    /// The names of all destinations as written, usable or not.
    pub names: &'a [&'a str],
    /// The marker table.
    pub inbox: &'a InboxConfig,
}

/// Checks every `[[consumer]]`. One that cannot be used is reported and left out.
pub fn consumers(
    checker: &mut Checker<'_>,
    raw: Vec<RawConsumer>,
    around: &Surroundings<'_>,
) -> Vec<ConsumerConfig> {
    let written: Vec<String> = raw.iter().map(|raw| raw.name.clone().unwrap_or_default()).collect();
    let names: Vec<&str> = written.iter().map(String::as_str).collect();
    checker.unique(&names, |index| format!("consumer[{index}].name"));
    source::check_shared_groups(checker, &raw);
    raw.into_iter()
        .enumerate()
        .filter_map(|(index, raw)| consumer(checker, &format!("consumer[{index}]"), raw, around))
        .collect()
}

fn consumer(
    checker: &mut Checker<'_>,
    key: &str,
    mut raw: RawConsumer,
    around: &Surroundings<'_>,
) -> Option<ConsumerConfig> {
    let name_key = format!("{key}.name");
    let name = checker.required(&name_key, raw.name.take(), "name = \"points-award\"");
    if let Some(name) = &name {
        checker.name(&name_key, name, 64);
    }
    let source = source::source(checker, key, &mut raw, around);
    let dead_letter = raw.dead_letter.take().and_then(|raw| dead_letter(checker, key, raw, around));
    let prefetch = checker.within(&format!("{key}.prefetch"), raw.prefetch, 1..=u16::MAX);
    let workers = checker.within(&format!("{key}.workers"), raw.workers, 1..=1024);
    if workers > usize::from(prefetch) {
        let text =
            format!("{workers} workers share a prefetch of {prefetch}: raise prefetch, or some never work");
        checker.refuse(&format!("{key}.workers"), text);
    }
    let batch = batch(checker, key, raw.batch, prefetch);
    let batch_linger = checker.milliseconds(
        &format!("{key}.batch_linger_milliseconds"),
        raw.batch_linger_milliseconds,
        0..=1000,
    );
    let policies = [
        ("record_and_ack", OnConflict::RecordAndAck),
        ("dead_letter", OnConflict::DeadLetter),
        ("stop", OnConflict::Stop),
    ];
    let on_conflict = checker.choice(&format!("{key}.on_conflict"), &raw.on_conflict, &policies);
    let attempts_max = checker.within(&format!("{key}.attempts_max"), raw.attempts_max, 1..=1000);
    let retry_delay =
        checker.seconds(&format!("{key}.retry_delay_seconds"), raw.retry_delay_seconds, 0..=3600);
    let schema = schema(checker, &format!("{key}.schema"), raw.schema.take());
    let guard = raw.guard.take().and_then(|raw| guard::guard(checker, &format!("{key}.guard"), raw));
    let gap_wait = guard.as_ref().and_then(|(_, wait)| *wait);
    let guard = guard.map(|(guard, _)| guard);
    let declared = declared::declared(checker, key, name, raw, guard, around.inbox);
    let (source, queue) = source?;
    if let Some(DestinationConfig::RocketMq(cluster)) = around.destinations.get(&source)
        && let Some(group) = cluster.group(&queue)
    {
        let load = source::Load { prefetch, workers, batch, linger: batch_linger, attempts_max };
        source::check_group(checker, key, group, &load);
    }
    Some(ConsumerConfig {
        consumer: Arc::new(declared?),
        schema,
        source,
        queue,
        prefetch,
        workers,
        batch,
        batch_linger,
        on_conflict: on_conflict?,
        gap_wait,
        attempts_max,
        retry_delay,
        dead_letter,
    })
}

fn schema(checker: &mut Checker<'_>, key: &str, file: Option<String>) -> Option<Arc<PayloadSchema>> {
    let path = checker.file(key, file).filter(|path| path.is_file())?;
    let shown = path.display();
    let read = std::fs::read_to_string(&path).map_err(|error| format!("cannot be read: {error}"));
    match read.and_then(|text| PayloadSchema::parse(&text)) {
        Ok(schema) => Some(Arc::new(schema)),
        Err(problem) => {
            checker.refuse(key, format!("{shown} {problem}"));
            None
        }
    }
}

/// A batch cannot fill when the broker sends fewer deliveries than that; the default follows a small prefetch.
fn batch(checker: &mut Checker<'_>, key: &str, batch: u64, prefetch: u16) -> usize {
    let key = format!("{key}.batch");
    if !checker.has(&key) {
        return usize::from(prefetch).min(usize::try_from(batch).unwrap_or(usize::MAX));
    }
    let batch = checker.within(&key, batch, 1..=1000);
    if batch > usize::from(prefetch) {
        checker.refuse(
            &key,
            format!(
                "a batch of {batch} never fills with a prefetch of {prefetch}: lower it, or raise prefetch"
            ),
        );
    }
    batch
}

fn dead_letter(
    checker: &mut Checker<'_>,
    key: &str,
    raw: RawDeadLetter,
    around: &Surroundings<'_>,
) -> Option<Route> {
    let (destination_key, route_key) =
        (format!("{key}.dead_letter.destination"), format!("{key}.dead_letter.key"));
    let destination = checker.required(&destination_key, raw.destination, "destination = \"NAME\"");
    let route = checker.required(&route_key, raw.key, "key = \"points-award.dead\"");
    let destination = destination?;
    checker.known(&destination_key, &destination, around.names, &format!("add [destination.{destination}]"));
    Some(Route { destination: DestinationName::new(destination), key: route? })
}
