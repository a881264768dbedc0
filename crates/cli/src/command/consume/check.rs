//! `consign consume --check`: whether every declared consumer could run against the broker and the database there are.

use std::collections::BTreeMap;

use consign_broker::rocketmq::without_name_server;
use consign_core::declared::{DeclaredConsumer, KEY_CHARACTERS_MAX};
use consign_core::finding::{Finding, Severity};
use consign_core::ports::StoreError;
use consign_core::route::DestinationName;
use consign_store::demand::MarkerDemand;
use consign_store::mapping::{ComparisonColumn, Identifier};
use consign_store::{mysql, sqlite};
use serde_json::{Value, json};

use crate::command;
use crate::config::{Config, ConsumerConfig, DestinationConfig};
use crate::exit::Exit;
use crate::output;
use crate::parts::{self, Store};

/// The table that guards need.
const PROGRESS: &str = "consign_progress";

/// One line of the report: a consumer, one of its statements, or the tables that all of them share.
struct Line {
    subject: String,
    consumer: Option<String>,
    /// The statement's number, from 1.
    statement: Option<usize>,
    /// What is in order when there is no finding.
    fine: String,
    findings: Vec<Finding>,
}

/// Prints a line per consumer and statement.
pub async fn run(config: &Config, json: bool) -> anyhow::Result<Exit> {
    if config.consumers.is_empty() {
        anyhow::bail!("the config declares no consumer: add a [[consumer]]");
    }
    if config.setup.on_start {
        // What `consume` would create must be there to be checked.
        command::migrate::set_up(config).await?;
    }
    let lines = match parts::open_store(config).await? {
        Store::MySql(store) => lines(config, &store.inbox(config).await?).await?,
        Store::Sqlite(store) => lines(config, &store.inbox(config).await?).await?,
    };
    print(&lines, json)?;
    let errors = lines.iter().flat_map(|line| &line.findings).any(is_error);
    Ok(if errors { Exit::Findings } else { Exit::Fine })
}

async fn lines(config: &Config, inbox: &impl Tables) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    let shared = inbox.findings().await?;
    let mut topologies: BTreeMap<&DestinationName, Vec<Finding>> = BTreeMap::new();
    for consumer in &config.consumers {
        if !topologies.contains_key(&consumer.source) {
            topologies.insert(&consumer.source, topology_findings(config, &consumer.source).await?);
        }
        let mut line = consumer_line(inbox, consumer, &topologies[&consumer.source]).await?;
        if consumer.consumer.guard().is_some() {
            let progress = shared.iter().filter(|finding| finding.subject == PROGRESS && is_error(finding));
            line.findings.extend(progress.cloned());
        }
        lines.push(line);
        lines.extend(statement_lines(inbox, &consumer.consumer).await?);
    }
    let findings: Vec<Finding> =
        shared.into_iter().filter(|finding| finding.severity != Severity::Fine).collect();
    let fine = format!("{} and consign's own tables are there", config.inbox.table);
    lines.push(Line { subject: "tables".into(), consumer: None, statement: None, fine, findings });
    Ok(lines)
}

async fn consumer_line(
    inbox: &impl Tables,
    consumer: &ConsumerConfig,
    topology: &[Finding],
) -> anyhow::Result<Line> {
    let declared = &consumer.consumer;
    let columns = declared.compared_columns().into_iter();
    let columns = columns.map(|(name, kind)| Ok(ComparisonColumn { name: Identifier::column(name)?, kind }));
    let demand = MarkerDemand {
        consumer: declared.name().to_owned(),
        key_characters_max: KEY_CHARACTERS_MAX,
        columns: columns.collect::<anyhow::Result<_>>()?,
        fingerprint: declared.uses_fingerprint(),
        comparison_version: declared.comparison_version(),
    };
    let mut findings: Vec<Finding> = queue_findings(topology, &consumer.queue).collect();
    findings.extend(inbox.consumer_findings(&demand).await?);
    findings.extend(forgotten_versions(declared));
    let guard = if declared.guard().is_some() { ", guarded" } else { "" };
    Ok(Line {
        subject: declared.name().to_owned(),
        consumer: Some(declared.name().to_owned()),
        statement: None,
        fine: format!("reads {:?} of {}{guard}", consumer.queue, consumer.source),
        findings,
    })
}

/// Earlier versions of the comparison that nobody can judge by any more.
fn forgotten_versions(consumer: &DeclaredConsumer) -> Option<Finding> {
    let known = |version: &u32| consumer.earlier().iter().any(|earlier| earlier.version == *version);
    let forgotten: Vec<String> = (1..consumer.comparison_version())
        .filter(|version| !known(version))
        .map(|it| it.to_string())
        .collect();
    (!forgotten.is_empty()).then(|| {
        Finding::warning(
            "comparison-history",
            consumer.name(),
            format!(
                "markers that were compared by version {} would stop the consumer",
                forgotten.join(" or ")
            ),
            "add the version to compare_history, unless all its markers are purged",
        )
    })
}

/// What the broker says about the topology of a destination.
async fn topology_findings(config: &Config, source: &DestinationName) -> anyhow::Result<Vec<Finding>> {
    // The queues of a file are made when it is opened.
    match config.destinations.get(source) {
        Some(DestinationConfig::RabbitMq(broker)) => {
            let connect = parts::connect_options(&broker.url, &broker.tls)?;
            Ok(parts::topology(broker).check(&connect).await)
        }
        Some(DestinationConfig::RocketMq(cluster)) => match parts::rocketmq::admin(cluster)? {
            Some(admin) => Ok(parts::rocketmq::topology(config, source, cluster).check(&admin).await),
            None => Ok(vec![without_name_server(source.as_str())]),
        },
        Some(DestinationConfig::Embedded(_)) | None => Ok(Vec::new()),
    }
}

/// Those that say what is wrong with one queue, or that nobody knows.
fn queue_findings(topology: &[Finding], queue: &str) -> impl Iterator<Item = Finding> {
    let quoted = format!("{queue:?}");
    let concerns = move |finding: &&Finding| {
        finding.severity != Severity::Fine
            && (finding.subject.contains(&quoted)
                || matches!(finding.code, "broker-unreachable" | "broker-not-visible"))
    };
    topology.iter().filter(concerns).cloned()
}

async fn statement_lines(inbox: &impl Tables, consumer: &DeclaredConsumer) -> anyhow::Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (index, statement) in consumer.statements().iter().enumerate() {
        let wanted = statement.parameters().len();
        let subject = format!("{} statement {}", consumer.name(), index + 1);
        let finding = match inbox.prepare(statement.sql()).await {
            Ok(found) if found == wanted => None,
            Ok(found) => Some(Finding::error(
                "statement-parameters",
                &subject,
                format!("the server counts {found} parameters and consign {wanted}"),
                "write every value as :name outside of quotes and comments",
            )),
            Err(StoreError::Schema(reason) | StoreError::Data(reason)) => Some(Finding::error(
                "statement-refused",
                &subject,
                reason,
                "correct its sql, or create what it names",
            )),
            Err(error) => return Err(error.into()),
        };
        lines.push(Line {
            subject,
            consumer: Some(consumer.name().to_owned()),
            statement: Some(index + 1),
            fine: format!("takes {wanted} values; rows expected: {}", statement.expect_rows),
            findings: finding.into_iter().collect(),
        });
    }
    Ok(lines)
}

fn print(lines: &[Line], json: bool) -> anyhow::Result<()> {
    let findings = || lines.iter().flat_map(|line| &line.findings);
    let errors = findings().filter(|finding| is_error(finding)).count();
    if json {
        let checks: Vec<Value> = lines.iter().map(as_json).collect();
        output::print_json(
            &json!({ "checks": checks, "errors": errors, "warnings": findings().count() - errors }),
        )?;
        return Ok(());
    }
    for line in lines {
        if line.findings.is_empty() {
            output::print(format!("ok       {}: {}\n", line.subject, line.fine))?;
        }
        for finding in &line.findings {
            let word = if is_error(finding) { "error" } else { "warning" };
            let text = output::printable(&finding.text);
            let place = place(line, finding);
            output::print(format!("{word:<9}{place}: {text} [{}]\n", finding.code))?;
            output::print(format!("         fix: {}\n", output::printable(&finding.fix)))?;
        }
    }
    output::print(format!("{errors} errors, {} warnings\n", findings().count() - errors))?;
    Ok(())
}

fn place(line: &Line, finding: &Finding) -> String {
    if line.subject == finding.subject {
        return line.subject.clone();
    }
    format!("{}: {}", line.subject, output::printable(&finding.subject))
}

fn as_json(line: &Line) -> Value {
    let findings: Vec<Value> = line
        .findings
        .iter()
        .map(|finding| {
            let severity = if is_error(finding) { "error" } else { "warning" };
            json!({
                "code": finding.code, "severity": severity, "subject": finding.subject, "text": finding.text,
                "fix": finding.fix,
            })
        })
        .collect();
    let ok = !line.findings.iter().any(is_error);
    json!({
        "consumer": line.consumer, "statement": line.statement, "subject": line.subject, "ok": ok,
        "text": line.findings.is_empty().then_some(&line.fine), "findings": findings,
    })
}

fn is_error(finding: &Finding) -> bool {
    finding.severity == Severity::Error
}

/// What is asked of either dialect's inbox.
trait Tables {
    async fn findings(&self) -> Result<Vec<Finding>, StoreError>;
    async fn consumer_findings(&self, demand: &MarkerDemand) -> Result<Vec<Finding>, StoreError>;
    async fn prepare(&self, sql: &str) -> Result<usize, StoreError>;
}

macro_rules! tables {
    ($dialect:ident) => {
        impl Tables for $dialect::Inbox {
            async fn findings(&self) -> Result<Vec<Finding>, StoreError> {
                $dialect::Inbox::findings(self).await
            }

            async fn consumer_findings(&self, demand: &MarkerDemand) -> Result<Vec<Finding>, StoreError> {
                $dialect::Inbox::consumer_findings(self, demand).await
            }

            async fn prepare(&self, sql: &str) -> Result<usize, StoreError> {
                $dialect::Inbox::prepare(self, sql).await
            }
        }
    };
}

tables!(mysql);
tables!(sqlite);
