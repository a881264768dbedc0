//! `consign consume`: the consumers alone, until a drain; or, without consuming, a look at whether they could.

use std::path::PathBuf;

use crate::command::run::{self, Role};
use crate::exit::Exit;

mod check;
mod dry_run;

/// What `consign consume` is asked to do.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(
    group = clap::ArgGroup::new("look"),
    after_help = "Examples:\n  consign consume --config consign.toml\n  consign consume --check\n  \
                  consign consume --dry-run order.json --consumer points-award\n  \
                  echo '{\"orderId\":42}' | consign consume --dry-run - --type OrderPaid --header consign-aggregate-version=3\n\n\
                  SIGTERM or Ctrl-C drains; a second signal ends at once, and nothing is lost either way.\n\
                  --check exits 3 when something would stop a consumer. --dry-run exits 3 when the message would be \
                  refused, wait for a gap, or contradict an applied one."
)]
pub struct Arguments {
    #[command(flatten)]
    run: run::Arguments,
    /// Compare queues, tables and statements with the config, and consume nothing.
    #[arg(long, group = "look")]
    check: bool,
    /// Show what the message in this file would do (- is stdin): its payload as JSON. Everything is rolled back, as
    /// far as the tables have transactions.
    #[arg(long, group = "look", value_name = "FILE")]
    dry_run: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long, requires = "look")]
    json: bool,
    #[command(flatten)]
    message: dry_run::MessageArguments,
}

/// Consumes, or looks.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let Arguments { run, check, dry_run, json, message } = arguments;
    if check {
        return check::run(&run.config.load()?, json).await;
    }
    if let Some(file) = dry_run {
        return dry_run::run(&run.config.load()?, &file, &message, json).await;
    }
    run::run(run, Role::Consumers).await
}
