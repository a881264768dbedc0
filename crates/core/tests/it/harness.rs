//! One relay engine under a fake clock, with a store and destinations played by hand.
//!
//! After every step the harness checks that the engine cannot make its driver spin: the next timer lies in the future,
//! and when its moment comes, it gives a command or moves.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::time::Duration;

use bytes::Bytes;
use consign_core::event::{Aggregate, Event, EventId};
use consign_core::lease::{Claim, ClaimRequest, Publish, PublishId};
use consign_core::outcome::{ChannelId, DeliveryTag, Doubt, Outcome, Proof};
use consign_core::ports::{Claimed, Lane, Readiness, StoreError};
use consign_core::relay::{Command, Input, Relay, RelaySettings, Report};
use consign_core::route::{DestinationName, RouteTable, Rule, Template};
use consign_core::settle::{SettleBatch, Settled, Swept, Transition};
use consign_core::time::Monotonic;

use crate::draw::Seeded;

/// A row as a store would claim it.
#[derive(Clone, Debug)]
pub struct Row {
    id: String,
    destination: String,
    attempt: u32,
    age: Duration,
    payload_bytes: usize,
    suspect: bool,
    aggregate: Option<String>,
}

/// A row on its first attempt, for the destination of that name.
pub fn row(id: impl Into<String>, destination: &str) -> Row {
    let destination = destination.into();
    Row {
        id: id.into(),
        destination,
        attempt: 1,
        age: Duration::ZERO,
        payload_bytes: 0,
        suspect: false,
        aggregate: None,
    }
}

/// `count` rows for one destination, their ids numbered after `prefix`.
pub fn rows(prefix: &str, count: usize, destination: &str) -> Vec<Row> {
    (0..count).map(|number| row(format!("{prefix}{number}"), destination)).collect()
}

impl Row {
    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }

    pub fn age(self, age: Duration) -> Self {
        Self { age, ..self }
    }

    pub fn payload(self, payload_bytes: usize) -> Self {
        Self { payload_bytes, ..self }
    }

    pub fn swept_twice(self) -> Self {
        Self { suspect: true, ..self }
    }

    /// The row as one of this aggregate's.
    pub fn of(self, aggregate: &str) -> Self {
        Self { aggregate: Some(aggregate.into()), ..self }
    }

    pub fn claim(self, request: &ClaimRequest) -> Claim {
        let mut event = event(&self.id, &self.destination, self.payload_bytes);
        event.aggregate.id = self.aggregate;
        let claim = request.claim(event, self.attempt, self.age);
        if self.suspect { claim.suspected() } else { claim }
    }
}

/// An event whose type is the name of its destination, as the harness's routes expect.
pub fn event(id: &str, event_type: &str, payload_bytes: usize) -> Event {
    Event {
        id: EventId::stored(id),
        aggregate: Aggregate::default(),
        event_type: event_type.into(),
        business_key: None,
        payload: Some(Bytes::from(vec![b'x'; payload_bytes])),
        headers: Vec::new(),
        destination: None,
        route_key: None,
        created_at_micros: None,
    }
}

/// Routes that send each event to the destination its type names.
pub fn routes(destinations: &[&str]) -> RouteTable {
    let names: Vec<DestinationName> = destinations.iter().copied().map(DestinationName::new).collect();
    let key = Template::parse("{event_type}").unwrap();
    let rule = |name: &DestinationName| Rule {
        event_type: name.as_str().into(),
        destination: name.clone(),
        key: key.clone(),
        retry: None,
    };
    RouteTable::new(names.iter().map(rule).collect(), names.clone())
}

pub fn confirmed() -> Outcome {
    let channel = ChannelId { incarnation: 1, number: 1 };
    Outcome::Confirmed(Proof::PublisherConfirm { channel, tag: DeliveryTag(NonZeroU64::MIN) })
}

pub fn refused() -> Outcome {
    Outcome::Refused { reason: "nack".into(), retry_after: None }
}

pub fn timed_out() -> Outcome {
    Outcome::Unknown(Doubt::ConfirmTimedOut)
}

pub fn channel_closed() -> Outcome {
    Outcome::Unknown(Doubt::ChannelClosed("406 precondition failed".into()))
}

pub fn connection_lost() -> Outcome {
    Outcome::Unknown(Doubt::ConnectionLost("reset by peer".into()))
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A publish the engine asked for and whose outcome is still open.
#[derive(Debug)]
pub struct Flight {
    pub id: PublishId,
    pub lane: Lane,
    pub publish: Publish,
}

impl Flight {
    pub fn event(&self) -> &str {
        self.publish.event.id.as_str()
    }
}

pub struct Harness {
    pub relay: Relay<Seeded>,
    pub now: Monotonic,
    /// Claims asked for and not answered.
    pub claims: VecDeque<ClaimRequest>,
    pub flights: Vec<Flight>,
    /// Settles asked for and not answered.
    pub settles: VecDeque<SettleBatch>,
    /// Sweeps asked for and not answered, with their limits.
    pub sweeps: VecDeque<(u32, Duration, u32)>,
    pub reports: Vec<Report>,
    pub stops: usize,
}

impl Harness {
    /// A relay over destinations that are not connected yet.
    pub fn disconnected(settings: RelaySettings, destinations: &[&str]) -> Self {
        // Not at zero, so that leases that end in the past do not saturate.
        let now = Monotonic::new(seconds(1000));
        let mut harness = Self {
            relay: Relay::new(settings, routes(destinations), Seeded::new(7), now),
            now,
            claims: VecDeque::new(),
            flights: Vec::new(),
            settles: VecDeque::new(),
            sweeps: VecDeque::new(),
            reports: Vec::new(),
            stops: 0,
        };
        harness.collect();
        harness.assert_calm();
        harness
    }

    /// A relay whose destinations all accept.
    pub fn new(settings: RelaySettings, destinations: &[&str]) -> Self {
        let mut harness = Self::disconnected(settings, destinations);
        for name in destinations {
            harness.accepting(name);
        }
        harness.reports.clear();
        harness
    }

    /// One destination named `a`, and the settings people get without a config.
    pub fn with_defaults() -> Self {
        Self::new(RelaySettings::default(), &["a"])
    }

    pub fn feed(&mut self, input: Input) {
        self.relay.handle(self.now, input);
        self.collect();
        self.assert_calm();
    }

    fn collect(&mut self) -> usize {
        let mut commands = 0;
        while let Some(command) = self.relay.next_command() {
            commands += 1;
            assert_eq!(self.stops, 0, "nothing follows Stopped, but {command:?} did");
            match command {
                Command::Claim(request) => self.claims.push_back(request),
                Command::Publish(id, lane, publish) => self.flights.push(Flight { id, lane, publish }),
                Command::Settle(batch) => self.settles.push_back(batch),
                Command::Sweep { limit, delay, attempts_max } => {
                    self.sweeps.push_back((limit, delay, attempts_max));
                }
                Command::Report(report) => self.reports.push(report),
                Command::Stopped => self.stops += 1,
            }
        }
        assert!(self.claims.len() <= 1, "one claim at a time");
        assert!(self.settles.len() <= 1, "one settle at a time");
        assert!(self.sweeps.len() <= 1, "one sweep at a time");
        commands
    }

    /// What was due at this moment has been done: a driver that sleeps until the next timer never spins.
    fn assert_calm(&self) {
        if let Some(timer) = self.relay.next_timer() {
            assert!(timer > self.now, "timer {timer:?} is already due at {:?}", self.now);
        }
    }

    /// Lets time pass, with a timer input at every moment the engine asks for.
    pub fn pass(&mut self, span: Duration) {
        let until = self.now.plus(span);
        while let Some(timer) = self.relay.next_timer().filter(|timer| *timer <= until) {
            self.tick(timer);
        }
        self.now = until;
    }

    /// Lets time pass to the engine's next timer.
    pub fn pass_to_timer(&mut self) {
        let timer = self.relay.next_timer().expect("the engine waits for a moment");
        self.tick(timer);
    }

    fn tick(&mut self, timer: Monotonic) {
        self.now = timer;
        self.relay.handle(self.now, Input::Timer);
        let commands = self.collect();
        let next = self.relay.next_timer();
        assert!(commands > 0 || next != Some(timer), "the timer at {timer:?} does nothing for ever");
        self.assert_calm();
    }

    pub fn accepting(&mut self, destination: &str) {
        self.feed(Input::Readiness(DestinationName::new(destination), Readiness::Accepting));
    }

    pub fn unavailable(&mut self, destination: &str) {
        let readiness = Readiness::Unavailable("blocked: memory".into());
        self.feed(Input::Readiness(DestinationName::new(destination), readiness));
    }

    /// Answers the open claim with `rows`, and that nothing more is due.
    pub fn claimed(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.answer_claim(rows, false);
    }

    /// Answers the open claim with `rows`, and that more rows are due.
    pub fn claimed_of_more(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.answer_claim(rows, true);
    }

    fn answer_claim(&mut self, rows: impl IntoIterator<Item = Row>, more: bool) {
        let request = self.claim_request();
        let claims = rows.into_iter().map(|row| row.claim(&request)).collect();
        self.feed(Input::Claimed(Claimed { claims, malformed: Vec::new(), more }));
    }

    /// The open claim; waits for it if the engine asks for one later.
    pub fn claim_request(&mut self) -> ClaimRequest {
        const TIMERS_MAX: usize = 100;
        for _ in 0..TIMERS_MAX {
            if let Some(request) = self.claims.pop_front() {
                return request;
            }
            self.pass_to_timer();
        }
        panic!("the engine claims nothing")
    }

    pub fn claim_failed(&mut self, error: StoreError) {
        self.claim_request();
        self.feed(Input::ClaimFailed(error));
    }

    /// The ids of the events in flight, in the order they took off.
    pub fn flying(&self) -> Vec<&str> {
        self.flights.iter().map(Flight::event).collect()
    }

    pub fn lane(&self, event: &str) -> Lane {
        self.flights.iter().find(|flight| flight.event() == event).expect("the event is in flight").lane
    }

    /// Ends the flight of `event`.
    pub fn land(&mut self, event: &str, outcome: Outcome) {
        let flight = self.take_flight(event);
        self.feed(Input::Outcome(flight.id, outcome));
    }

    /// Ends the window flight of `event`, which may be tried again on the quarantine lane at once.
    pub fn land_on_window(&mut self, event: &str, outcome: Outcome) {
        let on_window = |flight: &Flight| flight.event() == event && flight.lane == Lane::Window;
        let position = self.flights.iter().position(on_window).expect("the event is in flight");
        let flight = self.flights.remove(position);
        self.feed(Input::Outcome(flight.id, outcome));
    }

    pub fn take_flight(&mut self, event: &str) -> Flight {
        let position = self.flights.iter().position(|flight| flight.event() == event);
        self.flights.remove(position.expect("the event is in flight"))
    }

    /// What the open settle asks for, by event.
    pub fn settling(&self) -> Vec<(String, Transition)> {
        let batch = self.settles.front();
        batch.map_or_else(Vec::new, |batch| {
            batch.settlements.iter().map(|one| (one.id().as_str().into(), one.to().clone())).collect()
        })
    }

    /// Lets every settlement reach the store and be applied; returns them in order.
    pub fn settle_all(&mut self) -> Vec<(String, Transition)> {
        let mut settled = Vec::new();
        loop {
            if self.settles.is_empty() {
                self.pass(RelaySettings::default().settle_linger);
            }
            if self.settles.is_empty() {
                return settled;
            }
            settled.extend(self.settling());
            self.settled(Settled::Applied);
        }
    }

    /// Lets every settlement be applied; returns where the only one went.
    pub fn settle_one(&mut self) -> Transition {
        let mut settled = self.settle_all();
        assert_eq!(settled.len(), 1, "{settled:?}");
        settled.remove(0).1
    }

    /// Answers the open settle with the same answer for every row.
    pub fn settled(&mut self, answer: Settled) {
        let batch = self.settles.pop_front().expect("a settle is open");
        let answers = vec![answer; batch.settlements.len()];
        self.feed(Input::Settled(batch, answers));
    }

    pub fn settle_failed(&mut self, error: StoreError) {
        let batch = self.settles.pop_front().expect("a settle is open");
        self.feed(Input::SettleFailed(batch, error));
    }

    pub fn swept(&mut self, returned: u32) {
        self.sweeps.pop_front().expect("a sweep is open");
        self.feed(Input::Swept(Swept { returned, dead: 0 }));
    }

    /// Publishes one row of `destination` and ends it with `outcome`; returns where the row went.
    pub fn publish_one(&mut self, row: Row, outcome: Outcome) -> Transition {
        let id = row.id.clone();
        self.claimed([row]);
        self.land(&id, outcome);
        self.settle_one()
    }
}
