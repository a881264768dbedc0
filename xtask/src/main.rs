//! The task runner of this repository: `cargo xtask services|test|tidy|model|mutants|fuzz|torture`.
//!
//! - [`services`]: real servers for the tests, unpacked privately from Debian packages
//! - [`test`]: everything CI runs, in one command
//! - [`tidy`]: checks of layout and style that no compiler makes
//! - [`model`]: the protocol models, every state of them
//! - [`simulate`]: the simulator, and the guards of the product taken away
//! - [`fuzz`]: lets the fuzz targets run for longer
//! - [`torture`]: kills servers and processes, and audits what is left
//! - [`workspace`]: where the repository is

mod fuzz;
mod model;
mod services;
mod simulate;
mod test;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  services up [NAME...]        fetch (once), initialise (once), start, wait until ready
  services down [NAME...]      stop (all, when none is named)
  services kill NAME...        SIGKILL the server and its children; `up` brings it back with its data
  services pause NAME...       SIGSTOP every process of the server
  services resume NAME...      SIGCONT them again
  services status [--json]     what runs, which version, where
  services urls                connection URLs of what runs, as NAME=value lines
  services fetch [NAME...]     only download and unpack
  services wipe NAME...        stop and delete the data (the programs stay)
  services ctl NAME ARG...     rabbitmqctl against that node
        NAME: mysql mariadb postgres redis nats rabbitmq rabbitmq4 rabbitmq4b rabbitmq43
        rabbitmq-cluster (the nodes rabbitmqc1 rabbitmqc2 rabbitmqc3)
        rocketmq rocketmqsync (waits for a replica in vain) rocketmqflush (waits a millisecond for the disk)
        `up` and `fetch` without a name mean what the tests need: mysql mariadb rabbitmq rabbitmq4

  test [--only STEP]... [--keep] [-- ARG...]
        services, then the steps fmt, tidy, clippy, test, sim, torture; ARGs go to `cargo test`;
        --keep leaves running the servers that this run started
  model [--ci | --full] [--json] [--trace GUARD]
        looks at every state of the protocol models, and takes each of their guards away once
  mutants [--json]
        takes the guards of the engines away, one at a time: the simulator must notice each
  tidy                         dependency arrows, file length, banned names and words, SQL file sets
  fuzz [--target T] [--seconds N] [--seed N] [--json]
        every fuzz target, or those whose name begins so, for so long each; 2 s are what `test` does
  torture [--short] [--rounds N] [--events N] [--only FAULT]... [--seed N] [--json]
        kills relays, consumers and servers while producers write, then audits; 100000 events a round
  torture --list [--json]      the fault catalogue, and what automates each fault
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["services", rest @ ..] => services::run(rest),
        ["test", rest @ ..] => test::run(rest),
        ["tidy"] => tidy::run(),
        ["model", rest @ ..] => model::run(rest),
        ["mutants", rest @ ..] => simulate::mutants(rest),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["torture", rest @ ..] => torture::run(rest),
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        other => {
            eprint!("xtask: unknown command `{}`\n\n{USAGE}", other.join(" "));
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
