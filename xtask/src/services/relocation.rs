//! Makes unpacked programs use the C library and loader that were unpacked with them, so that packages of a
//! newer suite run on an older host without a chroot.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Where executables are, below the package's folder.
const PROGRAM_FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "usr/lib/erlang", "usr/lib/postgresql"];
const ERLANG: &str = "/usr/lib/erlang";

pub fn relocate(folder: &Path, patchelf: &Path) -> Result<()> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = [folder.join("usr/lib").join(&triplet), folder.join("lib").join(&triplet)];
    let loader = loader(&libraries).context("the packages hold no dynamic loader")?;
    let search: Vec<_> = libraries.iter().map(|path| path.display().to_string()).collect();
    let search = search.join(":");
    for file in PROGRAM_FOLDERS.iter().flat_map(|part| files_below(&folder.join(part))) {
        if !is_executable_elf(&file) || !has_loader(patchelf, &file) {
            continue;
        }
        // RPATH rather than RUNPATH, because it also holds for libraries that a plug-in loads.
        let mut command = Command::new(patchelf);
        command
            .arg("--set-interpreter")
            .arg(&loader)
            .arg("--force-rpath")
            .args(["--set-rpath", &search])
            .arg(&file);
        let output = command.output()?;
        if !output.status.success() {
            bail!(
                "patchelf failed on {}: {}",
                file.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
    }
    rewrite_erlang_root(folder)
}

/// Released suites keep the loader in `lib` or in `usr/lib`, depending on their age.
fn loader(libraries: &[PathBuf]) -> Option<PathBuf> {
    let files = libraries.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut loaders = files.map(|entry| entry.path()).filter(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("ld-linux"))
    });
    loaders.next()
}

/// The start scripts of Erlang carry their absolute root as text.
fn rewrite_erlang_root(folder: &Path) -> Result<()> {
    let root = folder.join(&ERLANG[1..]);
    let moved = root.display().to_string();
    let scripts = files_below(&root).into_iter().filter(|file| {
        let inside = file.strip_prefix(&root).unwrap_or(file);
        let mut parts = inside.iter().filter_map(|part| part.to_str());
        match parts.next() {
            Some("bin" | "releases") => true,
            Some(part) => part.starts_with("erts-") && parts.next() == Some("bin"),
            None => false,
        }
    });
    for script in scripts {
        // Anything that is not text is a program or a boot file, which hold no such path.
        let Ok(text) = fs::read_to_string(&script) else { continue };
        if text.contains(ERLANG) {
            fs::write(&script, text.replace(ERLANG, &moved))?;
        }
    }
    Ok(())
}

/// Regular files, not through symbolic links.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files_below(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

fn is_executable_elf(file: &Path) -> bool {
    let executable = fs::metadata(file).is_ok_and(|metadata| metadata.permissions().mode() & 0o100 != 0);
    let mut magic = [0; 4];
    executable
        && File::open(file).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

fn has_loader(patchelf: &Path, file: &Path) -> bool {
    Command::new(patchelf)
        .arg("--print-interpreter")
        .arg(file)
        .output()
        .is_ok_and(|output| output.status.success())
}
