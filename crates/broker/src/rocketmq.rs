//! RocketMQ 5.
//!
//! - [`Topology`]: what topics and consumer groups must be, and what the brokers' settings mean for messages.

mod topology;

pub use topology::{Applied, Group, Topic, Topology, TopologyError, Transactions, without_name_server};

/// How to reach name servers and brokers for administration, and what kinds of topics there are.
pub use consign_rocketmq::{
    TopicKind,
    admin::{Admin, AdminError, AdminOptions, Credentials},
};
