//! The adapters against real files and real brokers.
//!
//! RabbitMQ is found by `CONSIGN_TEST_RABBITMQ_URL` (3.x) and `CONSIGN_TEST_RABBITMQ4_URL` (4.x); both must be set.

mod embedded;
mod embedded_suite;
mod events;
mod rabbitmq;
#[cfg(feature = "rocketmq")]
mod rocketmq;
