//! The client against a scripted peer, and against a real broker.

mod broker;
