//! What other producers send to the consumers, besides the outbox: the same facts again, in other envelopes, with other
//! content, and messages that can never be applied.

use std::time::Duration;

use bytes::Bytes;

use crate::options::{Fault, millis};

use super::Consumers;
use super::facts::{AMOUNT_MAX, Fact};
use super::shared::{Alarm, State};

/// Everything has arrived, and every account that ever will be is open, by then.
const LATEST_MILLIS: u64 = 4_000;
/// Orders and streams of other producers begin here: those of the outbox are below.
const FIRST: i64 = 10_000;
/// Nobody ever opens this account.
const NOBODY: i64 = 404;

impl Consumers {
    /// Lets everything be sent, and the processes start.
    pub(super) fn feed(&mut self) {
        let mut state = self.shared.state();
        for user in 1..=self.options.users {
            if state.faults.may(Fault::LateAccounts) && state.strikes(Fault::LateAccounts, 50) {
                let delay = state.span(LATEST_MILLIS);
                state.schedule(delay, Alarm::OpenAccount(user));
            } else {
                state.tables.accounts.insert(user, 0);
            }
        }
        let users = self.options.users;
        let mut versions = vec![0; usize::try_from(self.options.streams).unwrap_or(1)];
        let mut moment = 0;
        for number in 0..self.options.facts {
            let stream = state.draw.index(versions.len());
            versions[stream] += 1;
            let fact = Fact {
                order: FIRST + i64::try_from(number).unwrap_or(i64::MAX),
                user: 1 + i64::try_from(state.draw.below(users.unsigned_abs())).unwrap_or(0),
                amount: 1 + i64::from(state.draw.below_u32(500)),
                stream: FIRST + i64::try_from(stream).unwrap_or(0),
                version: versions[stream],
                undecodable: false,
                body: Bytes::new(),
            };
            moment += state.draw.below(250);
            let fact = make_odd(&mut state, fact);
            send(&mut state, fact, millis(moment.min(LATEST_MILLIS)));
        }
        // Facts of the outbox arrive when a relay publishes them, but others may send their like.
        for number in 0..state.facts.len() {
            vary(&mut state, number);
        }
        for process in 0..self.options.processes {
            let delay = state.span(50);
            state.schedule(delay, Alarm::Start(process));
        }
        state.schedule(millis(100), Alarm::Chaos);
    }
}

fn make_odd(state: &mut State, mut fact: Fact) -> Fact {
    if state.strikes(Fault::OddMessages, 25) {
        match state.draw.below(3) {
            0 => fact.undecodable = true,
            1 => fact.amount = AMOUNT_MAX + 1,
            _ => fact.user = NOBODY,
        }
    }
    fact
}

fn send(state: &mut State, fact: Fact, at: Duration) {
    state.facts.push(fact.with_body(0));
    arrive(state, state.facts.len() - 1, at);
}

fn arrive(state: &mut State, number: usize, at: Duration) {
    let at = if state.strikes(Fault::Reordering, 50) { state.span(LATEST_MILLIS) } else { at };
    state.deliveries.to_come += 1;
    state.schedule(at, Alarm::Arrive(number));
    while state.strikes(Fault::Duplicates, 35) {
        let again = if state.draw.chance(50) { at } else { state.span(LATEST_MILLIS) };
        state.deliveries.to_come += 1;
        state.schedule(again, Alarm::Arrive(number));
    }
}

/// The same operation again, in another envelope or with other content.
fn vary(state: &mut State, number: usize) {
    if state.strikes(Fault::Rewraps, 30) {
        let (fact, at) = (state.facts[number].clone(), state.span(LATEST_MILLIS));
        send(state, fact, at);
    }
    if state.strikes(Fault::Conflicts, 30) {
        let (mut fact, at) = (state.facts[number].clone(), state.span(LATEST_MILLIS));
        fact.amount += 1;
        send(state, fact, at);
    }
}
