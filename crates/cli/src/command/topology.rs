//! `consign topology check|apply`: the broker compared with the config, or made to fit it.

use anyhow::Context;
use consign_broker::rocketmq::without_name_server;
use consign_core::finding::{Finding, Severity};

use crate::command::doctor;
use crate::config::{Config, ConfigArguments, DestinationConfig};
use crate::exit::Exit;
use crate::parts;

/// What `consign topology` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign topology check --config consign.toml\n  consign topology apply --config consign.toml\n  \
                        consign topology check --json\n\nExit 3 when check finds errors."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Compare; change nothing.
    Check {
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Create the exchanges, queues and bindings of the config, or the topics and groups; existing ones that differ are
    /// errors.
    Apply,
}

/// Checks or applies.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    match arguments.action {
        Action::Check { json } => {
            let findings = check(&config).await?;
            doctor::print(&findings, json)?;
            let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
            Ok(if errors { Exit::Findings } else { Exit::Fine })
        }
        Action::Apply => {
            apply(&config).await?;
            Ok(Exit::Fine)
        }
    }
}

/// What differs between every destination and the config.
pub async fn check(config: &Config) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (name, destination) in &config.destinations {
        match destination {
            DestinationConfig::RabbitMq(broker) => {
                let connect = parts::connect_options(&broker.url, &broker.tls)?;
                let consumers = config.consumers.iter().filter(|consumer| consumer.source == *name);
                let topology = consumers.fold(parts::topology(broker), |topology, consumer| {
                    topology.consumed(&consumer.queue, consumer.attempts_max)
                });
                let found = topology.check(&connect).await;
                findings.extend(found.into_iter().map(|finding| for_consumers(config, finding)));
            }
            DestinationConfig::RocketMq(cluster) => match parts::rocketmq::admin(cluster)? {
                Some(admin) => {
                    findings.extend(parts::rocketmq::topology(config, name, cluster).check(&admin).await);
                }
                None => findings.push(without_name_server(name.as_str())),
            },
            DestinationConfig::Embedded(file) => {
                let queue = parts::open_file(file).await?;
                let counts = queue.counts().await?;
                let text = format!("{} queues in {}", counts.len(), file.path.display());
                findings.push(Finding::fine("embedded-queues", name.as_str(), text));
            }
        }
    }
    Ok(findings)
}

/// A delivery limit loses messages of queues that are consumed; for a queue that only people read it is a remark.
fn for_consumers(config: &Config, finding: Finding) -> Finding {
    let consumed = |queue: &str| finding.subject.contains(&format!("{queue:?}"));
    if finding.code == "delivery-limit-loses"
        && !config.consumers.iter().any(|consumer| consumed(&consumer.queue))
    {
        return Finding { severity: Severity::Warning, ..finding };
    }
    finding
}

/// Makes every destination fit the config.
pub async fn apply(config: &Config) -> anyhow::Result<()> {
    for (name, destination) in &config.destinations {
        match destination {
            DestinationConfig::RabbitMq(broker) => {
                let connect = parts::connect_options(&broker.url, &broker.tls)?;
                let topology = parts::topology(broker);
                topology.apply(&connect).await.with_context(|| format!("destination {name}"))?;
                eprintln!(
                    "topology: {name}: {} exchanges and {} queues are as configured",
                    topology.exchanges.len(),
                    topology.queues.len()
                );
            }
            DestinationConfig::RocketMq(cluster) => {
                let admin = parts::rocketmq::admin(cluster)?.with_context(|| {
                    format!("destination {name} has no name_servers: add them, or make its topics and groups by hand")
                })?;
                let topology = parts::rocketmq::topology(config, name, cluster);
                let applied = topology.apply(&admin).await.with_context(|| format!("destination {name}"))?;
                eprintln!(
                    "topology: {name}: {} topics and {} groups are as configured, {} and {} of them new on a broker",
                    topology.topics.len(),
                    topology.groups.len(),
                    applied.topics,
                    applied.groups
                );
            }
            DestinationConfig::Embedded(file) => {
                parts::open_file(file).await?;
                eprintln!("topology: {name}: {} queues are as configured", file.queues.len());
            }
        }
    }
    Ok(())
}
