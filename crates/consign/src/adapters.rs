//! The adapters a config can choose between: closed sets, dispatched without boxing.

use std::time::Duration;

use consign_broker::embedded::{EmbeddedDestination, EmbeddedReceipt, EmbeddedSource};
use consign_broker::rabbitmq::{RabbitMqDestination, RabbitMqReceipt, RabbitMqSource};
use consign_broker::rocketmq::{RocketMqDestination, RocketMqReceipt, RocketMqSource};
use consign_core::delivery::{AckPermit, Delivery, Receipt, ReceiptLost};
use consign_core::lease::Publish;
use consign_core::outcome::Outcome;
use consign_core::ports::{Destination, Lane, Readiness, Source};

/// A destination of any kind.
#[derive(Debug)]
pub enum AnyDestination {
    /// An exchange of a RabbitMQ broker.
    RabbitMq(Box<RabbitMqDestination>),
    /// Topics of a RocketMQ cluster.
    RocketMq(Box<RocketMqDestination>),
    /// Queues in a SQLite file.
    Embedded(EmbeddedDestination),
}

impl Destination for AnyDestination {
    async fn publish(&self, lane: Lane, publish: Publish) -> Outcome {
        match self {
            Self::RabbitMq(destination) => destination.publish(lane, publish).await,
            Self::RocketMq(destination) => destination.publish(lane, publish).await,
            Self::Embedded(destination) => destination.publish(lane, publish).await,
        }
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        match self {
            Self::RabbitMq(destination) => destination.readiness_after(known).await,
            Self::RocketMq(destination) => destination.readiness_after(known).await,
            Self::Embedded(destination) => destination.readiness_after(known).await,
        }
    }
}

/// A source of any kind.
#[derive(Debug)]
pub enum AnySource {
    /// A queue of a RabbitMQ broker.
    RabbitMq(Box<RabbitMqSource>),
    /// A topic of a RocketMQ cluster, read as a member of a group.
    RocketMq(Box<RocketMqSource>),
    /// A queue in a SQLite file.
    Embedded(Box<EmbeddedSource>),
}

/// A receipt of any kind.
#[derive(Debug)]
pub enum AnyReceipt {
    /// A delivery tag on its channel.
    RabbitMq(RabbitMqReceipt),
    /// A handle on an invisible message.
    RocketMq(RocketMqReceipt),
    /// A leased message row.
    Embedded(EmbeddedReceipt),
}

impl Source for AnySource {
    type Receipt = AnyReceipt;

    async fn next(&mut self) -> Option<Delivery<AnyReceipt>> {
        match self {
            Self::RabbitMq(source) => {
                let Delivery { message, receipt } = source.next().await?;
                Some(Delivery { message, receipt: AnyReceipt::RabbitMq(receipt) })
            }
            Self::RocketMq(source) => {
                let Delivery { message, receipt } = source.next().await?;
                Some(Delivery { message, receipt: AnyReceipt::RocketMq(receipt) })
            }
            Self::Embedded(source) => {
                let Delivery { message, receipt } = source.next().await?;
                Some(Delivery { message, receipt: AnyReceipt::Embedded(receipt) })
            }
        }
    }

    async fn stop(&mut self) {
        match self {
            Self::RabbitMq(source) => source.stop().await,
            Self::RocketMq(source) => source.stop().await,
            Self::Embedded(source) => source.stop().await,
        }
    }

    async fn close(self) {
        match self {
            Self::RabbitMq(source) => source.close().await,
            Self::RocketMq(source) => source.close().await,
            Self::Embedded(source) => source.close().await,
        }
    }
}

impl Receipt for AnyReceipt {
    async fn ack(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        match self {
            Self::RabbitMq(receipt) => receipt.ack(permit).await,
            Self::RocketMq(receipt) => receipt.ack(permit).await,
            Self::Embedded(receipt) => receipt.ack(permit).await,
        }
    }

    async fn retry(self, delay: Duration) -> Result<(), ReceiptLost> {
        match self {
            Self::RabbitMq(receipt) => receipt.retry(delay).await,
            Self::RocketMq(receipt) => receipt.retry(delay).await,
            Self::Embedded(receipt) => receipt.retry(delay).await,
        }
    }

    async fn put_aside(self, permit: AckPermit) -> Result<(), ReceiptLost> {
        match self {
            Self::RabbitMq(receipt) => receipt.put_aside(permit).await,
            Self::RocketMq(receipt) => receipt.put_aside(permit).await,
            Self::Embedded(receipt) => receipt.put_aside(permit).await,
        }
    }

    fn stays_with_broker(&self) -> bool {
        match self {
            Self::RabbitMq(receipt) => receipt.stays_with_broker(),
            Self::RocketMq(receipt) => receipt.stays_with_broker(),
            Self::Embedded(receipt) => receipt.stays_with_broker(),
        }
    }
}
