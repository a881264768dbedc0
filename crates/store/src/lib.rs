//! Stores: the outbox and the inbox on MySQL (8 and later, MariaDB 10.6 and later) and on SQLite.
//!
//! - [`mapping`]: the configured names of tables and columns, validated. [`statement`]: SQL files and how they are
//!   rendered for those names. [`introspection`]: what a table really has.
//! - [`append`]: what producers may append. [`row`]: a stored row on its way to a claim. [`settling`]: settlements
//!   grouped into statements. [`headers`], [`diagnostic`]: headers as JSON text, texts cut to their column.
//! - Ordered claims: [`order`]. What is kept for how long: [`retention`].
//! - What a consumer demands of its markers: [`demand`]. Counts: [`status`]. What people look at and decide about: [`record`], [`replay`].
//! - Markers of transaction messages: [`transaction`].
//! - `mysql`, `sqlite`: the dialects, behind the features of the same names. SQL lives in their `sql` folders.

pub mod append;
pub mod demand;
pub mod diagnostic;
#[cfg(test)]
mod fuzz;
pub mod headers;
pub mod introspection;
pub mod mapping;
#[cfg(feature = "mysql")]
pub mod mysql;
pub mod order;
pub mod record;
pub mod replay;
pub mod retention;
pub mod row;
pub mod settling;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod statement;
pub mod status;
pub mod transaction;
