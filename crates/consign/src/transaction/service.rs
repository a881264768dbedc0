//! What any instance does for the transactions of all: answers check-backs, looks for committed messages and sends again
//! what is missing, forgets old markers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use consign_core::transaction::check::check;
use consign_core::transaction::half::{HalfMessages, Orphan};
use consign_core::transaction::marker::{MarkerStore, Unconfirmed};
use consign_core::transaction::repair::{Ledger, Repaired, repair};
use consign_core::transaction::{Doubt, Spans, Verdict};
use futures_util::{StreamExt, stream, stream::FuturesUnordered};

use crate::shutdown::Shutdown;

/// How the service works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// How long transactions take and markers stay.
    pub spans: Spans,
    /// How many questions are answered at once, each on a connection of its own.
    pub checks_at_once: usize,
    /// How often committed messages are looked for in their topics.
    pub repair_every: Duration,
    /// How long a transaction that was looked for in vain is left alone; longer than a broker needs to make a commit
    /// visible.
    pub repair_pause: Duration,
    /// How many transactions are looked for in one step.
    pub repair_rows: u32,
    /// How often old markers are forgotten.
    pub forget_every: Duration,
    /// How many markers are forgotten in one transaction.
    pub forget_rows: u32,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            spans: Spans::default(),
            checks_at_once: 4,
            repair_every: Duration::from_secs(10),
            repair_pause: Duration::from_mins(1),
            repair_rows: 64,
            forget_every: Duration::from_mins(10),
            forget_rows: 128,
        }
    }
}

/// What a service did since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceTotals {
    /// Questions answered with commit.
    pub commits: u64,
    /// Questions answered with rollback.
    pub rollbacks: u64,
    /// Questions answered with "unknown".
    pub unknowns: u64,
    /// Transactions whose message was found in its topic.
    pub confirmed: u64,
    /// Messages sent again.
    pub sent_again: u64,
    /// Times that a message was found nowhere.
    pub lost: u64,
    /// Times that the row of a committed transaction could not be read.
    pub unreadable: u64,
    /// Markers forgotten.
    pub forgotten: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    rollbacks: AtomicU64,
    unknowns: AtomicU64,
    confirmed: AtomicU64,
    sent_again: AtomicU64,
    lost: AtomicU64,
    unreadable: AtomicU64,
    forgotten: AtomicU64,
}

/// The service of one marker store.
#[derive(Debug)]
pub struct TransactionService<M, H, L> {
    /// The markers.
    pub markers: M,
    /// The broker.
    pub broker: Arc<H>,
    /// What the broker holds. Without it nothing is confirmed or sent again: lost messages stay lost.
    pub ledger: Option<L>,
    /// How it works.
    pub settings: ServiceSettings,
}

impl<M, H, L> TransactionService<M, H, L>
where
    M: MarkerStore,
    H: HalfMessages,
    L: Ledger,
{
    /// Runs until `shutdown` asks for its end. Any number of instances may run side by side. Dropping the future loses
    /// nothing: what is not answered is asked again.
    pub async fn run(self, shutdown: Shutdown) -> ServiceTotals {
        let counters = Counters::default();
        tokio::join!(
            self.answer(&counters, shutdown.clone()),
            self.confirm(&counters, shutdown.clone()),
            self.forget(&counters, shutdown),
        );
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServiceTotals {
            commits: read(&counters.commits),
            rollbacks: read(&counters.rollbacks),
            unknowns: read(&counters.unknowns),
            confirmed: read(&counters.confirmed),
            sent_again: read(&counters.sent_again),
            lost: read(&counters.lost),
            unreadable: read(&counters.unreadable),
            forgotten: read(&counters.forgotten),
        }
    }

    async fn answer(&self, counters: &Counters, mut shutdown: Shutdown) {
        let mut checks = FuturesUnordered::new();
        let room = self.settings.checks_at_once.max(1);
        loop {
            tokio::select! {
                () = shutdown.requested() => break,
                Some(()) = checks.next(), if !checks.is_empty() => {}
                orphan = self.broker.next_orphan(), if checks.len() < room => match orphan {
                    Some(orphan) => checks.push(self.check(orphan, counters)),
                    None => break,
                },
            }
        }
        while checks.next().await.is_some() {}
    }

    async fn check(&self, orphan: H::Orphan, counters: &Counters) {
        let question = orphan.question();
        let key = question.key.clone();
        let verdict = check(&self.markers, &question, &self.settings.spans).await;
        let answer = match &verdict {
            Verdict::Commit(_) => {
                count(&counters.commits, 1);
                "commit"
            }
            Verdict::Rollback(_) => {
                count(&counters.rollbacks, 1);
                "rollback"
            }
            Verdict::Unknown(doubt) => {
                count(&counters.unknowns, 1);
                match doubt {
                    Doubt::Young => tracing::debug!(transaction = %key, %doubt, "check-back is left open"),
                    Doubt::Foreign
                    | Doubt::Undated
                    | Doubt::Forgotten
                    | Doubt::Contested
                    | Doubt::Store(_) => {
                        tracing::warn!(transaction = %key, topic = question.topic, %doubt, "check-back is left open");
                    }
                }
                "unknown"
            }
        };
        match orphan.answer(verdict).await {
            Ok(()) => tracing::debug!(transaction = %key, answer, "check-back answered"),
            Err(error) => tracing::warn!(transaction = %key, answer, %error, "answer was not sent"),
        }
    }

    async fn confirm(&self, counters: &Counters, mut shutdown: Shutdown) {
        let Some(ledger) = &self.ledger else { return };
        let ServiceSettings { repair_every, repair_pause, repair_rows, checks_at_once, .. } = self.settings;
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(repair_every) => {}
            }
            loop {
                let due = match self.markers.unconfirmed(repair_rows, repair_pause).await {
                    Ok(due) => due,
                    Err(error) => {
                        tracing::warn!(%error, "unconfirmed transactions cannot be read");
                        break;
                    }
                };
                let full = due.len() >= repair_rows as usize;
                let looks = due.into_iter().filter_map(|row| match row {
                    Ok(unconfirmed) => Some(self.repair(ledger, unconfirmed, counters)),
                    Err(error) => {
                        count(&counters.unreadable, 1);
                        tracing::error!(%error, "row of a committed transaction cannot be read, nobody looks for its message");
                        None
                    }
                });
                let looking =
                    stream::iter(looks).buffer_unordered(checks_at_once.max(1)).collect::<Vec<()>>();
                tokio::select! {
                    () = shutdown.requested() => return,
                    _ = looking => {}
                }
                if !full {
                    break;
                }
            }
        }
    }

    async fn repair(&self, ledger: &L, unconfirmed: Unconfirmed, counters: &Counters) {
        let (key, topic, attempts) =
            (unconfirmed.key.clone(), unconfirmed.topic.clone(), unconfirmed.attempts);
        match repair(&self.markers, ledger, &*self.broker, unconfirmed).await {
            Ok(Repaired::Confirmed) => count(&counters.confirmed, 1),
            Ok(Repaired::SentAgain) => {
                count(&counters.sent_again, 1);
                tracing::warn!(transaction = %key, topic, attempts, "committed message was missing and is sent again");
            }
            Ok(Repaired::Lost) => {
                count(&counters.lost, 1);
                tracing::error!(transaction = %key, topic, attempts, "committed message is nowhere to be found");
            }
            Err(error) => {
                tracing::warn!(transaction = %key, topic, attempts, %error, "committed message cannot be looked for");
            }
        }
    }

    async fn forget(&self, counters: &Counters, mut shutdown: Shutdown) {
        let ServiceSettings { forget_every, forget_rows, spans, .. } = self.settings;
        loop {
            tokio::select! {
                () = shutdown.requested() => return,
                () = tokio::time::sleep(forget_every) => {}
            }
            loop {
                match self.markers.forget(&spans, forget_rows).await {
                    Ok(forgotten) => {
                        count(&counters.forgotten, forgotten.ended + forgotten.unconfirmed);
                        if forgotten.unconfirmed > 0 {
                            let rows = forgotten.unconfirmed;
                            tracing::error!(
                                rows,
                                "committed transactions were forgotten without evidence of their messages"
                            );
                        }
                        if !forgotten.more {
                            break;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "old markers cannot be forgotten");
                        break;
                    }
                }
            }
        }
    }
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}
