//! `cargo xtask model`: builds the models optimised and looks at all their states.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::workspace;

/// Runs the models with these options; fails as they do.
pub fn run(words: &[&str]) -> Result<ExitCode> {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "consign-model", "--"]).args(words);
    let status = cargo.status().context("cannot run cargo")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
