//! The core of consign: the vocabulary as types, the engines as state machines, and the ports adapters implement.
//! No I/O, no runtime, no clock, no randomness of its own: the same code runs in production and in simulation.
//!
//! Two lines tell the story, and each arrow consumes what stands left of it:
//!
//! ```text
//! row ─claim─► Claim ─start(now)─► (Publish, Pending) ─broker─► Outcome ─judge─► Settlement ─store─► Settled
//! frame ─► Delivery{message, receipt} ─select─► Operation ─process─► Committed{processed, receipt} ─ack─► done
//!                                                          └► Failed{error, receipt} ─retry | dead-letter
//! ```
//!
//! - [`event`], [`route`]: what is published and where to. [`lease`], [`outcome`], [`settle`], [`retry`]: a row's life.
//! - [`relay`]: the relay engine; takes inputs, gives commands.
//! - [`delivery`], [`operation`], [`guard`], [`inbox`]: a delivery's life. [`declared`]: consumers declared in a config.
//! - [`consumer`]: what becomes of deliveries around the inbox. [`filter`]: hints about repeats from outside the database.
//! - [`transaction`]: messages that go out exactly when a local transaction commits.
//! - [`safeguard`]: the guards by name, for tests that take one away.
//! - [`json`], [`value`]: exact reading of payload fields.
//! - [`ports`]: what stores, destinations and sources implement. [`time`]: spans and randomness.

pub mod consumer;
pub mod declared;
pub mod delivery;
pub mod event;
pub mod filter;
pub mod finding;
pub mod guard;
pub mod inbox;
pub mod json;
pub mod lease;
pub mod operation;
pub mod outcome;
pub mod ports;
pub mod relay;
pub mod retry;
pub mod route;
pub mod safeguard;
pub mod settle;
pub mod time;
pub mod transaction;
pub mod value;
