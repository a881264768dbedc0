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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::event::{Aggregate, Event, EventId};
    use crate::lease::{ClaimRequest, PublishLimits};
    use crate::route::DestinationName;

    const NOW: Monotonic = Monotonic::new(Duration::from_secs(1000));

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn rows_come_back_five_hundred_at_a_time_in_steps_of_a_quarter_of_a_second() {
        let mut returns = Returns::default();

        let delays: Vec<Duration> = (0..1_100).map(|_| returns.next(NOW, millis(5_000))).collect();

        assert!(delays[..500].iter().all(|delay| *delay == millis(5_000)));
        assert!(delays[500..1_000].iter().all(|delay| *delay == millis(5_250)));
        assert!(delays[1_000..].iter().all(|delay| *delay == millis(5_500)));
    }

    #[test]
    fn a_row_that_comes_within_a_step_joins_the_last_ones_and_a_later_one_comes_by_itself() {
        let mut returns = Returns::default();

        assert_eq!(returns.next(NOW, millis(5_000)), millis(5_000));
        assert_eq!(returns.next(NOW.plus(millis(249)), millis(5_000)), millis(4_751));
        assert_eq!(returns.next(NOW.plus(millis(250)), millis(5_000)), millis(5_000));
        for _ in 1..500 {
            assert_eq!(returns.next(NOW.plus(millis(250)), millis(5_000)), millis(5_000));
        }
        assert_eq!(returns.next(NOW.plus(millis(250)), millis(5_000)), millis(5_250), "counted anew");
    }

    #[test]
    fn nobody_waits_more_than_five_minutes_on_account_of_the_others() {
        let mut returns = Returns::default();
        let longest = millis(5_000) + Returns::WAIT_MAX;

        let last = (0..700_000).map(|_| returns.next(NOW, millis(5_000))).max();

        assert_eq!(last, Some(longest));
    }

    #[test]
    fn a_row_that_would_be_kept_beyond_that_by_a_longer_wait_of_others_starts_anew() {
        let last = NOW.plus(millis(5_000) + Returns::WAIT_MAX + Returns::STEP);
        let returns = |last| Returns { last, rows: 1 };

        assert_eq!(returns(last).next(NOW, millis(5_000)), last.since(NOW));
        assert_eq!(returns(last.plus(millis(1))).next(NOW, millis(5_000)), millis(5_000));
        assert_eq!(returns(last.plus(Duration::from_hours(1))).next(NOW, millis(5_000)), millis(5_000));
    }

    /// A claim on a row of so many bytes.
    fn claim(payload_bytes: usize) -> (Claim, Route) {
        let request = ClaimRequest::new(1, 1, Duration::from_secs(30), [1; 16], NOW);
        let event = Event {
            id: EventId::stored("e"),
            aggregate: Aggregate::default(),
            event_type: String::new(),
            business_key: None,
            payload: Some(Bytes::from(vec![b'x'; payload_bytes])),
            headers: Vec::new(),
            destination: None,
            route_key: None,
            created_at_micros: None,
        };
        let route = Route { destination: DestinationName::new("a"), key: String::new() };
        (request.claim(event, 1, Duration::ZERO), route)
    }

    fn queued(payloads: &[usize]) -> Outlet {
        let mut outlet = Outlet::new(NOW);
        for bytes in payloads {
            let (claim, route) = claim(*bytes);
            outlet.queue(claim, route);
        }
        outlet
    }

    /// Starts the next row that waits.
    fn start(outlet: &mut Outlet, id: u64, lane: Lane) {
        let limits = PublishLimits { deadline: Duration::from_secs(15), margin: Duration::from_secs(5) };
        let (claim, route) = outlet.dequeue().unwrap();
        let (_, pending) = claim.start(NOW, limits, route.clone()).unwrap();
        outlet.take_off(PublishId(id), pending, route, lane, NOW);
    }

    #[test]
    fn rows_and_their_weight_are_held_from_the_queue_to_the_landing() {
        let bare = claim(0).0.weight();
        let mut outlet = queued(&[1_000, 20, 3]);
        assert_eq!((outlet.held(), outlet.held_weight()), (3, 3 * bare + 1_023));

        start(&mut outlet, 1, Lane::Window);
        start(&mut outlet, 2, Lane::Window);
        assert_eq!((outlet.waiting.len(), outlet.flying_weight), (1, 2 * bare + 1_020));
        assert_eq!((outlet.held(), outlet.held_weight()), (3, 3 * bare + 1_023));

        let flight = outlet.land(PublishId(1)).unwrap();
        assert_eq!((outlet.held(), outlet.held_weight()), (2, 2 * bare + 23));
        outlet.suspects.push_back((flight.pending, flight.route));
        assert_eq!((outlet.held(), outlet.held_weight()), (3, 3 * bare + 1_023));
        assert!(outlet.land(PublishId(1)).is_none(), "it has landed");
    }

    #[test]
    fn an_outlet_is_crowded_by_rows_or_by_bytes() {
        let outlet = queued(&[1_000, 1_000]);
        let weight = outlet.held_weight();

        assert!(outlet.crowded(2, weight + 1), "by rows");
        assert!(outlet.crowded(3, weight), "by bytes");
        assert!(!outlet.crowded(3, weight + 1));
    }

    #[test]
    fn one_publish_on_the_quarantine_lane_is_a_quarantine_until_it_lands() {
        let mut outlet = queued(&[1, 1]);
        start(&mut outlet, 1, Lane::Window);
        assert!(!outlet.quarantining());

        start(&mut outlet, 2, Lane::Quarantine);
        assert!(outlet.quarantining());
        outlet.land(PublishId(1)).unwrap();
        assert!(outlet.quarantining());

        outlet.land(PublishId(2)).unwrap();
        assert!(!outlet.quarantining());
    }

    #[test]
    fn a_flight_knows_whether_it_was_ever_in_company() {
        let mut outlet = queued(&[1, 1, 1]);
        start(&mut outlet, 1, Lane::Window);
        start(&mut outlet, 2, Lane::Window);
        assert!(outlet.land(PublishId(1)).unwrap().company, "the second came while it flew");
        assert!(outlet.land(PublishId(2)).unwrap().company, "the first was there");

        start(&mut outlet, 3, Lane::Window);
        assert!(!outlet.land(PublishId(3)).unwrap().company);
    }
}
