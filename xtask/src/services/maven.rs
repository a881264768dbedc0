//! Java artifacts from Maven Central, through the host's Maven, and the host's Java to run them with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, anyhow, bail, ensure};
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::archive::Unavailable;
use super::catalog::Maven;
use super::{cache, say};

/// Where the archives are, below the package's folder.
const LIBRARY: &str = "lib";
/// Copies an artifact's whole run-time class path; an exact version, like all that is downloaded.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies";
/// Debian packages of the two programs.
const HOST_PACKAGES: [&str; 2] = ["maven", "default-jre-headless"];

/// The host's Java, installed when it is missing.
pub fn java() -> Result<PathBuf> {
    host_program("java")
}

/// Everything that the artifacts need, for `-cp`. Sorted, so that it is the same at each start.
pub fn class_path(folder: &Path) -> Result<String> {
    let files: Vec<_> = archives(folder)?.iter().map(|file| file.display().to_string()).collect();
    Ok(files.join(":"))
}

/// Puts the artifacts and all they need into `folder`; gives the version and the digests of what is there.
pub fn fetch(name: &str, artifacts: &Maven, folder: &Path) -> Result<(String, Value)> {
    let maven = host_program("mvn")?;
    java()?;
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    fs::write(folder.join("pom.xml"), project(artifacts))?;
    let mut command = Command::new(maven);
    // Digests that differ from the repository's own are an error, not a warning.
    command.args(["--quiet", "--batch-mode", "--strict-checksums", COPY]);
    command.args(["-DincludeScope=runtime", &format!("-DoutputDirectory={LIBRARY}")]).current_dir(folder);
    let output = command.output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        let first: Vec<_> = message.lines().filter(|line| line.contains("ERROR")).take(3).collect();
        bail!(Unavailable(format!("{name}: Maven cannot fetch the artifacts: {}", first.join("\n"))));
    }
    let mut listed = Vec::new();
    for file in archives(folder)? {
        let digest = cache::sha256(&file)?;
        listed.push(json!({ "file": file.file_name().and_then(|name| name.to_str()), "sha256": digest }));
    }
    ensure!(!listed.is_empty(), "{name}: Maven left no archives in {}", folder.display());
    Ok((artifacts.version.to_owned(), json!({ "archives": listed })))
}

fn archives(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> =
        fs::read_dir(folder.join(LIBRARY))?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    Ok(files)
}

/// A project that depends on the artifacts and has nothing of its own.
fn project(artifacts: &Maven) -> String {
    let Maven { group, version, .. } = artifacts;
    let dependencies = artifacts.artifacts.iter().map(|artifact| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency>"
        )
    });
    let dependencies = dependencies.collect::<Vec<_>>().join("\n");
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>consign</groupId><artifactId>service</artifactId><version>1</version><packaging>pom</packaging>\n\
         <dependencies>\n{dependencies}\n</dependencies></project>\n"
    )
}

/// Finds a program of the host, and installs the Debian packages once when it is missing and that is allowed.
fn host_program(name: &str) -> Result<PathBuf> {
    if let Some(found) = on_path(name) {
        return Ok(found);
    }
    let wanted = HOST_PACKAGES.join(" ");
    if !geteuid().is_root() {
        bail!(Unavailable(format!(
            "there is no `{name}` on this host: install the Debian packages {wanted}"
        )));
    }
    say(&format!("there is no `{name}`: installing {wanted}"));
    for arguments in [&["update"][..], &["install", "--yes", "--no-install-recommends"]] {
        let mut command = Command::new("apt-get");
        command.arg("-qq").args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        if arguments[0] == "install" {
            command.args(HOST_PACKAGES);
        }
        let output = command.output().map_err(|error| {
            anyhow!(Unavailable(format!("cannot install {wanted}: no apt-get ({error})")))
        })?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!(Unavailable(format!("cannot install {wanted}: {}", message.trim())));
        }
    }
    on_path(name).ok_or_else(|| anyhow!(Unavailable(format!("installing {wanted} brought no `{name}`"))))
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn project_names_every_artifact_with_the_version() {
        let text = project(&Maven { group: "g", artifacts: &["a", "b"], version: "1.2" });

        assert_eq!(text.matches("<groupId>g</groupId>").count(), 2);
        assert_eq!(text.matches("<version>1.2</version>").count(), 2);
        assert!(text.contains("<artifactId>b</artifactId>"));
    }
}
