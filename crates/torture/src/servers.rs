//! Power over the servers, by `cargo xtask services`: this program only says what is to happen to them.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

/// The database server.
pub const MYSQL: &str = "mysql";
/// The broker.
pub const RABBITMQ: &str = "rabbitmq4";
/// The nodes of the broker's cluster.
pub const CLUSTER: [&str; 3] = ["rabbitmqc1", "rabbitmqc2", "rabbitmqc3"];

const PORT_BASE: &str = "CONSIGN_SERVICES_PORT_BASE";
/// As far as the ports of one set of servers reach.
const PORTS_APART: u16 = 500;

/// The servers of this run; those that it started are ended by [`Servers::put_back`].
#[derive(Debug)]
pub struct Servers {
    runner: PathBuf,
    /// Another set of servers than the usual one: its folder, and how far its ports are from the usual ones.
    apart: Option<(PathBuf, u16)>,
    started: Vec<&'static str>,
}

impl Servers {
    /// Brings the servers up, by the task runner at `runner`.
    pub async fn raise(runner: PathBuf, names: &[&'static str]) -> Result<Self> {
        Self { runner, apart: None, started: Vec::new() }.up(names).await
    }

    /// The same for a set of servers of its own, all of whose files are in `folder`.
    pub async fn raise_in(runner: PathBuf, names: &[&'static str], folder: PathBuf) -> Result<Self> {
        Self { runner, apart: Some((folder, PORTS_APART)), started: Vec::new() }.up(names).await
    }

    async fn up(mut self, names: &[&'static str]) -> Result<Self> {
        for &name in names {
            if self.status(name).await?["state"] == "down" {
                self.started.push(name);
            }
        }
        let up: Vec<&str> = ["up"].into_iter().chain(names.iter().copied()).collect();
        if let Err(error) = self.run(&up).await {
            self.put_back().await?;
            return Err(error);
        }
        Ok(self)
    }

    /// Runs `services` with these arguments; an error unless it succeeds.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.runner);
        command.arg("services").args(arguments).stdin(Stdio::null());
        if let Some((folder, ports)) = &self.apart {
            let usual = std::env::var(PORT_BASE).ok().and_then(|text| text.parse::<u16>().ok());
            let base = usual.with_context(|| format!("{PORT_BASE} is not a port number"))?;
            command.env("CONSIGN_SERVICES_DIR", folder).env(PORT_BASE, (base + ports).to_string());
        }
        let output =
            command.output().await.with_context(|| format!("cannot run {}", self.runner.display()))?;
        if !output.status.success() {
            bail!("services {arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Where a server is.
    pub async fn url(&self, name: &str) -> Result<String> {
        let status = self.status(name).await?;
        Ok(status["url"].as_str().context("services status gives a url")?.to_owned())
    }

    async fn status(&self, name: &str) -> Result<Value> {
        let text = self.run(&["status", "--json", name]).await?;
        let mut status: Value = serde_json::from_str(&text).context("services status gives JSON")?;
        Ok(status[0].take())
    }

    /// Ends what was started; what ran before goes on running.
    pub async fn put_back(&self) -> Result<()> {
        if self.started.is_empty() {
            return Ok(());
        }
        let down: Vec<&str> = ["down"].into_iter().chain(self.started.iter().copied()).collect();
        self.run(&down).await.map(drop)
    }
}
