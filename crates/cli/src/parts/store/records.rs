//! The records people decide about, in either dialect.

use std::ops::ControlFlow;
use std::time::Duration;

use consign_core::event::EventId;
use consign_core::ports::StoreError;
use consign_store::introspection::TableShape;
use consign_store::record::{
    Audit, ConflictFilter, ConflictRecord, DeadDeliveryRecord, DeadEvent, DeadFilter, PurgeMarkers,
    PurgePlan, PurgeReport,
};
use consign_store::replay::{ReplayFilter, ReplayPage};
use consign_store::retention::{PurgeStep, Retention, SentPosition};

use super::Store;
use crate::config::{Config, OutboxConfig};

/// The name this process has as a relay, which it never is.
const OPERATOR: &str = "operator";

/// Asks the inbox of whichever dialect is open.
macro_rules! inbox {
    ($store:expr, $config:expr, $inbox:ident => $answer:expr) => {
        match $store {
            Store::MySql(store) => {
                let $inbox = store.inbox($config).await?;
                Ok($answer.await?)
            }
            Store::Sqlite(store) => {
                let $inbox = store.inbox($config).await?;
                Ok($answer.await?)
            }
        }
    };
}

/// Asks an outbox of whichever dialect is open.
macro_rules! outbox {
    ($store:expr, $config:expr, $outbox:ident => $answer:expr) => {
        match $store {
            Store::MySql(store) => {
                let $outbox = store.outbox($config, OPERATOR)?;
                Ok($answer.await?)
            }
            Store::Sqlite(store) => {
                let $outbox = store.outbox($config, OPERATOR)?;
                Ok($answer.await?)
            }
        }
    };
}

/// Conflicts and markers. Every failure of the store itself is a [`StoreError`] inside the error.
impl Store {
    /// Conflicts, the newest first.
    pub async fn conflicts(
        &self,
        config: &Config,
        filter: &ConflictFilter,
    ) -> anyhow::Result<Vec<ConflictRecord>> {
        inbox!(self, config, inbox => inbox.conflicts(filter))
    }

    /// One conflict.
    pub async fn conflict(&self, config: &Config, id: i64) -> anyhow::Result<Option<ConflictRecord>> {
        inbox!(self, config, inbox => inbox.conflict(id))
    }

    /// Lets the applied content stand. `false` when no unresolved conflict has this id.
    pub async fn keep_conflict(&self, config: &Config, id: i64, audit: &Audit) -> anyhow::Result<bool> {
        inbox!(self, config, inbox => inbox.keep_conflict(id, audit))
    }

    /// Drops the marker and lets the consumers process the message that came. `false` when no unresolved conflict
    /// has this id.
    pub async fn reprocess_conflict(&self, config: &Config, id: i64, audit: &Audit) -> anyhow::Result<bool> {
        inbox!(self, config, inbox => inbox.reprocess_conflict(id, audit))
    }

    /// Counts the markers that a purge would delete.
    pub async fn plan_purge(&self, config: &Config, purge: &PurgeMarkers) -> anyhow::Result<PurgePlan> {
        inbox!(self, config, inbox => inbox.plan_purge(purge))
    }

    /// Deletes old markers for as long as `observe` lets it go on after a page.
    pub async fn purge_markers(
        &self,
        config: &Config,
        purge: &PurgeMarkers,
        observe: impl FnMut(&PurgeReport) -> ControlFlow<()> + Send,
    ) -> anyhow::Result<PurgeReport> {
        inbox!(self, config, inbox => inbox.purge_markers_while(purge, observe))
    }
}

/// What was given up.
impl Store {
    /// Dead deliveries, the oldest first.
    pub async fn dead_deliveries(
        &self,
        config: &Config,
        filter: &DeadFilter,
    ) -> anyhow::Result<Vec<DeadDeliveryRecord>> {
        inbox!(self, config, inbox => inbox.dead_deliveries(filter))
    }

    /// One dead delivery.
    pub async fn dead_delivery(
        &self,
        config: &Config,
        id: i64,
    ) -> anyhow::Result<Option<DeadDeliveryRecord>> {
        inbox!(self, config, inbox => inbox.dead_delivery(id))
    }

    /// Lets the consumers process a dead delivery again. `false` when none that waits for a decision has this id.
    pub async fn requeue_dead_delivery(
        &self,
        config: &Config,
        id: i64,
        audit: &Audit,
    ) -> anyhow::Result<bool> {
        inbox!(self, config, inbox => inbox.requeue_dead_delivery(id, audit))
    }

    /// Puts a dead delivery aside for good. `false` when none that waits for a decision has this id.
    pub async fn discard_dead_delivery(
        &self,
        config: &Config,
        id: i64,
        audit: &Audit,
    ) -> anyhow::Result<bool> {
        inbox!(self, config, inbox => inbox.discard_dead_delivery(id, audit))
    }

    /// Dead events, the oldest first.
    pub async fn dead_events(
        &self,
        outbox: &OutboxConfig,
        filter: &DeadFilter,
    ) -> anyhow::Result<Vec<DeadEvent>> {
        outbox!(self, outbox, outbox => outbox.dead(filter))
    }

    /// One event, whatever its status.
    pub async fn dead_event(
        &self,
        outbox: &OutboxConfig,
        event_id: &str,
    ) -> anyhow::Result<Option<DeadEvent>> {
        let event_id = EventId::stored(event_id);
        outbox!(self, outbox, outbox => outbox.dead_event(&event_id))
    }

    /// Lets the relays publish dead events again, in one transaction. Gives those that were DEAD.
    pub async fn requeue_events(
        &self,
        outbox: &OutboxConfig,
        ids: &[EventId],
        audit: &Audit,
    ) -> anyhow::Result<Vec<EventId>> {
        outbox!(self, outbox, outbox => outbox.requeue_dead(ids, audit))
    }

    /// Puts events aside for good, in one transaction. Gives those that were NEW or DEAD.
    pub async fn discard_events(
        &self,
        outbox: &OutboxConfig,
        ids: &[EventId],
        audit: &Audit,
    ) -> anyhow::Result<Vec<EventId>> {
        outbox!(self, outbox, outbox => outbox.discard(ids, audit))
    }
}

/// Forgetting what was sent.
impl Store {
    /// The date before which rows of this age are old.
    pub async fn before(&self, outbox: &OutboxConfig, age: Duration) -> anyhow::Result<String> {
        outbox!(self, outbox, outbox => outbox.before(age))
    }

    /// Looks at the next sent rows.
    pub async fn look_at_sent(
        &self,
        outbox: &OutboxConfig,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> anyhow::Result<PurgeStep> {
        outbox!(self, outbox, outbox => outbox.look_at_sent(before, after, rows))
    }

    /// Deletes those of the next sent rows that are old.
    pub async fn purge_sent(
        &self,
        outbox: &OutboxConfig,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> anyhow::Result<PurgeStep> {
        outbox!(self, outbox, outbox => outbox.purge_sent(before, after, rows))
    }
}

/// Publishing again.
impl Store {
    /// The database's time so long ago, as text.
    pub async fn moment(&self, outbox: &OutboxConfig, ago: Duration) -> anyhow::Result<String> {
        outbox!(self, outbox, outbox => outbox.moment(ago))
    }

    /// Which optional columns an outbox has.
    pub async fn outbox_shape(&self, outbox: &OutboxConfig) -> anyhow::Result<TableShape> {
        outbox!(self, outbox, outbox => outbox.shape())
    }

    /// The next stretch of a replay's walk.
    pub async fn replay_page(
        &self,
        outbox: &OutboxConfig,
        filter: &ReplayFilter,
        after: Option<&str>,
        rows: u32,
    ) -> anyhow::Result<ReplayPage> {
        outbox!(self, outbox, outbox => outbox.replay_page(filter, after, rows))
    }

    /// Lets the relays publish sent events again, in one transaction. Gives those that were SENT.
    pub async fn replay_events(
        &self,
        outbox: &OutboxConfig,
        ids: &[EventId],
        audit: &Audit,
    ) -> anyhow::Result<Vec<EventId>> {
        outbox!(self, outbox, outbox => outbox.replay(ids, audit))
    }
}

/// The text of a schema that does not fit, when that is what failed: a table that nobody migrated yet.
pub fn missing_schema(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| match cause.downcast_ref::<StoreError>() {
        Some(failure @ StoreError::Schema(_)) => Some(failure.to_string()),
        Some(_) | None => None,
    })
}
