//! Reliable messaging for applications: what a service imports, and the runtime that drives the engines.
//!
//! - [`outbox`]: appending events. [`adapters`]: the kinds of destination and source a config can name.
//! - [`relay`]: claims outbox rows, publishes them, settles them. [`consumer`]: runs deliveries through the inbox.
//! - [`transaction`]: messages that go out exactly when a local transaction commits, without an outbox.
//! - [`inbox`]: consumers in Rust. [`wakeup`]: telling a relay that something was committed.
//! - [`reload`]: new settings for running relays. [`clock`], [`draw`], [`shutdown`]: what the engines get from the process.

pub mod adapters;
pub mod clock;
pub mod consumer;
pub mod draw;
pub mod inbox;
pub mod outbox;
pub mod relay;
pub mod reload;
pub mod shutdown;
pub mod transaction;
pub mod wakeup;
