//! The adapters against real files and real brokers.

mod embedded;
mod events;
