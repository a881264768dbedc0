//! A relay process of its own, as it is run in production, on a bench's table and queue.

use std::fmt::Write;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use tokio::process::{Child, Command};

use super::site::Site;
use crate::config::{Config, Database};

/// What the relay works on.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The outbox table.
    pub table: &'a str,
    /// The exchange, and the name of outbox and destination.
    pub name: &'a str,
    /// The template of the route key.
    pub key: &'a str,
    /// Lines of `[relay]` beyond the configured numbers.
    pub relay: &'a str,
}

/// A running relay; killed when dropped.
pub struct RelayProcess {
    child: Child,
    /// Holds its config.
    _folder: tempfile::TempDir,
}

impl RelayProcess {
    /// Starts the process.
    pub fn start(config: &Config, site: &Site, task: Task<'_>) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("consign.toml");
        std::fs::write(&file, relay_config(config, site, task))?;
        let Database::MySql { url, .. } = &config.store.database else { bail!("the store is MySQL") };
        let child = Command::new(std::env::current_exe()?)
            .args(["relay", "--config"])
            .arg(&file)
            .env("CONSIGN_BENCH_STORE_URL", url.expose())
            .env("CONSIGN_BENCH_BROKER_URL", site.broker.url.expose())
            .env("CONSIGN_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start a relay process")?;
        Ok(Self { child, _folder: folder })
    }

    /// Fails when the process has ended by itself.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the relay process ended by itself: {status}"),
        }
    }

    /// SIGKILL, and waits for the end.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill a relay process")
    }

    /// Lets it drain.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let id = self.child.id().context("the relay process is running")?;
        Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        ensure!(self.child.wait().await?.success(), "the relay process did not drain");
        Ok(())
    }
}

/// Urls come by the environment: they may hold secrets.
fn relay_config(config: &Config, site: &Site, task: Task<'_>) -> String {
    let Task { table, name, key, relay: lines } = task;
    let mut text = String::from("[store]\nurl = \"${CONSIGN_BENCH_STORE_URL}\"\n");
    if let Database::MySql { time_zone, tls_ca_file, .. } = &config.store.database {
        let ca = tls_ca_file.as_ref().map(|path| path.display().to_string());
        text_keys(&mut text, [("time_zone", time_zone.clone()), ("tls_ca_file", ca)]);
    }
    let _ = write!(text, "[[outbox]]\nname = \"{name}\"\ntable = \"{table}\"\n[relay]\n{lines}\n");
    let relay = &config.relay.settings;
    for (key, value) in [
        ("batch_rows", u128::from(relay.batch_rows)),
        ("batch_bytes", relay.batch_bytes as u128),
        ("window", relay.window as u128),
        ("window_bytes", relay.window_bytes as u128),
        ("held_rows", relay.held_rows as u128),
        ("held_bytes", relay.held_bytes as u128),
        ("lease_seconds", relay.lease.as_secs().into()),
        ("publish_deadline_seconds", relay.publish.deadline.as_secs().into()),
        ("margin_seconds", relay.publish.margin.as_secs().into()),
        ("poll_min_milliseconds", relay.poll_min.as_millis()),
        ("poll_max_milliseconds", relay.poll_max.as_millis()),
        ("settle_linger_milliseconds", relay.settle_linger.as_millis()),
    ] {
        let _ = writeln!(text, "{key} = {value}");
    }
    let _ = write!(
        text,
        "[destination.{name}]\ntype = \"rabbitmq\"\nurl = \"${{CONSIGN_BENCH_BROKER_URL}}\"\nchannels = {}\n\
         exchange = {{ name = \"{name}\", type = \"topic\", durable = true }}\n",
        site.broker.channels
    );
    let tls = &site.broker.tls;
    let files = [
        ("tls_ca_file", &tls.ca),
        ("tls_client_cert_file", &tls.client_cert),
        ("tls_client_key_file", &tls.client_key),
    ];
    text_keys(
        &mut text,
        files.map(|(key, path)| (key, path.as_ref().map(|path| path.display().to_string()))),
    );
    let _ = write!(text, "[[route]]\nevent_type = \"*\"\ndestination = \"{name}\"\nkey = \"{key}\"\n");
    text
}

fn text_keys<const N: usize>(text: &mut String, keys: [(&str, Option<String>); N]) {
    for (key, value) in keys {
        if let Some(value) = value {
            let _ = writeln!(text, "{key} = {}", toml::Value::String(value));
        }
    }
}
