//! Filters, and both sides in one list.

use std::time::Duration;

use consign_store::record::DeadFilter;

use super::elsewhere;
use super::letter::{Letter, LetterId};
use crate::age;
use crate::config::Config;
use crate::parts::{Store, missing_schema};

/// A plan counts no further than this.
pub const COUNTED_MAX: u32 = 100_000;

/// Which dead letters are meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Filters {
    /// Of this side only.
    #[arg(long, value_enum)]
    side: Option<Side>,
    /// Of this event type or message type.
    #[arg(long = "type", value_name = "TYPE")]
    letter_type: Option<String>,
    /// Events that name this destination.
    #[arg(long, value_name = "NAME")]
    destination: Option<String>,
    /// Deliveries of this consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Whose reason holds this text.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Deliveries that died, and events that were written, longer ago than this: 90s, 15m, 2h, 30d.
    #[arg(long, value_name = "AGE", value_parser = age::parse)]
    older_than: Option<Duration>,
}

/// The two sides of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Side {
    /// Events that a relay gave up.
    Outbox,
    /// Deliveries that a consumer gave up.
    Inbox,
}

/// What the filters let through.
#[derive(Debug, Default)]
pub struct Listing {
    /// The letters, the oldest first.
    pub letters: Vec<Letter>,
    /// What the list cannot show.
    pub notes: Vec<String>,
    /// There are more.
    pub more: bool,
}

impl Filters {
    /// Whether any is set.
    pub const fn any(&self) -> bool {
        self.side.is_some()
            || self.letter_type.is_some()
            || self.destination.is_some()
            || self.consumer.is_some()
            || self.reason.is_some()
            || self.older_than.is_some()
    }

    /// Filters that nothing can pass.
    pub fn mistake(&self) -> Option<String> {
        match (&self.destination, &self.consumer, self.side) {
            (Some(_), Some(_), _) => {
                Some("--destination is for events and --consumer is for deliveries: give one of them".into())
            }
            (Some(_), None, Some(Side::Inbox)) => {
                Some("--destination is for events, and --side inbox has none: remove one of them".into())
            }
            (None, Some(_), Some(Side::Outbox)) => {
                Some("--consumer is for deliveries, and --side outbox has none: remove one of them".into())
            }
            _ => None,
        }
    }

    /// At most `limit` letters that pass. A side whose tables nobody made is told in a note, unless it was asked for.
    pub async fn letters(&self, store: &Store, config: &Config, limit: u32) -> anyhow::Result<Listing> {
        let mut listing = Listing::default();
        let mut failed = None;
        let mut answered = false;
        for side in self.sides() {
            let letters = match side {
                Side::Outbox => self.events(store, config, limit).await,
                Side::Inbox => self.deliveries(store, config, limit).await,
            };
            match letters {
                Ok(letters) => {
                    answered = true;
                    listing.letters.extend(letters);
                }
                Err(error) => {
                    let missing = missing_schema(&error).filter(|_| self.only_side().is_none());
                    let Some(missing) = missing else { return Err(error) };
                    listing.notes.push(format!("{} is left out: {missing}", side.words()));
                    failed = Some(error);
                }
            }
        }
        if let (Some(error), false) = (failed, answered) {
            return Err(error);
        }
        if self.only_side() != Some(Side::Outbox) {
            listing.notes.extend(elsewhere::notes(config, self.consumer.as_deref()));
        }
        // Both sides have dates of one form, from one server.
        listing.letters.sort_by(|one, other| one.at().cmp(other.at()));
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        listing.more = listing.letters.len() > limit;
        listing.letters.truncate(limit);
        Ok(listing)
    }

    async fn events(&self, store: &Store, config: &Config, limit: u32) -> anyhow::Result<Vec<Letter>> {
        let filter = DeadFilter { destination: self.destination.clone(), ..self.common(limit) };
        let mut letters = Vec::new();
        for outbox in &config.outboxes {
            for event in store.dead_events(outbox, &filter).await? {
                let id = LetterId::of_event(config, outbox, &event.event_id);
                letters.push(Letter::Event { id, outbox: outbox.name.clone(), event });
            }
        }
        Ok(letters)
    }

    async fn deliveries(&self, store: &Store, config: &Config, limit: u32) -> anyhow::Result<Vec<Letter>> {
        let filter =
            DeadFilter { consumer: self.consumer.clone(), unresolved_only: true, ..self.common(limit) };
        Ok(store.dead_deliveries(config, &filter).await?.into_iter().map(Letter::Delivery).collect())
    }

    fn common(&self, limit: u32) -> DeadFilter {
        DeadFilter {
            event_type: self.letter_type.clone(),
            reason_contains: self.reason.clone(),
            older_than: self.older_than,
            // One more than asked for tells whether there are more.
            limit: limit.saturating_add(1),
            ..DeadFilter::default()
        }
    }

    fn sides(&self) -> impl Iterator<Item = Side> {
        let only = self.only_side();
        [Side::Outbox, Side::Inbox].into_iter().filter(move |side| only.is_none_or(|only| only == *side))
    }

    /// The side that was asked for, by its name or by what only it has.
    fn only_side(&self) -> Option<Side> {
        let by_destination = self.destination.is_some().then_some(Side::Outbox);
        let by_consumer = self.consumer.is_some().then_some(Side::Inbox);
        self.side.or(by_destination).or(by_consumer)
    }
}

impl Side {
    const fn words(self) -> &'static str {
        match self {
            Self::Outbox => "the outbox",
            Self::Inbox => "the inbox",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_that_nothing_can_pass_are_refused() {
        let name = || Some("x".to_owned());
        let mistaken = [
            Filters { destination: name(), consumer: name(), ..Filters::default() },
            Filters { destination: name(), side: Some(Side::Inbox), ..Filters::default() },
            Filters { consumer: name(), side: Some(Side::Outbox), ..Filters::default() },
        ];

        assert!(mistaken.iter().all(|filters| filters.mistake().is_some()));
        assert_eq!(
            Filters { consumer: name(), side: Some(Side::Inbox), ..Filters::default() }.mistake(),
            None
        );
    }

    #[test]
    fn a_filter_that_one_side_has_means_that_side() {
        let destination = Filters { destination: Some("main".into()), ..Filters::default() };
        let consumer = Filters { consumer: Some("sms".into()), ..Filters::default() };

        assert_eq!(destination.sides().collect::<Vec<_>>(), [Side::Outbox]);
        assert_eq!(consumer.sides().collect::<Vec<_>>(), [Side::Inbox]);
        assert_eq!(Filters::default().sides().count(), 2);
    }
}
