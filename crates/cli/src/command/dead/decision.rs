//! Requeue and discard: small batches, each in a transaction of its own with its lines of the audit.

use std::collections::HashSet;

use consign_core::event::EventId;
use consign_core::ports::StoreError;
use consign_store::record::Audit;
use serde_json::{Map, Value};

use super::letter::{self, Letter, LetterId};
use super::listing::Filters;
use crate::config::Config;
use crate::exit::Exit;
use crate::output::{self, Decisions, Form, Progress};
use crate::pace::Pace;
use crate::parts::Store;

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

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Try again.
    Requeue,
    /// Give up for good.
    Discard,
}

impl Verb {
    /// What became of a letter.
    const fn done(self) -> &'static str {
        match self {
            Self::Requeue => "requeued",
            Self::Discard => "discarded",
        }
    }

    /// What that means.
    const fn meaning(self, id: &LetterId) -> &'static str {
        match (self, id) {
            (Self::Requeue, LetterId::Event { .. }) => "a relay publishes it again under the same event id",
            (Self::Requeue, LetterId::Delivery(_)) => "its consumer processes it again",
            (Self::Discard, _) => "it stays in its table",
        }
    }

    /// The statuses an event must have.
    const fn statuses(self) -> &'static str {
        match self {
            Self::Requeue => "DEAD",
            Self::Discard => "NEW or DEAD",
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
    /// Decides about these.
    pub async fn decide(
        &self,
        verb: Verb,
        ids: &[LetterId],
        form: Form,
        mut pace: Pace,
    ) -> anyhow::Result<Exit> {
        let mut decisions = Decisions::new(form);
        let mut end = End::Finished;
        for batch in batches(ids, pace.batch()) {
            if !pace.next(batch.len()).await {
                end = End::Stopped;
                break;
            }
            if !self.decide_batch(verb, batch, &mut decisions).await? {
                end = End::Broken;
                break;
            }
        }
        finish(verb, decisions, &end)
    }

    /// Decides about at most `limit` of those that pass, page by page.
    pub async fn decide_all(
        &self,
        verb: Verb,
        filters: &Filters,
        limit: u64,
        form: Form,
        mut pace: Pace,
    ) -> anyhow::Result<Exit> {
        let mut decisions = Decisions::new(form);
        let mut progress = Progress::new();
        let mut seen: HashSet<LetterId> = HashSet::new();
        let mut told = false;
        let end = 'pages: loop {
            let page = filters.letters(self.store, self.config, PAGE).await?;
            if !std::mem::replace(&mut told, true) {
                tell(&page.notes);
            }
            let room = usize::try_from(limit.saturating_sub(seen.len() as u64)).unwrap_or(usize::MAX);
            let fresh: Vec<LetterId> =
                page.letters.iter().map(Letter::id).filter(|id| !seen.contains(id)).take(room).collect();
            if room == 0 {
                break End::Finished;
            }
            if fresh.is_empty() {
                // What fills a whole page again after its requeue says that the cause is not mended.
                break if page.more { End::Returning } else { End::Finished };
            }
            for batch in batches(&fresh, pace.batch()) {
                if !pace.next(batch.len()).await {
                    break 'pages End::Stopped;
                }
                let usable = self.decide_batch(verb, batch, &mut decisions).await?;
                seen.extend(batch.iter().cloned());
                if !usable {
                    break 'pages End::Broken;
                }
                progress.tell(|| format!("{} {} so far", verb.done(), decisions.count()));
            }
        };
        finish(verb, decisions, &end)
    }

    /// Tells how many it would be.
    pub async fn plan(&self, verb: Verb, filters: &Filters, limit: u64, form: Form) -> anyhow::Result<Exit> {
        let most = u32::try_from(limit).unwrap_or(u32::MAX).min(super::listing::COUNTED_MAX);
        let listing = filters.letters(self.store, self.config, most).await?;
        let count = listing.letters.len();
        let more = if listing.more && u64::from(most) < limit { "more than " } else { "" };
        let done = verb.done();
        tell(&listing.notes);
        eprintln!(
            "{more}{count} would be {done}: nothing was done; leave out --dry-run, or add --yes to --all"
        );
        if form == Form::Json {
            let ids: Vec<String> = listing.letters.iter().map(|letter| letter.id().to_string()).collect();
            output::print_json(&serde_json::json!({
                done: [], "failed": [], "planned": ids, "more": !more.is_empty(), "notes": listing.notes,
            }))?;
        }
        Ok(Exit::Fine)
    }

    /// Decides about letters of one table in one transaction. `false` when the store cannot be used, so that others
    /// would fail as well.
    async fn decide_batch(
        &self,
        verb: Verb,
        batch: &[LetterId],
        decisions: &mut Decisions,
    ) -> anyhow::Result<bool> {
        let decided = match self.carry_out(verb, batch).await {
            Ok(decided) => decided,
            Err(error) => {
                for id in batch {
                    decisions.failed(id.to_string(), &error);
                }
                return Ok(!is_unavailable(&error));
            }
        };
        for id in batch {
            if decided.contains(id) {
                decisions.done(id.to_string(), verb.done(), verb.meaning(id))?;
            } else {
                decisions.failed(id.to_string(), &self.unchanged(id, verb.statuses()).await);
            }
        }
        Ok(true)
    }

    /// Those of the batch that were changed.
    async fn carry_out(&self, verb: Verb, batch: &[LetterId]) -> anyhow::Result<HashSet<LetterId>> {
        let (store, audit) = (self.store, &self.audit);
        let mut decided = HashSet::new();
        match batch {
            [LetterId::Event { outbox: name, .. }, ..] => {
                let outbox = letter::outbox(self.config, name.as_deref())?;
                let ids: Vec<EventId> = batch.iter().filter_map(event_id).collect();
                let changed = match verb {
                    Verb::Requeue => store.requeue_events(outbox, &ids, audit).await?,
                    Verb::Discard => store.discard_events(outbox, &ids, audit).await?,
                };
                decided.extend(
                    changed
                        .into_iter()
                        .map(|id| LetterId::Event { outbox: name.clone(), event_id: id.as_str().into() }),
                );
            }
            ids => {
                for id in ids {
                    let LetterId::Delivery(number) = id else { continue };
                    let changed = match verb {
                        Verb::Requeue => store.requeue_dead_delivery(self.config, *number, audit).await?,
                        Verb::Discard => store.discard_dead_delivery(self.config, *number, audit).await?,
                    };
                    if changed {
                        decided.insert(id.clone());
                    }
                }
            }
        }
        Ok(decided)
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

/// Cuts letters into batches of one table each. A delivery is a batch of its own: it is put back with its message.
fn batches(ids: &[LetterId], size: usize) -> impl Iterator<Item = &[LetterId]> {
    let together = |one: &LetterId, other: &LetterId| match (one, other) {
        (LetterId::Event { outbox: one, .. }, LetterId::Event { outbox: other, .. }) => one == other,
        _ => false,
    };
    ids.chunk_by(together).flat_map(move |run| run.chunks(size))
}

fn event_id(id: &LetterId) -> Option<EventId> {
    match id {
        LetterId::Event { event_id, .. } => Some(EventId::stored(event_id.as_str())),
        LetterId::Delivery(_) => None,
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

fn finish(verb: Verb, decisions: Decisions, end: &End) -> anyhow::Result<Exit> {
    let (done, count) = (verb.done(), decisions.count());
    match end {
        End::Finished => eprintln!("{done} {count}"),
        End::Stopped => eprintln!("stopped: {done} {count}; the rest is untouched"),
        End::Returning => {
            eprintln!(
                "stopped: {done} {count}, and a whole page of them is still or again dead: mend the cause"
            );
        }
        End::Broken => eprintln!("stopped: {done} {count}; the store cannot be used"),
    }
    let finished = *end == End::Finished;
    let exit = decisions.end(done, Map::from_iter([("finished".to_owned(), Value::from(finished))]))?;
    Ok(if finished { exit } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_holds_events_of_one_outbox_or_one_delivery() {
        let event = |outbox: &str, id: &str| LetterId::Event {
            outbox: Some(outbox.to_owned()),
            event_id: id.to_owned(),
        };
        let ids = [
            event("a", "1"),
            event("a", "2"),
            event("a", "3"),
            event("b", "4"),
            LetterId::Delivery(5),
            LetterId::Delivery(6),
        ];

        let sizes: Vec<usize> = batches(&ids, 2).map(<[LetterId]>::len).collect();

        assert_eq!(sizes, [2, 1, 1, 1, 1]);
    }
}
