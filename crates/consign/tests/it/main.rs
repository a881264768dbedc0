//! - `consumer`: a real database and a real queue: what becomes of deliveries that are not simply applied
//! - `relay`: when a relay claims; `wakeup`: how producers make it claim

mod consumer;
mod relay;
mod wakeup;
mod world;
