//! The protocols of consign as models, every state of which is looked at, up to bounds that are told.
//!
//! - [`lease`]: claims, leases, settles, sweeps. [`inbox`]: markers, effects, acknowledgements. [`chain`]: the order of an
//!   aggregate. [`checkback`]: transaction messages. Each begins with what its steps stand for in the product.
//! - [`plan`]: which bounds are exhausted, and with which mutations. [`check`]: what looks at the states.
//! - [`search`]: an exact search for the largest bound, and shortest traces. [`report`]: what is printed.
//!
//! A model proves nothing about code it does not mirror: the simulator runs the engines themselves.

mod chain;
mod check;
mod checkback;
mod inbox;
mod lease;
pub mod plan;
pub mod report;
mod search;
