//! MySQL 8 and later, and MariaDB 10.6 and later.
//!
//! - `connection`: pools, units of work. `failure`: what the server's errors mean. `statement`, `introspection`.
//! - `outbox` with `claim`, `settle`, `sweep`, `attempts`, `append`, `dead`, `decide`, `replay`, `retention`: the outbox.
//!   `inbox`: markers and business writes.
//! - `ordered`: claims in the order of each aggregate, and partitions.
//! - `audit`: what people did.
//! - `transaction`: markers of transaction messages.
//! - `schema`: creating and extending tables. `findings`: what `doctor` reports.
//!
//! Lock order: outbox rows by primary key ascending; a marker before the business rows of its operation.

mod append;
mod attempts;
mod audit;
mod bookmark;
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
mod packet;
mod prepared;
mod replay;
mod retention;
mod schema;
mod settle;
mod statement;
mod sweep;
mod transaction;

pub use connection::{Database, Encryption, Options};
pub use inbox::{Inbox, Transaction};
pub use ordered::OrderedOutbox;
pub use outbox::Outbox;
pub use schema::{PayloadColumn, Schema};
pub use transaction::TransactionMarkers;
