//! One file per command.

pub mod bench;
pub mod conflicts;
pub mod consume;
pub mod dead;
pub mod demo;
pub mod doctor;
pub mod lab;
pub mod migrate;
pub mod purge;
pub mod replay;
pub mod run;
pub mod sim;
pub mod status;
pub mod topology;
