//! The simulator runs: seeds are safe, drain, and meet every rare situation.

mod inbox;
#[cfg(feature = "mutants")]
mod mutants;
mod seeds;
