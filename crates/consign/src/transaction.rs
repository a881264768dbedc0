//! Transaction messages: consumers get a message exactly when a local transaction of the caller commits.
//!
//! ```no_run
//! # use consign::transaction::{BeginError, CommitFailed, HalfMessages, LocalMarkers, TransactionMessage, TransactionProducer};
//! # async fn example<M, H>(pool: sqlx::MySqlPool, producer: TransactionProducer<M, H>) -> Result<(), Box<dyn std::error::Error>>
//! # where M: LocalMarkers<Database = sqlx::MySql> + 'static, H: HalfMessages + 'static {
//! let message = TransactionMessage::new("orders", "OrderPaid", r#"{"orderId":42,"userId":7,"amount":100}"#);
//! let prepared = producer.begin(message).await?;          // the broker holds it back
//! let mut tx = pool.begin().await?;
//! let marked = prepared.mark(&mut tx).await?;             // the marker, in the same transaction
//! sqlx::query("UPDATE purchase_order SET status = 'PAID' WHERE id = ?").bind(42).execute(&mut *tx).await?;
//! marked.commit(tx).await?;                               // commits, then tells the broker
//! # Ok(())
//! # }
//! ```
//!
//! - [`producer`](TransactionProducer): the caller's side. [`service`]: answers check-backs, finds and repairs what the
//!   broker lost or gave up on, forgets old markers. Any instance that sees the database can run it, and one must.

mod dates;
mod producer;
pub mod service;

pub use consign_core::transaction::half::{HalfError, HalfMessages};
pub use consign_core::transaction::local::MarkError;
pub use consign_core::transaction::message::{InvalidMessage, StoreName, TransactionKey, TransactionMessage};
pub use consign_core::transaction::{InvalidSpans, Spans};
#[cfg(feature = "mysql")]
pub use consign_store::mysql::TransactionMarkers as MySqlMarkers;
#[cfg(feature = "sqlite")]
pub use consign_store::sqlite::TransactionMarkers as SqliteMarkers;
pub use consign_store::transaction::{LocalMarkers, MarkerKeeping, MessageCopy};
pub use producer::{BeginError, CommitFailed, CommitSent, Marked, Prepared, RunError, TransactionProducer};
