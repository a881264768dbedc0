//! Publishing with one verdict for each message.

use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::command::{ChannelLease, Command, Publish};
use crate::error::{ChannelError, ChannelId};
use crate::properties::Properties;
use crate::request;

/// A message to publish. It is always sent with the mandatory flag, and must have a message id.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// Exchange; empty for the default exchange.
    pub exchange: String,
    /// Routing key, at most 255 bytes.
    pub routing_key: String,
    /// Properties; `message_id` must be set and not empty.
    pub properties: Properties,
    /// Body. Large bodies are not copied.
    pub body: Bytes,
}

/// Why a message was not sent. Not one byte of it was handed to the socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The message is at fault: it cannot be expressed in AMQP on this connection.
    #[error("message is invalid: {0}")]
    Invalid(String),
    /// The connection is at fault: closed, blocked, stopped by flow control, or too slow.
    #[error("broker is unavailable: {0}")]
    Unavailable(String),
}

/// What became of a publish.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The broker took responsibility, and returned no message with this message id.
    Acked {
        /// Delivery tag on the publisher's channel.
        tag: NonZeroU64,
    },
    /// The broker could not route it (312), or another message with the same id on this channel.
    Returned {
        /// The AMQP reply code.
        code: u16,
        /// The broker's words.
        text: String,
    },
    /// The broker refused responsibility.
    Nacked,
    /// Provably nothing was sent.
    NotSent {
        /// Whose fault it is.
        reason: NotSent,
    },
    /// The deadline passed after at least one byte was handed to the socket; the broker may have it.
    TimedOut {
        /// Whether the broker was refusing publishes (`connection.blocked` or `channel.flow`) then.
        blocked: bool,
    },
    /// The channel ended while the publish was outstanding; the broker may have it.
    ChannelClosed {
        /// The AMQP reply code.
        code: u16,
        /// The words of whoever closed it.
        text: String,
        /// Publishes without a confirm on this channel, including this one and timed-out ones.
        in_flight: usize,
    },
    /// The connection ended while the publish was outstanding; the broker may have it.
    ConnectionLost {
        /// Why it ended.
        reason: String,
        /// Publishes without a confirm on this channel, including this one and timed-out ones.
        in_flight: usize,
    },
}

impl Verdict {
    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::NotSent { reason: NotSent::Unavailable(reason.into()) }
    }
}

/// A channel in confirm mode. Clones share the channel; it is closed when the last clone and the last
/// unresolved publish are dropped.
#[derive(Clone, Debug)]
pub struct Publisher {
    lease: Arc<ChannelLease>,
}

impl Publisher {
    pub(crate) fn new(lease: ChannelLease) -> Self {
        Self { lease: Arc::new(lease) }
    }

    /// Identity of the channel; with the tag of [`Verdict::Acked`] it names the confirm.
    pub fn id(&self) -> ChannelId {
        self.lease.id
    }

    /// Whether publishes can still be accepted. A blocked connection counts as open.
    pub fn is_open(&self) -> bool {
        self.lease.is_open()
    }

    /// Why the channel ended; `None` while it is open.
    pub fn ended(&self) -> Option<ChannelError> {
        self.lease.ended()
    }

    /// Waits until the channel ends.
    pub async fn closed(&self) -> ChannelError {
        let mut end = self.lease.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(reason) => (*reason).clone().unwrap_or_else(|| self.lease.lost()),
            Err(_) => self.lease.lost(),
        }
    }

    /// Publishes one message.
    ///
    /// The message is queued by this call, in call order, before the future is polled; the future only
    /// waits for the verdict and may be dropped. The verdict comes by `deadline`, give or take scheduling.
    pub fn publish(
        &self,
        publication: Publication,
        deadline: Instant,
    ) -> impl Future<Output = Verdict> + Send + 'static + use<> {
        let queued = self.queue(publication, deadline);
        let lease = Arc::clone(&self.lease);
        async move {
            match queued {
                Err(reason) => Verdict::NotSent { reason },
                Ok(verdict) => verdict.await.unwrap_or_else(|_| Verdict::ConnectionLost {
                    // Only when the runtime dropped the task: how much was in flight is not known.
                    reason: lease.lost().to_string(),
                    in_flight: usize::MAX,
                }),
            }
        }
    }

    fn queue(
        &self,
        publication: Publication,
        deadline: Instant,
    ) -> Result<oneshot::Receiver<Verdict>, NotSent> {
        let Publication { exchange, routing_key, mut properties, body } = publication;
        if properties.message_id.as_deref().is_none_or(str::is_empty) {
            return Err(NotSent::Invalid("message_id is missing, returns are paired by it".to_owned()));
        }
        let ChannelLease { id, frame_max, .. } = *self.lease;
        let frames = request::publish(id.number, frame_max, &exchange, &routing_key, &properties, &body)
            .map_err(|error| NotSent::Invalid(error.to_string()))?;
        if let Some(reason) = self.lease.ended() {
            return Err(NotSent::Unavailable(reason.to_string()));
        }
        let (reply, verdict) = oneshot::channel();
        let message_id = properties.message_id.take().unwrap_or_default();
        let publish = Publish { key: self.lease.key, frames, message_id, deadline, reply };
        match self.lease.commands.send(Command::Publish(publish)) {
            Ok(()) => Ok(verdict),
            Err(_) => Err(NotSent::Unavailable(self.lease.lost().to_string())),
        }
    }
}
