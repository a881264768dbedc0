//! The embedded queue's statements, one file each.

pub(super) const SCHEMA: &str = include_str!("sql/schema.sql");
pub(super) const DECLARE_QUEUE: &str = include_str!("sql/declare_queue.sql");
pub(super) const DECLARE_BINDING: &str = include_str!("sql/declare_binding.sql");
pub(super) const PUBLISH: &str = include_str!("sql/publish.sql");
pub(super) const CLAIMABLE: &str = include_str!("sql/claimable.sql");
pub(super) const CLAIM: &str = include_str!("sql/claim.sql");
pub(super) const ACKNOWLEDGE: &str = include_str!("sql/acknowledge.sql");
pub(super) const RETRY: &str = include_str!("sql/retry.sql");
pub(super) const RELEASE: &str = include_str!("sql/release.sql");
pub(super) const COUNTS: &str = include_str!("sql/counts.sql");
