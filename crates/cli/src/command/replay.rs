//! `consign replay`: SENT events go back to NEW, and a relay publishes them again under the same event ids.
//!
//! - `window`: which events, by date, and where a stopped replay goes on.

use std::time::Duration;

use anyhow::bail;
use consign_core::event::EventId;
use consign_store::record::Audit;
use consign_store::replay::{ReplayEvent, ReplayFilter};
use serde_json::json;

use crate::actor::ActorArguments;
use crate::config::{Config, ConfigArguments, OutboxConfig};
use crate::exit::Exit;
use crate::output::{self, Progress};
use crate::pace::{Pace, Rate, parse_rate};
use crate::parts::{self, Store};

mod window;

use window::{Key, Moment, Window};

/// Rows read at once while the table is walked.
const PAGE: u32 = 5_000;
/// More ids than this do not fit one statement.
const IDS_MAX: usize = 1_000;
const DAY: u64 = 86_400;

/// What `consign replay` is asked to do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  consign replay --type OrderCreated --since 1h --dry-run\n  \
                  consign replay --type OrderCreated --since 1h --rate 200/s --note TICKET-812\n  \
                  consign replay --id e-17 --id e-18\n  consign replay --aggregate 42 --until \"2026-03-01 12:00\"\n\n\
                  Consumers that applied an event before see a repeat, as long as their markers are kept: events older than \
                  replay_horizon_days are refused with exit code 2 unless --force is given.\n\n\
                  It works in small batches, each a transaction with its lines of consign_audit. Ctrl-C stops between two and \
                  tells the key with which --after goes on; after a kill the last key told repeats what was replayed \
                  since, two seconds' worth; the audit holds the exact place.")]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(flatten)]
    choice: Choice,
    /// Not faster than this, such as 50/s or 300/m.
    #[arg(long, value_name = "N/s", default_value = "100/s", value_parser = parse_rate)]
    rate: Rate,
    /// Go on behind this key, which an earlier replay told; the other filters must be the same.
    #[arg(long, value_name = "KEY", value_parser = window::parse_key, conflicts_with_all = ["since", "until"])]
    after: Option<Key>,
    /// Tell how many events, from when to when, and how long it takes; change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Replay events whose markers may be gone: consumers may apply them a second time.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    actor: ActorArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Which events.
#[derive(Debug, clap::Args)]
struct Choice {
    /// This event; may be repeated.
    #[arg(long = "id", value_name = "EVENT_ID")]
    ids: Vec<String>,
    /// Of this event type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Of this aggregate.
    #[arg(long, value_name = "ID")]
    aggregate: Option<String>,
    /// That name this destination in their row.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Sent since then: an age such as 1h, or a date such as "2026-03-01 12:00" in the time zone of the store.
    #[arg(long, value_name = "WHEN", value_parser = window::parse_moment)]
    since: Option<Moment>,
    /// Sent until then.
    #[arg(long, value_name = "WHEN", value_parser = window::parse_moment)]
    until: Option<Moment>,
    /// In this outbox; needed where there are several.
    #[arg(long, value_name = "NAME")]
    outbox: Option<String>,
}

/// What is to be replayed.
#[derive(Debug, Default)]
struct Plan {
    events: u64,
    oldest: Option<ReplayEvent>,
    newest: Option<String>,
}

/// How far a replay got.
#[derive(Debug, Default)]
struct Done {
    replayed: u64,
    passed_over: u64,
    key: Option<String>,
    finished: bool,
}

/// Plans or replays.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    if let Some(mistake) = arguments.mistake() {
        eprintln!("error: {mistake}");
        return Ok(Exit::Usage);
    }
    let outbox = outbox(&config, arguments.choice.outbox.as_deref())?;
    let store = parts::open_store(&config).await?;
    let mut replay = Replay::open(&store, outbox, &arguments).await?;
    let plan = replay.plan().await?;
    let Some(plan) = plan else {
        eprintln!("stopped while counting: nothing was done");
        return Ok(Exit::Failed);
    };
    let refusal = refusal(&config, &plan).filter(|_| !arguments.force);
    if arguments.dry_run {
        replay.tell_plan(&plan, refusal.as_deref(), &arguments)?;
        return Ok(Exit::Fine);
    }
    if let Some(refusal) = refusal {
        eprintln!("error: {refusal}");
        return Ok(Exit::Usage);
    }
    let done = replay.carry_out(&plan, &arguments.actor.audit()).await?;
    replay.tell(&plan, &done, arguments.json)
}

impl Arguments {
    fn mistake(&self) -> Option<String> {
        let Choice { ids, event_type, aggregate, destination, since, until, .. } = &self.choice;
        let dated = since.is_some() || until.is_some() || self.after.is_some();
        let named = event_type.is_some() || aggregate.is_some() || destination.is_some();
        if ids.len() > IDS_MAX {
            return Some(format!("{} ids are more than {IDS_MAX}: give fewer at once", ids.len()));
        }
        (ids.is_empty() && !named && !dated).then(|| {
            "say which events: --id, --type, --aggregate, --destination, --since or --until".to_owned()
        })
    }
}

fn outbox<'a>(config: &'a Config, name: Option<&str>) -> anyhow::Result<&'a OutboxConfig> {
    let names = || config.outboxes.iter().map(|outbox| outbox.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, config.outboxes.as_slice()) {
        (None, [only]) => Ok(only),
        (None, _) => bail!("there are several outboxes: give --outbox with one of {}", names()),
        (Some(name), outboxes) => match outboxes.iter().find(|outbox| outbox.name == name) {
            Some(outbox) => Ok(outbox),
            None => bail!("there is no outbox {name:?}: the config has {}", names()),
        },
    }
}

/// Why the plan must not be carried out, when a marker of one of its events may be gone.
fn refusal(config: &Config, plan: &Plan) -> Option<String> {
    let horizon = config.inbox.replay_horizon;
    let oldest = plan.oldest.as_ref().filter(|oldest| oldest.age > horizon)?;
    let kept = config.inbox.retention.map_or_else(
        || "are kept for ever unless somebody purges them".to_owned(),
        |retention| format!("are kept for {} days", retention.as_secs() / DAY),
    );
    Some(format!(
        "the oldest event chosen, {}, is {:.1} days old ({}), and replay_horizon_days is {}: markers {kept}, and an event that \
         comes after its marker is gone is applied again; narrow with --since {}d, raise replay_horizon_days together with \
         retention_days, or give --force",
        oldest.event_id,
        oldest.age.as_secs_f64() / Duration::from_hours(24).as_secs_f64(),
        oldest.at,
        horizon.as_secs() / DAY,
        horizon.as_secs() / DAY,
    ))
}

/// One walk over one table.
struct Replay<'a> {
    store: &'a Store,
    outbox: &'a OutboxConfig,
    filter: ReplayFilter,
    window: Window,
    after: Option<String>,
    rate: Rate,
    pace: Pace,
    /// The column that dates an event.
    dated_by: &'static str,
}

impl<'a> Replay<'a> {
    async fn open(store: &'a Store, outbox: &'a OutboxConfig, arguments: &Arguments) -> anyhow::Result<Self> {
        let choice = &arguments.choice;
        let shape = store.outbox_shape(outbox).await?;
        if choice.destination.is_some() && !shape.has("destination") {
            bail!(
                "{} has no column destination: leave out --destination, or run `consign migrate`",
                outbox.table
            );
        }
        let dated_by = if shape.has("sent_at") { "sent_at" } else { "created_at" };
        if dated_by == "created_at" {
            eprintln!(
                "note: {} has no column sent_at: events are dated by created_at; `consign migrate` adds it",
                outbox.table
            );
        }
        let (window, after) = if let Some(key) = &arguments.after {
            (key.window.clone(), Some(key.position.clone()))
        } else {
            // An end that is set once keeps the replay from what was sent after it began.
            let until = choice.until.clone().unwrap_or(Moment::Ago(Duration::ZERO));
            let from = match &choice.since {
                Some(since) => Some(date(store, outbox, since).await?),
                None => None,
            };
            (Window { from, until: date(store, outbox, &until).await? }, None)
        };
        let filter = ReplayFilter {
            ids: choice.ids.iter().map(|id| EventId::stored(id.as_str())).collect(),
            event_type: choice.event_type.clone(),
            aggregate: choice.aggregate.clone(),
            destination: choice.destination.clone(),
            from: window.from.clone(),
            until: Some(window.until.clone()),
        };
        let pace = Pace::new(Some(arguments.rate))?;
        Ok(Self { store, outbox, filter, window, after, rate: arguments.rate, pace, dated_by })
    }

    /// Counts what is chosen. `None` when somebody asked to stop.
    async fn plan(&self) -> anyhow::Result<Option<Plan>> {
        let mut plan = Plan::default();
        let mut progress = Progress::new();
        let mut after = self.after.clone();
        loop {
            let page = self.store.replay_page(self.outbox, &self.filter, after.as_deref(), PAGE).await?;
            for event in page.chosen {
                plan.events += 1;
                if plan.newest.as_ref().is_none_or(|newest| *newest < event.at) {
                    plan.newest = Some(event.at.clone());
                }
                if plan.oldest.as_ref().is_none_or(|oldest| oldest.age < event.age) {
                    plan.oldest = Some(event);
                }
            }
            if !page.more {
                return Ok(Some(plan));
            }
            if self.pace.is_stopped() {
                return Ok(None);
            }
            progress.tell(|| format!("counting: {} events so far", plan.events));
            after = page.last;
        }
    }

    /// Replays batch by batch until the end of the walk, or until somebody asks to stop.
    async fn carry_out(&mut self, plan: &Plan, audit: &Audit) -> anyhow::Result<Done> {
        let mut done = Done::default();
        let mut progress = Progress::new();
        let mut after = self.after.clone();
        loop {
            let page = self.store.replay_page(self.outbox, &self.filter, after.as_deref(), PAGE).await?;
            for batch in page.chosen.chunks(self.pace.batch()) {
                if !self.pace.next(batch.len()).await {
                    return Ok(done);
                }
                let ids: Vec<EventId> = batch.iter().map(|event| event.event_id.clone()).collect();
                let replayed = self.store.replay_events(self.outbox, &ids, audit).await;
                let replayed = replayed.inspect_err(|_| tell_key(&done))?;
                done.replayed += replayed.len() as u64;
                done.passed_over += (ids.len() - replayed.len()) as u64;
                done.key = batch.last().map(|event| self.window.key(&event.position));
                progress.tell(|| {
                    let key = done.key.as_deref().unwrap_or_default();
                    format!("replayed {} of {} so far; --after {key}", done.replayed, plan.events)
                });
            }
            if !page.more {
                done.finished = true;
                return Ok(done);
            }
            after = page.last;
        }
    }

    fn tell_plan(&self, plan: &Plan, refusal: Option<&str>, arguments: &Arguments) -> anyhow::Result<()> {
        let seconds = self.rate.span(plan.events).as_secs_f64();
        let oldest = plan.oldest.as_ref().map(|event| event.at.as_str());
        if arguments.json {
            output::print_json(&json!({
                "dry_run": true, "events": plan.events, "oldest": oldest, "newest": plan.newest,
                "dated_by": self.dated_by, "from": self.window.from, "until": self.window.until,
                "seconds": seconds, "refused": refusal,
            }))?;
        } else {
            let span = match (oldest, &plan.newest) {
                (Some(oldest), Some(newest)) => format!(", {} from {oldest} to {newest}", self.dated_by),
                _ => String::new(),
            };
            output::print(format!("{} events would be replayed in {seconds:.1} s{span}\n", plan.events))?;
            if let Some(refusal) = refusal {
                eprintln!("note: without --force it would be refused: {refusal}");
            }
        }
        eprintln!("nothing was done: leave out --dry-run to do it");
        Ok(())
    }

    fn tell(&self, plan: &Plan, done: &Done, json: bool) -> anyhow::Result<Exit> {
        if json {
            output::print_json(&json!({
                "dry_run": false, "events": plan.events, "replayed": done.replayed,
                "passed_over": done.passed_over, "finished": done.finished, "after": done.key,
                "dated_by": self.dated_by,
            }))?;
        } else {
            output::print(format!("replayed {} of {} events\n", done.replayed, plan.events))?;
        }
        if done.passed_over > 0 {
            eprintln!("{} were no longer SENT when their turn came: they were passed over", done.passed_over);
        }
        if done.finished {
            return Ok(Exit::Fine);
        }
        tell_key(done);
        Ok(Exit::Failed)
    }
}

fn tell_key(done: &Done) {
    match &done.key {
        Some(key) => eprintln!("stopped after {} events; go on with --after {key}", done.replayed),
        None => eprintln!("stopped before the first batch: nothing was done"),
    }
}

async fn date(store: &Store, outbox: &OutboxConfig, moment: &Moment) -> anyhow::Result<String> {
    match moment {
        Moment::Ago(age) => store.moment(outbox, *age).await,
        Moment::Date(date) => Ok(date.clone()),
    }
}
