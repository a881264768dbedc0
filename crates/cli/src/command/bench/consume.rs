//! `consign bench consume`: deliveries of a real queue applied in a real database.

mod measure;
mod scratch;

use serde_json::json;

use super::{median, median_ratio, rounded};
use crate::config::Config;
use crate::output::{self, Table};

use measure::Figures;
use scratch::Scratch;

/// What `consign bench consume` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  consign bench consume --messages 100000 --repeats 0.3 --config consign.toml --json\n\n\
                        Uses tables, an exchange and a queue of its own (consign_bench_*, bench_points_account) beside the configured ones and \
                        removes them afterwards. Needs a MySQL store and a RabbitMQ destination. Every ratio is to one \
                        transaction per delivery on one connection, measured in the same rounds; the effects are counted \
                        in the database. With a [filter] in the config, the repeats run with it as well."
)]
pub struct Arguments {
    /// Deliveries in batches in all, over three rounds.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(3_000..=10_000_000))]
    messages: u32,
    /// The share of deliveries that repeat an earlier one, 0 to 0.9, in the runs with repeats.
    #[arg(long, default_value_t = 0.3, value_parser = share)]
    repeats: f64,
    /// Deliveries that share a transaction at most.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Transactions side by side.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=0.9).contains(&share) { Ok(share) } else { Err(format!("{text} is not between 0 and 0.9")) }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Deliveries in batches in all.
    pub messages: u32,
    /// The share of repeats in the runs with repeats.
    pub repeats: f64,
    /// Deliveries that share a transaction at most.
    pub batch: usize,
    /// Transactions side by side.
    pub workers: usize,
}

impl Plan {
    /// Enough unacknowledged deliveries for every transaction and as many more on their way.
    pub fn prefetch(&self) -> u16 {
        u16::try_from(2 * self.batch * self.workers).unwrap_or(u16::MAX)
    }
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let plan = Plan {
        messages: arguments.messages,
        repeats: arguments.repeats,
        batch: arguments.batch.into(),
        workers: arguments.workers.into(),
    };
    let scratch = Scratch::create(config).await?;
    let figures = tokio::select! {
        figures = measure::consume(config, &scratch, plan) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    scratch.remove().await?;
    print(arguments, &figures?)
}

fn print(arguments: &Arguments, figures: &Figures) -> anyhow::Result<()> {
    let Figures { single, batched, repeats, handler, .. } = figures;
    let document = json!({
        "messages": arguments.messages, "repeats": arguments.repeats,
        "batch": arguments.batch, "workers": arguments.workers,
        "single_per_second": rounded(median(single)),
        "batched_per_second": rounded(median(batched)),
        "batched_with_repeats_per_second": rounded(median(repeats)),
        "handler_batched_per_second": rounded(median(handler)),
        "ratio_batched": rounded(median_ratio(batched, single)),
        "ratio_batched_with_repeats": rounded(median_ratio(repeats, single)),
        "ratio_handler": rounded(median_ratio(handler, single)),
        "effects_expected": figures.expected,
        "effects_found": figures.found.awards,
        "lost": figures.lost, "doubled": figures.doubled,
        "filtered_with_repeats_per_second": figures.filtered.first().map(|_| rounded(median(&figures.filtered))),
        "ratio_filter": figures.filtered.first().map(|_| rounded(median_ratio(&figures.filtered, repeats))),
        "rounds": { "single_per_second": single, "batched_per_second": batched,
                    "batched_with_repeats_per_second": repeats, "handler_batched_per_second": handler },
    });
    if arguments.json {
        return Ok(output::print_json(&document)?);
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "single_per_second",
        "batched_per_second",
        "batched_with_repeats_per_second",
        "handler_batched_per_second",
        "ratio_batched",
        "ratio_batched_with_repeats",
        "ratio_handler",
        "effects_expected",
        "effects_found",
        "lost",
        "doubled",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    Ok(output::print(&table)?)
}
