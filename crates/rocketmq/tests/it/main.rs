//! The client against a scripted peer and against a real cluster, whose proxy and name server are named by
//! `CONSIGN_TEST_ROCKETMQ_URL` and `CONSIGN_TEST_ROCKETMQ_NAMESRV`. Without them these tests fail: a test that passes
//! because it did not run proves nothing.

mod admin;
mod broker;
mod remoting;
