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
    _supervisor: Supervisor,
    connections: Opening,
    state: State,
    backoff: Backoff,
    /// The last trouble that was logged, so that an absent queue is one line.
    said: String,
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
            _supervisor: supervisor,
            options,
            state: State::Closed { until: Instant::now() },
            backoff: Backoff::new(),
            said: String::new(),
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

    fn opened(&mut self, opened: Result<Consumer, ChannelError>) -> State {
        match opened {
            Ok(consumer) => {
                tracing::info!(queue = %self.options.queue, channel = %consumer.id(), "consuming");
                self.said.clear();
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

/// Deliveries of streams carry their offset; no other queue type sets this header.
fn from_stream(delivery: &consign_amqp::Delivery) -> bool {
    delivery.properties.as_ref().is_ok_and(|properties| properties.headers.get("x-stream-offset").is_some())
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
                        Some(delivery) if from_stream(&delivery) => self.trouble(
                            "the queue is a stream, which keeps no position for AMQP consumers: bind a quorum queue \
                             to the same exchange and consume from it",
                        ),
                        Some(delivery) => return Some(self.delivery(delivery)),
                        None => {
                            let end = consumer.ended();
                            self.ended(end.as_ref(), since)
                        }
                    }
                }
            };
        }
    }

    async fn stop(&mut self) {
        let consumer = match std::mem::replace(&mut self.state, State::Stopped(None)) {
            State::Open { mut consumer, .. } => {
                // A failure means that the channel is gone, and with it all deliveries.
                if let Err(error) = consumer.cancel().await {
                    tracing::debug!(queue = %self.options.queue, %error, "cancelling the consumer");
                }
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
    }
}

impl Drop for RabbitMqSource {
    fn drop(&mut self) {
        if let State::Opening(opening) = &self.state {
            opening.abort();
        }
    }
}

/// The handle on one delivery: it settles on the very channel the delivery came from, or not at all (B34).
///
/// [`Receipt::retry`] returns the message with `basic.nack`, never with `basic.reject`. Quorum queues count returns
/// against their delivery limit, 20 by default from RabbitMQ 4.0, and drop the message beyond it unless it has a
/// dead-letter exchange (B36). Retries are also how an outage of the consumer's database is waited out, which must
/// not cost messages: from 4.3 a nack does not count. Before 4.3 every return counts, so the topology check asks for
/// a dead-letter exchange or for `delivery_limit = -1`. How often a failing message is tried is consign's decision.
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
