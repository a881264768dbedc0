//! `consign lab`: every window between a commit, a message and an effect, opened on purpose, the naive way and with
//! consign.
//!
//! - `scenario`: the windows, one file each; `rig`: runs a side as processes that really die; `life`: such a process
//! - `halves`: transaction messages of RocketMQ, both ways
//! - `chain`, `shop`: the side with consign; `mailbox`, `memory`, `database`: what hand-written code uses
//! - `site`, `place`, `servers`: where a side runs; `line`: what breaks around it
//! - `audit`: what a side came to; `record`: what happened when; `report`, `html`, `text`: how it is told

mod audit;
mod chain;
mod database;
mod halves;
mod html;
pub mod life;
mod line;
mod mailbox;
mod memory;
mod place;
mod record;
mod report;
mod rig;
mod scenario;
mod servers;
mod shop;
mod site;
mod text;

use std::cmp::Reverse;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use futures_util::{StreamExt, TryStreamExt};

use crate::exit::Exit;

use life::Side;
use place::Backend;
use report::Report;
use rig::Ran;
use scenario::Window;
use servers::{Refused, ServerArguments, Servers, refused};
use site::Site;
use text::Language;

/// What `consign lab` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign lab\n  consign lab --only commit-then-send --json\n  consign lab --html lab.html --language zh\n  \
                  consign lab --mysql 'mysql://root:${PASSWORD}@127.0.0.1:3306/mysql' --rabbitmq amqp://127.0.0.1/ --only rabbitmq\n  \
                  consign lab --only rocketmq --mysql mysql://root@127.0.0.1:3306/mysql --rocketmq rocketmq://127.0.0.1:8081 \
                  --rocketmq-name-servers 127.0.0.1:9876\n\n\
                  Without servers everything runs on SQLite and the embedded queue. Exit code 1: a naive side did not show its \
                  defect, or a side with consign has one."
)]
pub struct Arguments {
    /// Only this scenario, or this backend: embedded, rabbitmq or rocketmq (with MySQL), or redis (with MySQL and RabbitMQ).
    /// May be repeated. A backend without named servers takes those of `cargo xtask services urls`.
    #[arg(long, value_name = "ID|BACKEND")]
    only: Vec<String>,
    #[command(flatten)]
    servers: ServerArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Write a report with pictures of what happened when: one HTML file that needs nothing else.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The language of the table and the report.
    #[arg(long, value_enum, default_value_t)]
    language: Language,
}

/// How many scenarios run at a time.
const SIDE_BY_SIDE: usize = 4;
/// The same on RocketMQ, where sides mostly wait for invisible times to end; each has a topic and a group of its own.
const SIDE_BY_SIDE_WAITING: usize = 8;

/// A scenario on a backend, and what its two sides came to.
struct Compared {
    id: Window,
    backend: Backend,
    naive: Ran,
    consign: Ran,
}

impl Compared {
    /// The naive side shows its defect, and the other one has none.
    fn passed(&self) -> bool {
        !self.naive.found.is_good() && self.consign.found.is_good()
    }
}

/// Runs the scenarios.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match compare(&arguments).await {
        Ok(compared) => {
            let report = Report { compared: &compared };
            if arguments.json {
                report.print_json()?;
            } else {
                report.print_table(arguments.language)?;
            }
            if let Some(file) = &arguments.html {
                std::fs::write(file, html::document(&report, arguments.language))
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            Ok(if report.passed() { Exit::Fine } else { Exit::Failed })
        }
        Err(error) if error.is::<Refused>() => {
            eprintln!("error: {error}");
            Ok(Exit::Usage)
        }
        Err(error) => Err(error),
    }
}

async fn compare(arguments: &Arguments) -> anyhow::Result<Vec<Compared>> {
    let on_servers = |word: &String| match Window::from_str(word, false) {
        Ok(id) => !id.backends().contains(&Backend::Embedded),
        Err(_) => Backend::ALL.iter().any(|it| *it != Backend::Embedded && it.name() == word),
    };
    let servers = Servers::of(&arguments.servers, arguments.only.iter().any(on_servers))?;
    let chosen = choose(&arguments.only, &servers)?;
    let site = &Site::new(servers)?;
    site.reach(&chosen.iter().map(|(_, backend)| *backend).collect::<Vec<_>>()).await?;
    let (mut waiting, busy): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|(_, backend)| *backend == Backend::RocketMq);
    // Behind each death is a wait: the longest come first.
    waiting.sort_by_key(|(id, _)| Reverse(id.deaths(Side::Naive)));
    let running = async {
        let (mut compared, waited) = tokio::try_join!(
            compare_all(site, busy, SIDE_BY_SIDE),
            compare_all(site, waiting, SIDE_BY_SIDE_WAITING)
        )?;
        compared.extend(waited);
        compared
            .sort_by_key(|compared| (Window::ALL.iter().position(|id| *id == compared.id), compared.backend));
        anyhow::Ok(compared)
    };
    let compared = tokio::select! {
        compared = running => compared,
        _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted")),
    };
    let cleared = site.clear().await;
    let compared = compared?;
    cleared?;
    Ok(compared)
}

async fn compare_all(
    site: &Site,
    chosen: Vec<(Window, Backend)>,
    side_by_side: usize,
) -> anyhow::Result<Vec<Compared>> {
    let comparing = futures_util::stream::iter(chosen).map(|(id, backend)| async move {
        let sides = (rig::run(site, backend, id, Side::Naive), rig::run(site, backend, id, Side::Consign));
        let (naive, consign) = if backend == Backend::RocketMq {
            tokio::try_join!(sides.0, sides.1)?
        } else {
            (sides.0.await?, sides.1.await?)
        };
        anyhow::Ok(Compared { id, backend, naive, consign })
    });
    comparing.buffer_unordered(side_by_side).try_collect().await
}

/// What is run: every scenario on every backend there is, or what `--only` leaves of that.
fn choose(only: &[String], servers: &Servers) -> anyhow::Result<Vec<(Window, Backend)>> {
    let (mut ids, mut backends) = (Vec::new(), Vec::new());
    for word in only {
        match (Window::from_str(word, false), Backend::ALL.into_iter().find(|backend| backend.name() == word))
        {
            (_, Some(backend)) => backends.push(backend),
            (Ok(id), None) => ids.push(id),
            (Err(_), None) => {
                let known: Vec<&str> = Window::ALL.iter().map(|id| id.name()).collect();
                let text = format!(
                    "{word:?} is neither embedded, rabbitmq, redis, rocketmq nor one of {}",
                    known.join(", ")
                );
                return Err(refused("--only", text));
            }
        }
    }
    let available = servers.backends();
    if let Some(missing) = backends.iter().find(|backend| !available.contains(backend)) {
        let needs = match missing {
            Backend::Redis => "--mysql, --rabbitmq and --redis",
            Backend::RocketMq => "--mysql, --rocketmq and --rocketmq-name-servers",
            Backend::RabbitMq | Backend::Embedded => "--mysql and --rabbitmq",
        };
        return Err(refused(
            "--only",
            format!("{} needs {needs}, or a --config that has them", missing.name()),
        ));
    }
    let chosen: Vec<_> = Window::ALL
        .iter()
        .filter(|id| ids.is_empty() || ids.contains(id))
        .flat_map(|id| id.backends().iter().map(|backend| (*id, *backend)))
        .filter(|(_, backend)| {
            available.contains(backend) && (backends.is_empty() || backends.contains(backend))
        })
        .collect();
    if chosen.is_empty() {
        return Err(refused(
            "--only",
            "nothing is left to run: this scenario's window exists on other backends",
        ));
    }
    Ok(chosen)
}
