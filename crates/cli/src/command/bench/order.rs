//! `consign bench order`: ordered mode against competing mode, and under kill -9.

mod audit;
mod measure;
mod scratch;

use serde_json::json;

use super::{median, median_ratio, rounded};
use crate::config::Config;
use crate::output::{self, Table};

use measure::{Figures, LEASE, PARTITION_LEASE};
use scratch::Scratch;

/// What `consign bench order` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  consign bench order --aggregates 10000 --events 200000 --kill --json\n\n\
                        A consumer checks the version of every event it receives: a version that is neither the next one \
                        nor a copy of one it has seen is a violation. takeover_*_ms tell how long the aggregates stood still \
                        that a killed relay had begun. Uses a table, an exchange and a queue of its own \
                        (consign_bench_*) and removes them afterwards. Needs a MySQL store and a RabbitMQ destination."
)]
pub struct Arguments {
    /// Aggregates that the events belong to.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    aggregates: u32,
    /// Events in all, over the rounds of both modes and the round with kills.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    events: u32,
    /// Kill relays with SIGKILL in the middle of a last round.
    #[arg(long)]
    kill: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let scratch = Scratch::create(config).await?;
    let figures = tokio::select! {
        figures = measure::order(config, &scratch, arguments) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    scratch.remove().await?;
    print(arguments, &figures?)
}

fn print(arguments: &Arguments, figures: &Figures) -> anyhow::Result<()> {
    let document = json!({
        "aggregates": arguments.aggregates, "events": figures.events,
        "violations": figures.violations, "lost": figures.lost, "repeats": figures.repeats,
        "relay_kills": figures.relay_kills,
        "takeover_p50_ms": rounded(median(&figures.takeover_ms)),
        "takeover_max_ms": rounded(figures.takeover_ms.iter().copied().fold(f64::NAN, f64::max)),
        "takeovers": figures.takeover_ms.len(),
        "partition_lease_ms": PARTITION_LEASE.as_millis(), "lease_ms": LEASE.as_millis(),
        "ordered_per_second": rounded(median(&figures.ordered_per_second)),
        "competing_per_second": rounded(median(&figures.competing_per_second)),
        "ratio_to_competing":
            rounded(median_ratio(&figures.ordered_per_second, &figures.competing_per_second)),
        "rounds": { "ordered_per_second": figures.ordered_per_second,
                    "competing_per_second": figures.competing_per_second },
    });
    if arguments.json {
        output::print_json(&document)?;
        return Ok(());
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "violations",
        "lost",
        "repeats",
        "relay_kills",
        "takeover_p50_ms",
        "takeover_max_ms",
        "partition_lease_ms",
        "lease_ms",
        "ordered_per_second",
        "competing_per_second",
        "ratio_to_competing",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    output::print(&table)?;
    Ok(())
}
