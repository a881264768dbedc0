//! The rounds, in which both sides take turns, and the audit behind them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::command::bench::spans::Spans;

use super::Arguments;
use super::audit::{Audit, Findings};
use super::scratch::Scratch;
use super::shop::{Shop, Side};
use super::topic_reader::TopicReader;

/// An even number, so that each side begins as often as the other.
const ROUNDS: u32 = 4;
/// Transactions of each side that are not counted: connections open and statements are prepared meanwhile.
const WARM_UP: u32 = 200;
/// What comes later than this does not come. A broker as shipped asks for the end of a half message, should it have been
/// lost, after 6 seconds at the earliest and every 30 seconds.
const QUIET: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What was measured.
#[derive(Debug)]
pub struct Figures {
    /// Transactions of each side that count.
    pub transactions: u32,
    /// Without messages.
    pub local: Measured,
    /// With messages.
    pub producer: Measured,
    /// What became of them.
    pub findings: Findings,
}

/// One side.
#[derive(Debug)]
pub struct Measured {
    /// Transactions per second, per round.
    pub per_second: Vec<f64>,
    /// From the wait for a connection, or from the half message on, until the transaction is over.
    pub spans: Spans,
}

/// Runs all rounds.
pub async fn transactions(scratch: &Scratch, arguments: &Arguments) -> anyhow::Result<Figures> {
    let mut reader = TopicReader::at_the_end(&scratch.admin, &scratch.topic).await?;
    let shop = Arc::new(Shop::open(scratch, arguments.connections).await?);
    for side in [Side::Local, Side::Producer] {
        run(&shop, side, 0..WARM_UP, arguments.concurrency).await?;
    }
    let per_round = arguments.transactions / ROUNDS;
    let (mut local, mut producer) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!(
            "bench: round {round} of {ROUNDS}: {per_round} transactions without messages and with them"
        );
        let first = WARM_UP + (round - 1) * per_round;
        let orders = first..first + per_round;
        // The second of two runs finds a machine that the first one has warmed: they take turns.
        let sides = [Side::Local, Side::Producer];
        for side in if round % 2 == 1 { sides } else { [sides[1], sides[0]] } {
            let ran = run(&shop, side, orders.clone(), arguments.concurrency).await?;
            match side {
                Side::Local => local.push(ran),
                Side::Producer => producer.push(ran),
            }
        }
    }
    eprintln!("bench: what is in the topic");
    let findings = audit(scratch, &mut reader).await?;
    Arc::into_inner(shop).context("all transactions are over")?.close().await?;
    Ok(Figures {
        transactions: per_round * ROUNDS,
        local: Measured::of(local),
        producer: Measured::of(producer),
        findings,
    })
}

/// One side of one round.
struct Ran {
    per_second: f64,
    /// In microseconds.
    spans: Vec<u64>,
}

impl Measured {
    fn of(rounds: Vec<Ran>) -> Self {
        Self {
            per_second: rounds.iter().map(|round| round.per_second).collect(),
            spans: Spans::of(rounds.into_iter().flat_map(|round| round.spans)),
        }
    }
}

/// These orders, so many at a time.
async fn run(shop: &Arc<Shop>, side: Side, orders: Range<u32>, concurrency: u32) -> anyhow::Result<Ran> {
    let count = orders.len();
    let next = Arc::new(AtomicU32::new(orders.start));
    let started = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..concurrency {
        let (shop, next, end) = (Arc::clone(shop), Arc::clone(&next), orders.end);
        workers.spawn(async move {
            let mut spans = Vec::new();
            loop {
                let order = next.fetch_add(1, Ordering::SeqCst);
                if order >= end {
                    return anyhow::Ok(spans);
                }
                let begun = Instant::now();
                shop.sell(side, order).await?;
                spans.push(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
            }
        });
    }
    let mut spans = Vec::with_capacity(count);
    while let Some(worker) = workers.join_next().await {
        spans.extend(worker.context("a transaction of the bench broke an invariant")??);
    }
    #[expect(clippy::cast_precision_loss, reason = "no bench has 2^52 transactions")]
    let per_second = count as f64 / started.elapsed().as_secs_f64();
    Ok(Ran { per_second, spans })
}

/// Reads the topic until every order is there, or for no more to come.
async fn audit(scratch: &Scratch, reader: &mut TopicReader) -> anyhow::Result<Findings> {
    let committed = scratch.announced().await?;
    let first_check = scratch.configured.as_ref().and_then(|transaction| transaction.first_check);
    let quiet = QUIET + first_check.unwrap_or_default();
    let mut audit = Audit::default();
    let (mut last, mut since) = (Findings::default(), Instant::now());
    loop {
        reader.read_into(&mut audit).await?;
        let findings = audit.against(&committed);
        if findings.lost == 0 || (findings == last && since.elapsed() >= quiet) {
            return Ok(findings);
        }
        if findings != last {
            (last, since) = (findings, Instant::now());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
