//! Settles.

use std::time::Duration;

use consign_core::settle::{SettleBatch, Settled, Settlement, Transition};

use crate::book::Book;
use crate::guard::StoreGuard;
use crate::require;
use crate::trace::Actor;
use crate::world::situations::Met;

use super::{Nature, Row, SimStore, Status};

impl SimStore {
    /// Settles in one transaction.
    pub fn settle(&mut self, book: &mut Book, batch: &SettleBatch) -> Vec<Settled> {
        let answers: Vec<Settled> =
            batch.settlements.iter().map(|one| self.settle_one(book, one, batch.repeat)).collect();
        let fenced = answers.iter().filter(|answer| **answer == Settled::Fenced).count();
        book.met.meet_if(fenced > 0 && fenced < answers.len(), Met::SettlePartlyFenced);
        answers
    }

    fn settle_one(&mut self, book: &mut Book, settlement: &Settlement, repeat: bool) -> Settled {
        let now = self.clock(book.now);
        let by_token = self.guards(StoreGuard::SettleToken);
        let Some(number) = self.find(settlement.id()) else { return Settled::Fenced };
        let row = &mut self.rows[number];
        let token = settlement.token().bits();
        let word = settlement.to().word();
        // I4: only under the row's own token.
        if row.status != Status::Sending || (row.token != Some(token) && by_token) {
            if repeat && row.settled == Some((token, word)) {
                book.met.meet(Met::SettleRepeatedAndFoundApplied);
                return Settled::AlreadyApplied;
            }
            let own = row.settled == Some((token, word));
            require!(
                book,
                "I4",
                Some(row.number),
                !own,
                "fenced by its own settle, which it repeats unknowingly"
            );
            book.met.meet(Met::SettleFenced);
            book.met.meet_if(repeat, Met::SettleRepeatedAndFenced);
            book.met.meet_if(row.status == Status::Purged, Met::SettledAfterPurge);
            book.note(Actor::Store, "settle fenced", Some(row.number), 0);
            return Settled::Fenced;
        }
        let back = |row: &mut Row, book: &mut Book, what, delay: Duration| {
            row.turn(book, Actor::Store, what, Status::New);
            row.available_at = now.plus(delay);
        };
        match settlement.to() {
            Transition::Sent(_) => {
                let copies = row.copies_of_this_life;
                require!(book, "I2", Some(row.number), copies > 0, "SENT without a copy at the broker");
                row.turn(book, Actor::Store, "settle sent", Status::Sent);
                book.met.meet_if(row.was_returned, Met::SentAfterReturn);
                book.met.meet_if(row.was_requeued, Met::Requeued);
                book.met.meet_if(row.was_replayed, Met::Replayed);
            }
            Transition::Retry { delay, .. } => back(row, book, "settle retry", *delay),
            Transition::Release { delay, .. } => {
                back(row, book, "settle release", *delay);
                row.attempts = row.attempts.saturating_sub(1);
            }
            Transition::Dead { reason } => {
                if reason.starts_with("given up") {
                    let (attempts, least) = (row.attempts, self.attempts_max);
                    let what = attempts >= least;
                    require!(
                        book,
                        "I10",
                        Some(row.number),
                        what,
                        "given up after {attempts} of {least} attempts"
                    );
                    let old = now.since(row.created_at) >= self.age_min || self.jumped;
                    require!(book, "I10", Some(row.number), old, "given up while it is young");
                    book.met.meet(Met::GivenUpByExhaustion);
                } else {
                    // I15: whoever is judged at once is guilty, or was returned where that is the policy.
                    let guilty = row.nature != Nature::Plain || row.was_returned;
                    require!(book, "I15", Some(row.number), guilty, "an innocent event went DEAD: {reason}");
                }
                row.turn(book, Actor::Store, "settle dead", Status::Dead);
            }
        }
        row.token = None;
        row.sweeps = 0;
        row.settled = Some((token, word));
        Settled::Applied
    }
}
