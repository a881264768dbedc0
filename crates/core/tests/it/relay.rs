//! The relay engine, driven by inputs.

mod circuit;
mod claiming;
mod doubt;
mod drain;
mod outcome;
mod publishing;
mod settling;
mod suspect;
mod sweeping;
