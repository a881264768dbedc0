//! Consuming from one topic as a member of a consumer group.

mod holdings;
