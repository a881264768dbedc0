//! Records for people: conflicts, dead deliveries, dead events, and what an operator does about them.
//!
//! Both dialects take and give these types. Times are text as the database has them, `YYYY-MM-DD HH:MM:SS.ffffff`, in
//! the time zone of the store's sessions. Texts and payloads are bounded where the tables are, and a record says so:
//! a payload shorter than its `payload_bytes` was cut.

use std::time::Duration;

use bytes::Bytes;
use consign_core::event::Headers;

pub(crate) mod draft;

/// Of a payload in a list, at most this many bytes are given; a single record has all that is kept.
pub const LIST_PAYLOAD_BYTES: usize = 1024;

/// Who does something, and why: written into `consign_audit` in the transaction that does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// The person or the program.
    pub actor: String,
    /// Why, in words.
    pub detail: Option<String>,
}

/// Which conflicts to list, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictFilter {
    /// Of this consumer.
    pub consumer: Option<String>,
    /// Of this business key.
    pub key: Option<String>,
    /// Only those nobody has resolved.
    pub unresolved_only: bool,
    /// At most this many.
    pub limit: u32,
}

/// Which dead deliveries or dead events to list, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadFilter {
    /// Dead deliveries of this consumer; dead events have none.
    pub consumer: Option<String>,
    /// Of this event type, or message type.
    pub event_type: Option<String>,
    /// Dead events for this destination; dead deliveries have none.
    pub destination: Option<String>,
    /// Whose reason holds this text.
    pub reason_contains: Option<String>,
    /// Seen last, or created, longer ago than this.
    pub older_than: Option<Duration>,
    /// Only dead deliveries nobody has dealt with.
    pub unresolved_only: bool,
    /// At most this many.
    pub limit: u32,
}

/// A key that came again with other content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictRecord {
    /// The record.
    pub id: i64,
    /// The consumer.
    pub consumer: String,
    /// The business key.
    pub business_key: String,
    /// The event that came.
    pub event_id: Option<String>,
    /// The event that was applied.
    pub existing_event_id: Option<String>,
    /// What came, as the consumer compares it.
    pub comparison: String,
    /// What was applied, as the consumer compares it.
    pub existing: String,
    /// The message's id.
    pub message_id: Option<String>,
    /// The message's type.
    pub message_type: Option<String>,
    /// The queue or topic it came from.
    pub source: String,
    /// The message's headers.
    pub headers: Headers,
    /// The message's body, cut to 64 KiB.
    pub payload: Bytes,
    /// The body's real length.
    pub payload_bytes: u64,
    /// The applied event's payload, cut to 64 KiB, when the outbox was in reach.
    pub existing_payload: Option<Bytes>,
    /// The applied payload's real length.
    pub existing_payload_bytes: Option<u64>,
    /// How often it came.
    pub count: u64,
    /// When it came first.
    pub first_seen_at: String,
    /// When it came last.
    pub last_seen_at: String,
    /// When somebody resolved it.
    pub resolved_at: Option<String>,
    /// How: `kept` or `reprocessed`.
    pub resolution: Option<String>,
}

/// A delivery that no consumer could process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadDeliveryRecord {
    /// The record.
    pub id: i64,
    /// The consumer.
    pub consumer: String,
    /// The business key, when it could be computed.
    pub business_key: Option<String>,
    /// The message's id.
    pub message_id: Option<String>,
    /// The message's type.
    pub message_type: Option<String>,
    /// The queue or topic it came from.
    pub source: String,
    /// Why it was put aside.
    pub reason: String,
    /// How often it was tried.
    pub attempts: Option<u32>,
    /// The message's headers.
    pub headers: Headers,
    /// The message's body.
    pub payload: Bytes,
    /// The body's real length.
    pub payload_bytes: u64,
    /// How often it was put aside.
    pub count: u64,
    /// When it was put aside first.
    pub first_seen_at: String,
    /// When it was put aside last.
    pub last_seen_at: String,
    /// When somebody dealt with it.
    pub resolved_at: Option<String>,
    /// How: `requeued` or `discarded`.
    pub resolution: Option<String>,
}

/// An event of the outbox that was given up, or put aside by an operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadEvent {
    /// The event.
    pub event_id: String,
    /// Its status, of which only `DEAD` is listed.
    pub status: String,
    /// Its type.
    pub event_type: String,
    /// The type of its aggregate.
    pub aggregate_type: Option<String>,
    /// Its aggregate.
    pub aggregate_id: Option<String>,
    /// Its business key.
    pub business_key: Option<String>,
    /// Where it was to go, when the event names it.
    pub destination: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// Why it died, when the table keeps it.
    pub last_error: Option<String>,
    /// The last publish's outcome, when the table keeps it.
    pub last_outcome: Option<String>,
    /// Its payload.
    pub payload: Option<Bytes>,
    /// The payload's length.
    pub payload_bytes: Option<u64>,
    /// When it was written.
    pub created_at: Option<String>,
}

/// Which markers to purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeMarkers {
    /// Those applied longer ago than this. It must exceed the longest retry and replay horizon: a repeat that comes
    /// after its marker is gone is applied again.
    pub retention: Duration,
    /// Markers looked at in one read, and deleted in one transaction.
    pub page: u32,
    /// Stop after this many were purged; `None` goes on to the end of the table.
    pub limit: Option<u64>,
}

/// What a purge would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgePlan {
    /// Markers looked at.
    pub examined: u64,
    /// Markers that would be deleted.
    pub old: u64,
    /// Markers without a date, which are kept for ever.
    pub undated: u64,
    /// When the oldest of those that would be deleted was applied.
    pub oldest_applied_at: Option<String>,
}

/// What a purge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Markers looked at.
    pub examined: u64,
    /// Markers deleted.
    pub purged: u64,
    /// Markers without a date, which are kept for ever.
    pub undated: u64,
    /// Transactions that deleted something.
    pub pages: u64,
    /// The end of the table was reached.
    pub finished: bool,
}

impl Default for ConflictFilter {
    /// Every conflict, at most a hundred.
    fn default() -> Self {
        Self { consumer: None, key: None, unresolved_only: false, limit: 100 }
    }
}

impl Default for DeadFilter {
    /// Everything dead, at most a hundred.
    fn default() -> Self {
        Self {
            consumer: None,
            event_type: None,
            destination: None,
            reason_contains: None,
            older_than: None,
            unresolved_only: false,
            limit: 100,
        }
    }
}
