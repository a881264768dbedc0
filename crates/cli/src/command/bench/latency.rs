//! `consign bench latency`: from a commit to the delivery.

mod measure;
mod timeline;

use serde_json::json;

use crate::config::Config;
use crate::output::{self, Table};

use measure::Figures;

/// What `consign bench latency` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  consign bench latency --rate 1000 --seconds 60 --config consign.toml --json\n\n\
                        Every event is a transaction of its own, started on a fixed schedule: a relay that stalls makes every event \
                        behind it late. The latency counts from the moment COMMIT returned to the delivery. The first two seconds \
                        warm up and are not counted, except for what is lost. Uses tables, an exchange and a queue of its own \
                        (consign_bench_latency, bench_purchase_order) and removes them afterwards. Needs a MySQL store and a RabbitMQ \
                        destination."
)]
pub struct Arguments {
    /// Events per second.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long to measure.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Connections that producers commit on.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=500))]
    connections: u32,
    /// Leave events to be found by polling.
    #[arg(long)]
    no_wakeup: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let figures = measure::latency(config, arguments).await?;
    let Figures { latency, commit, late, events, lost } = &figures;
    let document = json!({
        "rate": arguments.rate, "seconds": arguments.seconds, "events": events, "lost": lost,
        "wakeup": !arguments.no_wakeup, "connections": arguments.connections,
        "p50_ms": latency.milliseconds(0.5), "p99_ms": latency.milliseconds(0.99),
        "p999_ms": latency.milliseconds(0.999), "max_ms": latency.milliseconds(1.0),
        "commit_p50_ms": commit.milliseconds(0.5), "commit_p99_ms": commit.milliseconds(0.99),
        "producers_late_p99_ms": late.milliseconds(0.99),
    });
    if arguments.json {
        return Ok(output::print_json(&document)?);
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "events",
        "lost",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "commit_p50_ms",
        "commit_p99_ms",
        "producers_late_p99_ms",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    Ok(output::print(&table)?)
}
