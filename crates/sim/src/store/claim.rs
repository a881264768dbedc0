//! Claims and sweeps.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::lease::ClaimRequest;
use consign_core::ports::Claimed;
use consign_core::relay::{DeadHead, Order};
use consign_core::settle::Swept;
use consign_core::time::Monotonic;

use crate::book::Book;
use crate::guard::StoreGuard;
use crate::require;
use crate::trace::Actor;
use crate::world::situations::Met;

use super::{Nature, Row, SimStore, Status};

impl SimStore {
    /// Claims due rows under the request's token.
    pub fn claim(&mut self, book: &mut Book, request: &ClaimRequest) -> Claimed {
        let now = self.clock(book.now);
        let token = request.token().bits();
        require!(book, "I5", None, self.tokens.insert(token), "a token was used for a second claim");
        let mut claimed = Claimed::default();
        if !self.rows.iter().any(|row| row.status == Status::New && row.available_at <= now) {
            return claimed;
        }
        let chains = self.claimable(book, now);
        let due_rows = chains.iter().map(Vec::len).sum::<usize>();
        let order = self.unsuspected(chains);
        let mut bytes = 0;
        let mut halted = Vec::new();
        let flags = self.guards(StoreGuard::SweepFlags);
        for number in order.into_iter().take(request.limit as usize) {
            let row = &mut self.rows[number];
            let event = row.event();
            bytes += event.weight();
            if bytes > request.bytes_max && bytes > event.weight() {
                break;
            }
            row.turn(book, Actor::Store, "claim", Status::Sending);
            row.token = Some(token);
            row.settled = None;
            row.attempts += 1;
            row.locked_until = now.plus(request.length);
            row.leased_until = book.now.plus(request.length);
            let age = now.since(row.created_at);
            if row.aggregate.is_some_and(|aggregate| halted.contains(&aggregate)) {
                // Behind a row of the same claim that goes DEAD and blocks.
                let claim = request.claim(event, row.attempts, age);
                let behind = claim.release(Duration::from_secs(1), "an earlier event of it is DEAD");
                claimed.malformed.push(behind);
            } else if row.nature == Nature::Malformed {
                book.met.meet(Met::Malformed);
                claimed.malformed.push(request.malformed(event.id, "payload is not JSON"));
                if self.order == (Order::PerAggregate { dead: DeadHead::Block }) {
                    halted.extend(row.aggregate);
                }
            } else {
                let claim = request.claim(event, row.attempts, age);
                claimed.claims.push(if row.suspect() && flags { claim.suspected() } else { claim });
            }
        }
        claimed.more = due_rows > claimed.claims.len() + claimed.malformed.len();
        claimed
    }

    /// Due rows, in the order they may be published: those of an aggregate from its first unfinished row on as long
    /// as they are due, each other row by itself.
    fn claimable(&self, book: &mut Book, now: Monotonic) -> Vec<Vec<usize>> {
        let by_status = self.guards(StoreGuard::ClaimStatus);
        let claimable =
            |row: &Row| row.status == Status::New || (!by_status && row.status == Status::Sending);
        let ripe = |row: &Row| claimable(row) && row.available_at <= now;
        let due = |row: &Row| ripe(row) && !row.locked;
        let mut chains = Vec::new();
        let mut aggregates: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, row) in self.rows.iter().enumerate() {
            book.met.meet_if(row.locked && ripe(row), Met::LockedRowSkipped);
            match row.aggregate.filter(|_| self.order != Order::Competing) {
                Some(aggregate) if !self.overlooked(row) => {
                    aggregates.entry(aggregate).or_default().push(number);
                }
                None if due(row) => chains.push(vec![number]),
                Some(_) | None => {}
            }
        }
        for unfinished in aggregates.into_values() {
            let first = unfinished[0];
            // A suspect is claimed alone, so it ends the chain before it.
            let follows = |number: &usize| {
                due(&self.rows[*number]) && (*number == first || !self.rows[*number].suspect())
            };
            chains.push(unfinished.into_iter().take_while(follows).collect());
        }
        if !self.guards(StoreGuard::ClaimOrder) {
            for chain in &mut chains {
                chain.reverse();
            }
        }
        chains.retain(|chain: &Vec<usize>| !chain.is_empty());
        chains.sort_by_key(|chain| (self.rows[chain[0]].available_at, chain[0]));
        chains
    }

    /// True when a claim looks past the row at those behind it in its aggregate.
    fn overlooked(&self, row: &Row) -> bool {
        self.passed(row)
            || (row.status == Status::Sending && !self.guards(StoreGuard::OrderHeld))
            || (row.status == Status::Dead && !self.guards(StoreGuard::OrderDead))
    }

    /// A suspect at the front goes alone; others wait for their turn, with their chains.
    fn unsuspected(&self, mut chains: Vec<Vec<usize>>) -> Vec<usize> {
        let flags = self.guards(StoreGuard::SweepFlags);
        let suspect = |chain: &Vec<usize>| self.rows[chain[0]].suspect() && flags;
        match chains.first() {
            Some(first) if suspect(first) => vec![first[0]],
            _ => {
                // What is due after the suspect waits until the suspect has gone.
                let first = chains.iter().position(suspect).unwrap_or(chains.len());
                chains.truncate(first);
                chains.concat()
            }
        }
    }

    /// Gives rows back whose leases have ended.
    pub fn sweep(&mut self, book: &mut Book, limit: u32, delay: Duration, attempts_max: u32) -> Swept {
        let now = self.clock(book.now);
        let mut swept = Swept::default();
        let by_lease = self.guards(StoreGuard::SweepLease);
        let over = |row: &Row| row.locked_until <= now || !by_lease;
        let expired = |row: &&mut Row| row.status == Status::Sending && over(row) && !row.locked;
        for row in self.rows.iter_mut().filter(expired).take(limit as usize) {
            book.met.meet_if(row.leased_until > book.now, Met::LiveLeaseSwept);
            row.token = None;
            row.sweeps += 1;
            if row.attempts >= attempts_max {
                require!(
                    book,
                    "I10",
                    Some(row.number),
                    row.attempts >= self.attempts_max,
                    "swept to DEAD after {} attempts",
                    row.attempts
                );
                row.turn(book, Actor::Store, "sweep", Status::Dead);
                swept.dead += 1;
                book.met.meet(Met::SweptToDead);
            } else {
                row.turn(book, Actor::Store, "sweep", Status::New);
                row.available_at = now.plus(delay);
                swept.returned += 1;
                book.met.meet(Met::Swept);
            }
        }
        swept
    }
}
