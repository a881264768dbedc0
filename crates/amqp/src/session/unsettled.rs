//! Deliveries of one channel that are not settled, and the acks that wait for the writer. Pure: no socket.
//!
//! An ack with `multiple` covers every delivery up to its tag that the broker still holds for the channel.
//! One of them that this side has not acknowledged would be lost with it, so `multiple` covers only what
//! comes before the first open delivery. It names a tag that is acknowledged by it: the broker closes the
//! channel with 406 over a tag it does not know, and it does not know the ones that were settled before.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// What this side has received on a channel and not settled. A consumer's prefetch bounds it, since the broker
/// sends no more before the acks were written; a fetched message whose handle was dropped stays in it until
/// the channel closes, as it stays with the broker.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// The last tag the broker gave.
    last: u64,
    /// Delivered, and neither acknowledged nor given back: held by a handle, or by nobody.
    open: BTreeSet<u64>,
    /// Acknowledged, and not yet taken for the wire.
    acked: Vec<u64>,
}

impl Unsettled {
    /// Deliveries that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Takes note of a delivery. False when its tag does not rise: then "up to this tag" has no meaning.
    pub(crate) fn deliver(&mut self, tag: u64) -> bool {
        let rises = tag > self.last;
        if rises {
            self.last = tag;
            self.open.insert(tag);
        }
        rises
    }

    /// Takes note of an ack, which waits from now on. False when the delivery is not open.
    pub(crate) fn ack(&mut self, tag: u64) -> bool {
        let open = self.open.remove(&tag);
        if open {
            self.acked.push(tag);
        }
        open
    }

    /// Takes note that deliveries are refused or go back to the queue, unless none of them is open: then it
    /// returns false. The caller writes that at once, behind the acks that wait, which are taken here: later ones
    /// may cover these tags.
    pub(crate) fn give_back(&mut self, tags: RangeInclusive<u64>, write: impl FnMut(u64, bool)) -> bool {
        self.take_acks(write);
        self.open.extract_if(tags, |_| true).count() > 0
    }

    /// Takes the acks that wait, in the order of the tags, as tag and `multiple`.
    pub(crate) fn take_acks(&mut self, mut write: impl FnMut(u64, bool)) {
        self.acked.sort_unstable();
        let before_open =
            self.open.first().map_or(self.acked.len(), |open| self.acked.partition_point(|tag| tag < open));
        let (finished, single) = self.acked.split_at(before_open);
        if let Some(last) = finished.last() {
            write(*last, finished.len() > 1);
        }
        for tag in single {
            write(*tag, false);
        }
        self.acked.clear();
    }
}

#[cfg(test)]
mod tests;
