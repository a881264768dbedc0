//! One destination as the relay sees it: its circuit, what waits for it, and what is in flight to it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::lease::{Claim, Pending, PublishId};
use crate::ports::Lane;
use crate::route::Route;
use crate::time::Monotonic;

use super::circuit::Circuit;

#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) circuit: Circuit,
    /// Claimed rows that wait for a place in the window.
    pub(super) waiting: VecDeque<(Claim, Route)>,
    waiting_weight: usize,
    /// Rows whose channel died around them: tried again one at a time, under the same lease.
    pub(super) suspects: VecDeque<(Pending, Route)>,
    pub(super) flights: BTreeMap<PublishId, Flight>,
    pub(super) flying_weight: usize,
    quarantined: usize,
    returns: Returns,
}

/// When rows come back that were given back for the destination's sake: spread out, so that a long backlog of one
/// destination, coming round again and again, leaves the claims free for the others.
#[derive(Debug, Default)]
struct Returns {
    /// When the last ones come.
    last: Monotonic,
    /// How many come then.
    rows: usize,
}

impl Returns {
    /// Rows come together, so that their settlements share statements.
    const STEP: Duration = Duration::from_millis(250);
    /// So many at a time: 2,000 in a second.
    const ROWS_PER_STEP: usize = 500;
    /// Nobody waits longer on account of the others.
    const WAIT_MAX: Duration = Duration::from_mins(5);

    /// How long the next row waits that would come back after `delay` if it were alone.
    fn next(&mut self, now: Monotonic, delay: Duration) -> Duration {
        let earliest = now.plus(delay);
        // What the destination asked others to wait for is no measure for this row.
        let beyond = self.last.since(earliest) > Self::WAIT_MAX + Self::STEP;
        if beyond || earliest >= self.last.plus(Self::STEP) {
            (self.last, self.rows) = (earliest, 0);
        } else if self.rows >= Self::ROWS_PER_STEP && self.last.since(earliest) < Self::WAIT_MAX {
            (self.last, self.rows) = (self.last.plus(Self::STEP), 0);
        }
        self.rows += 1;
        self.last.since(now)
    }
}

/// One publish under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) pending: Pending,
    pub(super) route: Route,
    pub(super) lane: Lane,
    pub(super) weight: usize,
    pub(super) started: Monotonic,
    /// Another publish to the same destination was in flight at some moment of this one.
    pub(super) company: bool,
    /// The circuit was closed when it started.
    pub(super) healthy_start: bool,
}

impl Outlet {
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            circuit: Circuit::new(now),
            waiting: VecDeque::new(),
            waiting_weight: 0,
            suspects: VecDeque::new(),
            flights: BTreeMap::new(),
            flying_weight: 0,
            quarantined: 0,
            returns: Returns::default(),
        }
    }

    pub(super) fn held(&self) -> usize {
        self.waiting.len() + self.suspects.len() + self.flights.len()
    }

    pub(super) fn held_weight(&self) -> usize {
        let suspects: usize = self.suspects.iter().map(|(pending, _)| pending.event.weight()).sum();
        self.flying_weight + self.waiting_weight + suspects
    }

    /// True when a whole claim waits here already.
    pub(super) fn crowded(&self, rows: usize, bytes: usize) -> bool {
        self.waiting.len() >= rows || self.waiting_weight >= bytes
    }

    pub(super) fn queue(&mut self, claim: Claim, route: Route) {
        self.waiting_weight += claim.weight();
        self.waiting.push_back((claim, route));
    }

    pub(super) fn dequeue(&mut self) -> Option<(Claim, Route)> {
        let (claim, route) = self.waiting.pop_front()?;
        self.waiting_weight -= claim.weight();
        Some((claim, route))
    }

    /// How long a row waits that is given back for the destination's sake, at least `delay`.
    pub(super) fn return_delay(&mut self, now: Monotonic, delay: Duration) -> Duration {
        self.returns.next(now, delay)
    }

    /// The destination takes messages again: what was given back need not be spread beyond the wait it has.
    pub(super) fn accepting(&mut self, now: Monotonic) {
        self.circuit.accepting(now);
        self.returns = Returns::default();
    }

    /// True while a publish is in flight on the quarantine lane, which takes one at a time.
    pub(super) fn quarantining(&self) -> bool {
        self.quarantined > 0
    }

    /// Records a flight and the company it keeps.
    pub(super) fn take_off(
        &mut self,
        id: PublishId,
        pending: Pending,
        route: Route,
        lane: Lane,
        now: Monotonic,
    ) {
        let weight = pending.event.weight();
        let company = !self.flights.is_empty();
        if self.flights.len() == 1 {
            for flight in self.flights.values_mut() {
                flight.company = true;
            }
        }
        self.flying_weight += weight;
        self.quarantined += usize::from(lane == Lane::Quarantine);
        let healthy_start = self.circuit.healthy();
        let flight = Flight { pending, route, lane, weight, started: now, company, healthy_start };
        self.flights.insert(id, flight);
    }

    pub(super) fn land(&mut self, id: PublishId) -> Option<Flight> {
        let flight = self.flights.remove(&id)?;
        self.flying_weight -= flight.weight;
        self.quarantined -= usize::from(flight.lane == Lane::Quarantine);
        Some(flight)
    }
}
