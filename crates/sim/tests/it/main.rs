//! The simulator runs: seeds are safe, drain, and meet every rare situation.

mod seeds;
