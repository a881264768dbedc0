//! The core from outside: the relay engine driven by inputs, the inbox over a store in memory, and the pure parts.

mod draw;
mod event;
mod fuzz;
mod harness;
mod inbox;
mod lease;
mod relay;
mod retry;
mod route;
mod transaction;
