//! RabbitMQ 3.x and 4.x.

mod consumer;
mod fixture;
mod publisher;
mod suite;
mod topology;
