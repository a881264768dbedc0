//! `cargo xtask torture`: builds the program with its failpoints and hands over to the crate that tortures it.

mod faults;

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::services::site::Site;
use crate::test::FAILPOINTS;
use crate::workspace;

/// Runs `cargo xtask torture`. `--list` prints the fault catalogue. On success this process becomes the torture itself, which then gets the signals of the
/// terminal and cleans up behind them.
pub fn run(words: &[&str]) -> Result<ExitCode> {
    if words.contains(&"--list") {
        faults::list(&workspace::root(), words.contains(&"--json"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = command()?;
    Err(command.args(words).exec()).context("cannot start the torture")
}

/// Builds both programs, and gives the command that starts the torture, without arguments of its own.
pub fn command() -> Result<Command> {
    let mut build = workspace::cargo();
    build.args(["build", "--workspace", "--bin", "consign", "--bin", "consign-torture"]);
    let status = build.args(["--features", FAILPOINTS]).status().context("cannot run cargo")?;
    ensure!(status.success(), "cargo build failed: {status}");
    let programs = target_folder()?.join("debug");
    let site = Site::from_environment()?;
    let mut command = Command::new(programs.join("consign-torture"));
    command.arg("--consign").arg(programs.join("consign"));
    command.arg("--xtask").arg(std::env::current_exe().context("cannot tell where this runner is")?);
    // For the runner that the torture calls: the same servers, wherever it is called from.
    command.env("CONSIGN_SERVICES_DIR", &site.folder);
    command.env("CONSIGN_SERVICES_PROGRAMS", &site.programs);
    command.env("CONSIGN_SERVICES_PORT_BASE", site.port_base.to_string());
    Ok(command)
}

fn target_folder() -> Result<PathBuf> {
    let output = workspace::cargo().args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let folder = metadata["target_directory"].as_str().context("cargo metadata names the target folder")?;
    Ok(folder.into())
}
