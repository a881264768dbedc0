//! Setting up the servers that the faults of a round need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::fault::Place;
use crate::servers::{CLUSTER, MYSQL, RABBITMQ, Servers};
use crate::stage::Scenery;

/// A place that is ready, until [`Ready::leave`].
pub struct Ready {
    pub scenery: Scenery,
    /// Whose servers to put back.
    servers: Vec<Arc<Servers>>,
    disk: Option<SmallDisk>,
}

/// Why there is no such place here.
#[derive(Debug)]
pub struct Impossible(pub String);

impl Ready {
    /// Brings its servers up; or tells why this machine cannot have the place.
    pub async fn prepare(place: Place, runner: &Path) -> Result<Result<Self, Impossible>> {
        let raise =
            async |names: &[&'static str]| Servers::raise(runner.to_owned(), names).await.map(Arc::new);
        let nodes = [RABBITMQ, RABBITMQ];
        let (scenery, disk) = match place {
            Place::Usual => {
                let servers = raise(&[MYSQL, RABBITMQ]).await?;
                (Scenery { store: Arc::clone(&servers), broker: servers, nodes, disk: None }, None)
            }
            Place::Cluster => {
                let names: Vec<&'static str> = [MYSQL].into_iter().chain(CLUSTER).collect();
                let servers = raise(&names).await?;
                // A leader that is killed takes the connections to one node with it, not both.
                let nodes = [CLUSTER[1], CLUSTER[2]];
                (Scenery { store: Arc::clone(&servers), broker: servers, nodes, disk: None }, None)
            }
            Place::SmallDisk => {
                let small = match SmallDisk::mount() {
                    Ok(disk) => disk,
                    Err(error) => return Ok(Err(Impossible(format!("{error:#}")))),
                };
                let folder = small.path().join("services");
                let store = Arc::new(Servers::raise_in(runner.to_owned(), &[MYSQL], folder).await?);
                let broker = raise(&[RABBITMQ]).await?;
                let disk = Some(small.path());
                (Scenery { store, broker, nodes, disk }, Some(small))
            }
        };
        let mut servers = vec![Arc::clone(&scenery.store)];
        if !Arc::ptr_eq(&scenery.store, &scenery.broker) {
            servers.push(Arc::clone(&scenery.broker));
        }
        Ok(Ok(Self { scenery, servers, disk }))
    }

    /// Ends the servers that were started for it.
    pub async fn leave(self) -> Result<()> {
        for servers in &self.servers {
            servers.put_back().await?;
        }
        drop(self.disk);
        Ok(())
    }
}

/// A file system in memory that a database fits on, and not much more.
struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    fn mount() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display().to_string();
        call("mount", &["-t", "tmpfs", "-o", "size=800m,mode=755", "consign-torture", &path])
            .context("a small file system cannot be mounted, which needs root")?;
        Ok(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().into()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server has ended, and the kernel may not have let go of its last file.
        if let Err(error) = call("umount", &["--lazy", &self.path().display().to_string()]) {
            eprintln!("torture: {error:#}");
        }
    }
}

fn call(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
