//! SQLite: one file, shared by any number of processes, each of which may be killed at any moment.
//!
//! - `connection`: the file, units of work. `failure`: what SQLite's errors mean. `statement`, `introspection`.
//! - `outbox` with `claim`, `settle`, `sweep`, `append`: the outbox. `dead`: what people do about dead events.
//! - `inbox`: markers and business writes, guards' progress, parked deliveries, and what people do about conflicts and
//!   dead deliveries. `audit`: who did it.
//! - `transaction`: markers of transaction messages.
//! - `schema`: creating and extending tables. `findings`: what `doctor` reports.
//!
//! A unit of work is one `BEGIN IMMEDIATE` transaction: it takes the file's write lock before it reads, so that it
//! never has to turn a read lock into a write lock, which SQLite refuses at once when another writer came first
//! (B75, `vjt/grappa-irc#524`). Inside a process writers queue for one connection; between processes SQLite's busy
//! handler waits. Where MySQL locks rows and skips locked ones, the lock here covers the file: a claim that cannot
//! get it in time is contended and owns nothing.

mod append;
mod attempts;
mod audit;
mod claim;
mod connection;
mod dead;
mod decide;
mod failure;
mod findings;
mod inbox;
mod introspection;
mod ordered;
mod outbox;
mod prepared;
mod replay;
mod retention;
mod schema;
mod settle;
mod statement;
mod sweep;
mod transaction;

pub use connection::{Creation, Database, Options};
pub use inbox::{Inbox, Transaction};
pub use ordered::OrderedOutbox;
pub use outbox::Outbox;
pub use schema::Schema;
pub use transaction::TransactionMarkers;
