//! The whole chain, end to end: the program as a user runs it, on real MySQL and RabbitMQ.
//!
//! - `crash`: the program dies at every window; `many_relays`: relays side by side, frozen, drained
//! - `unknown`: the broker's answers get lost; `rows`, `routing`, `consumer`, `commands`: everything else
//! - `reported`: what users of other systems reported and nothing above has
//! - `post`: queues to look into and configs made of text

mod commands;
mod consumer;
mod crash;
mod harness;
mod many_relays;
mod post;
mod reported;
mod routing;
mod rows;
mod unknown;
