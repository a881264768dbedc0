//! Wake-ups: a producer tells the relay that it committed, so that nobody waits for the next poll.
//!
//! ```text
//! producer: COMMIT ─► Notifier ─(one datagram)─► listen ─► Wakeup ─► RelayRuntime: claims now
//! same process: COMMIT ───────────────────────────────────► Wakeup ─┘
//! ```
//!
//! Wake after the commit, never before it: a claim that comes too early finds nothing. A lost wake-up costs latency, never
//! an event, because the relay polls as well. A wake-up can cause one claim and nothing else.
//!
//! ```no_run
//! # async fn example(pool: sqlx::MySqlPool, outbox: consign::outbox::MySqlOutbox) -> Result<(), Box<dyn std::error::Error>> {
//! use consign::outbox::NewEvent;
//! use consign::wakeup::Notifier;
//!
//! let notifier = Notifier::new("unix:/run/consign/wakeup.sock".parse()?)?;
//! let mut tx = pool.begin().await?;
//! outbox.append(&mut tx, NewEvent::new("OrderPaid", 42, r#"{"orderId":42}"#)).await?;
//! tx.commit().await?;
//! notifier.notify();
//! # Ok(())
//! # }
//! ```

mod address;
mod listener;
mod notifier;

use std::sync::Arc;

use tokio::sync::Notify;

pub use address::{Address, InvalidAddress};
pub use listener::{ListenError, listen};
pub use notifier::Notifier;

/// Wakes one relay of this process. Clones wake the same one; any number of wakes before it looks count as one.
#[derive(Clone, Debug, Default)]
pub struct Wakeup(Arc<Notify>);

impl Wakeup {
    /// Says that something was committed. Never waits; costs an atomic operation.
    pub fn wake(&self) {
        self.0.notify_one();
    }

    /// Resolves once somebody woke; at once when that was before. Dropping the future forgets no wake.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}
