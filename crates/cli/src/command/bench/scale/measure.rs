//! The measurements: claims on two tables in turn, so that whatever else the machine does hits both.

use std::time::{Duration, Instant};

use anyhow::ensure;
use consign::clock::ProcessClock;
use consign::draw::SystemDraw;
use consign_core::lease::ClaimRequest;
use consign_core::ports::OutboxStore;
use consign_core::time::Draw;
use consign_store::mysql::Outbox;

use crate::command::bench::median;

use super::purge::Purge;
use super::scratch::{BACKLOG, EMPTY, Fill, LOCKED, SENT, Scratch};

/// Rows of one claim.
const BATCH: u32 = 200;
/// Claims on each table. Every 32nd reads the index from its beginning, so a mean over this many counts it fairly.
const CLAIMS: u32 = 128;
/// Claims before that, in which connections and statements are prepared.
const WARMING: u32 = 4;
/// Rows that the purge deletes.
const PURGED: u32 = 1_000_000;
/// The purge rests so many times.
const RESTS: u32 = 8;
/// Between two claims beside the purge, and when it rests.
const PAUSE: Duration = Duration::from_millis(100);
/// Claims while the purge rests.
const RESTING_CLAIMS: u32 = 40;
/// Claims beside the purge at most; it needs rows.
const PURGING_CLAIMS_MAX: u32 = 1_000;

/// What was measured.
#[derive(Debug, Default)]
pub struct Figures {
    /// The median claim of a table that holds nothing else.
    pub claim_seconds_empty: f64,
    /// The median cost among SENT rows, in claims without.
    pub claim_ratio_sent: f64,
    /// The median cost with a backlog, in claims without.
    pub claim_ratio_backlog: f64,
    /// The mean cost behind locked rows, in claims without.
    pub claim_ratio_locked: f64,
    /// The mean cost beside a purge, in claims while it rests.
    pub purge_slowdown: f64,
    /// Rows the purge deleted.
    pub purged: u64,
    /// How fast it was.
    pub purged_per_second: f64,
}

/// Runs everything.
pub async fn scale(scratch: &Scratch, sent: u32, backlog: u32, locked: u32) -> anyhow::Result<Figures> {
    fill(scratch, sent, backlog, locked).await?;
    let mut figures = Figures::default();

    eprintln!("bench: claims behind {locked} locked rows and before as many delayed ones");
    let holder = scratch.hold(LOCKED, "locked", locked).await?;
    let behind = in_turns(scratch, LOCKED).await?;
    holder.rollback().await?;
    figures.claim_ratio_locked = mean(&behind.table) / mean(&behind.empty);

    eprintln!("bench: claims with a backlog of {backlog} rows");
    let beside = in_turns(scratch, BACKLOG).await?;
    figures.claim_ratio_backlog = median(&beside.table) / median(&beside.empty);

    eprintln!("bench: claims among {sent} SENT rows");
    let among = in_turns(scratch, SENT).await?;
    figures.claim_ratio_sent = median(&among.table) / median(&among.empty);
    let empty = [behind.empty, beside.empty, among.empty].concat();
    figures.claim_seconds_empty = median(&empty);

    eprintln!("bench: claims beside a purge of {} SENT rows", sent.min(PURGED));
    Box::pin(purge(scratch, &mut figures)).await?;
    Ok(figures)
}

async fn fill(scratch: &Scratch, sent: u32, backlog: u32, locked: u32) -> anyhow::Result<()> {
    const HOUR: i32 = 3_600;
    let taken = (CLAIMS + WARMING) * BATCH;
    let purging = (PURGING_CLAIMS_MAX + (RESTS + 1) * RESTING_CLAIMS) * BATCH;
    let old = sent.min(PURGED);
    let new = |table, rows| Fill { table, prefix: "event", status: "NEW", rows, due_seconds: -HOUR };
    let backlog_claimed = taken.min(backlog);
    // What is claimed comes last, so that it is in memory on all tables alike: a claim follows its INSERT.
    let behind =
        Fill { due_seconds: -HOUR + 60, prefix: "waiting", ..new(BACKLOG, backlog - backlog_claimed) };
    for fill in [
        Fill { table: SENT, prefix: "a-old", status: "SENT", rows: old, due_seconds: -72 * HOUR },
        Fill { table: SENT, prefix: "b-sent", status: "SENT", rows: sent - old, due_seconds: -4 * HOUR },
        behind,
        Fill { table: LOCKED, prefix: "locked", status: "NEW", rows: locked, due_seconds: -2 * HOUR },
        Fill { table: LOCKED, prefix: "delayed", status: "NEW", rows: locked, due_seconds: 24 * HOUR },
        new(SENT, taken + purging),
        new(BACKLOG, backlog_claimed),
        new(LOCKED, taken),
        new(EMPTY, 3 * taken),
    ] {
        scratch.fill(fill).await?;
    }
    for table in [EMPTY, SENT, BACKLOG, LOCKED] {
        scratch.analyze(table).await?;
    }
    Ok(())
}

/// Seconds of each claim.
struct Costs {
    table: Vec<f64>,
    empty: Vec<f64>,
}

async fn in_turns(scratch: &Scratch, table: &str) -> anyhow::Result<Costs> {
    let (table, empty) = (Claimer::new(scratch, table)?, Claimer::new(scratch, EMPTY)?);
    for _ in 0..WARMING {
        table.claim().await?;
        empty.claim().await?;
    }
    let mut costs = Costs { table: Vec::new(), empty: Vec::new() };
    for _ in 0..CLAIMS {
        costs.table.push(table.claim().await?);
        costs.empty.push(empty.claim().await?);
    }
    Ok(costs)
}

/// One outbox, used for all claims of its table, as a relay does.
struct Claimer {
    outbox: Outbox,
    clock: ProcessClock,
}

impl Claimer {
    fn new(scratch: &Scratch, table: &str) -> anyhow::Result<Self> {
        Ok(Self { outbox: scratch.outbox(table)?, clock: ProcessClock::start() })
    }

    async fn claim(&self) -> anyhow::Result<f64> {
        const LEASE: Duration = Duration::from_mins(5);
        let request = ClaimRequest::new(BATCH, usize::MAX, LEASE, SystemDraw.bits(), self.clock.now());
        let started = Instant::now();
        let claimed = self.outbox.claim(request).await?;
        let elapsed = started.elapsed().as_secs_f64();
        let rows = claimed.claims.len();
        ensure!(rows == BATCH as usize, "a claim brought {rows} rows");
        Ok(elapsed)
    }
}

/// The purge and its rests take turns.
async fn purge(scratch: &Scratch, figures: &mut Figures) -> anyhow::Result<()> {
    let claimer = Claimer::new(scratch, SENT)?;
    for _ in 0..WARMING {
        claimer.claim().await?;
    }
    let mut purge = Purge::new(scratch.outbox(SENT)?).await?;
    let (mut resting, mut purging) = (Vec::new(), Vec::new());
    for round in 1..=RESTS {
        for _ in 0..RESTING_CLAIMS {
            resting.push(claimer.claim().await?);
            tokio::time::sleep(PAUSE).await;
        }
        let claims_max = (PURGING_CLAIMS_MAX / RESTS * round) as usize;
        let deleting = purge.go_on(u64::from(PURGED / RESTS));
        tokio::pin!(deleting);
        let more = loop {
            tokio::select! {
                more = &mut deleting => break more?,
                cost = paused(&claimer), if purging.len() < claims_max => purging.push(cost?),
            }
        };
        if !more {
            break;
        }
    }
    ensure!(!purging.is_empty(), "the purge ended before a claim did: ask for more rows with --sent");
    figures.purge_slowdown = mean(&purging) / mean(&resting);
    figures.purged = purge.rows;
    let rows = f64::from(u32::try_from(purge.rows).unwrap_or(u32::MAX));
    figures.purged_per_second = rows / purge.spent.as_secs_f64();
    Ok(())
}

async fn paused(claimer: &Claimer) -> anyhow::Result<f64> {
    tokio::time::sleep(PAUSE).await;
    claimer.claim().await
}

fn mean(figures: &[f64]) -> f64 {
    let count = u32::try_from(figures.len()).unwrap_or(u32::MAX);
    figures.iter().sum::<f64>() / f64::from(count)
}
