//! The `consign` command.
//!
//! - `config`: consign.toml, as written and as checked. `parts`: stores and destinations made from it.
//! - `command`: one file per command. `output`: tables and JSON. `exit`: exit codes. `signals`: draining. `reload`: SIGHUP.
//! - `schema`: what payloads must look like. `retention`: what the relay forgets in the background.
//! - `age`: ages on the command line. `actor`: who decides, for the audit. `pace`: how fast bulk work goes.

mod actor;
mod age;
mod command;
mod config;
mod exit;
#[cfg(test)]
mod fuzz;
mod output;
mod pace;
mod parts;
mod reload;
mod retention;
mod schema;
mod signals;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::exit::Exit;

/// Reliable messaging between a database and a broker: outbox, relay, inbox.
///
/// At-least-once delivery with at-most-once effects. SENT means that the broker took the message and proved it.
#[derive(Debug, Parser)]
#[command(
    name = "consign",
    version,
    after_help = "Examples:\n  consign demo\n  consign migrate --config consign.toml --print\n  \
                  consign run --config consign.toml\n  consign status --json\n\n\
                  Exit codes: 0 fine, 1 failed, 2 usage or config, 3 findings.\n\
                  Logs go to stderr; CONSIGN_LOG sets the level (error, warn, info, debug)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the whole chain on embedded parts while its processes are killed; ends with a reconciliation.
    Demo(command::demo::Arguments),
    /// Run relay and consumers in one process.
    Run(command::run::Arguments),
    /// Run the relay alone.
    Relay(command::run::Arguments),
    /// Run the consumers alone; or check them, or show what one message would do.
    Consume(command::consume::Arguments),
    /// Create the tables, or add what is missing to them.
    Migrate(command::migrate::Arguments),
    /// Counts per state, the oldest pending age, fenced settles, conflicts.
    Status(command::status::Arguments),
    /// Check config, schema, isolation, clock, time zone and broker durability; each finding with its fix.
    Doctor(command::doctor::Arguments),
    /// Compare the broker with the config, or create what the config says.
    Topology(command::topology::Arguments),
    /// List, show and resolve keys that came again with other content.
    Conflicts(command::conflicts::Arguments),
    /// List, show, requeue and discard what was given up: events of the outbox and deliveries.
    Dead(command::dead::Arguments),
    /// Publish sent events again under the same event ids: by id, type, aggregate or time.
    Replay(command::replay::Arguments),
    /// Delete sent events and markers that nobody needs any more, in small batches.
    Purge(command::purge::Arguments),
    /// Measure throughput on the configured parts.
    Bench(command::bench::Arguments),
    /// Open every window between a commit, a message and an effect, the naive way and with consign.
    Lab(command::lab::Arguments),
    /// A process of the lab, which it starts by itself.
    #[command(hide = true)]
    LabLife(command::lab::life::Arguments),
    /// Run the engines in a simulated world where everything goes wrong, seed by seed, and check what must hold.
    Sim(command::sim::Arguments),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors; everything else is a usage error.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Fine };
            let _ = error.print();
            return exit.into();
        }
    };
    start_log();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start the runtime: {error}");
            return Exit::Failed.into();
        }
    };
    match runtime.block_on(dispatch(cli.command)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            eprintln!("error: {error:#}");
            Exit::of_error(&error).into()
        }
    }
}

async fn dispatch(command: Command) -> anyhow::Result<Exit> {
    use command::run::Role;
    match command {
        Command::Demo(arguments) => command::demo::run(arguments).await,
        Command::Run(arguments) => command::run::run(arguments, Role::Both).await,
        Command::Relay(arguments) => command::run::run(arguments, Role::Relay).await,
        Command::Consume(arguments) => command::consume::run(arguments).await,
        Command::Migrate(arguments) => command::migrate::run(arguments).await,
        Command::Status(arguments) => command::status::run(arguments).await,
        Command::Doctor(arguments) => command::doctor::run(arguments).await,
        Command::Topology(arguments) => command::topology::run(arguments).await,
        Command::Conflicts(arguments) => command::conflicts::run(arguments).await,
        Command::Dead(arguments) => command::dead::run(arguments).await,
        Command::Replay(arguments) => command::replay::run(arguments).await,
        Command::Purge(arguments) => command::purge::run(arguments).await,
        Command::Bench(arguments) => command::bench::run(arguments).await,
        Command::Lab(arguments) => command::lab::run(arguments).await,
        Command::LabLife(arguments) => command::lab::life::run(arguments).await.map(|()| Exit::Fine),
        Command::Sim(arguments) => command::sim::run(&arguments),
    }
}

/// Logs go to stderr. The database driver's own logs hold statements and stay off unless asked for by name.
fn start_log() {
    let filter = std::env::var("CONSIGN_LOG").unwrap_or_else(|_| "info,sqlx=off".into());
    let filter = tracing_subscriber::EnvFilter::new(filter);
    let colour = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(std::io::stderr).init();
}
