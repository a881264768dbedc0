//! A thin client for Apache RocketMQ 5.
//!
//! Messages travel over the proxy's gRPC v2 protocol; administration (topics, groups, broker settings) over the remoting
//! protocol of name server and broker. The client retries nothing and hides no status: what a send came to is the caller's
//! to judge.
//!
//! - [`admin`]: topics, groups, settings, offsets and stored messages, over the remoting protocol.

pub mod admin;
mod signature;
mod topic_kind;

pub use topic_kind::TopicKind;
