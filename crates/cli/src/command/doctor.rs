//! `consign doctor`: config, schema, isolation, clock and time zone, broker durability; each finding with its fix.

use consign_core::finding::{Finding, Severity};
use serde_json::json;

use crate::command::topology;
use crate::config::{Config, ConfigArguments};
use crate::exit::Exit;
use crate::output;
use crate::parts;

/// What `consign doctor` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign doctor --config consign.toml\n  consign doctor --json\n\nExit 1 when any finding is an error."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Looks at everything the config names.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    let findings = findings(&config).await?;
    print(&findings, arguments.json)?;
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if errors { Exit::Failed } else { Exit::Fine })
}

async fn findings(config: &Config) -> anyhow::Result<Vec<Finding>> {
    let summary = format!(
        "{} outboxes, {} destinations, {} consumers",
        config.outboxes.len(),
        config.destinations.len(),
        config.consumers.len()
    );
    let mut findings = vec![Finding::fine("config", "config", summary)];
    match parts::open_store(config).await {
        Ok(store) => findings.extend(store.findings(config).await?),
        Err(error) => findings.push(Finding::error(
            "store-unavailable",
            "store",
            format!("{error:#}"),
            "start the database, or correct [store] url and its secret",
        )),
    }
    findings.extend(topology::check(config).await?);
    Ok(findings)
}

/// Prints findings, the worst first.
pub fn print(findings: &[Finding], json: bool) -> anyhow::Result<()> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if json {
        let list: Vec<serde_json::Value> = sorted
            .iter()
            .map(|finding| {
                json!({
                    "code": finding.code, "severity": word(finding.severity), "subject": finding.subject,
                    "text": finding.text, "fix": finding.fix,
                })
            })
            .collect();
        output::print_json(&json!({ "findings": list, "errors": count(findings, Severity::Error),
                                    "warnings": count(findings, Severity::Warning) }))?;
        return Ok(());
    }
    for finding in &sorted {
        output::print(format!(
            "{:<8}{}: {} [{}]\n",
            word(finding.severity),
            output::printable(&finding.subject),
            output::printable(&finding.text),
            finding.code
        ))?;
        if !finding.fix.is_empty() {
            output::print(format!("        fix: {}\n", output::printable(&finding.fix)))?;
        }
    }
    output::print(format!(
        "{} errors, {} warnings\n",
        count(findings, Severity::Error),
        count(findings, Severity::Warning)
    ))?;
    Ok(())
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    findings.iter().filter(|finding| finding.severity == severity).count()
}

const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Fine => "fine",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}
