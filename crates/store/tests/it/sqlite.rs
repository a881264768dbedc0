//! SQLite. Every test makes a file of its own.

mod append;
mod contention;
mod file;
mod findings;
mod inbox;
mod opening;
mod processes;
mod schema;
mod statements;
mod suites;
