//! What a service imports to append events inside its own transaction.
//!
//! ```no_run
//! # async fn example(pool: sqlx::MySqlPool, outbox: consign::outbox::MySqlOutbox) -> Result<(), Box<dyn std::error::Error>> {
//! use consign::outbox::NewEvent;
//!
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE purchase_order SET status = 'PAID' WHERE id = ?").bind(42).execute(&mut *tx).await?;
//! outbox.append(&mut tx, NewEvent::new("OrderPaid", 42, r#"{"orderId":42,"userId":7,"amount":100}"#)).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```

pub use consign_core::event::{Aggregate, EventId, NewEvent};
pub use consign_store::append::AppendError;
pub use consign_store::mapping::{Identifier, OutboxMapping};
#[cfg(feature = "mysql")]
pub use consign_store::mysql::{Database as MySqlDatabase, Outbox as MySqlOutbox};
#[cfg(feature = "sqlite")]
pub use consign_store::sqlite::{Database as SqliteDatabase, Outbox as SqliteOutbox};
