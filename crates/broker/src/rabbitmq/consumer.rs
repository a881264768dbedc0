//! Consuming from one queue.

use std::num::NonZeroU16;
use std::time::Duration;

use consign_amqp::{ChannelError, ConnectOptions, ConsumeOptions, Consumer, ConsumerEnd, DeliveryHandle};
use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::ports::Source;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::connection::{Backoff, Opening, Supervisor};
use super::mapping::message;

/// How to consume from one queue.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// How to reach the broker.
    pub connect: ConnectOptions,
    /// The queue: classic or quorum. A stream keeps no position for an AMQP 0-9-1 consumer and is refused.
    pub queue: String,
    /// At most this many deliveries are unsettled at a time, deliveries that wait for their retry included.
    pub prefetch: NonZeroU16,
}

/// A source of one queue's messages. It reconnects by itself, and opens its consumer again when the broker
/// cancelled it or closed its channel, as after a consumer timeout (B35).
#[derive(Debug)]
pub struct RabbitMqSource {
    options: SourceOptions,
    supervisor: Supervisor,
    connections: Opening,
    state: State,
    backoff: Backoff,
    /// The last trouble that was logged, so that an absent queue is one line.
    said: String,
    /// The broker has said that the queue is no stream.
    no_stream: bool,
}

/// What the broker says about the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueType {
    Stream,
    Other,
    /// The question was lost with its connection.
    Unknown,
}

#[derive(Debug)]
enum State {
    Closed {
        until: Instant,
    },
    /// Opening runs in a task, so that dropping the future of `next` does not start it over.
    Opening(JoinHandle<Result<Consumer, ChannelError>>),
    Open {
        consumer: Consumer,
        since: Instant,
    },
    /// A delivery looks like one of a stream: the broker is asked before it is handed out.
    Probing {
        probe: JoinHandle<QueueType>,
        consumer: Consumer,
        since: Instant,
        held: Box<consign_amqp::Delivery>,
    },
    /// The consumer is kept: its channel must live on for the receipts.
    Stopped(Option<Consumer>),
}

impl RabbitMqSource {
    /// Starts connecting and returns at once. Must run on a tokio runtime.
    pub fn new(options: SourceOptions) -> Self {
        let supervisor =
            Supervisor::start(options.connect.clone(), &format!("consumer of {}", options.queue));
        Self {
            connections: supervisor.connection(),
            supervisor,
            options,
            state: State::Closed { until: Instant::now() },
            backoff: Backoff::new(),
            said: String::new(),
            no_stream: false,
        }
    }

    /// Opens the consumer on the next open connection.
    fn start_opening(&self) -> State {
        let (mut connections, queue) = (self.connections.clone(), self.options.queue.clone());
        let options = ConsumeOptions::new(self.options.prefetch);
        State::Opening(tokio::spawn(async move {
            match connections.next().await {
                Some(connection) => connection.open_consumer(&queue, options).await,
                // Only when the source itself is gone, and then nobody listens.
                None => std::future::pending().await,
            }
        }))
    }

    fn start_probing(&mut self, held: consign_amqp::Delivery) -> State {
        let probe = tokio::spawn(probe(self.connections.clone(), self.options.queue.clone()));
        match self.take_state() {
            State::Open { consumer, since } => {
                State::Probing { probe, consumer, since, held: Box::new(held) }
            }
            other => other,
        }
    }

    /// The held delivery, unless it must not be processed.
    fn probed(&mut self, queue_type: QueueType) -> Option<Delivery<RabbitMqReceipt>> {
        let State::Probing { consumer, since, held, .. } = self.take_state() else { return None };
        self.state = match queue_type {
            QueueType::Other => {
                self.no_stream = true;
                self.state = State::Open { consumer, since };
                return Some(self.delivery(*held));
            }
            QueueType::Stream => self.trouble(
                "the queue is a stream, which keeps no position for AMQP consumers: bind a quorum queue to the same \
                 exchange and consume from it",
            ),
            QueueType::Unknown => self.trouble("asking for the queue's type failed"),
        };
        None
    }

    /// Takes the state out.
    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Closed { until: Instant::now() })
    }

    fn opened(&mut self, opened: Result<Consumer, ChannelError>) -> State {
        match opened {
            Ok(consumer) => {
                tracing::info!(queue = %self.options.queue, channel = %consumer.id(), "consuming");
                State::Open { consumer, since: Instant::now() }
            }
            Err(error) => self.trouble(&error.to_string()),
        }
    }

    fn ended(&mut self, end: Option<&ConsumerEnd>, since: Instant) -> State {
        const HEALTHY_AFTER: Duration = Duration::from_secs(10);
        if since.elapsed() > HEALTHY_AFTER {
            self.backoff.reset();
        }
        self.trouble(&end.map_or_else(|| "the consumer ended".to_owned(), ToString::to_string))
    }

    fn trouble(&mut self, reason: &str) -> State {
        if reason == self.said {
            tracing::debug!(queue = %self.options.queue, reason, "still not consuming");
        } else {
            tracing::warn!(queue = %self.options.queue, reason, "not consuming, trying again");
            reason.clone_into(&mut self.said);
        }
        State::Closed { until: Instant::now() + self.backoff.pause() }
    }

    fn delivery(&self, delivery: consign_amqp::Delivery) -> Delivery<RabbitMqReceipt> {
        let consign_amqp::Delivery { handle, redelivered, properties, body, .. } = delivery;
        Delivery {
            message: message(properties, body, redelivered, &self.options.queue),
            receipt: RabbitMqReceipt { handle },
        }
    }
}

/// Streams put their offset into this header; a message moved from a stream into a queue may keep it.
fn looks_like_a_stream(delivery: &consign_amqp::Delivery) -> bool {
    delivery.properties.as_ref().is_ok_and(|properties| properties.headers.get("x-stream-offset").is_some())
}

/// Asks the broker on a channel of its own: every other queue type refuses this argument with a soft error.
async fn probe(mut connections: Opening, queue: String) -> QueueType {
    let Some(connection) = connections.next().await else { return QueueType::Unknown };
    let mut options = ConsumeOptions::new(NonZeroU16::MIN);
    options.arguments.insert("x-stream-offset", "next");
    match connection.open_consumer(&queue, options).await {
        Ok(_) => QueueType::Stream,
        Err(ChannelError::Closed { code: 406, text }) if text.contains("x-stream-offset") => QueueType::Other,
        Err(_) => QueueType::Unknown,
    }
}

impl Source for RabbitMqSource {
    type Receipt = RabbitMqReceipt;

    async fn next(&mut self) -> Option<Delivery<RabbitMqReceipt>> {
        loop {
            self.state = match &mut self.state {
                State::Stopped(_) => return None,
                State::Closed { until } => {
                    sleep_until(*until).await;
                    self.start_opening()
                }
                State::Opening(opening) => match opening.await {
                    Ok(opened) => self.opened(opened),
                    Err(error) => self.trouble(&format!("opening the consumer failed: {error}")),
                },
                State::Open { consumer, since } => {
                    let since = *since;
                    match consumer.next().await {
                        Some(held) if !self.no_stream && looks_like_a_stream(&held) => {
                            self.start_probing(held)
                        }
                        Some(delivery) => {
                            self.said.clear();
                            return Some(self.delivery(delivery));
                        }
                        None => {
                            let end = consumer.ended();
                            self.ended(end.as_ref(), since)
                        }
                    }
                }
                State::Probing { probe, .. } => {
                    let queue_type = probe.await.unwrap_or(QueueType::Unknown);
                    if let Some(delivery) = self.probed(queue_type) {
                        return Some(delivery);
                    }
                    continue;
                }
            };
        }
    }

    async fn stop(&mut self) {
        let consumer = match std::mem::replace(&mut self.state, State::Stopped(None)) {
            State::Open { consumer, .. } => Some(consumer),
            State::Probing { probe, consumer, held, .. } => {
                probe.abort();
                // Nobody has seen it; a lost channel gives it back as well.
                let _ = held.handle.nack(true);
                Some(consumer)
            }
            State::Opening(opening) => {
                opening.abort();
                None
            }
            State::Closed { .. } => None,
            State::Stopped(consumer) => consumer,
        };
        self.state = State::Stopped(consumer);
        if let State::Stopped(Some(consumer)) = &mut self.state
            // What nobody took goes back at the end: a burst of returns would hold up the acknowledgements behind it.
            && let Err(error) = consumer.cancel_holding().await
        {
            // The channel is gone, and with it all deliveries.
            tracing::debug!(queue = %self.options.queue, %error, "cancelling the consumer");
        }
    }

    /// AMQP does not answer an acknowledgement. The answer to closing the connection comes behind all of them.
    async fn close(mut self) {
        self.stop().await;
        if let State::Stopped(Some(consumer)) = self.take_state() {
            consumer.give_back();
        }
        self.supervisor.close().await;
    }
}

impl Drop for RabbitMqSource {
    fn drop(&mut self) {
        match &self.state {
            State::Opening(opening) => opening.abort(),
            State::Probing { probe, .. } => probe.abort(),
            State::Closed { .. } | State::Open { .. } | State::Stopped(_) => {}
        }
    }
}

/// The handle on one delivery: it settles on the very channel the delivery came from, or not at all (B34).
///
/// [`Receipt::retry`] returns the message with `basic.nack`, never with `basic.reject`. Quorum queues count returns
/// against their delivery limit, 20 by default from RabbitMQ 4.0, and drop the message beyond it unless it has a
/// dead-letter exchange (B36). Retries are also how an outage of the consumer's database is waited out, which must
/// not cost messages: from 4.3 a nack does not count. Before 4.3 every return counts, so the topology check asks for
/// a dead-letter exchange or for `delivery_limit = -1`. How often a failing message is tried is consign's decision, so
/// the check also asks that the consumer's attempts stay below the limit.
///
/// [`Receipt::ack`] of many receipts one after another, as after the commit of a batch, costs few frames: the client
/// sends one for a finished prefix of the channel.
#[derive(Debug)]
pub struct RabbitMqReceipt {
    handle: DeliveryHandle,
}

impl RabbitMqReceipt {
    fn valid(self) -> Result<DeliveryHandle, ReceiptLost> {
        if self.handle.is_valid() {
            return Ok(self.handle);
        }
        Err(ReceiptLost(format!("delivery {} belongs to a channel that is closed", self.handle.id())))
    }
}

impl Receipt for RabbitMqReceipt {
    async fn ack(self, _permit: AckPermit) -> Result<(), ReceiptLost> {
        self.handle.ack().map_err(|lost| ReceiptLost(lost.to_string()))
    }

    /// The message stays with this consumer, inside its prefetch, until the delay is over. Should the process or the
    /// channel end before, the broker delivers it again at once.
    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        if delay.is_zero() {
            return self.handle.nack(true).map_err(|lost| ReceiptLost(lost.to_string()));
        }
        let handle = self.valid()?;
        let due = Instant::now() + delay;
        tokio::spawn(async move {
            sleep_until(due).await;
            if let Err(error) = handle.nack(true) {
                tracing::debug!(%error, "a waiting delivery went back with its channel");
            }
        });
        Ok(())
    }
}
