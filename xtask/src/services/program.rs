//! Programs unpacked from Debian packages, made to run from a private folder with their own C library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::archive::{Archive, Deb, Unavailable};
use super::catalog::{Debian, Origin, PATCHELF, Package};
use super::site::Site;
use super::{maven, relocation, say};

/// An unpacked package, ready to run.
#[derive(Clone, Debug)]
pub struct Program {
    pub folder: PathBuf,
    /// Version of the Debian package.
    pub version: String,
}

impl Program {
    /// Path of a file in the package.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.folder.join(inside)
    }
}

/// The program, when it has been unpacked here before.
pub fn present(site: &Site, package: &Package) -> Option<Program> {
    let folder = site.program(package.name);
    let manifest: Value = serde_json::from_str(&fs::read_to_string(manifest(&folder)).ok()?).ok()?;
    // Paths are written into the programs, so a copy of the folder to another place is worthless.
    let is_here = manifest["folder"].as_str().map(Path::new) == Some(&folder);
    let version = manifest["version"].as_str()?.to_owned();
    let is_wanted = match &package.origin {
        Origin::Debian(_) => true,
        Origin::Maven(artifacts) => version == artifacts.version,
    };
    (is_here && is_wanted).then_some(Program { folder, version })
}

/// Unpacks the package unless that has been done. An error that holds [`Unavailable`] means that the archive or
/// the network failed.
pub fn fetch(site: &Site, package: &'static Package) -> Result<Program> {
    let _lock = site.lock_program(package.name)?;
    if let Some(program) = present(site, package) {
        return Ok(program);
    }
    let started = Instant::now();
    let folder = site.program(package.name);
    let (version, content) = match &package.origin {
        Origin::Debian(debian) => from_archive(site, package.name, debian, &folder)?,
        Origin::Maven(artifacts) => maven::fetch(package.name, artifacts, &folder)?,
    };
    let content = json!({ "folder": folder, "version": version, "content": content });
    fs::write(manifest(&folder), format!("{content:#}\n"))?;
    say(&format!("{}: fetched version {version} in {:.1} s", package.name, started.elapsed().as_secs_f64()));
    Ok(Program { folder, version })
}

/// Unpacks packages of the archive; gives the version and what was unpacked.
fn from_archive(
    site: &Site,
    name: &'static str,
    debian: &'static Debian,
    folder: &Path,
) -> Result<(String, Value)> {
    let debs = first_with_known_index(site, name, debian, folder)
        .with_context(|| format!("{name}: cannot fetch {}", debian.wanted.join(" ")))?;
    unpack(folder, &debs)?;
    if name != PATCHELF.name {
        relocation::relocate(folder, &patchelf(site)?)
            .with_context(|| format!("{name}: cannot adapt the programs to {}", folder.display()))?;
    }
    let version = version_of(debian, &debs)?;
    let listed: Vec<_> = debs
        .iter()
        .map(|deb| json!({ "name": deb.name, "version": deb.version, "sha256": deb.sha256 }))
        .collect();
    Ok((version, json!({ "suite": debian.suite, "debs": listed })))
}

fn manifest(folder: &Path) -> PathBuf {
    folder.join("manifest.json")
}

/// Downloads with the index at hand, and once more with a new one: an old index names files that are gone.
fn first_with_known_index(
    site: &Site,
    name: &'static str,
    debian: &'static Debian,
    folder: &Path,
) -> Result<Vec<Deb>> {
    let archive = Archive::of_suite(debian.suite, site);
    match download(&archive, name, debian, folder, false) {
        Err(error) if error.downcast_ref::<Unavailable>().is_some() => {
            download(&archive, name, debian, folder, true)
        }
        outcome => outcome,
    }
}

fn download(
    archive: &Archive<'_>,
    name: &str,
    debian: &Debian,
    folder: &Path,
    fresh: bool,
) -> Result<Vec<Deb>> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let debs_folder = folder.join("debs");
    fs::create_dir_all(&debs_folder)?;
    let debs = resolve(archive, name, debian, fresh)?;
    archive.download(&debs, &debs_folder)?;
    Ok(debs)
}

fn resolve(archive: &Archive<'_>, name: &str, debian: &Debian, fresh: bool) -> Result<Vec<Deb>> {
    let newest: Vec<String> = debian.wanted.iter().map(|&name| name.to_owned()).collect();
    let Some(pin) = debian.pin.as_ref().filter(|pin| pin.architecture == architecture()) else {
        return archive.resolve(&newest, fresh);
    };
    let mut pinned = newest.clone();
    pinned[0] = format!("{}={}", debian.wanted[0], pin.version);
    let Ok(debs) = archive.resolve(&pinned, fresh) else {
        let debs = archive.resolve(&newest, fresh)?;
        let version = version_of(debian, &debs)?;
        say(&format!(
            "{}: {} {} is gone from {}; taking {version}",
            name, debian.wanted[0], pin.version, debian.suite
        ));
        return Ok(debs);
    };
    let deb =
        debs.iter().find(|deb| deb.name == debian.wanted[0]).context("apt left out what was asked for")?;
    ensure!(
        deb.sha256 == pin.sha256,
        "{} {} has sha256 {} in the index, but {} is pinned: do not use this mirror, or review the pin in \
         xtask/src/services/catalog.rs",
        deb.name,
        deb.version,
        deb.sha256,
        pin.sha256
    );
    Ok(debs)
}

fn version_of(debian: &Debian, debs: &[Deb]) -> Result<String> {
    let main = debs.iter().find(|deb| deb.name == debian.wanted[0]);
    Ok(main.with_context(|| format!("apt does not plan to install {}", debian.wanted[0]))?.version.clone())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn unpack(folder: &Path, debs: &[Deb]) -> Result<()> {
    let debs_folder = folder.join("debs");
    for deb in debs {
        let output = Command::new("dpkg-deb")
            .arg("-x")
            .arg(debs_folder.join(&deb.file))
            .arg(folder)
            .output()
            .map_err(|error| anyhow!(Unavailable(format!("cannot run dpkg-deb (package dpkg): {error}"))))?;
        if !output.status.success() {
            bail!("dpkg-deb cannot unpack {}: {}", deb.file, String::from_utf8_lossy(&output.stderr).trim());
        }
    }
    fs::remove_dir_all(debs_folder)?;
    for unread in ["doc", "man", "locale", "lintian", "bash-completion"] {
        let path = folder.join("usr/share").join(unread);
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// The host's patchelf, or one from the archive.
fn patchelf(site: &Site) -> Result<PathBuf> {
    if Command::new("patchelf").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Ok("patchelf".into());
    }
    Ok(fetch(site, &PATCHELF)?.path("usr/bin/patchelf"))
}
