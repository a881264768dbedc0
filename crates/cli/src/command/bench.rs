//! `consign bench`: throughput on the configured parts.

use crate::config::ConfigArguments;
use crate::exit::Exit;

/// What `consign bench` is asked to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
}

/// Measures.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let _ = arguments.config.load()?;
    Ok(Exit::Failed)
}
