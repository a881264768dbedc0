//! Deadlines of publishes, earliest first.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use tokio::time::Instant;

/// Where a publish is, by channel number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) channel: u16,
    /// Its tag; `None` while nothing of it was written.
    pub(crate) tag: Option<NonZeroU64>,
}

/// One timer for all publishes: they are few (the callers' windows), and the tree is nearly in order.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    /// Keyed by deadline and the publish's serial on this connection.
    due: BTreeMap<(Instant, u64), Due>,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, key: (Instant, u64), channel: u16) {
        self.due.insert(key, Due { channel, tag: None });
    }

    pub(crate) fn written(&mut self, key: (Instant, u64), tag: NonZeroU64) {
        if let Some(due) = self.due.get_mut(&key) {
            due.tag = Some(tag);
        }
    }

    pub(crate) fn remove(&mut self, key: (Instant, u64)) {
        self.due.remove(&key);
    }

    pub(crate) fn first(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Takes out the earliest publish whose deadline has come, with its serial.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(u64, Due)> {
        let first = self.due.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let ((_, serial), due) = first.remove_entry();
        Some((serial, due))
    }
}
