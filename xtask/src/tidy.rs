//! `cargo xtask tidy`: what no compiler checks. Each finding is a line `file:line: what is wrong and what to do`.
//!
//! - [`arrows`]: which crate may depend on which
//! - [`text`]: length, names and words of single files
//! - [`statements`]: the SQL files of the stores

mod arrows;
mod statements;
mod text;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// Runs `cargo xtask tidy`.
pub fn run() -> Result<ExitCode> {
    check()?;
    eprintln!("tidy: nothing to complain about");
    Ok(ExitCode::SUCCESS)
}

/// Prints every finding; an error when there is one.
pub fn check() -> Result<()> {
    let root = workspace::root();
    let files = files(&root)?;
    let mut findings = arrows::check()?;
    for file in &files {
        // What is not text, or was deleted but not yet committed, has nothing to check.
        if let Ok(content) = std::fs::read_to_string(root.join(file)) {
            findings.extend(text::check(file, &content));
        }
    }
    findings.extend(statements::check(&files));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy found {} problem(s)", findings.len());
    }
    Ok(())
}

/// Every file that is or would be committed, relative to the root.
fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().context("cannot run git")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git cannot list the files of {}: {}", root.display(), message.trim());
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split_terminator('\0').map(PathBuf::from).collect())
}
