//! The filter on real servers. `cargo xtask test` brings them up; to run these tests alone, export what
//! `cargo xtask services urls` prints for redis, `CONSIGN_XTASK`, the path of the task runner, and
//! `CONSIGN_SERVICES_DIR`, where servers live.
//!
//! - `remembering`, `poison`, `tls`: on the shared server, each test under a prefix of its own
//! - `outage`: on servers of their own, which are flushed, killed, frozen or full
//! - `network`: behind a proxy that loses, delays and cuts
//! - `secret`: what is not shown

mod network;
mod operations;
mod outage;
mod poison;
mod remembering;
mod secret;
mod server;
mod tls;
