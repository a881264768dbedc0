//! Requeue and discard: one row and one line of the audit at a time, each in its own transaction.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use consign::shutdown::{Shutdown, shutdown};
use consign_core::ports::StoreError;
use consign_store::record::Audit;
use serde_json::{Map, Value};
use tokio::time::{Interval, MissedTickBehavior};

use super::letter::{self, Letter, LetterId};
use super::listing::Filters;
use crate::config::Config;
use crate::exit::Exit;
use crate::output::{self, Decisions, Form};
use crate::parts::Store;
use crate::signals;

/// Letters read at once while everything is requeued.
const PAGE: u32 = 500;

/// Decides in somebody's name.
pub struct Decider<'a> {
    /// The open store.
    pub store: &'a Store,
    /// The config.
    pub config: &'a Config,
    /// Who, and why.
    pub audit: Audit,
}

/// How fast at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    number: NonZeroU32,
    per: Duration,
}

/// Reads `50/s`, `300/m`, or `50`, which is per second.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    const FORM: &str = "write a number from 1 on per second or minute, such as 50/s or 300/m";
    let (number, per) = match text.split_once('/') {
        None | Some((_, "s")) => (text.split('/').next().unwrap_or_default(), Duration::from_secs(1)),
        Some((number, "m")) => (number, Duration::from_mins(1)),
        Some(_) => return Err(FORM.into()),
    };
    let number = number.parse().map_err(|_| FORM.to_owned())?;
    Ok(Rate { number, per })
}

/// When the next one may go, and whether somebody asked to stop.
pub struct Pace {
    ticks: Option<Interval>,
    stop: Shutdown,
}

impl Pace {
    /// Watches for Ctrl-C and SIGTERM from now on.
    pub fn new(rate: Option<Rate>) -> anyhow::Result<Self> {
        let (trigger, stop) = shutdown();
        signals::watch_between_steps(trigger)?;
        let ticks = rate.map(|rate| {
            // Never zero, which the timer refuses: the smallest span is a nanosecond.
            let every = (rate.per / rate.number.get()).max(Duration::from_nanos(1));
            let mut ticks = tokio::time::interval(every);
            // After a slow row the rate goes on; it is not caught up with.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Ok(Self { ticks, stop })
    }

    /// Waits for the next one's turn. `false` when somebody asked to stop.
    async fn next(&mut self) -> bool {
        let turn = async {
            if let Some(ticks) = &mut self.ticks {
                ticks.tick().await;
            }
        };
        tokio::select! {
            biased;
            () = self.stop.requested() => false,
            () = turn => true,
        }
    }
}

/// What a run over many letters leaves to say.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Finished,
    Stopped,
    Returning,
    Broken,
}

impl Decider<'_> {
    /// Requeues these.
    pub async fn requeue(&self, ids: &[LetterId], form: Form, mut pace: Pace) -> anyhow::Result<Exit> {
        let mut decisions = Decisions::new(form);
        let mut end = End::Finished;
        for id in ids {
            if !pace.next().await {
                end = End::Stopped;
                break;
            }
            self.requeue_one(id, &mut decisions).await?;
        }
        finish(decisions, &end)
    }

    /// Requeues at most `limit` of those that pass, page by page.
    pub async fn requeue_all(
        &self,
        filters: &Filters,
        limit: u64,
        form: Form,
        mut pace: Pace,
    ) -> anyhow::Result<Exit> {
        let mut decisions = Decisions::new(form);
        let mut seen: HashSet<LetterId> = HashSet::new();
        let mut told = false;
        let end = 'pages: loop {
            let page = filters.letters(self.store, self.config, PAGE).await?;
            if !std::mem::replace(&mut told, true) {
                tell(&page.notes);
            }
            let fresh: Vec<LetterId> =
                page.letters.iter().map(Letter::id).filter(|id| !seen.contains(id)).collect();
            if fresh.is_empty() {
                // What fills a whole page again after its requeue says that the cause is not mended.
                break if page.more { End::Returning } else { End::Finished };
            }
            for id in fresh {
                if seen.len() as u64 >= limit {
                    break 'pages End::Finished;
                }
                if !pace.next().await {
                    break 'pages End::Stopped;
                }
                let usable = self.requeue_one(&id, &mut decisions).await?;
                seen.insert(id);
                if !usable {
                    break 'pages End::Broken;
                }
            }
        };
        finish(decisions, &end)
    }

    /// Tells how many would be requeued.
    pub async fn plan(&self, filters: &Filters, limit: u64, form: Form) -> anyhow::Result<Exit> {
        let most = u32::try_from(limit).unwrap_or(u32::MAX).min(super::listing::COUNTED_MAX);
        let listing = filters.letters(self.store, self.config, most).await?;
        let count = listing.letters.len();
        let more = if listing.more && u64::from(most) < limit { "more than " } else { "" };
        tell(&listing.notes);
        eprintln!("{more}{count} would be requeued: nothing was done; add --yes to do it");
        if form == Form::Json {
            let ids: Vec<String> = listing.letters.iter().map(|letter| letter.id().to_string()).collect();
            output::print_json(&serde_json::json!({
                "requeued": [], "failed": [], "planned": ids, "more": !more.is_empty(), "notes": listing.notes,
            }))?;
        }
        Ok(Exit::Fine)
    }

    /// Discards these.
    pub async fn discard(&self, ids: &[LetterId], form: Form) -> anyhow::Result<Exit> {
        let mut decisions = Decisions::new(form);
        for id in ids {
            let discarded = match id {
                LetterId::Event { outbox, event_id } => {
                    let outbox = letter::outbox(self.config, outbox.as_deref())?;
                    self.store.discard_event(outbox, event_id, &self.audit).await
                }
                LetterId::Delivery(id) => {
                    self.store.discard_dead_delivery(self.config, *id, &self.audit).await
                }
            };
            match discarded {
                Ok(true) => decisions.done(id.to_string(), "discarded", "it stays in its table")?,
                Ok(false) => decisions.failed(id.to_string(), &self.unchanged(id, "NEW or DEAD").await),
                Err(error) => decisions.failed(id.to_string(), &error),
            }
        }
        Ok(decisions.end("discarded", Map::new())?)
    }

    /// Requeues one letter. `false` when the store cannot be used, so that others would fail as well.
    async fn requeue_one(&self, id: &LetterId, decisions: &mut Decisions) -> anyhow::Result<bool> {
        let requeued = match id {
            LetterId::Event { outbox, event_id } => {
                let outbox = letter::outbox(self.config, outbox.as_deref())?;
                self.store.requeue_event(outbox, event_id, &self.audit).await
            }
            LetterId::Delivery(id) => self.store.requeue_dead_delivery(self.config, *id, &self.audit).await,
        };
        let what = match id {
            LetterId::Event { .. } => "a relay publishes it again under the same event id",
            LetterId::Delivery(_) => "its consumer processes it again",
        };
        match requeued {
            Ok(true) => decisions.done(id.to_string(), "requeued", what)?,
            Ok(false) => decisions.failed(id.to_string(), &self.unchanged(id, "DEAD").await),
            Err(error) => {
                decisions.failed(id.to_string(), &error);
                return Ok(!is_unavailable(&error));
            }
        }
        Ok(true)
    }

    /// Why nothing was changed.
    async fn unchanged(&self, id: &LetterId, statuses: &str) -> anyhow::Error {
        match super::find(self.store, self.config, id).await {
            Ok(Some(Letter::Event { event, .. })) => {
                anyhow::anyhow!(
                    "the event is {}, and only an event that is {statuses} can be changed",
                    event.status
                )
            }
            Ok(Some(Letter::Delivery(delivery))) => anyhow::anyhow!(
                "was {} at {} already",
                delivery.resolution.as_deref().unwrap_or("dealt with"),
                delivery.resolved_at.as_deref().unwrap_or("some time")
            ),
            Ok(None) => anyhow::anyhow!(super::missing(id)),
            Err(error) => error,
        }
    }
}

/// What the list cannot show.
pub fn tell(notes: &[String]) {
    for note in notes {
        eprintln!("note: {}", output::printable(note));
    }
}

fn is_unavailable(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(
            cause.downcast_ref::<StoreError>(),
            Some(StoreError::Unavailable(_) | StoreError::CommitUnknown(_))
        )
    })
}

fn finish(decisions: Decisions, end: &End) -> anyhow::Result<Exit> {
    let count = decisions.count();
    match end {
        End::Finished => eprintln!("requeued {count}"),
        End::Stopped => eprintln!("stopped: requeued {count}; the rest is untouched"),
        End::Returning => {
            eprintln!(
                "stopped: requeued {count}, and a whole page of them is still or again dead: mend the cause"
            );
        }
        End::Broken => eprintln!("stopped: requeued {count}; the store cannot be used"),
    }
    let finished = *end == End::Finished;
    let exit = decisions.end("requeued", Map::from_iter([("finished".to_owned(), Value::from(finished))]))?;
    Ok(if finished { exit } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_per_second_or_minute() {
        let rate = |number, seconds| Rate {
            number: NonZeroU32::new(number).unwrap(),
            per: Duration::from_secs(seconds),
        };

        assert_eq!(parse_rate("50/s"), Ok(rate(50, 1)));
        assert_eq!(parse_rate("50"), Ok(rate(50, 1)));
        assert_eq!(parse_rate("300/m"), Ok(rate(300, 60)));
        for text in ["", "0/s", "0", "/s", "50/", "50/h", "-1/s", "1.5/s", "50/s/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }
}
