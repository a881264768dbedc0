//! SIGTERM and Ctrl-C: the first asks for a drain, the second ends the process at once.

use consign::shutdown::ShutdownTrigger;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a process that a second signal ended.
const FORCED: i32 = 1;

/// Watches for signals in a task of its own.
pub fn watch(trigger: ShutdownTrigger) -> anyhow::Result<()> {
    watch_with(
        trigger,
        "draining: no more claims, waiting for what is in flight; a second signal ends at once",
        "second signal: ending at once; leased rows come back by a sweep",
    )
}

/// The same for a short command that works in small steps, each of which is whole.
pub fn watch_between_steps(trigger: ShutdownTrigger) -> anyhow::Result<()> {
    watch_with(
        trigger,
        "stopping after this step; a second signal ends at once",
        "second signal: ending at once; the step at hand may or may not have been committed",
    )
}

fn watch_with(trigger: ShutdownTrigger, first: &'static str, second: &'static str) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if asked {
                tracing::warn!("{second}");
                std::process::exit(FORCED);
            }
            asked = true;
            tracing::info!("{first}");
            trigger.request();
        }
    });
    Ok(())
}
