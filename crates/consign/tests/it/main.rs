//! - `consumer`: a real database and a real queue: what becomes of deliveries that are not simply applied
//! - `staying`: a broker that keeps refused deliveries itself
//! - `transaction`: a local transaction with its message in one call
//! - `overdue`: a destination that never answers
//! - `relay`: when a relay claims; `wakeup`: how producers make it claim

mod consumer;
mod overdue;
mod relay;
mod staying;
mod transaction;
mod wakeup;
mod world;
