//! A deterministic simulator: the shipped engines of consign over a store, a broker and a clock in memory.
//!
//! A seed decides everything: the size of the world, which kinds of faults happen in it, and when. Invariants are
//! checked at every step; once the faults have stopped, everything must drain. The same seed always runs the same way.
//!
//! - [`options`]: what a seed decides before it runs. [`world`]: what then happens.
//! - [`inbox`]: the consumers. [`store`], [`broker`]: the outbox's database and the broker. [`queue`], [`draw`]: the schedule and its randomness.
//! - [`book`], [`trace`], [`situation`]: what is written down.
//! - [`run`]: many seeds. [`report`]: what they came to. [`shrink`], [`render`]: a failure made small, as a table.
//! - [`guard`]: the store's guards, for the mutants of the feature `mutants`.

pub mod book;
pub mod broker;
pub mod draw;
pub mod guard;
pub mod inbox;
#[cfg(feature = "mutants")]
pub mod mutants;
pub mod options;
pub mod queue;
pub mod render;
pub mod report;
pub mod run;
pub mod shrink;
pub mod situation;
pub mod store;
pub mod trace;
pub mod world;
