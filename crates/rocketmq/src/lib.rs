//! A thin client for Apache RocketMQ 5.
//!
//! Messages travel over the proxy's gRPC v2 protocol; administration (topics, groups, broker settings) over the remoting
//! protocol of name server and broker. The client retries nothing and hides no status: what a send came to is the caller's
//! to judge.
//!
//! - [`Producer`]: messages, half messages and their ends, the broker's checks.
//! - [`Consumer`]: receiving, acknowledging, invisible times, dead letters.
//! - [`CallError`]: what a call came to when not OK: not sent, answered, or unknown.
//! - [`admin`]: topics, groups, settings, offsets and stored messages, over the remoting protocol.

pub mod admin;
mod body;
mod code;
mod consumer;
mod credentials;
mod error;
mod generated;
mod group_settings;
mod identity;
mod message;
mod options;
mod producer;
mod readiness;
mod route;
mod session;
mod signature;
mod status;
mod topic_kind;
mod transport;

pub use code::Code;
pub use consumer::{Consumer, Filter, Handle, HandleKept, Received, Subscription};
pub use credentials::Credentials;
pub use error::{CallError, StartError};
pub use group_settings::GroupSettings;
pub use message::{Kind, Message};
pub use options::{Address, Options, TlsOptions, UrlError};
pub use producer::{EndSent, Half, Orphan, Orphans, Producer, Receipt, Resolution};
pub use readiness::Readiness;
pub use route::TopicRoute;
pub use topic_kind::TopicKind;
