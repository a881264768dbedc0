//! `[[consumer]]`: consumers declared with a key, a comparison and SQL statements.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use consign_core::declared::{
    Binding, BindingSource, Bindings, ComparedBinding, DeclaredComparison, DeclaredConsumer, InvalidConsumer,
    KeyTemplate, Statement,
};
use consign_core::route::{DestinationName, Route};
use consign_core::value::ValueType;

use super::checker::{Checker, Named};
use super::destination::{DestinationConfig, QueueKind};
use super::raw::{RawBinding, RawCompare, RawConsumer, RawDeadLetter, RawStatement};
use super::store::{INBOX_COLUMNS, InboxConfig};

/// One consumer.
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    /// What it does with a message.
    pub consumer: Arc<DeclaredConsumer>,
    /// Where its messages come from.
    pub source: DestinationName,
    /// The queue there.
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
    /// How often a delivery that fails is tried before it is put aside.
    pub attempts_max: u32,
    /// How long it waits between tries.
    pub retry_delay: Duration,
    /// Where it is published when it is put aside; `None` records it in `consign_dead_delivery`.
    pub dead_letter: Option<Route>,
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
    let source = source(checker, key, raw.source.take(), raw.queue.take(), around);
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
    let declared = declared(checker, key, name, raw, around.inbox);
    let (source, queue) = source?;
    Some(ConsumerConfig {
        consumer: Arc::new(declared?),
        source,
        queue,
        prefetch,
        workers,
        batch,
        batch_linger,
        on_conflict: on_conflict?,
        attempts_max,
        retry_delay,
        dead_letter,
    })
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

fn source(
    checker: &mut Checker<'_>,
    key: &str,
    source: Option<String>,
    queue: Option<String>,
    around: &Surroundings<'_>,
) -> Option<(DestinationName, String)> {
    let (source_key, queue_key) = (format!("{key}.source"), format!("{key}.queue"));
    let source = checker.required(&source_key, source, "source = \"DESTINATION\"");
    let queue = checker.required(&queue_key, queue, "queue = \"NAME\"")?;
    let source = source?;
    if !checker.known(&source_key, &source, around.names, &format!("add [destination.{source}]")) {
        return None;
    }
    let source = DestinationName::new(source);
    let destination = around.destinations.get(&source)?;
    let fix = format!("add it to the queues of [destination.{source}]");
    checker.known(&queue_key, &queue, &destination.queue_names(), &fix);
    if let DestinationConfig::RabbitMq(broker) = destination {
        let stream = broker.queues.iter().any(|known| known.name == queue && known.kind == QueueKind::Stream);
        if stream {
            let text =
                format!("{queue:?} is a stream, which forgets what was acknowledged: consume a quorum queue");
            checker.refuse(&queue_key, text);
        }
    }
    Some((source, queue))
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

fn declared(
    checker: &mut Checker<'_>,
    key: &str,
    name: Option<String>,
    raw: RawConsumer,
    inbox: &InboxConfig,
) -> Option<DeclaredConsumer> {
    let bindings = bindings(checker, &format!("{key}.bind"), raw.bind);
    let comparison = comparison(checker, key, raw.compare, raw.fingerprint, inbox);
    let template_key = format!("{key}.key");
    let template = checker.required(&template_key, raw.key, "key = \"order:{order_id}:paid\"");
    let template = template.and_then(|text| match KeyTemplate::parse(&text) {
        Ok(template) => Some(template),
        Err(problem) => {
            checker.refuse(&template_key, problem);
            None
        }
    });
    let bindings = bindings?;
    let statements = statements(checker, key, raw.statement, raw.statements.as_deref(), &bindings);
    let comparison_key = match comparison {
        Some(DeclaredComparison::Fingerprint(_)) => format!("{key}.fingerprint"),
        Some(DeclaredComparison::Columns(_)) | None => format!("{key}.compare"),
    };
    match DeclaredConsumer::new(name?, template?, bindings, comparison?, statements) {
        Ok(consumer) => Some(consumer),
        Err(problems) => {
            for problem in problems {
                match problem {
                    InvalidConsumer::Key(problem) => checker.refuse(&template_key, problem),
                    InvalidConsumer::Comparison(problem) => checker.refuse(&comparison_key, problem),
                }
            }
            None
        }
    }
}

/// The bindings; `None` when one was refused, so that the names it would have given cause no further reports.
fn bindings(checker: &mut Checker<'_>, key: &str, raw: BTreeMap<String, RawBinding>) -> Option<Bindings> {
    let types = [
        ("integer", ValueType::Integer),
        ("decimal", ValueType::Decimal),
        ("string", ValueType::String),
        ("boolean", ValueType::Boolean),
        ("json", ValueType::Json),
    ];
    let count = raw.len();
    let mut bindings = BTreeMap::new();
    for (name, raw) in raw {
        let key = format!("{key}.{name}");
        let type_key = format!("{key}.type");
        let word = checker.required(
            &type_key,
            raw.kind,
            "type = \"integer\", \"decimal\", \"string\", \"boolean\" or \"json\"",
        );
        let value_type = word.and_then(|word| checker.choice(&type_key, &word, &types));
        let source = match (raw.pointer, raw.header) {
            (Some(pointer), None) => Some(BindingSource::Pointer(pointer)),
            (None, Some(header)) => Some(BindingSource::Header(header)),
            (Some(_), Some(_)) => {
                checker.refuse(&key, "has a pointer and a header: keep one of them");
                None
            }
            (None, None) => {
                checker.refuse(&key, "has no source: add pointer = \"/field\", or header = \"name\"");
                None
            }
        };
        let (Some(value_type), Some(source)) = (value_type, source) else { continue };
        let binding = Binding { source, value_type, required: raw.required };
        match binding.check(&name) {
            Ok(()) => {
                bindings.insert(name, binding);
            }
            Err(problem) => checker.refuse(&key, problem),
        }
    }
    if bindings.len() < count { None } else { Bindings::new(bindings).ok() }
}

fn comparison(
    checker: &mut Checker<'_>,
    key: &str,
    compare: Option<RawCompare>,
    fingerprint: Option<Vec<String>>,
    inbox: &InboxConfig,
) -> Option<DeclaredComparison> {
    let compare_key = format!("{key}.compare");
    match (compare, fingerprint) {
        (Some(_), Some(_)) => {
            checker.refuse(&format!("{key}.fingerprint"), "stands beside compare: keep one of them");
            None
        }
        (None, None) => {
            checker.refuse(
                &compare_key,
                "is missing: list the fields that must be equal for a repeat, compare = [] when the key says it all, \
                 or use fingerprint",
            );
            None
        }
        (None, Some(names)) => Some(DeclaredComparison::Fingerprint(names)),
        (Some(compare), None) => {
            let columns = match compare {
                RawCompare::Names(names) => names
                    .into_iter()
                    .map(|name| ComparedBinding { column: name.clone(), binding: name })
                    .collect(),
                RawCompare::Columns(columns) => columns
                    .into_iter()
                    .map(|(column, binding)| ComparedBinding { column, binding })
                    .collect::<Vec<_>>(),
            };
            for compared in &columns {
                check_column(checker, &compare_key, &compared.column, inbox);
            }
            Some(DeclaredComparison::Columns(columns))
        }
    }
}

fn check_column(checker: &mut Checker<'_>, key: &str, column: &str, inbox: &InboxConfig) {
    checker.identifier(key, column, Named::Column);
    let taken = INBOX_COLUMNS.iter().any(|own| inbox.actual(own).eq_ignore_ascii_case(column));
    if taken {
        let text = format!(
            "{column:?} is a column of {} that consign writes itself: compare another one",
            inbox.table
        );
        checker.refuse(key, text);
    }
}

fn statements(
    checker: &mut Checker<'_>,
    key: &str,
    raw: Vec<RawStatement>,
    word: Option<&str>,
    bindings: &Bindings,
) -> Vec<Statement> {
    let word_key = format!("{key}.statements");
    match word {
        None if raw.is_empty() => checker.refuse(
            &word_key,
            "the consumer would do nothing: add [[consumer.statement]], or write statements = \"none\" when the marker \
             alone is the effect",
        ),
        Some("none") if !raw.is_empty() => {
            checker.refuse(&word_key, "says \"none\" although there are statements: remove one of them");
        }
        Some(word) if word != "none" => {
            checker.refuse(&word_key, format!("{word:?} is not known: use \"none\", or [[consumer.statement]]"));
        }
        Some(_) | None => {}
    }
    let mut statements = Vec::new();
    for (index, raw) in raw.into_iter().enumerate() {
        let key = format!("{key}.statement[{index}]");
        let rows = match raw.expect_rows.0.parse() {
            Ok(rows) => rows,
            Err(problem) => {
                checker.refuse(&format!("{key}.expect_rows"), problem);
                continue;
            }
        };
        let sql_key = format!("{key}.sql");
        let Some(sql) = checker.required(&sql_key, raw.sql, "sql = \"UPDATE …\"") else { continue };
        match Statement::parse(&sql, bindings.known_names(), rows) {
            Ok(statement) => statements.push(statement),
            Err(problem) => checker.refuse(&sql_key, problem),
        }
    }
    statements
}
