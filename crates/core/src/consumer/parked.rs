//! The handle of a delivery that waited in the database, beside the broker's.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use crate::ports::{ParkReason, ParkedDelivery, Parking};
use crate::time::Monotonic;

/// The handle on a parked delivery: its row, under a lease.
#[derive(Debug)]
pub struct ParkedReceipt<S> {
    store: Arc<S>,
    id: i64,
    lease_token: String,
    /// When the lease ends, by the process's clock.
    until: Monotonic,
}

/// What is known of a parked delivery besides its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why it waited.
    pub reason: ParkReason,
    /// Its time is over.
    pub overdue: bool,
}

/// A delivery's handle, wherever the delivery came from.
#[derive(Debug)]
pub enum AnyReceipt<R, S> {
    /// From the broker.
    Broker(R),
    /// From the consumer's own database.
    Parked(ParkedReceipt<S>),
    /// Acknowledged before its time, as a missing guard would do.
    #[cfg(feature = "mutants")]
    Spent,
}

impl<R, S: Parking> AnyReceipt<R, S> {
    /// A delivery that the broker handed out.
    pub fn from_broker(delivery: Delivery<R>) -> Delivery<Self> {
        let Delivery { message, receipt } = delivery;
        Delivery { message, receipt: Self::Broker(receipt) }
    }

    /// A delivery that the store handed out under a lease until then, and what is known of its wait.
    pub fn from_parked(store: Arc<S>, parked: ParkedDelivery, until: Monotonic) -> (Delivery<Self>, Wait) {
        let ParkedDelivery { id, lease_token, reason, overdue, message } = parked;
        let receipt = Self::Parked(ParkedReceipt { store, id, lease_token, until });
        (Delivery { message, receipt }, Wait { reason, overdue })
    }

    /// True when the delivery belongs to whoever takes it next: its lease is over.
    pub(super) fn lapsed(&self, now: Monotonic) -> bool {
        matches!(self, Self::Parked(parked) if parked.until <= now)
    }
}

#[cfg(feature = "mutants")]
impl<R: Receipt, S: Parking> AnyReceipt<R, S> {
    /// Acknowledges now, whatever becomes of the delivery.
    pub(super) async fn spend(&mut self) {
        let receipt = std::mem::replace(self, Self::Spent);
        let _ = receipt.ack(AckPermit(())).await;
    }
}

impl<S: Parking> ParkedReceipt<S> {
    async fn ack(self, _: AckPermit) -> Result<(), ReceiptLost> {
        match self.store.unpark(self.id, &self.lease_token).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReceiptLost("the parked delivery was taken over".into())),
            Err(error) => Err(ReceiptLost(error.to_string())),
        }
    }
}

impl<R: Receipt, S: Parking> Receipt for AnyReceipt<R, S> {
    async fn ack(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        match self {
            Self::Broker(receipt) => receipt.ack(permit).await,
            Self::Parked(receipt) => receipt.ack(permit).await,
            #[cfg(feature = "mutants")]
            Self::Spent => Ok(()),
        }
    }

    /// A parked delivery is left to its lease.
    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        match self {
            Self::Broker(receipt) => receipt.retry(delay).await,
            Self::Parked(_) => Ok(()),
            #[cfg(feature = "mutants")]
            Self::Spent => Ok(()),
        }
    }

    /// A parked delivery has left its broker.
    async fn put_aside(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        match self {
            Self::Broker(receipt) => receipt.put_aside(permit).await,
            Self::Parked(receipt) => receipt.ack(permit).await,
            #[cfg(feature = "mutants")]
            Self::Spent => Ok(()),
        }
    }

    fn stays_with_broker(&self) -> bool {
        matches!(self, Self::Broker(receipt) if receipt.stays_with_broker())
    }
}
