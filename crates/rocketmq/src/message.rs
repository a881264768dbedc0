//! Messages on their way to the broker.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use prost_types::Timestamp;

use crate::generated::messages::{self, Encoding, MessageType, SystemProperties};
use crate::identity::{Identity, since_1970};

/// What kind of message it is. A message has one kind: a group, a delivery time and a transaction exclude each other
/// (`TopicMessageType.parseFromMessageProperty` of apache/rocketmq), so they cannot be combined here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Without order or delay. The only kind a half message can have.
    #[default]
    Normal,
    /// In order within its group.
    Fifo {
        /// The message group; at most 63 bytes under a proxy's defaults.
        group: String,
    },
    /// Visible from a time on.
    Delay {
        /// When it becomes visible; in the past means at once.
        deliver_at: SystemTime,
    },
}

/// A message to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Topic, without namespace.
    pub topic: String,
    /// Our own id of the message: any text that is not blank. Consumers see it, and all copies of one message have the
    /// same (the proxy stores it as `UNIQ_KEY` and sets one only where none is); the broker never deduplicates by it.
    pub message_id: String,
    /// The body; proxies refuse an empty one by default, and the broker one over 4 MiB.
    pub body: Bytes,
    /// The tag, at most one, that consumers filter by.
    pub tag: Option<String>,
    /// Keys to find the message by. No spaces: the broker separates keys by them.
    pub keys: Vec<String>,
    /// User properties; neither the protocol's reserved names nor control characters.
    pub properties: BTreeMap<String, String>,
    /// The kind.
    pub kind: Kind,
    /// When the message was born; `None` means now.
    pub born_at: Option<SystemTime>,
    /// Trace context that travels with the message.
    pub trace_context: Option<String>,
    /// For a half message: how long the broker waits for its end before it asks; `None` means as the broker is
    /// configured. An end that comes later than this is refused, only the answer to a check counts then.
    pub check_after: Option<Duration>,
}

/// Whether a message is a half message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Whole,
    Half,
}

impl Message {
    pub(crate) fn into_wire(self, identity: &Identity, stage: Stage) -> messages::Message {
        let (message_type, group, deliver_at) = match (stage, self.kind) {
            (Stage::Half, _) => (MessageType::Transaction, None, None),
            (Stage::Whole, Kind::Normal) => (MessageType::Normal, None, None),
            (Stage::Whole, Kind::Fifo { group }) => (MessageType::Fifo, Some(group), None),
            (Stage::Whole, Kind::Delay { deliver_at }) => (MessageType::Delay, None, Some(deliver_at)),
        };
        let born = self.born_at.map_or_else(since_1970, since_epoch);
        let system = SystemProperties {
            tag: self.tag,
            keys: self.keys,
            message_id: self.message_id,
            body_encoding: Encoding::Identity.into(),
            message_type: message_type.into(),
            born_timestamp: Some(timestamp(born)),
            born_host: identity.client_id().to_owned(),
            delivery_timestamp: deliver_at.map(|at| timestamp(since_epoch(at))),
            message_group: group,
            trace_context: self.trace_context,
            orphaned_transaction_recovery_duration: self
                .check_after
                .filter(|_| stage == Stage::Half)
                .map(duration),
            ..SystemProperties::default()
        };
        messages::Message {
            topic: Some(identity.resource(&self.topic)),
            user_properties: self.properties,
            system_properties: Some(system),
            body: self.body,
        }
    }
}

fn since_epoch(at: SystemTime) -> Duration {
    at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn timestamp(since_1970: Duration) -> Timestamp {
    Timestamp {
        seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since_1970.subsec_nanos()).unwrap_or_default(),
    }
}

/// A span on the wire.
pub(crate) fn duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or_default(),
    }
}

/// A date from the wire; nonsense is no date.
pub(crate) fn date(timestamp: Option<&Timestamp>) -> Option<SystemTime> {
    let timestamp = timestamp?;
    let (seconds, nanos) = (u64::try_from(timestamp.seconds).ok()?, u32::try_from(timestamp.nanos).ok()?);
    if nanos >= 1_000_000_000 {
        return None;
    }
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}
