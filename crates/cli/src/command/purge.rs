//! `consign purge`: deletes markers that are older than any copy of their events can be, and sent rows that nobody
//! replays any more.
//!
//! - `sent`: sent rows of the outboxes. Markers are here.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Duration;

use consign::shutdown::shutdown;
use consign_store::record::{PurgeMarkers, PurgePlan, PurgeReport};
use futures_util::FutureExt;
use serde_json::json;

use crate::config::{Config, ConfigArguments};
use crate::exit::Exit;
use crate::output;
use crate::{age, parts, signals};

mod sent;

const DAY: u64 = 86_400;

/// What `consign purge` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  consign purge --markers\n  consign purge --markers --yes\n  \
                  consign purge --markers --older-than 90d --batch 500 --yes --json\n  \
                  consign purge --sent --older-than 7d --dry-run\n  consign purge --sent --older-than 7d --yes\n\n\
                  Without --yes nothing is deleted: the number and the oldest date are told. Sent rows go in batches that adapt \
                  so that none holds its locks for longer than some 50 ms; an age below replay_horizon_days is refused with \
                  exit code 2. A marker is what keeps a late \
                  copy of its event from being applied again, so an age below the config's horizon (publishing, consuming \
                  and replay) is refused with exit code 2. Ctrl-C stops between two batches.")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    /// Markers of applied operations.
    #[arg(long, conflicts_with = "sent")]
    markers: bool,
    /// Sent rows of the outboxes.
    #[arg(long)]
    sent: bool,
    /// Those applied or sent longer ago than this, such as 30d [default: retention_days of [inbox] or [[outbox]]].
    #[arg(long, value_name = "AGE", value_parser = age::parse)]
    older_than: Option<Duration>,
    /// Markers looked at and deleted in one transaction; the most sent rows.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Delete, rather than tell what would be deleted.
    #[arg(long)]
    yes: bool,
    /// Tell what would be deleted, which is what happens without --yes.
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Plans or purges.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    if arguments.sent {
        let purge = sent::Purge {
            older_than: arguments.older_than,
            rows_max: arguments.batch,
            delete: arguments.yes && !arguments.dry_run,
            json: arguments.json,
        };
        return sent::run(&config, &purge).await;
    }
    let retention = match retention(&config, &arguments) {
        Ok(retention) => retention,
        Err(refusal) => {
            eprintln!("error: {refusal}");
            return Ok(Exit::Usage);
        }
    };
    let purge = PurgeMarkers { retention, page: arguments.batch, limit: None };
    if arguments.yes {
        self::purge(&config, &purge, arguments.json).await
    } else {
        plan(&config, &purge, arguments.json).await
    }
}

/// The age beyond which markers go, unless a late copy of their events may still come.
fn retention(config: &Config, arguments: &Arguments) -> Result<Duration, String> {
    if !arguments.markers {
        return Err(
            "say what to purge: --markers purges markers of applied operations, --sent purges sent rows of the outboxes"
                .into(),
        );
    }
    let retention = arguments.older_than.or(config.inbox.retention).ok_or(
        "how long markers are kept is not set: set retention_days under [inbox], or give --older-than, such as 30d",
    )?;
    if !config.consumers.is_empty() && retention < config.horizon.total() {
        return Err(format!(
            "markers of {} ({} s) are still needed: copies of an event may come for {}, and one that comes after its marker is \
             gone is applied again; give --older-than {}d or more, or lower replay_horizon_days",
            age::shown(retention),
            retention.as_secs(),
            config.horizon,
            config.horizon.total().as_secs().div_ceil(DAY)
        ));
    }
    Ok(retention)
}

async fn plan(config: &Config, purge: &PurgeMarkers, json: bool) -> anyhow::Result<Exit> {
    let store = parts::open_store(config).await?;
    let PurgePlan { examined, old, undated, oldest_applied_at } = store.plan_purge(config, purge).await?;
    if json {
        output::print_json(&json!({
            "older_than_seconds": purge.retention.as_secs(), "would_purge": old, "examined": examined,
            "undated": undated, "oldest_applied_at": oldest_applied_at, "purged": 0,
        }))?;
    } else {
        let oldest = oldest_applied_at.map_or_else(String::new, |at| format!(", the oldest applied at {at}"));
        output::print(format!(
            "{old} of {examined} markers are older than {}{oldest}\n",
            age::shown(purge.retention)
        ))?;
    }
    tell_undated(undated);
    if old > 0 {
        eprintln!("nothing was deleted: add --yes to do it");
    }
    Ok(Exit::Fine)
}

async fn purge(config: &Config, purge: &PurgeMarkers, json: bool) -> anyhow::Result<Exit> {
    let store = parts::open_store(config).await?;
    let (trigger, stop) = shutdown();
    signals::watch_between_steps(trigger)?;
    let progress = Progress::new();
    let observe = |report: &PurgeReport| {
        progress.tell(report);
        match stop.clone().requested().now_or_never() {
            Some(()) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    };
    let report = store.purge_markers(config, purge, observe).await?;
    let PurgeReport { examined, purged, undated, pages, finished } = report;
    if json {
        output::print_json(&json!({
            "older_than_seconds": purge.retention.as_secs(), "purged": purged, "examined": examined,
            "undated": undated, "batches": pages, "finished": finished,
        }))?;
    } else {
        output::print(format!("purged {purged} of {examined} markers in {pages} batches\n"))?;
    }
    tell_undated(undated);
    if finished {
        return Ok(Exit::Fine);
    }
    eprintln!("stopped after {purged} markers, between two batches; start it again for the rest");
    Ok(Exit::Failed)
}

fn tell_undated(undated: u64) {
    if undated > 0 {
        eprintln!(
            "{undated} markers have no applied_at and are never purged: they are from before the column"
        );
    }
}

/// Progress on stderr: every so many batches, and only where somebody watches or a log is kept.
struct Progress {
    every: u64,
}

impl Progress {
    /// More often for eyes than for a log.
    fn new() -> Self {
        Self { every: if std::io::stderr().is_terminal() { 10 } else { 100 } }
    }

    fn tell(&self, report: &PurgeReport) {
        if report.pages > 0 && report.pages.is_multiple_of(self.every) {
            eprintln!("purged {} markers so far, looked at {}", report.purged, report.examined);
        }
    }
}
