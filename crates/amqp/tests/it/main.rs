//! The client against a scripted peer that speaks bytes of its own making, and against real brokers.

mod blocking;
mod consuming;
mod endings;
mod handshake;
mod pairing;
mod peer;
mod rabbitmq;
mod settling;
