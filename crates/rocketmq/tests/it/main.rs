//! The client against a scripted peer and against a real cluster, whose proxy and name server are named by
//! `CONSIGN_TEST_ROCKETMQ_URL` and `CONSIGN_TEST_ROCKETMQ_NAMESRV`. Without them these tests fail: a test that passes
//! because it did not run proves nothing.

mod admin;
mod broker;
#[allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[path = "../../src/generated/messages.rs"]
mod messages;
mod peer;
mod remoting;
mod sending;
#[allow(missing_docs, dead_code, clippy::all, clippy::pedantic)]
#[rustfmt::skip]
#[path = "generated/service.rs"]
mod service;
mod session;
