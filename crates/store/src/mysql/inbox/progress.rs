//! Progress: how far a consumer came with its aggregates.

use std::collections::HashMap;

use consign_core::guard::Progress;
use consign_core::ports::{Advance, StoreError};
use sqlx::mysql::MySqlArguments;
use sqlx::{MySqlConnection, Row, query_with};

use crate::mysql::inbox::marker::Ready;
use crate::mysql::inbox::value::add;
use crate::mysql::packet;
use crate::mysql::statement::{ListText, PROGRESS_INSERT, PROGRESS_SELECT, PROGRESS_UPDATE, QUOTE, RowsText};
use crate::record::draft::{whole_aggregate, whole_consumer, whole_state};
use crate::statement::{Rendering, padded};

/// The statements on `consign_progress`.
#[derive(Debug)]
pub(super) struct ProgressTexts {
    select: ListText,
    insert: RowsText,
    update: RowsText,
}

/// What is to be locked.
#[derive(Debug)]
pub(super) struct Wanted {
    consumer: String,
    aggregates: Vec<String>,
}

impl ProgressTexts {
    pub(super) fn new() -> Self {
        let rendering = Rendering::new(QUOTE);
        Self {
            select: ListText::rendered(&rendering, PROGRESS_SELECT),
            insert: RowsText::rendered(&rendering, PROGRESS_INSERT),
            update: RowsText::rendered(&rendering, PROGRESS_UPDATE),
        }
    }

    /// Reads and locks, in the order wanted.
    pub(super) async fn lock(
        &self,
        connection: &mut MySqlConnection,
        wanted: &Wanted,
    ) -> Result<Vec<Option<Progress>>, sqlx::Error> {
        let mut found: HashMap<String, Progress> = HashMap::with_capacity(wanted.aggregates.len());
        let weigh = |aggregate: &String| packet::weight(1, aggregate.len());
        for aggregates in packet::pieces(&wanted.aggregates, |rest| packet::list(rest, weigh)) {
            let mut arguments = MySqlArguments::default();
            add(&mut arguments, wanted.consumer.as_str());
            for aggregate in padded(aggregates) {
                add(&mut arguments, aggregate.as_str());
            }
            let select = query_with(self.select.sized(aggregates.len()).sql(), arguments);
            for row in select.fetch_all(&mut *connection).await? {
                let progress =
                    Progress { version: row.try_get_unchecked(1)?, state: row.try_get_unchecked(2)? };
                found.insert(row.try_get_unchecked(0)?, progress);
            }
        }
        Ok(wanted.aggregates.iter().map(|aggregate| found.get(aggregate).cloned()).collect())
    }

    /// The statements that write the advances: first steps, which may meet a duplicate, then further ones.
    ///
    /// # Errors
    /// A name is longer than its column.
    pub(super) fn save(&self, consumer: &str, advances: &[Advance<'_>]) -> Result<Vec<Ready>, StoreError> {
        let consumer = whole_consumer(consumer)?;
        let mut ready = Vec::new();
        for first in [true, false] {
            let text = if first { &self.insert } else { &self.update };
            let mut rows = Vec::new();
            for advance in advances.iter().filter(|advance| advance.first == first) {
                let state = advance.progress.state.as_deref().map(whole_state).transpose()?;
                rows.push((whole_aggregate(advance.aggregate)?, advance.progress.version, state));
            }
            let weigh = |(aggregate, _, state): &(String, Option<i64>, Option<String>)| {
                let state = state.as_ref().map_or(0, String::len);
                packet::weight(4, consumer.len() + aggregate.len() + 8 + state)
            };
            for piece in packet::pieces(&rows, |rest| packet::rows(rest, weigh)) {
                let mut arguments = MySqlArguments::default();
                for (aggregate, version, state) in piece {
                    add(&mut arguments, *version);
                    add(&mut arguments, state.as_deref());
                    add(&mut arguments, consumer.as_str());
                    add(&mut arguments, aggregate.as_str());
                }
                ready.push((text.sized(piece.len()).clone(), arguments));
            }
        }
        Ok(ready)
    }
}

impl Wanted {
    /// # Errors
    /// A name is longer than its column.
    pub(super) fn new(consumer: &str, aggregates: &[&str]) -> Result<Self, StoreError> {
        Ok(Self {
            consumer: whole_consumer(consumer)?,
            aggregates: aggregates
                .iter()
                .map(|aggregate| whole_aggregate(aggregate))
                .collect::<Result<_, _>>()?,
        })
    }
}
