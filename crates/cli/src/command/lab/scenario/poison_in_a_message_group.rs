//! One message of a message group can never be handled. It keeps its place, and those behind it in its group wait.

pub use super::poison_at_the_head::{consign, naive};
