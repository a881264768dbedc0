//! A table of events in memory, as the contract describes it, checking every change of a row.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use consign_core::event::{Event, EventId};
use consign_core::lease::ClaimRequest;
use consign_core::ports::{Claimed, StoreError};
use consign_core::relay::{DeadHead, Order};
use consign_core::settle::{SettleBatch, Settled, Settlement, Swept, Transition};
use consign_core::time::Monotonic;

use crate::harness::event;

use super::witness::{Met, Witness};

/// A row swept this often is claimed alone.
const SWEEPS_TO_SUSPECT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    New,
    Sending,
    Sent,
    Dead,
}

/// What a row is like, and so what must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    Plain,
    /// Kills the channel it is published on.
    Poison,
    /// Rejected for its own sake; the reason is one that the store cannot hold.
    Invalid,
    /// The broker has nowhere to put it.
    Unroutable,
    /// Cannot be decoded.
    Malformed,
    /// No route takes it.
    Stray,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub nature: Nature,
    pub destination: usize,
    /// Events of one aggregate are in the order of their numbers.
    pub aggregate: Option<usize>,
    pub payload_bytes: usize,
    pub status: Status,
    pub token: Option<String>,
    pub attempts: u32,
    pub locked_until: Monotonic,
    /// Copies that the broker accepted.
    pub copies: u32,
    /// Publishes that relays started.
    pub publishes: u32,
    available_at: Monotonic,
    created_at: Monotonic,
    sweeps: u32,
    /// The last settle that was applied: its token and the word for where it went.
    settled: Option<(String, &'static str)>,
}

impl Row {
    pub fn new(nature: Nature, destination: usize, payload_bytes: usize, now: Monotonic) -> Self {
        Self {
            nature,
            destination,
            aggregate: None,
            payload_bytes,
            status: Status::New,
            token: None,
            attempts: 0,
            locked_until: now,
            copies: 0,
            publishes: 0,
            available_at: now,
            created_at: now,
            sweeps: 0,
            settled: None,
        }
    }

    /// I9: the closed state machine.
    fn turn(&mut self, to: Status) {
        let allowed = matches!(
            (self.status, to),
            (Status::New, Status::Sending) | (Status::Sending, Status::New | Status::Sent | Status::Dead)
        );
        assert!(allowed, "{:?} became {to:?}", self.status);
        self.status = to;
    }

    pub fn suspect(&self) -> bool {
        self.sweeps >= SWEEPS_TO_SUSPECT
    }

    /// True when nothing more can become of the row.
    pub fn ended(&self) -> bool {
        match self.status {
            Status::Sent | Status::Dead => true,
            Status::New => self.nature == Nature::Stray,
            Status::Sending => false,
        }
    }
}

/// The row an event id names.
pub fn number(id: &EventId) -> usize {
    id.as_str().parse().expect("ids are row numbers")
}

#[derive(Debug)]
pub struct Store {
    pub rows: Vec<Row>,
    attempts_max: u32,
    order: Order,
    tokens: BTreeSet<String>,
}

impl Store {
    pub fn new(attempts_max: u32, order: Order) -> Self {
        Self { rows: Vec::new(), attempts_max, order, tokens: BTreeSet::new() }
    }

    pub fn claim(&mut self, now: Monotonic, request: &ClaimRequest) -> Claimed {
        let token = request.token().to_hex();
        assert!(self.tokens.insert(token.clone()), "I5: token {token} was used before");
        let chains = self.claimable(now);
        let due_rows = chains.iter().map(Vec::len).sum::<usize>();
        let order = self.unsuspected(chains);
        let mut claimed = Claimed::default();
        let mut bytes = 0;
        let mut halted = BTreeSet::new();
        for number in order.into_iter().take(request.limit as usize) {
            let event = self.event(number);
            bytes += event.weight();
            if bytes > request.bytes_max && bytes > event.weight() {
                break;
            }
            let row = &mut self.rows[number];
            row.turn(Status::Sending);
            row.token = Some(token.clone());
            row.attempts += 1;
            row.locked_until = now.plus(request.length);
            let age = now.since(row.created_at);
            if row.aggregate.is_some_and(|aggregate| halted.contains(&aggregate)) {
                // Behind a row of the same claim that goes DEAD and blocks.
                let claim = request.claim(event, row.attempts, age);
                claimed
                    .malformed
                    .push(claim.release(Duration::from_secs(1), "an earlier event of it is DEAD"));
            } else if row.nature == Nature::Malformed {
                claimed.malformed.push(request.malformed(event.id, "payload is not JSON"));
                if self.order == (Order::PerAggregate { dead: DeadHead::Block }) {
                    halted.extend(row.aggregate);
                }
            } else {
                let claim = request.claim(event, row.attempts, age);
                claimed.claims.push(if row.suspect() { claim.suspected() } else { claim });
            }
        }
        claimed.more = due_rows > claimed.claims.len() + claimed.malformed.len();
        claimed
    }

    /// Due rows, in the order they may be published: those of an aggregate from its first unfinished row on as long
    /// as they are due, each other row by itself.
    fn claimable(&self, now: Monotonic) -> Vec<Vec<usize>> {
        let due = |row: &Row| row.status == Status::New && row.available_at <= now;
        let mut chains = Vec::new();
        let mut aggregates: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, row) in self.rows.iter().enumerate() {
            match row.aggregate {
                Some(aggregate) if !self.passed(row) => aggregates.entry(aggregate).or_default().push(number),
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
        chains.retain(|chain| !chain.is_empty());
        chains.sort_by_key(|chain| (self.rows[chain[0]].available_at, chain[0]));
        chains
    }

    /// A suspect at the front goes alone; others wait for their turn, with their chains.
    fn unsuspected(&self, mut chains: Vec<Vec<usize>>) -> Vec<usize> {
        let suspect = |chain: &Vec<usize>| self.rows[chain[0]].suspect();
        match chains.first() {
            Some(first) if suspect(first) => vec![first[0]],
            _ => {
                chains.retain(|chain| !suspect(chain));
                chains.concat()
            }
        }
    }

    /// True when the events behind the row in its aggregate need not wait for it.
    pub fn passed(&self, row: &Row) -> bool {
        let skips = self.order == Order::PerAggregate { dead: DeadHead::Skip };
        row.status == Status::Sent || (row.status == Status::Dead && skips)
    }

    /// The rows before `number` in its aggregate.
    pub fn before(&self, number: usize) -> impl Iterator<Item = &Row> {
        let aggregate = self.rows[number].aggregate;
        self.rows[..number].iter().filter(move |row| aggregate.is_some() && row.aggregate == aggregate)
    }

    /// True when nothing more can become of the row, unless somebody interferes.
    pub fn ended(&self, number: usize) -> bool {
        let row = &self.rows[number];
        row.ended()
            || (row.status == Status::New && self.before(number).any(|row| row.ended() && !self.passed(row)))
    }

    fn event(&self, number: usize) -> Event {
        let row = &self.rows[number];
        let stray = row.nature == Nature::Stray;
        let event_type = if stray { "nowhere" } else { super::world::DESTINATIONS[row.destination] };
        let mut event = event(&number.to_string(), event_type, row.payload_bytes);
        event.aggregate.id = row.aggregate.map(|aggregate| aggregate.to_string());
        event
    }

    /// Settles in one transaction; refuses it whole over a reason that it cannot hold.
    pub fn settle(
        &mut self,
        now: Monotonic,
        batch: &SettleBatch,
        met: &mut Witness,
    ) -> Result<Vec<Settled>, StoreError> {
        let unfit = |to: &Transition| matches!(to, Transition::Dead { reason } if reason.contains('\0'));
        if batch.settlements.iter().any(|settlement| unfit(settlement.to())) {
            met.meet(Met::SettleNarrowed);
            return Err(StoreError::Data("invalid byte sequence 0x00".into()));
        }
        let repeat = batch.repeat;
        Ok(batch.settlements.iter().map(|one| self.settle_one(now, one, repeat, met)).collect())
    }

    fn settle_one(
        &mut self,
        now: Monotonic,
        settlement: &Settlement,
        repeat: bool,
        met: &mut Witness,
    ) -> Settled {
        let row = &mut self.rows[number(settlement.id())];
        let token = settlement.token().to_hex();
        let word = settlement.to().word();
        // I4: only under the row's own token.
        if row.status != Status::Sending || row.token.as_ref() != Some(&token) {
            if repeat && row.settled.as_ref() == Some(&(token, word)) {
                met.meet(Met::SettleRepeatedAndFoundApplied);
                return Settled::AlreadyApplied;
            }
            met.meet(Met::SettleFenced);
            return Settled::Fenced;
        }
        let back = |row: &mut Row, delay: Duration| {
            row.turn(Status::New);
            row.available_at = now.plus(delay);
        };
        match settlement.to() {
            Transition::Sent(_) => {
                assert!(row.copies > 0, "I2: SENT without a copy at the broker");
                row.turn(Status::Sent);
            }
            Transition::Retry { delay, .. } => back(row, *delay),
            Transition::Release { delay, .. } => {
                back(row, *delay);
                row.attempts -= 1;
            }
            Transition::Dead { reason } => {
                if reason.starts_with("given up") {
                    assert!(
                        row.attempts >= self.attempts_max,
                        "I10: given up after {} attempts",
                        row.attempts
                    );
                    met.meet(Met::GivenUpByExhaustion);
                } else {
                    // I15: whoever is judged at once is guilty.
                    assert_ne!(row.nature, Nature::Plain, "an innocent row went DEAD: {reason}");
                }
                row.turn(Status::Dead);
            }
        }
        row.token = None;
        row.sweeps = 0;
        row.settled = Some((token, word));
        Settled::Applied
    }

    pub fn sweep(
        &mut self,
        now: Monotonic,
        limit: u32,
        delay: Duration,
        attempts_max: u32,
        met: &mut Witness,
    ) -> Swept {
        let mut swept = Swept::default();
        let expired = |row: &&mut Row| row.status == Status::Sending && row.locked_until <= now;
        for row in self.rows.iter_mut().filter(expired).take(limit as usize) {
            row.token = None;
            row.sweeps += 1;
            if row.attempts >= attempts_max {
                row.turn(Status::Dead);
                swept.dead += 1;
                met.meet(Met::SweptToDead);
            } else {
                row.turn(Status::New);
                row.available_at = now.plus(delay);
                swept.returned += 1;
                met.meet(Met::Swept);
            }
        }
        swept
    }
}
