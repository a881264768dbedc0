//! Consuming: deliveries and the handles that settle them.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU64};
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes};
use tokio::sync::mpsc;

use crate::channel::cancel_frame;
use crate::command::{ChannelKey, ChannelLease, Command, Sink};
use crate::error::{ChannelError, ChannelId};
use crate::method::{self, Content, Incoming, Origin};
use crate::properties::{Properties, UndecodableProperties};
use crate::request::{Declaration, fixed_method, give_back, return_up_to};
use crate::table::FieldTable;

/// How to consume from a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ConsumeOptions {
    /// Most unsettled deliveries at a time; it bounds the memory a consumer can take.
    pub prefetch: NonZeroU16,
    /// Consumer tag; empty lets the broker choose.
    pub consumer_tag: String,
    /// Whether to be the only consumer of the queue.
    pub exclusive: bool,
    /// Further arguments, such as `x-priority`.
    pub arguments: FieldTable,
}

impl ConsumeOptions {
    /// A shared consumer with this prefetch and a tag the broker chooses.
    pub fn new(prefetch: NonZeroU16) -> Self {
        Self { prefetch, consumer_tag: String::new(), exclusive: false, arguments: FieldTable::new() }
    }
}

/// Why a consumer gets no more deliveries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConsumerEnd {
    /// [`Consumer::cancel`] was called. Outstanding handles stay valid.
    #[error("consumer was cancelled by this side")]
    CancelledByClient,
    /// The broker cancelled it: the queue was deleted or moved. Outstanding handles stay valid.
    #[error("consumer was cancelled by the server")]
    CancelledByServer,
    /// Channel or connection ended. Outstanding handles are lost.
    #[error(transparent)]
    Channel(ChannelError),
}

/// A consumer on a channel of its own.
#[derive(Debug)]
pub struct Consumer {
    lease: Arc<ChannelLease>,
    tag: String,
    deliveries: mpsc::UnboundedReceiver<(Origin, Content)>,
    end: Arc<OnceLock<ConsumerEnd>>,
}

impl Consumer {
    pub(crate) async fn start(
        lease: ChannelLease,
        queue: &str,
        options: &ConsumeOptions,
    ) -> Result<Self, ChannelError> {
        let channel = lease.id.number;
        let mut qos = bytes::BytesMut::with_capacity(7);
        qos.put_u32(0);
        qos.put_u16(options.prefetch.get());
        // Not global: the limit is for each consumer. Brokers refuse the other kind since 4.3 (B98).
        qos.put_u8(0);
        let qos = fixed_method(channel, method::BASIC_QOS, &qos);
        lease.call(qos, &[method::BASIC_QOS_OK], None).await?;
        let consume = Declaration {
            channel,
            id: method::BASIC_CONSUME,
            names: &[("queue", queue), ("consumer_tag", &options.consumer_tag)],
            flags: Some(&[false, false, options.exclusive, false]),
            arguments: Some(&options.arguments),
        };
        let (sender, deliveries) = mpsc::unbounded_channel();
        let end = Arc::new(OnceLock::new());
        let sink = Sink { deliveries: sender, prefetch: options.prefetch.get(), end: Arc::clone(&end) };
        let reply = lease.call(consume.encode()?, &[method::BASIC_CONSUME_OK], Some(sink)).await?;
        let tag = match reply.method {
            Incoming::ConsumeOk { consumer_tag } => consumer_tag,
            _ => options.consumer_tag.clone(),
        };
        Ok(Self { lease: Arc::new(lease), tag, deliveries, end })
    }

    /// The consumer tag in use.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.lease.id
    }

    /// The next delivery, or `None` when there will be no more; [`ended`](Self::ended) tells why.
    ///
    /// Deliveries that wait here when the channel ends are not given out: their handles would be lost,
    /// and the broker delivers them again. Cancel safe.
    pub async fn next(&mut self) -> Option<Delivery> {
        let (origin, content) = self.deliveries.recv().await?;
        if !self.lease.is_open() {
            self.deliveries.close();
            while self.deliveries.try_recv().is_ok() {}
            return None;
        }
        Some(Delivery::new(Arc::clone(&self.lease), origin, &content))
    }

    /// Why there are no more deliveries; `None` while the consumer is active.
    pub fn ended(&self) -> Option<ConsumerEnd> {
        self.end.get().cloned().or_else(|| self.lease.ended().map(ConsumerEnd::Channel))
    }

    /// Stops new deliveries. Those not yet taken with [`next`](Self::next) go back to the queue;
    /// handles already given out stay valid. The channel closes when the last of them is dropped.
    pub async fn cancel(&mut self) -> Result<(), ChannelError> {
        self.cancel_holding().await?;
        self.return_untaken();
        Ok(())
    }

    /// Stops new deliveries. Those not yet taken stay here until [`give_back`](Self::give_back) or the end
    /// of the channel.
    pub async fn cancel_holding(&mut self) -> Result<(), ChannelError> {
        if self.end.get().is_none() {
            let frame = cancel_frame(self.lease.id.number, &self.tag, false)?;
            self.lease.call(frame, &[method::BASIC_CANCEL_OK], None).await?;
            // A server-sent cancel may have come first; then its word stands.
            let _ = self.end.set(ConsumerEnd::CancelledByClient);
        }
        Ok(())
    }

    /// Gives deliveries nobody took back to the queue, in one step, and with them all that were taken and
    /// are not settled: no handle may be settled any more.
    ///
    /// A quorum queue takes only some dozens of settlements at a time from one channel; the broker keeps the
    /// rest, and forgets it when the channel closes. So what comes right before the end should be few.
    pub fn give_back(mut self) {
        self.deliveries.close();
        let mut last = None;
        while let Ok((origin, _)) = self.deliveries.try_recv() {
            last = Some(origin.tag.get());
        }
        if let Some(tag) = last {
            let frame = return_up_to(self.lease.id.number, tag);
            drop(self.lease.commands.send(Command::GiveBack { key: self.lease.key, tags: 0..=tag, frame }));
        }
    }

    /// Gives deliveries nobody took back to the queue.
    fn return_untaken(&mut self) {
        self.deliveries.close();
        while let Ok((origin, content)) = self.deliveries.try_recv() {
            let delivery = Delivery::new(Arc::clone(&self.lease), origin, &content);
            if delivery.handle.nack(true).is_err() {
                return;
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Handles may outlive the consumer and keep its channel open: the broker must not go on
        // delivering into the void.
        if self.lease.is_open() && self.end.get().is_none() {
            if let Ok(frame) = cancel_frame(self.lease.id.number, &self.tag, true) {
                drop(self.lease.commands.send(Command::Send { key: self.lease.key, frame }));
            }
            self.return_untaken();
        }
    }
}

/// One message from a queue.
#[derive(Debug)]
pub struct Delivery {
    /// The means to settle it.
    pub handle: DeliveryHandle,
    /// Exchange it was published to.
    pub exchange: String,
    /// Routing key it was published with.
    pub routing_key: String,
    /// Whether it may have been delivered before.
    pub redelivered: bool,
    /// Consumer tag; empty for a fetched message.
    pub consumer_tag: String,
    /// Properties; undecodable ones spoil this delivery only.
    pub properties: Result<Properties, UndecodableProperties>,
    /// Body.
    pub body: Bytes,
}

impl Delivery {
    pub(crate) fn new(lease: Arc<ChannelLease>, origin: Origin, content: &Content) -> Self {
        let Origin { consumer_tag, tag, redelivered, exchange, routing_key } = origin;
        Self {
            handle: DeliveryHandle { lease, tag },
            exchange,
            routing_key,
            redelivered,
            consumer_tag,
            properties: Properties::decode(&content.properties),
            body: content.body.clone(),
        }
    }
}

/// Identity of a delivery, for display and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliveryId {
    /// The channel.
    pub channel: ChannelId,
    /// The delivery tag on it.
    pub tag: NonZeroU64,
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.channel, self.tag)
    }
}

/// The delivery can no longer be settled: its channel is gone, and the broker delivers it again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("delivery {id} cannot be settled, {reason}")]
pub struct HandleLost {
    /// The delivery.
    pub id: DeliveryId,
    /// Why its channel ended.
    pub reason: ChannelError,
}

/// The means to settle one delivery, once, on the channel it came from.
///
/// Settling queues a frame and returns; AMQP gives no answer. What is queued on one channel reaches the broker
/// in the order of the calls. Dropping the handle settles nothing: the delivery stays with this consumer until
/// the channel closes, then goes back to the queue.
#[derive(Debug)]
#[must_use]
pub struct DeliveryHandle {
    lease: Arc<ChannelLease>,
    tag: NonZeroU64,
}

impl DeliveryHandle {
    /// Identity of the delivery.
    pub fn id(&self) -> DeliveryId {
        DeliveryId { channel: self.lease.id, tag: self.tag }
    }

    /// Whether the channel it came from is still open.
    pub fn is_valid(&self) -> bool {
        self.lease.is_open()
    }

    /// Tells the broker that the message is done with.
    ///
    /// Acks that wait for the socket together share a frame as far as every earlier delivery is settled. None
    /// of them waits for another to come.
    pub fn ack(self) -> Result<(), HandleLost> {
        self.settle(|key, tag| Command::Ack { key, tag })
    }

    /// Refuses the message; with `requeue` it goes back to the queue, else it is dead-lettered or dropped.
    pub fn nack(self, requeue: bool) -> Result<(), HandleLost> {
        self.give_back(method::BASIC_NACK, requeue)
    }

    /// Like [`nack`](Self::nack), by the method of the AMQP standard.
    pub fn reject(self, requeue: bool) -> Result<(), HandleLost> {
        self.give_back(method::BASIC_REJECT, requeue)
    }

    fn give_back(self, id: method::MethodId, requeue: bool) -> Result<(), HandleLost> {
        let frame = give_back(self.lease.id.number, id, self.tag.get(), requeue);
        self.settle(|key, tag| Command::GiveBack { key, tags: tag..=tag, frame })
    }

    fn settle(self, command: impl FnOnce(ChannelKey, u64) -> Command) -> Result<(), HandleLost> {
        if let Some(reason) = self.lease.ended() {
            return Err(HandleLost { id: self.id(), reason });
        }
        let command = command(self.lease.key, self.tag.get());
        self.lease.commands.send(command).map_err(|_| HandleLost { id: self.id(), reason: self.lease.lost() })
    }
}
