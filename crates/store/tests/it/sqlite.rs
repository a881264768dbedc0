//! SQLite. Every test makes a file of its own.

mod file;
mod suites;
