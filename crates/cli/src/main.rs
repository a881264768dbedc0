//! The `consign` command.

#[expect(
    dead_code,
    unused_imports,
    reason = "the commands that read the whole config and use every output form join next"
)]
mod config;
mod exit;
#[expect(dead_code, reason = "the commands that print tables and JSON join next")]
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::config::ConfigArguments;
use crate::exit::Exit;

/// Reliable events from a business database through a broker into a consumer's database.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
}

fn main() -> ExitCode {
    match Arguments::parse().config.load() {
        Ok(_) => Exit::Fine.into(),
        Err(error) => {
            eprintln!("error: {error}");
            Exit::of_error(&error.into()).into()
        }
    }
}
