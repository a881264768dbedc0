//! What producers and people do with rows.

use crate::book::Book;
use crate::guard::StoreGuard;
use crate::trace::Actor;

use super::{Row, SimStore, Status};

impl SimStore {
    /// A producer inserts a row; nobody sees it before its commit.
    pub fn insert(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The producer's transaction commits: the row is due.
    pub fn commit(&mut self, book: &mut Book, number: usize) {
        let now = self.clock(book.now);
        let row = &mut self.rows[number];
        (row.created_at, row.available_at) = (now, now);
        row.turn(book, Actor::Producer, "commit", Status::New);
    }

    /// A dead event gets another life.
    pub fn requeue(&mut self, book: &mut Book, number: usize) -> bool {
        self.give_again(book, number, Status::Dead, "requeue", StoreGuard::RequeueStatus)
    }

    /// A sent event is published again under its id.
    pub fn replay(&mut self, book: &mut Book, number: usize) -> bool {
        self.give_again(book, number, Status::Sent, "replay", StoreGuard::ReplayStatus)
    }

    fn give_again(
        &mut self,
        book: &mut Book,
        number: usize,
        from: Status,
        what: &'static str,
        guard: StoreGuard,
    ) -> bool {
        let now = self.clock(book.now);
        let by_status = self.guards(guard);
        let row = &mut self.rows[number];
        let matched = row.status == from || !by_status;
        if matched {
            row.turn(book, Actor::Operator, what, Status::New);
            row.attempts = 0;
            row.sweeps = 0;
            row.available_at = now;
            row.token = None;
            row.settled = None;
            row.copies_of_this_life = 0;
        }
        matched
    }

    /// An event is put aside for good.
    pub fn discard(&mut self, book: &mut Book, number: usize) -> bool {
        let by_status = self.guards(StoreGuard::DiscardStatus);
        let row = &mut self.rows[number];
        let matched = matches!(row.status, Status::New | Status::Dead) || !by_status;
        if matched {
            row.turn(book, Actor::Operator, "discard", Status::Discarded);
            row.token = None;
        }
        matched
    }

    /// Sent events are deleted.
    pub fn purge(&mut self, book: &mut Book) -> usize {
        let mut purged = 0;
        let by_status = self.guards(StoreGuard::PurgeStatus);
        for row in self.rows.iter_mut().filter(|row| row.status == Status::Sent || !by_status) {
            row.turn(book, Actor::Operator, "purge", Status::Purged);
            purged += 1;
        }
        purged
    }
}
