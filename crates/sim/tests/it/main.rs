//! The simulator runs: seeds are safe, drain, and meet every rare situation.

mod conformance;
mod inbox;
#[cfg(feature = "mutants")]
mod mutants;
mod seeds;
mod shrinking;
