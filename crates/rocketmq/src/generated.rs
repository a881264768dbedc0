//! The gRPC v2 protocol as code, generated from `apache/rocketmq-apis` (see the NOTICE file of this crate).
//!
//! Generated once with protox 0.10 and tonic-prost-build 0.14.9 from commit `3e60073`, without comments: messages and
//! client here, the server part under `tests`. Nothing in the folder is edited by hand.

#![allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]

#[rustfmt::skip]
pub(crate) mod messages;
#[rustfmt::skip]
pub(crate) mod service;
