//! One file per command.

pub mod bench;
pub mod consume;
pub mod demo;
pub mod doctor;
pub mod migrate;
pub mod run;
pub mod status;
pub mod topology;
