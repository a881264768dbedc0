//! `consign bench relay`: a backlog drained to the broker.

mod broker;
mod measure;
mod scratch;

use serde_json::json;

use super::{median, median_ratio, rounded};
use crate::config::Config;
use crate::output::{self, Table};

use measure::Figures;
use scratch::Scratch;

/// What `consign bench relay` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  consign bench relay --rows 100000 --config consign.toml --json\n\n\
                        attempt_log_cost is the share of the store limit that the log of attempts takes: 0.1 is a tenth.\n\n\
                        Uses tables, and an exchange and a queue or a topic of its own (consign_bench*) beside the configured ones \
                        and removes them afterwards. Needs a MySQL store and a RabbitMQ or RocketMQ destination: the \
                        first in the order of their names.")]
pub struct Arguments {
    /// Rows to drain in all, over three rounds.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(3_000..=10_000_000))]
    rows: u32,
    /// Bytes of each payload.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    payload_bytes: u32,
    /// SENT rows in the table whose claims are compared with those of a table without any.
    #[arg(long, default_value_t = 1_000_000)]
    sent_rows: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let scratch = Scratch::create(config, arguments.payload_bytes).await?;
    let figures = tokio::select! {
        figures = measure::relay(config, &scratch, arguments.rows, arguments.sent_rows) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    scratch.remove().await?;
    print(arguments, &figures?)
}

fn print(arguments: &Arguments, figures: &Figures) -> anyhow::Result<()> {
    let drain = median(&figures.drain_per_second);
    let limit = median(&figures.store_limit_per_second);
    let single = median(&figures.one_by_one_per_second);
    let document = json!({
        "rows": arguments.rows, "payload_bytes": arguments.payload_bytes,
        "drain_per_second": rounded(drain), "store_limit_per_second": rounded(limit),
        "one_by_one_per_second": rounded(single),
        "bare_per_second": rounded(median(&figures.bare_per_second)),
        "ratio_to_bare_rate":
            rounded(median_ratio(&figures.drain_per_second, &figures.bare_per_second)),
        "ratio_to_store_limit": rounded(median_ratio(&figures.drain_per_second, &figures.store_limit_per_second)),
        "ratio_to_one_by_one": rounded(drain / single),
        "claim_ratio_with_1m_sent": rounded(figures.claim_ratio), "sent_rows": arguments.sent_rows,
        "relay_peak_rss_mib": rounded(figures.relay_peak_rss_mib),
        "attempt_log_cost":
            rounded(1.0 - median_ratio(&figures.logged_per_second, &figures.unlogged_per_second)),
        "rounds": { "drain_per_second": figures.drain_per_second, "store_limit_per_second": figures.store_limit_per_second,
                    "bare_per_second": figures.bare_per_second, "one_by_one_per_second": figures.one_by_one_per_second,
                    "logged_per_second": figures.logged_per_second, "unlogged_per_second": figures.unlogged_per_second },
    });
    if arguments.json {
        output::print_json(&document)?;
        return Ok(());
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "drain_per_second",
        "store_limit_per_second",
        "one_by_one_per_second",
        "ratio_to_store_limit",
        "bare_per_second",
        "ratio_to_bare_rate",
        "ratio_to_one_by_one",
        "claim_ratio_with_1m_sent",
        "attempt_log_cost",
        "relay_peak_rss_mib",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    output::print(&table)?;
    Ok(())
}
