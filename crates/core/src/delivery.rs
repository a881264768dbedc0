//! Deliveries: messages on their way into a consumer, and the right to acknowledge each one once.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::event::Headers;

/// A message as it came from a broker.
#[derive(Clone, Debug, Default)]
pub struct Message {
    /// The message id: the event id, when consign published it.
    pub id: Option<String>,
    /// The message type: the event's type.
    pub message_type: Option<String>,
    /// Headers with a text form.
    pub headers: Headers,
    /// The body, unchanged.
    pub body: Bytes,
    /// True when the broker says that it may have delivered the message before.
    pub redelivered: bool,
    /// How often the broker counted a delivery of this message, from 1; 1 when it does not count.
    pub delivery_count: u32,
    /// The queue or topic it came from.
    pub source: String,
    /// Set when properties or headers could not be decoded: the message must not be processed, only put aside.
    pub undecodable: Option<String>,
}

/// Permission to acknowledge. Only this crate makes one, and only after a commit.
///
/// ```
/// # use consign_core::delivery::{AckPermit, Receipt};
/// async fn acknowledge(receipt: impl Receipt, permit: AckPermit) {
///     let _ = receipt.ack(permit).await;
/// }
/// ```
///
/// ```compile_fail,E0423
/// # use consign_core::delivery::{AckPermit, Receipt};
/// async fn acknowledge(receipt: impl Receipt) {
///     let _ = receipt.ack(AckPermit(())).await;
/// }
/// ```
#[derive(Debug)]
pub struct AckPermit(pub(crate) ());

/// The handle is stale: its channel or lease is gone, and the broker will deliver the message again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the delivery's channel is gone, it will be delivered again: {0}")]
pub struct ReceiptLost(pub String);

/// An adapter's handle on one delivery: it owns the channel's identity and the delivery tag, is not `Clone` and
/// is used up by either method.
pub trait Receipt: Send + Sized {
    /// Acknowledges.
    fn ack(self, permit: AckPermit) -> impl Future<Output = Result<(), ReceiptLost>> + Send;

    /// Hands the delivery back, to come again after about `delay`.
    fn retry(self, delay: Duration) -> impl Future<Output = Result<(), ReceiptLost>> + Send;

    /// Gives up a delivery whose record for people is committed: moves it to the broker's own place for such messages,
    /// and acknowledges it where there is none.
    fn put_aside(self, permit: AckPermit) -> impl Future<Output = Result<(), ReceiptLost>> + Send {
        self.ack(permit)
    }

    /// True when the delivery, once refused, is to be handed back and never parked: others must not overtake it, or
    /// the broker is to count its attempts.
    fn stays_with_broker(&self) -> bool {
        false
    }
}

/// One delivery: the message and the right to settle it.
#[must_use = "a dropped delivery is delivered again only when its channel closes"]
#[derive(Debug)]
pub struct Delivery<R> {
    /// The message.
    pub message: Message,
    /// The handle; taken by the inbox.
    pub receipt: R,
}
