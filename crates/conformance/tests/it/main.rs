//! The suites' own tools.

mod proxy;
mod suites;
mod waiting;
