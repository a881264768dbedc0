//! `consign bench`: throughput on the configured parts, as ratios measured side by side in one run.

mod consume;
mod latency;
mod order;
mod relay;
mod relay_process;
mod scale;
mod site;
mod spans;
mod topic;
mod transaction;

use crate::command::migrate;
use crate::config::ConfigArguments;
use crate::exit::Exit;

/// What `consign bench` is asked to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// How fast a relay drains a backlog, against the store alone and against a relay that goes row by row.
    Relay(relay::Arguments),
    /// How long an event takes from its commit to the consumer, at a fixed rate.
    Latency(latency::Arguments),
    /// How fast consumers apply deliveries in batches, against one transaction per delivery on one connection.
    Consume(consume::Arguments),
    /// How fast a relay keeps the order of every aggregate, against one that keeps none; and whether it does when killed.
    Order(order::Arguments),
    /// How fast transaction messages of RocketMQ are sent, against the same local transactions without messages.
    Transaction(transaction::Arguments),
    /// What a claim costs among many SENT rows, with a backlog, behind locked rows and beside a purge.
    Scale(scale::Arguments),
}

/// Measures.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    if config.setup.on_start {
        migrate::set_up(&config).await?;
    }
    match arguments.what {
        What::Relay(arguments) => relay::run(&config, &arguments).await?,
        What::Latency(arguments) => latency::run(&config, &arguments).await?,
        What::Consume(arguments) => consume::run(&config, &arguments).await?,
        What::Order(arguments) => order::run(&config, &arguments).await?,
        What::Transaction(arguments) => Box::pin(transaction::run(&config, &arguments)).await?,
        What::Scale(arguments) => Box::pin(scale::run(&config, &arguments)).await?,
    }
    Ok(Exit::Fine)
}

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Each round's two figures were taken side by side, so the ratio is taken per round.
fn median_ratio(above: &[f64], below: &[f64]) -> f64 {
    median(&above.iter().zip(below).map(|(above, below)| above / below).collect::<Vec<_>>())
}
