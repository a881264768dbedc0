//! RabbitMQ over AMQP 0-9-1.
//!
//! ```text
//! Publish ─► publication ─► channel with confirms ─► Verdict ─► Outcome
//! queue ─► delivery ─► (Message, RabbitMqReceipt) ─► ack or, after its delay, requeue
//! ```
//!
//! - [`RabbitMqDestination`]: window channels on one connection; a quarantine channel on a connection of its own.
//! - [`RabbitMqSource`]: one consumer on a connection of its own, since a blocked publishing connection would
//!   also hold back acknowledgements.
//! - [`Topology`]: what exchanges and queues must be; made and compared over AMQP alone.
//!
//! Every connection reconnects by itself with jitter and carries a new incarnation each time.

mod connection;
mod consumer;
#[cfg(test)]
mod fuzz;
mod mapping;
mod outcome;
mod publisher;
mod topology;

pub use consumer::{RabbitMqReceipt, RabbitMqSource, SourceOptions};
pub use publisher::{DestinationOptions, RabbitMqDestination};
pub use topology::{
    Binding, DeadLetterStrategy, Exchange, ExchangeKind, Overflow, Queue, QueueKind, Topology, TopologyError,
};

/// How to reach a broker.
pub use consign_amqp::{ConnectOptions, TlsOptions, UriError};
