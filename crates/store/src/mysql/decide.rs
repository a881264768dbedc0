//! Decisions about many events at once: each call is one transaction with its lines of the audit.

use consign_core::event::EventId;
use consign_core::ports::StoreError;
use futures_util::FutureExt;
use sqlx::{MySqlConnection, Row, query};

use crate::mysql::audit;
use crate::mysql::connection::{Lane, UnitError};
use crate::mysql::outbox::Outbox;
use crate::mysql::statement::{DEAD_EVENT_REQUEUE, EVENT_DISCARD, EVENT_REPLAY, EVENTS_STANDING, ListText};
use crate::record::Audit;
use crate::record::draft::AuditDraft;
use crate::statement::{lists, padded};

/// What is decided: whose status it needs, what happens, and its word in the audit.
#[derive(Clone, Copy)]
struct Decision {
    standing: &'static str,
    file: &'static str,
    action: &'static str,
}

const REQUEUE: Decision = Decision { standing: "dead", file: DEAD_EVENT_REQUEUE, action: "event_requeue" };
const DISCARD: Decision =
    Decision { standing: "waiting_or_dead", file: EVENT_DISCARD, action: "event_discard" };
const REPLAY: Decision = Decision { standing: "sent", file: EVENT_REPLAY, action: "event_replay" };

impl Outbox {
    /// Gives dead events another life: due now, with all their attempts. Gives those that were dead.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses: nothing is changed.
    pub async fn requeue_dead(&self, ids: &[EventId], audit: &Audit) -> Result<Vec<EventId>, StoreError> {
        self.decide(ids, REQUEUE, audit).await
    }

    /// Puts waiting or dead events aside for good. Gives those that were either.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses: nothing is changed.
    pub async fn discard(&self, ids: &[EventId], audit: &Audit) -> Result<Vec<EventId>, StoreError> {
        self.decide(ids, DISCARD, audit).await
    }

    /// Lets the relays publish sent events again under the same event ids. Gives those that were sent.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses: nothing is changed.
    pub async fn replay(&self, ids: &[EventId], audit: &Audit) -> Result<Vec<EventId>, StoreError> {
        self.decide(ids, REPLAY, audit).await
    }

    async fn decide(
        &self,
        ids: &[EventId],
        decision: Decision,
        audit: &Audit,
    ) -> Result<Vec<EventId>, StoreError> {
        let (names, shape) = (self.mapping().names(), self.shape().await?);
        let standing = ListText::with_words(EVENTS_STANDING, names, &shape, [(decision.standing, true)]);
        let update = ListText::new(decision.file, names, &shape);
        let (audit, mut ids) = (audit.clone(), ids.to_vec());
        // Rows are changed in key order, as everywhere.
        ids.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        ids.dedup();
        let unit = self.database().transact(Lane::General, move |connection| {
            async move {
                let mut decided = Vec::with_capacity(ids.len());
                for list in lists(&ids) {
                    let found = change(connection, &standing, &update, list).await?;
                    let drafts = found.iter().map(|id| AuditDraft::new(&audit, decision.action, id.as_str()));
                    audit::insert_all(connection, &drafts.collect::<Vec<_>>()).await?;
                    decided.extend(found);
                }
                Ok(decided)
            }
            .boxed()
        });
        unit.await
    }
}

/// Changes those of the list that stand where the decision needs them.
async fn change(
    connection: &mut MySqlConnection,
    standing: &ListText,
    update: &ListText,
    list: &[EventId],
) -> Result<Vec<EventId>, UnitError> {
    let mut select = query(standing.sized(list.len()).sql());
    for id in padded(list) {
        select = select.bind(id.as_str());
    }
    let rows = select.fetch_all(&mut *connection).await?;
    let found = rows.iter().map(|row| Ok(EventId::stored(row.try_get_unchecked::<String, _>("event_id")?)));
    let found: Vec<EventId> = found.collect::<Result<_, sqlx::Error>>()?;
    if found.is_empty() {
        return Ok(found);
    }
    let mut statement = query(update.sized(found.len()).sql());
    for id in padded(&found) {
        statement = statement.bind(id.as_str());
    }
    let changed = statement.execute(connection).await?.rows_affected();
    if changed != found.len() as u64 {
        let wanted = found.len();
        return Err(
            StoreError::Mismatch(format!("a decision changed {changed} rows instead of {wanted}")).into()
        );
    }
    Ok(found)
}
