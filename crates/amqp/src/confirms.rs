//! Which publish a confirm or a return belongs to. Pure: no socket, no clock.
//!
//! A return carries no delivery tag. The broker sends it before the confirm of the same message, so at
//! the moment a confirm arrives, every return that can concern it has arrived. Returns are paired by
//! message id: one marks *every* outstanding publish with its id. Marking too many is safe, because a
//! returned message is published again; marking too few would lose one.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// Timed-out publishes remembered at most. A broker that owes more confirms than this is not going to
/// send them, and its channel is given up.
pub(crate) const MAX_TOMBSTONES: usize = 8192;

/// The peer said something about publishes that cannot be true.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("the broker returned a message that is not outstanding on this channel")]
    UnmatchedReturn,
    #[error("the broker confirmed tag {tag}, which is not outstanding on this channel")]
    UnmatchedConfirm { tag: u64 },
    #[error("the broker owes confirms for more than {MAX_TOMBSTONES} timed-out publishes on this channel")]
    TooManyTombstones,
}

/// What a confirm says about one publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Acked { tag: NonZeroU64 },
    Returned { code: u16, text: String },
    Nacked,
}

#[derive(Debug)]
struct Outstanding<W> {
    message_id: String,
    /// Who waits for the verdict; gone when the deadline has passed. What remains is a tombstone: it
    /// takes the late confirm, so that this confirm cannot settle or scandalise anything else.
    waiter: Option<W>,
    returned: Option<(u16, String)>,
}

/// The publishes of one channel that wait for a confirm.
#[derive(Debug)]
pub(crate) struct Confirms<W> {
    last_tag: u64,
    outstanding: BTreeMap<u64, Outstanding<W>>,
    tombstones: usize,
}

impl<W> Confirms<W> {
    pub(crate) fn new() -> Self {
        Self { last_tag: 0, outstanding: BTreeMap::new(), tombstones: 0 }
    }

    /// Publishes without a confirm, timed-out ones included.
    pub(crate) fn in_flight(&self) -> usize {
        self.outstanding.len()
    }

    /// Takes note of a publish whose first byte went out; the tag is its position on the channel.
    pub(crate) fn register(&mut self, message_id: String, waiter: W) -> NonZeroU64 {
        let tag = NonZeroU64::MIN.saturating_add(self.last_tag);
        self.last_tag = tag.get();
        let outstanding = Outstanding { message_id, waiter: Some(waiter), returned: None };
        self.outstanding.insert(tag.get(), outstanding);
        tag
    }

    /// A message came back. To be called when its content is complete, before any later frame of the channel.
    pub(crate) fn on_return(&mut self, message_id: &str, code: u16, text: &str) -> Result<(), Violation> {
        let mut matched = false;
        // A scan instead of an index: returns are rare, publishes are not.
        for outstanding in self.outstanding.values_mut() {
            if outstanding.message_id == message_id {
                matched = true;
                outstanding.returned = Some((code, text.to_owned()));
            }
        }
        if matched { Ok(()) } else { Err(Violation::UnmatchedReturn) }
    }

    /// A positive confirm.
    pub(crate) fn on_ack(
        &mut self,
        tag: u64,
        multiple: bool,
        settle: impl FnMut(W, Settled),
    ) -> Result<(), Violation> {
        self.confirm(tag, multiple, true, settle)
    }

    /// A negative confirm.
    pub(crate) fn on_nack(
        &mut self,
        tag: u64,
        multiple: bool,
        settle: impl FnMut(W, Settled),
    ) -> Result<(), Violation> {
        self.confirm(tag, multiple, false, settle)
    }

    fn confirm(
        &mut self,
        tag: u64,
        multiple: bool,
        positive: bool,
        mut settle: impl FnMut(W, Settled),
    ) -> Result<(), Violation> {
        // Tag zero means all that is outstanding, and only together with `multiple`.
        let last = if tag == 0 && multiple { self.last_tag } else { tag };
        if tag != 0 && !self.outstanding.contains_key(&tag) || tag == 0 && !multiple {
            return Err(Violation::UnmatchedConfirm { tag });
        }
        if !multiple {
            if let Some(outstanding) = self.outstanding.remove(&tag) {
                self.resolve(tag, outstanding, positive, &mut settle);
            }
            return Ok(());
        }
        while let Some(first) = self.outstanding.first_entry() {
            if *first.key() > last {
                break;
            }
            let (tag, outstanding) = first.remove_entry();
            self.resolve(tag, outstanding, positive, &mut settle);
        }
        Ok(())
    }

    fn resolve(
        &mut self,
        tag: u64,
        outstanding: Outstanding<W>,
        positive: bool,
        settle: &mut impl FnMut(W, Settled),
    ) {
        let Some(waiter) = outstanding.waiter else {
            self.tombstones -= 1;
            return;
        };
        let settled = match (positive, outstanding.returned, NonZeroU64::new(tag)) {
            (true, None, Some(tag)) => Settled::Acked { tag },
            (true, Some((code, text)), _) => Settled::Returned { code, text },
            (false, _, _) | (true, None, None) => Settled::Nacked,
        };
        settle(waiter, settled);
    }

    /// The deadline of a publish passed. Returns who waited, unless its confirm was faster.
    pub(crate) fn on_deadline(&mut self, tag: NonZeroU64) -> Option<W> {
        let waiter = self.outstanding.get_mut(&tag.get())?.waiter.take()?;
        self.tombstones += 1;
        Some(waiter)
    }

    /// Fails when more timed-out publishes are remembered than a living broker would leave.
    pub(crate) fn check_tombstones(&self) -> Result<(), Violation> {
        if self.tombstones > MAX_TOMBSTONES { Err(Violation::TooManyTombstones) } else { Ok(()) }
    }

    /// The channel ended. Returns everyone who still waits, in the order of their publishes.
    pub(crate) fn on_close(self) -> impl Iterator<Item = W> {
        self.outstanding.into_values().filter_map(|outstanding| outstanding.waiter)
    }
}

#[cfg(test)]
mod tests;
