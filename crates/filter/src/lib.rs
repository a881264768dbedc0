//! The filter of repeats on Redis: it remembers applied operations outside the database, so that a repeat costs a read
//! instead of a write transaction.
//!
//! ```text
//! hints     ─► circuit ─► link ─► MGET ─► digest equal ─► Repeat | Contradiction | Unknown
//! remember  ─► circuit ─► link ─► SET … EX ttl, one pipeline per batch
//! ```
//!
//! Redis may be empty, flushed, evicting, stale, slow, down or lying: a hint is checked against the database, and
//! every trouble is [`Hint::Unknown`](consign_core::filter::Hint::Unknown) within the deadline. It needs one server or
//! a proxy that looks like one; Redis Cluster, whose keys live on several servers, is not supported.
//!
//! - [`RedisFilter`]: the port's implementation, and what it counts ([`FilterTotals`])
//! - [`FilterOptions`]: where the server is, and how long it is waited for
//! - `circuit`: when it is not asked at all; `link`: the connection; `key`: names in Redis

mod circuit;
mod key;
mod link;
mod options;
mod redis_filter;
mod totals;

pub use options::{FilterError, FilterOptions};
pub use redis_filter::RedisFilter;
pub use totals::FilterTotals;
