//! `consign bench scale`: what a claim costs in a large table.

mod measure;
mod purge;
mod scratch;

use serde_json::json;

use super::rounded;
use crate::config::Config;
use crate::output::{self, Table};

use measure::Figures;
use scratch::Scratch;

/// What `consign bench scale` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  consign bench scale --sent 10000000 --config consign.toml --json\n\n\
                        Uses tables of its own (consign_bench_scale_*) beside the configured ones and removes them afterwards. Needs a \
                        MySQL store, and some 500 bytes on its disk for each row, twice that with a binary log. Claims are \
                        measured in turns with those of a table that holds nothing but the rows they take.")]
pub struct Arguments {
    /// SENT rows in the first table. Up to a million of them are purged while claims go on.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(10_000..=100_000_000))]
    sent: u32,
    /// NEW rows that wait in the second table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100_000..=100_000_000))]
    backlog: u32,
    /// Rows before all others in the third table that another transaction holds locked; as many are delayed.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    locked: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Measures and prints.
pub async fn run(config: &Config, arguments: &Arguments) -> anyhow::Result<()> {
    let scratch = Scratch::create(config).await?;
    let figures = tokio::select! {
        figures = measure::scale(&scratch, arguments.sent, arguments.backlog, arguments.locked) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    scratch.remove().await?;
    print(arguments, &figures?)
}

fn print(arguments: &Arguments, figures: &Figures) -> anyhow::Result<()> {
    let document = json!({
        "sent": arguments.sent, "backlog": arguments.backlog, "locked": arguments.locked, "purged": figures.purged,
        "claim_ms_empty": rounded(figures.claim_seconds_empty * 1000.0),
        "claim_ratio_sent": rounded(figures.claim_ratio_sent),
        "claim_ratio_backlog": rounded(figures.claim_ratio_backlog),
        "claim_ratio_locked": rounded(figures.claim_ratio_locked),
        "purge_slowdown": rounded(figures.purge_slowdown),
        "purged_per_second": rounded(figures.purged_per_second),
    });
    if arguments.json {
        output::print_json(&document)?;
        return Ok(());
    }
    let mut table = Table::new(["figure", "value"]);
    for key in [
        "claim_ms_empty",
        "claim_ratio_sent",
        "claim_ratio_backlog",
        "claim_ratio_locked",
        "purge_slowdown",
        "purged",
        "purged_per_second",
    ] {
        table.row([key, &document[key].to_string()]);
    }
    output::print(&table)?;
    Ok(())
}
