//! People at work: they requeue, discard, replay and purge.

use crate::store::{Nature, Status};
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
        match self.draw.below(8) {
            0..3 => {
                if let Some(number) = dead {
                    self.store.requeue(&mut self.book, number);
                    self.store.row_mut(number).was_requeued = true;
                }
            }
            3 => {
                // The row may be on its way by now: then nothing matches.
                let number = dead.or(new).unwrap_or(from);
                let discarded = self.store.discard(&mut self.book, number);
                self.book.met.meet_if(discarded, Met::Discarded);
            }
            4..7 => {
                if let Some(number) = sent.filter(|number| self.store.row(*number).nature == Nature::Plain) {
                    self.store.replay(&mut self.book, number);
                    self.store.row_mut(number).was_replayed = true;
                }
            }
            _ => {
                if let Some(number) = sent {
                    self.store.replay(&mut self.book, number);
                    self.store.row_mut(number).was_replayed = true;
                }
                let purged = self.store.purge(&mut self.book);
                self.book.met.meet_if(sent.is_some() && purged > 0, Met::PurgedBesideReplay);
                self.book.note(Actor::Operator, "purges", None, purged as u64);
            }
        }
    }
}
