//! SQLite. Every test makes a file of its own.

mod append;
mod applying;
mod contention;
mod file;
mod findings;
mod inbox;
mod marking;
mod opening;
mod ordered;
mod parking;
mod processes;
mod purge;
mod records;
mod retention;
mod schema;
mod statements;
mod suites;
mod transaction;
