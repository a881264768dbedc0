//! Messages are sent and nobody looks at the status that comes back; the line dies, and none comes.

pub use super::durable_without_confirms::{consign, naive};
