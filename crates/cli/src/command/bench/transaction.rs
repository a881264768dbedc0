//! `consign bench transaction`: local transactions with a transaction message each, against the same ones without.

mod audit;
mod measure;
mod scratch;
mod shop;
mod topic_reader;

use serde_json::json;

use super::{median, median_ratio, rounded};
use crate::config::Config;
use crate::output::{self, Table};

use measure::Figures;
use scratch::Scratch;

/// What `consign bench transaction` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  consign bench transaction --config consign.toml\n  \
                        consign bench transaction --transactions 50000 --concurrency 128 --config consign.toml --json\n\n\
                        A transaction inserts one order. One side commits it and no more; the other side sends a half message, \
                        inserts marker and order in one transaction, and commits the half message, as TransactionProducer does \
                        it for a service. Both take turns on one pool of connections, with more transactions under way than it \
                        has connections, as requests of a service have: none is held while the broker is asked.\n\n\
                        committed, delivered, lost, repeats and unfounded come from an audit behind it: the orders in the \
                        database, those of the warm-up among them, against the messages in the topic. unfounded is a message \
                        whose order is not in the database.\n\n\
                        Uses tables, a topic and a group of its own (consign_bench_transaction*) and removes them afterwards. Its \
                        markers stand in consign_transaction as long as it runs. Needs a MySQL store with that table, and a \
                        RocketMQ destination with name_servers: that of [transaction], or the first in the order of their names.")]
pub struct Arguments {
    /// Transactions of each side in all, over the rounds.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(400..=10_000_000))]
    transactions: u32,
    /// Transactions side by side, those that wait for a connection among them.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=5000))]
    concurrency: u32,
    /// Connections to the database that they share.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=500))]
    connections: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let scratch = Scratch::create(config).await?;
    let figures = tokio::select! {
        figures = measure::transactions(&scratch, arguments) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    scratch.remove().await?;
    print(arguments, &figures?)
}

fn print(arguments: &Arguments, figures: &Figures) -> anyhow::Result<()> {
    let Figures { local, producer, findings, .. } = figures;
    let document = json!({
        "transactions": figures.transactions, "concurrency": arguments.concurrency,
        "connections": arguments.connections,
        "local_per_second": rounded(median(&local.per_second)),
        "producer_per_second": rounded(median(&producer.per_second)),
        "ratio_to_local": rounded(median_ratio(&producer.per_second, &local.per_second)),
        "local_p50_ms": local.spans.milliseconds(0.5), "local_p99_ms": local.spans.milliseconds(0.99),
        "producer_p50_ms": producer.spans.milliseconds(0.5), "producer_p99_ms": producer.spans.milliseconds(0.99),
        "committed": findings.committed, "delivered": findings.delivered, "lost": findings.lost,
        "repeats": findings.repeats, "unfounded": findings.unfounded,
        "rounds": { "local_per_second": local.per_second, "producer_per_second": producer.per_second },
    });
    if arguments.json {
        return Ok(output::print_json(&document)?);
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "transactions",
        "concurrency",
        "local_per_second",
        "producer_per_second",
        "ratio_to_local",
        "local_p50_ms",
        "local_p99_ms",
        "producer_p50_ms",
        "producer_p99_ms",
        "committed",
        "delivered",
        "lost",
        "repeats",
        "unfounded",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    Ok(output::print(&table)?)
}
