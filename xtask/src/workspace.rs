//! Where the repository is.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace root: the nearest folder above the current one that holds this runner, or else the one it was
/// built in.
pub fn root() -> PathBuf {
    let current = std::env::current_dir().unwrap_or_default();
    let above = current.ancestors().find(|folder| is_root(folder)).map(Path::to_path_buf);
    above.unwrap_or_else(|| {
        let built_in = Path::new(env!("CARGO_MANIFEST_DIR"));
        built_in.parent().unwrap_or(built_in).to_path_buf()
    })
}

/// A cargo command that runs in the workspace root, with the cargo that started this runner.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    if std::env::var_os("CI").is_some() {
        // Only a second build would be faster for it, and it is more than half of what a build writes.
        command.env("CARGO_INCREMENTAL", "0");
    }
    // What cargo told this runner about itself: build scripts that look at it would run again for nothing.
    for (name, _) in std::env::vars_os() {
        let told = name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
        if told {
            command.env_remove(name);
        }
    }
    command
}

fn is_root(folder: &Path) -> bool {
    folder.join("Cargo.toml").is_file() && folder.join("xtask/Cargo.toml").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_found_from_a_folder_below_it() {
        assert!(root().join("xtask/src/workspace.rs").is_file());
    }
}
