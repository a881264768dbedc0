//! pending
use std::process::ExitCode;
pub fn run(_: &[&str]) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::FAILURE)
}
