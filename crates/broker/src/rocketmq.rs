//! RocketMQ 5.
//!
//! ```text
//! Publish ─► message ─► alone or in a batch ─► send status ─► Outcome
//! ```
//!
//! - [`RocketMqDestination`]: sends to topics of one type; the route key is the topic.
//! - [`RocketMqSource`]: a member of a consumer group; it holds messages for a time and settles each by its handle.
//! - [`Topology`]: what topics and consumer groups must be, and what the brokers' settings mean for messages.
//! - [`RocketMqHalves`], [`RocketMqLedger`]: transaction messages, and what became of them.

mod consumer;
mod destination;
mod property;
mod topology;
mod transaction;

pub use consumer::{RocketMqReceipt, RocketMqSource, SourceOptions};
pub use destination::{DestinationOptions, EmptyBody, MessageType, RocketMqDestination, StoredStatus};
pub use topology::{Applied, Group, Topic, Topology, TopologyError, Transactions, without_name_server};
pub use transaction::{RocketMqHalves, RocketMqLedger, RocketMqOrphan};

/// How to reach proxies and who calls, which messages of a topic are wanted, and why a client did not start.
pub use consign_rocketmq::{Credentials, Filter, Options, StartError, Subscription};

/// How to reach name servers and brokers for administration, and what kinds of topics there are.
pub use consign_rocketmq::{
    TopicKind,
    admin::{Admin, AdminError, AdminOptions, StoredMessage},
};
