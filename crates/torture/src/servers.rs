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

/// The servers of this run; those that it started are ended by [`Servers::put_back`].
#[derive(Debug)]
pub struct Servers {
    runner: PathBuf,
    started: Vec<&'static str>,
}

impl Servers {
    /// Brings the servers up, by the task runner at `runner`.
    pub async fn raise(runner: PathBuf, names: &[&'static str]) -> Result<Self> {
        let mut servers = Self { runner, started: Vec::new() };
        for &name in names {
            if servers.status(name).await?["state"] == "down" {
                servers.started.push(name);
            }
        }
        let up: Vec<&str> = ["up"].into_iter().chain(names.iter().copied()).collect();
        servers.run(&up).await?;
        Ok(servers)
    }

    /// Runs `services` with these arguments; an error unless it succeeds.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.runner)
            .arg("services")
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await
            .with_context(|| format!("cannot run {}", self.runner.display()))?;
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
