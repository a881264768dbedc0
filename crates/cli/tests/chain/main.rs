//! The whole chain, end to end: the program as a user runs it, on real MySQL and RabbitMQ.
//!
//! - `crash`: the program dies at every window; `many_relays`: relays side by side, frozen, drained
//! - `unknown`: the broker's answers get lost; `rows`, `routing`, `consumer`, `commands`: everything else
//! - `storm`: consumers killed at random under a hundred thousand deliveries, and what else may go wrong beside them
//! - `reported`: what users of other systems reported and nothing above has
//! - `declared`: what a consumer may declare beyond key and statements
//! - `ordered`: the order of aggregates
//! - `clock`: clocks that are wrong; `held`: rows that another client holds
//! - `operations`: what people decide about; on SQLite with the embedded queue, too
//! - `replaying`: a replay that is killed
//! - `lab`: every window of the lab on real servers
//! - `reloading`: a new config while the relay runs, and wake-ups
//! - `rocketmq`: the example over RocketMQ
//! - `post`: queues to look into and configs made of text

mod clock;
mod commands;
mod consumer;
mod crash;
mod declared;
mod harness;
mod held;
mod lab;
mod many_relays;
mod operations;
mod ordered;
mod post;
mod reloading;
mod replaying;
mod reported;
mod rocketmq;
mod routing;
mod rows;
mod storm;
mod unknown;
