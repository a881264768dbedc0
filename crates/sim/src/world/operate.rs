//! People at work: they requeue, discard, replay and purge.

use crate::store::Status;
use crate::trace::Actor;

use super::World;
use super::situations::Met;

impl World {
    /// One thing that people do.
    pub(super) fn operate(&mut self) {
        let rows = self.store.rows().len();
        let from = self.draw.index(rows);
        let first = |status: Status| {
            (0..rows).map(|offset| (from + offset) % rows).find(|number| self.is(*number, status))
        };
        let (dead, sent, new) = (first(Status::Dead), first(Status::Sent), first(Status::New));
        // What people decide on may have moved on by the time they press the key: then nothing matches.
        let stale = from;
        match self.draw.below(8) {
            0..3 => {
                let requeued = self.store.requeue(&mut self.book, dead.unwrap_or(stale));
                let row = self.store.row_mut(dead.unwrap_or(stale));
                row.was_requeued |= requeued;
            }
            3 => {
                let discarded = self.store.discard(&mut self.book, dead.or(new).unwrap_or(stale));
                self.book.met.meet_if(discarded, Met::Discarded);
            }
            4..7 => {
                let replayed = self.store.replay(&mut self.book, sent.unwrap_or(stale));
                let row = self.store.row_mut(sent.unwrap_or(stale));
                row.was_replayed |= replayed;
            }
            _ => {
                let replayed = self.store.replay(&mut self.book, sent.unwrap_or(stale));
                let row = self.store.row_mut(sent.unwrap_or(stale));
                row.was_replayed |= replayed;
                let purged = self.purge();
                self.book.met.meet_if(replayed && purged > 0, Met::PurgedBesideReplay);
            }
        }
    }

    /// Sent events are deleted; how many were.
    pub(super) fn purge(&mut self) -> usize {
        let purged = self.store.purge(&mut self.book);
        self.book.note(Actor::Operator, "purges", None, purged as u64);
        purged
    }
}
