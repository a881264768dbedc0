//! `consign demo`: the whole chain on embedded parts, while its processes are killed at random moments.
//!
//! An order service commits purchases with outbox rows; relays and consumers run as child processes that are really
//! killed and started again; repeats and payload conflicts are injected. The figures at the end are queries over
//! the three databases, not counters.

mod audit;
mod orders;
mod processes;
mod world;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::exit::Exit;
use crate::output;

use audit::Audit;
use orders::{OrderService, Purchases};
use processes::{KillPlan, Kind, Processes};
use world::World;

/// What `consign demo` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign demo\n  consign demo --events 5000 --json\n  consign demo --seconds 30 --seed 7 --keep --dir demo-run"
)]
pub struct Arguments {
    /// How many events to produce, injected repeats and conflicts included.
    #[arg(long, default_value_t = 3000, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    events: u32,
    /// Produce for about this many seconds instead of a fixed number of events.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: Option<u64>,
    /// Chooses purchases, repeats, conflicts and the moments of the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the databases, configs and logs go; a temporary folder unless given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the folder.
    #[arg(long)]
    keep: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
}

/// The chain must come to rest within this span after the last event was produced.
const REST_DEADLINE: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// Runs the demo; exit 1 when anything is lost, doubled or unfinished.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let world = World::create(arguments.dir.as_deref(), arguments.keep).await?;
    let mut processes = Processes::start(&world)?;
    let chain = tokio::select! {
        result = drive(&arguments, &world, &mut processes) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    let finished = match chain {
        Ok(finished) => finished,
        Err(error) => {
            processes.kill_all().await;
            return Err(error.context(format!("logs are in {}", world.keep_for_inspection().display())));
        }
    };
    processes.stop_all().await?;
    let audit = Audit::take(&world).await?;
    let kills = (processes.kills(Kind::Relay), processes.kills(Kind::Consumer));
    let good = finished && audit.lost == 0 && audit.doubled == 0 && audit.sent == audit.events;
    if arguments.json {
        let mut document = audit.json();
        let extra = serde_json::json!({
            "relay_kills": kills.0, "consumer_kills": kills.1, "seed": arguments.seed,
            "finished": finished, "seconds": started.elapsed().as_secs_f64(),
        });
        document
            .as_object_mut()
            .expect("an audit is an object")
            .extend(extra.as_object().expect("the extra facts are an object").clone());
        output::print_json(&document)?;
    } else {
        audit.print(kills, started.elapsed())?;
    }
    if !good {
        let folder = world.keep_for_inspection();
        eprintln!(
            "demo: something is lost, doubled or unfinished; databases and logs are in {}",
            folder.display()
        );
        return Ok(Exit::Failed);
    }
    if arguments.keep || arguments.dir.is_some() {
        eprintln!("demo: databases and logs are in {}", world.folder().display());
    }
    Ok(Exit::Fine)
}

/// Produces, kills and watches until the chain is at rest. False when it did not come to rest in time.
async fn drive(arguments: &Arguments, world: &World, processes: &mut Processes) -> anyhow::Result<bool> {
    let mut service = OrderService::open(world).await?;
    let mut purchases = Purchases::new(arguments.seed);
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (produced_sender, mut produced) = tokio::sync::watch::channel(0_u64);
    let events = arguments.events;
    let producer = tokio::spawn(async move {
        loop {
            let done = match until {
                Some(until) => Instant::now() >= until && purchases.produced() >= 20,
                None => purchases.produced() >= u64::from(events),
            };
            if done {
                return anyhow::Ok(purchases.produced());
            }
            purchases.next(&mut service).await?;
            produced_sender.send_replace(purchases.produced());
        }
    });
    let mut plan = KillPlan::new(arguments.seed);
    let mut progress = Progress::new();
    let mut rest_by = None;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let seen = world.glance().await?;
        let made = *produced.borrow_and_update();
        let goal = if until.is_some() { made.max(1) } else { u64::from(events) };
        processes.restart_dead(world)?;
        for (kind, done) in [(Kind::Relay, seen.sent), (Kind::Consumer, seen.applied)] {
            if plan.due(kind, share(done, goal)) {
                processes.kill(kind, &mut plan, world).await?;
            }
        }
        progress.show(made, seen, processes);
        if !producer.is_finished() {
            continue;
        }
        let by = *rest_by.get_or_insert_with(|| Instant::now() + REST_DEADLINE);
        if seen.sent + seen.dead == made && seen.undelivered == 0 {
            // The plan's remaining kills hit idle processes; they are real all the same.
            for kind in [Kind::Relay, Kind::Consumer] {
                while plan.remaining(kind) {
                    processes.kill(kind, &mut plan, world).await?;
                }
            }
            progress.end();
            producer.await.context("the order service panicked")??;
            return Ok(true);
        }
        if Instant::now() > by {
            progress.end();
            if !producer.await.context("the order service panicked").is_ok_and(|made| made.is_ok()) {
                bail!("the order service failed");
            }
            return Ok(false);
        }
    }
}

/// The share of `goal` that is done; both are far below what a float counts exactly.
#[expect(clippy::cast_precision_loss, reason = "event counts of a demo stay below 2^52")]
fn share(done: u64, goal: u64) -> f64 {
    done as f64 / goal as f64
}

/// Live progress on stderr: one line that is rewritten on a terminal, a line a second elsewhere.
struct Progress {
    terminal: bool,
    last: Option<Instant>,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal(), last: None }
    }

    fn show(&mut self, produced: u64, seen: world::Glance, processes: &Processes) {
        let pause = if self.terminal { Duration::from_millis(100) } else { Duration::from_secs(1) };
        if self.last.is_some_and(|last| last.elapsed() < pause) {
            return;
        }
        self.last = Some(Instant::now());
        let line = format!(
            "produced {produced}  sent {}  undelivered {}  applied {}  kills {} relay, {} consumer",
            seen.sent,
            seen.undelivered,
            seen.applied,
            processes.kills(Kind::Relay),
            processes.kills(Kind::Consumer),
        );
        let mut stderr = std::io::stderr().lock();
        // Progress that cannot be shown hinders nobody.
        let _ =
            if self.terminal { write!(stderr, "\r\x1b[2K{line}") } else { writeln!(stderr, "demo: {line}") };
    }

    fn end(&self) {
        if self.terminal {
            eprintln!();
        }
    }
}
