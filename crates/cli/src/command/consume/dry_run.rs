//! `consign consume --dry-run`: what one message would do, in a transaction that is rolled back whatever happens.
//!
//! ```text
//! file ─► Message ─► validate ─► Operation ─► begin ─► marker ─► guard ─► statements ─► ROLLBACK
//! ```
//!
//! No broker is asked, nothing is acknowledged, and nothing is committed.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use consign_core::declared::{DeclaredChange, ExpectRows};
use consign_core::delivery::Message;
use consign_core::guard::{Guard, Verdict};
use consign_core::operation::{Operation, StoredMarker};
use consign_core::ports::{InboxStore, InboxTransaction, Mark, StoreError};
use serde_json::{Value, json};

use crate::config::{Config, ConsumerConfig};
use crate::exit::Exit;
use crate::output;
use crate::parts::{self, Store};

/// The parts of the message that are not in the file.
#[derive(Debug, clap::Args)]
pub struct MessageArguments {
    /// The consumer; needed when the config declares several.
    #[arg(long, value_name = "NAME", requires = "dry_run")]
    consumer: Option<String>,
    /// The message's type.
    #[arg(long = "type", value_name = "TYPE", requires = "dry_run")]
    message_type: Option<String>,
    /// The message's id, which is the event's id.
    #[arg(long, value_name = "ID", requires = "dry_run", default_value = "dry-run")]
    id: String,
    /// A header, name=value; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", requires = "dry_run", value_parser = header)]
    headers: Vec<(String, String)>,
}

/// What the message would come to.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Applied,
    Duplicate,
    /// The marker's comparison, as the database holds it.
    Conflict(String),
    Stale,
    Gap {
        expected: i64,
        version: i64,
    },
    Refused(String),
}

/// One statement that ran.
struct Ran {
    rows: u64,
    expected: ExpectRows,
}

struct Report<'a> {
    consumer: &'a str,
    operation: Option<Operation>,
    outcome: Outcome,
    ran: Vec<Ran>,
}

/// Reads the message and shows what it would do.
pub async fn run(
    config: &Config,
    file: &Path,
    arguments: &MessageArguments,
    json: bool,
) -> anyhow::Result<Exit> {
    let Some(consumer) = chosen(config, arguments.consumer.as_deref()) else { return Ok(Exit::Usage) };
    let message = Message {
        id: Some(arguments.id.clone()),
        message_type: arguments.message_type.clone(),
        headers: arguments.headers.clone(),
        body: read(file)?.into(),
        delivery_count: 1,
        source: consumer.queue.clone(),
        ..Message::default()
    };
    let report = match consumer.interpreter().operation(&message) {
        Err(refusal) => Report {
            consumer: consumer.consumer.name(),
            operation: None,
            outcome: Outcome::Refused(refusal),
            ran: Vec::new(),
        },
        Ok((operation, change)) => {
            let (outcome, ran) = match parts::open_store(config).await? {
                Store::MySql(store) => attempt(&store.inbox(config).await?, &operation, &change).await?,
                Store::Sqlite(store) => attempt(&store.inbox(config).await?, &operation, &change).await?,
            };
            Report { consumer: consumer.consumer.name(), operation: Some(operation), outcome, ran }
        }
    };
    print(&report, json)?;
    Ok(match report.outcome {
        Outcome::Applied | Outcome::Duplicate | Outcome::Stale => Exit::Fine,
        Outcome::Conflict(_) | Outcome::Gap { .. } | Outcome::Refused(_) => Exit::Findings,
    })
}

/// The consumer that is meant; `None` after saying which there are.
fn chosen<'a>(config: &'a Config, name: Option<&str>) -> Option<&'a ConsumerConfig> {
    let names: Vec<&str> = config.consumers.iter().map(|consumer| consumer.consumer.name()).collect();
    let found = match name {
        Some(name) => config.consumers.iter().find(|consumer| consumer.consumer.name() == name),
        None => config.consumers.first().filter(|_| config.consumers.len() == 1),
    };
    if found.is_none() {
        let list = names.join(", ");
        match name {
            Some(name) => {
                eprintln!("error: no consumer is called {name:?}: use --consumer with one of {list}");
            }
            None if names.is_empty() => {
                eprintln!("error: the config declares no consumer: add a [[consumer]]");
            }
            None => {
                eprintln!("error: the config declares several consumers: add --consumer with one of {list}");
            }
        }
    }
    found
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).context("cannot read the message from stdin")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("cannot read the message in {}", file.display()))
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write name=value".into()),
    }
}

/// Runs every step up to the commit, and rolls back.
async fn attempt<S: InboxStore>(
    inbox: &S,
    operation: &Operation,
    change: &DeclaredChange,
) -> anyhow::Result<(Outcome, Vec<Ran>)> {
    let mut tx = inbox.begin().await?;
    let mut ran = Vec::new();
    let outcome = steps(&mut tx, operation, change, &mut ran).await;
    tx.rollback().await.context("the rollback failed; the server rolls back when the connection ends")?;
    let outcome = match outcome? {
        Some(outcome) => outcome,
        None => repeat(inbox, operation).await?,
    };
    Ok((outcome, ran))
}

/// `None` when the key is taken.
async fn steps<Tx: InboxTransaction>(
    tx: &mut Tx,
    operation: &Operation,
    change: &DeclaredChange,
    ran: &mut Vec<Ran>,
) -> Result<Option<Outcome>, StoreError> {
    match tx.mark(operation).await {
        Ok(Mark::Inserted) => {}
        Ok(Mark::Taken) => return Ok(None),
        Err(error) => return refused(error).map(Some),
    }
    if let Some(guard) = &operation.guard
        && let Some(held) = held_back(tx, &operation.consumer, guard).await?
    {
        return Ok(Some(held));
    }
    for (index, (statement, values)) in change.steps().enumerate() {
        let rows = match tx.execute(statement.sql(), values).await {
            Ok(rows) => rows,
            Err(error) => return refused(error).map(Some),
        };
        let expected = statement.expect_rows;
        ran.push(Ran { rows, expected });
        if !expected.accepts(rows) {
            let text = format!("statement {} matched {rows} rows, expected {expected}", index + 1);
            return Ok(Some(Outcome::Refused(text)));
        }
    }
    Ok(Some(Outcome::Applied))
}

/// What the guard says against the operation.
async fn held_back<Tx: InboxTransaction>(
    tx: &mut Tx,
    consumer: &str,
    guard: &Guard,
) -> Result<Option<Outcome>, StoreError> {
    let applied = match tx.lock_progress(consumer, &[&guard.aggregate]).await {
        Ok(mut applied) => applied.pop().flatten(),
        Err(error) => return refused(error).map(Some),
    };
    Ok(match guard.judge(applied.as_ref()) {
        Verdict::Apply(_) => None,
        Verdict::Stale => Some(Outcome::Stale),
        Verdict::Gap { expected, version } => Some(Outcome::Gap { expected, version }),
        Verdict::Forbidden { from, to } => {
            let from = from.map_or_else(|| "nothing".to_owned(), |from| format!("{from:?}"));
            Some(Outcome::Refused(format!("{} cannot go from {from} to {to:?}", guard.aggregate)))
        }
    })
}

/// A value that the database refuses is the message's fault; everything else is not.
fn refused(error: StoreError) -> Result<Outcome, StoreError> {
    match error {
        StoreError::Data(reason) => Ok(Outcome::Refused(reason)),
        other => Err(other),
    }
}

async fn repeat<S: InboxStore>(inbox: &S, operation: &Operation) -> anyhow::Result<Outcome> {
    let marker = inbox.marker(operation).await?;
    let marker = marker.context("the marker vanished: somebody else is processing this key, try again")?;
    Ok(if operation.same_as(&marker)? { Outcome::Duplicate } else { Outcome::Conflict(content(&marker)) })
}

fn content(marker: &StoredMarker) -> String {
    let columns = marker.columns.iter().map(|(name, text)| (name.as_str(), text.as_deref()));
    let fingerprint = marker.fingerprint.as_deref().map(|print| ("fingerprint", Some(print)));
    let parts: Vec<String> =
        columns.chain(fingerprint).map(|(name, text)| format!("{name}={}", text.unwrap_or("NULL"))).collect();
    parts.join(", ")
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Duplicate => "duplicate",
            Self::Conflict(_) => "conflict",
            Self::Stale => "stale",
            Self::Gap { .. } => "gap",
            Self::Refused(_) => "refused",
        }
    }

    fn explanation(&self) -> String {
        match self {
            Self::Applied => "it would be applied".into(),
            Self::Duplicate => "the same operation was applied before: nothing would change".into(),
            Self::Conflict(existing) => {
                format!("the key was applied with other content, {existing}: nothing would change")
            }
            Self::Stale => "something newer was applied to its aggregate: nothing would change".into(),
            Self::Gap { expected, version } => {
                format!("version {version} would wait for version {expected} of its aggregate")
            }
            Self::Refused(reason) => reason.clone(),
        }
    }
}

fn print(report: &Report<'_>, json: bool) -> anyhow::Result<()> {
    if json {
        output::print_json(&as_json(report))?;
        return Ok(());
    }
    output::print(format!("consumer    {}\n", report.consumer))?;
    if let Some(operation) = &report.operation {
        output::print(format!("key         {}\n", output::printable(&operation.key)))?;
        output::print(format!(
            "comparison  {} (version {})\n",
            output::printable(&operation.comparison.text()),
            operation.comparison_version
        ))?;
        if let Some(guard) = &operation.guard {
            output::print(format!("guards      {}\n", output::printable(&guard.aggregate)))?;
        }
    }
    for (index, ran) in report.ran.iter().enumerate() {
        output::print(format!(
            "statement {} matched {} rows, expected {}\n",
            index + 1,
            ran.rows,
            ran.expected
        ))?;
    }
    let explanation = output::printable(&report.outcome.explanation());
    output::print(format!("result      {}: {explanation}\n", report.outcome.word()))?;
    output::print("nothing was committed or acknowledged\n".to_owned())?;
    Ok(())
}

fn as_json(report: &Report<'_>) -> Value {
    let statements: Vec<Value> = report
        .ran
        .iter()
        .map(|ran| json!({ "rows": ran.rows, "expected": ran.expected.to_string(), "ok": ran.expected.accepts(ran.rows) }))
        .collect();
    let operation = report.operation.as_ref();
    json!({
        "consumer": report.consumer,
        "key": operation.map(|operation| &operation.key),
        "comparison": operation.map(|operation| operation.comparison.text()),
        "comparison_version": operation.map(|operation| operation.comparison_version),
        "aggregate": operation.and_then(|operation| operation.guard.as_ref()).map(|guard| &guard.aggregate),
        "result": report.outcome.word(),
        "reason": report.outcome.explanation(),
        "statements": statements,
        "committed": false,
    })
}
