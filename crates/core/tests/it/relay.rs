//! The relay engine, driven by inputs.

mod circuit;
mod claiming;
mod doubt;
mod drain;
mod ordering;
mod outcome;
mod publishing;
mod reconfiguring;
mod settling;
mod suspect;
mod sweeping;
