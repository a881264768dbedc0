//! Consuming from one topic as a member of a consumer group.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::ports::Source;
use consign_rocketmq::{Consumer, Filter, Options, StartError, Subscription};
use tokio::task::JoinHandle;
use tokio::time::timeout;

mod holdings;
mod keeper;
mod mapping;

use holdings::{Settlement, Ticket};
use keeper::{CLOSE_WAIT, Keeper, Shared};

/// How to consume from one topic.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// How to reach the proxies.
    pub connect: Options,
    /// The consumer group. It belongs to one consumer: all its members must have the same subscription, since a
    /// proxy acknowledges for the whole group what a member did not ask for. A new group starts at the end of its topic.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// Which of its messages are wanted. What the filter does not match is acknowledged by the proxy, for the whole group.
    pub filter: Filter,
    /// At most this many messages are unsettled at a time, those asked for included.
    pub prefetch: NonZeroU16,
    /// How long a message stays invisible to others after it was received. Choose it longer than the slowest handler and
    /// the wait in front of it: a message whose time ends comes again, counted as an attempt, and is extended only late and
    /// a few times. It counts from the moment the message was asked for, which is up to five seconds before it came. Proxies
    /// grant 10 seconds to 12 hours by default.
    pub invisible: Duration,
    /// The group is an ordered one (`consumeMessageOrderly`): messages of one message group are handed out one after
    /// another, and a refused one keeps its place until it is applied or given up.
    pub ordered: bool,
    /// Refused messages are given back to the broker, which counts their attempts and moves them to the group's dead-letter
    /// topic at its own limit, instead of being parked in the consumer's database. An ordered group never parks them.
    pub broker_retries: bool,
    /// Messages that are given up go to the group's dead-letter topic, `%DLQ%` and the group's name, after their record in
    /// the consumer's database was committed. Otherwise the record is all that remains of them.
    pub dead_letter_topic: bool,
}

/// A source of one topic's messages. Its client reconnects by itself; what it holds stays valid over that, since handles
/// belong to messages and not to connections.
#[derive(Debug)]
pub struct RocketMqSource {
    shared: Arc<Shared>,
    keeper: JoinHandle<()>,
    stopped: bool,
}

impl RocketMqSource {
    /// Starts receiving in the background, which also makes a new group begin now. Must run on a tokio runtime.
    ///
    /// # Errors
    /// The options make no client. A proxy that is down is waited for.
    pub async fn start(options: SourceOptions) -> Result<Self, StartError> {
        let subscription = Subscription { topic: options.topic.clone(), filter: options.filter.clone() };
        let consumer = Consumer::start(&options.connect, &options.group, vec![subscription]).await?;
        let shared = Arc::new(Shared::new(&options));
        let keeper = tokio::spawn(Keeper::new(Arc::clone(&shared), consumer, options).run());
        Ok(Self { shared, keeper, stopped: false })
    }
}

impl Source for RocketMqSource {
    type Receipt = RocketMqReceipt;

    async fn next(&mut self) -> Option<Delivery<RocketMqReceipt>> {
        if self.stopped {
            return None;
        }
        let (ticket, message) = self.shared.next().await;
        let receipt = RocketMqReceipt { shared: Arc::clone(&self.shared), ticket: Some(ticket) };
        Some(Delivery { message, receipt })
    }

    /// What was received and not handed out goes back, and what receives under way still bring.
    async fn stop(&mut self) {
        self.stopped = true;
        self.shared.stop();
    }

    /// Waits until the polls under way have ended, which takes a proxy up to five seconds, and until the broker has
    /// answered every settlement.
    async fn close(mut self) {
        self.shared.close();
        if timeout(CLOSE_WAIT, &mut self.keeper).await.is_err() {
            tracing::warn!("the broker has not answered the last settlements: their messages may come again");
        }
    }
}

impl Drop for RocketMqSource {
    /// The task lives on until the receipts that are out are settled.
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// The handle on one delivery. Dropped, it gives the message back.
///
/// Settlements are decided at once and told to the broker in the background, many acknowledgements in one call. One that
/// gets no answer is sent again while the handle may be good. An acknowledgement that comes too late, or that the broker
/// forgets in a crash, makes the message come again, and its marker makes that a repeat.
///
/// [`Receipt::retry`] gives the message back under an invisible time that is the delay: no message is published for it. In an
/// ordered group it keeps its place here, and the broker is not asked. Each redelivery by the broker is an attempt, of
/// which a group has 17 by default, in `retryMaxTimes`.
#[derive(Debug)]
pub struct RocketMqReceipt {
    shared: Arc<Shared>,
    /// `None` once settled.
    ticket: Option<Ticket>,
}

impl RocketMqReceipt {
    fn settle(mut self, settlement: Settlement) -> Result<(), ReceiptLost> {
        let settled = self.ticket.take().is_some_and(|ticket| self.shared.settle(ticket, settlement));
        if settled { Ok(()) } else { Err(ReceiptLost("its invisible time is over".to_owned())) }
    }
}

impl Receipt for RocketMqReceipt {
    async fn ack(self, _permit: AckPermit) -> Result<(), ReceiptLost> {
        self.settle(Settlement::Ack)
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        self.settle(Settlement::Return(delay))
    }

    async fn put_aside(self, _permit: AckPermit) -> Result<(), ReceiptLost> {
        let dead_letter_topic = self.shared.dead_letter_topic;
        self.settle(if dead_letter_topic { Settlement::PutAside } else { Settlement::Ack })
    }

    fn stays_with_broker(&self) -> bool {
        self.shared.ordered || self.shared.broker_retries
    }
}

impl Drop for RocketMqReceipt {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.settle(ticket, Settlement::Return(Duration::ZERO));
        }
    }
}
