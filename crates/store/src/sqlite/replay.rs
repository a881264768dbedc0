//! Walking the table for a replay.

use std::time::Duration;

use consign_core::event::EventId;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{Row, query};

use crate::introspection::{ColumnKind, TableShape};
use crate::replay::{ReplayEvent, ReplayFilter, ReplayPage};
use crate::settling::micros;
use crate::sqlite::outbox::{Outbox, count};
use crate::sqlite::statement::{PURGE_LIMIT, QUOTE, REPLAY_PAGE, Text, before};
use crate::statement::{Rendering, bucket, padded};

impl Outbox {
    /// The database's time so long ago, as text.
    ///
    /// # Errors
    /// The file cannot be read.
    pub async fn moment(&self, ago: Duration) -> Result<String, StoreError> {
        let ago = micros(ago);
        let reading = self.database().read(move |connection| {
            async move {
                let row = query(Text::own(PURGE_LIMIT).sql()).bind(before(ago)).fetch_one(connection).await?;
                Ok(row.try_get_unchecked(0)?)
            }
            .boxed()
        });
        reading.await
    }

    /// Reads the next `rows` rows behind `after`, and tells which of them `filter` chooses. With ids all of them are one
    /// page.
    ///
    /// # Errors
    /// The file cannot be read, or the table does not fit. [`StoreError::Data`]: `after` is no position in
    /// this table.
    pub async fn replay_page(
        &self,
        filter: &ReplayFilter,
        after: Option<&str>,
        rows: u32,
    ) -> Result<ReplayPage, StoreError> {
        let (filter, shape) = (filter.clone(), self.shape().await?);
        let after = after.map(|position| place(&shape, position)).transpose()?;
        let text = text(self, &shape, &filter, after.as_ref());
        let limit = if filter.ids.is_empty() { rows.max(1) } else { u32::MAX };
        // SQLite never takes a number for a text.
        let by_number = shape.column("aggregate_id").is_some_and(|column| column.kind == ColumnKind::Integer);
        let reading = self.database().read(move |connection| {
            async move {
                let mut select = query(text.sql());
                for value in [&filter.event_type, &filter.destination].into_iter().flatten() {
                    select = select.bind(value);
                }
                if let Some(aggregate) = &filter.aggregate {
                    select = if by_number {
                        select.bind(aggregate.parse::<i64>().ok())
                    } else {
                        select.bind(aggregate)
                    };
                }
                for date in [&filter.from, &filter.until].into_iter().flatten() {
                    select = select.bind(date);
                }
                for id in padded(&filter.ids) {
                    select = select.bind(id.as_str());
                }
                select = match &after {
                    Some(Place::Sequence(number)) => select.bind(*number),
                    Some(Place::Id(id)) => select.bind(id),
                    None => select,
                };
                let found = select.bind(limit).fetch_all(connection).await?;
                let mut page =
                    ReplayPage { more: found.len() as u64 == u64::from(limit), ..ReplayPage::default() };
                for row in &found {
                    let position: String = row.try_get_unchecked("position")?;
                    if row.try_get_unchecked::<bool, _>("chosen")? {
                        let age = row.try_get_unchecked::<Option<i64>, _>("age")?.unwrap_or_default();
                        page.chosen.push(ReplayEvent {
                            event_id: EventId::stored(row.try_get_unchecked::<String, _>("event_id")?),
                            position: position.clone(),
                            at: row.try_get_unchecked::<Option<String>, _>("at")?.unwrap_or_default(),
                            age: Duration::from_secs(count(age)),
                        });
                    }
                    page.last = Some(position);
                }
                Ok(page)
            }
            .boxed()
        });
        reading.await
    }
}

/// A position in the walk.
enum Place {
    Sequence(i64),
    Id(String),
}

fn place(shape: &TableShape, position: &str) -> Result<Place, StoreError> {
    if !shape.has("sequence") {
        return Ok(Place::Id(position.to_owned()));
    }
    let number = position.parse().map_err(|_| {
        StoreError::Data(format!("{position:?} is no position in a table with a sequence, whose are numbers"))
    })?;
    Ok(Place::Sequence(number))
}

fn text(outbox: &Outbox, shape: &TableShape, filter: &ReplayFilter, after: Option<&Place>) -> Text {
    let sent = shape.has("sent_at");
    let (from, until) = (filter.from.is_some(), filter.until.is_some());
    let words = [
        ("by_event_type", filter.event_type.is_some()),
        ("by_destination", filter.destination.is_some()),
        ("by_aggregate", filter.aggregate.is_some()),
        ("by_from", from),
        ("by_from_sent", from && sent),
        ("by_from_created", from && !sent),
        ("by_until", until),
        ("by_until_sent", until && sent),
        ("by_until_created", until && !sent),
        ("by_id", !filter.ids.is_empty()),
        ("after_sequence", matches!(after, Some(Place::Sequence(_)))),
        ("after_id", matches!(after, Some(Place::Id(_)))),
    ];
    let mut present = shape.present();
    present.extend(words.into_iter().filter(|(_, taken)| *taken).map(|(word, _)| word.to_owned()));
    let rendering = Rendering::new(QUOTE).names(outbox.mapping().names()).present(&present);
    Text::rendered(rendering.placeholders(bucket(filter.ids.len())).render(REPLAY_PAGE))
}
