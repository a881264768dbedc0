//! `consign lab`: every window between a commit, a message and an effect, opened on purpose, the naive way and with
//! consign.
//!
//! - `scenario`: the windows, one file each; `rig`: runs a side as processes that really die; `life`: such a process
//! - `chain`, `shop`: the side with consign; `mailbox`, `memory`, `database`: what hand-written code uses
//! - `site`, `place`: where a side runs; `audit`: what it came to; `record`: what happened when

mod audit;
mod chain;
mod database;
pub mod life;
mod mailbox;
mod memory;
mod place;
mod record;
mod rig;
mod scenario;
mod shop;
mod site;

use anyhow::anyhow;
use futures_util::{StreamExt, TryStreamExt};
use serde_json::json;

use crate::exit::Exit;
use crate::output::{self, Table};

use life::Side;
use place::{Address, Backend};
use rig::Ran;
use scenario::Id;
use site::{Servers, Site};

/// What `consign lab` is asked to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only this scenario, or this backend: embedded, rabbitmq or redis. May be repeated.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// How many sides run at a time.
const SIDE_BY_SIDE: usize = 4;

/// A scenario on a backend.
struct Compared {
    id: Id,
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
    let servers = Servers::default();
    let site = Site::new(servers.clone())?;
    let backends = servers.backends();
    site.reach(&backends).await?;
    let pairs = Id::ALL.iter().flat_map(|id| backends.iter().map(move |backend| (*id, *backend)));
    let pairs = pairs.filter(|(id, backend)| id.backends().contains(backend));
    let site = &site;
    let running = futures_util::stream::iter(pairs)
        .map(|(id, backend)| async move {
            let naive = rig::run(site, backend, id, Side::Naive).await?;
            let consign = rig::run(site, backend, id, Side::Consign).await?;
            anyhow::Ok(Compared { id, backend, naive, consign })
        })
        .buffered(SIDE_BY_SIDE)
        .try_collect();
    let compared: Vec<Compared> = tokio::select! {
        compared = running => compared?,
        _ = tokio::signal::ctrl_c() => return Err(anyhow!("interrupted")),
    };
    let passed = compared.iter().all(Compared::passed);
    let scenarios: Vec<_> = compared
        .iter()
        .map(|compared| {
            json!({
                "id": compared.id.name(), "backend": compared.backend.name(),
                "naive": compared.naive.found, "consign": compared.consign.found,
            })
        })
        .collect();
    output::print_json(&json!({ "scenarios": scenarios, "passed": passed }))?;
    Ok(if passed { Exit::Fine } else { Exit::Failed })
}
