//! Consumers on a real database and a real queue: what becomes of deliveries that are not simply applied.

mod consumer;
mod world;
