//! Where events go and where deliveries come from: adapters of `consign-core`'s `Destination`, `Source` and `Receipt`.
//!
//! - [`envelope`]: what every copy of an event carries beside its payload, the same for all brokers.
//! - [`embedded`] (feature `embedded`): a queue in a SQLite file, shared by any number of processes.
//! - [`rabbitmq`] (feature `rabbitmq`): RabbitMQ over AMQP 0-9-1, with publisher confirms and returns.
//! - [`rocketmq`] (feature `rocketmq`): RocketMQ 5.

#[cfg(feature = "embedded")]
pub mod embedded;
pub mod envelope;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
