//! Downloaded package files in the user's cache folder, by digest, so that the next clone is quick. Nothing
//! depends on it: a broken entry is dropped, and a folder that cannot be written is ignored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Copies the file of that digest to `target`; false when there is none that is intact.
pub fn restore(sha256: &str, target: &Path) -> bool {
    let Some(entry) = folder().map(|folder| folder.join(sha256)) else { return false };
    if !entry.is_file() {
        return false;
    }
    // The copy is checked, not the entry: what is used is what was verified.
    let intact =
        fs::copy(&entry, target).is_ok() && self::sha256(target).is_ok_and(|digest| digest == sha256);
    if !intact {
        let _ = fs::remove_file(target);
        let _ = fs::remove_file(entry);
    }
    intact
}

/// Remembers a file whose digest has been checked.
pub fn keep(sha256: &str, file: &Path) {
    let Some(folder) = folder() else { return };
    let partial = folder.join(format!("{sha256}.{}", std::process::id()));
    let kept = fs::create_dir_all(&folder)
        .and_then(|()| fs::copy(file, &partial))
        .and_then(|_| fs::rename(&partial, folder.join(sha256)));
    if kept.is_err() {
        let _ = fs::remove_file(partial);
    }
}

/// The digest of a file, in lower-case hex.
pub fn sha256(file: &Path) -> Result<String> {
    let output = Command::new("sha256sum").arg("--").arg(file).output().context("cannot run sha256sum")?;
    ensure!(output.status.success(), "sha256sum cannot read {}", file.display());
    let text = String::from_utf8_lossy(&output.stdout);
    // A leading backslash marks a file name that sha256sum had to quote.
    let digest = text.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    Ok(digest.to_owned())
}

fn folder() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".cache/consign/debs"))
}
