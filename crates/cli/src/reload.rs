//! SIGHUP: routes, retry policies and the relay's limits are read again while everything runs.

use anyhow::{Context, bail};
use consign::reload::{Changes, ReloadTrigger};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, ConfigArguments, Difference, Written};

/// Watches for SIGHUP in a task of its own and gives the relays what changed since `running`.
pub fn watch(arguments: ConfigArguments, running: &Config, trigger: ReloadTrigger) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?;
    let mut running = running.written.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match reload(&arguments, &running) {
                Ok((config, changes)) if changes.is_empty() => {
                    tracing::info!("reloaded: nothing changed");
                    running = config.written;
                }
                Ok((config, changes)) => {
                    tracing::info!("reloaded: {}", changes.join(", "));
                    running = config.written;
                    trigger.give(Changes { settings: config.relay.settings, routes: config.routes });
                }
                Err(error) => {
                    tracing::error!(error = %format_args!("{error:#}"), "reload refused, the old config goes on");
                }
            }
        }
    });
    Ok(())
}

fn reload(arguments: &ConfigArguments, running: &Written) -> anyhow::Result<(Config, Vec<String>)> {
    let config = arguments.load()?;
    match running.difference(&config.written) {
        Difference::Changeable(changes) => Ok((config, changes)),
        Difference::NeedsRestart(keys) => {
            bail!("{} cannot change while it runs: restart to change that", keys.join(", "))
        }
    }
}
