//! Whether a destination is worth asking: readiness as its adapter reports it, and a breaker over outcomes.

use std::time::Duration;

use crate::safeguard::{Safeguard, stands};
use crate::time::{Draw, Monotonic};

/// So many failures in a row open the breaker.
const FAILURES_TO_OPEN: u32 = 5;
/// The first pause of an open breaker.
const PAUSE_BASE: Duration = Duration::from_secs(1);
/// No pause is longer, unless the destination asks for it.
const PAUSE_CAP: Duration = Duration::from_secs(30);
/// Rows given back because of the destination wait no longer than this, so that they are due when it comes back.
const ROW_WAIT_CAP: Duration = Duration::from_secs(5);
/// What a destination may ask for at most.
const RETRY_AFTER_CAP: Duration = Duration::from_hours(1);

/// How long a destination is left alone that asked for `asked`.
pub(super) fn granted(asked: Duration) -> Duration {
    asked.min(RETRY_AFTER_CAP)
}

/// The breaker of one destination. Local to a relay: jitter, not coordination, keeps relays out of step.
#[derive(Debug)]
pub(super) struct Circuit {
    state: State,
    unavailable_since: Option<Monotonic>,
    failures: u32,
    openings: u32,
    last_answer: Option<Monotonic>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Monotonic,
        /// The destination asked for the pause: rows respect it too.
        asked: bool,
    },
    Probing,
}

/// What may be published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// As much as the window takes.
    Full,
    /// One event, to see whether the destination is back.
    Probe,
    /// Nothing; rows are given back for the span.
    Wait(Duration),
}

impl Circuit {
    /// A destination counts as unavailable until its adapter reports otherwise.
    pub(super) fn new(now: Monotonic) -> Self {
        Self {
            state: State::Closed,
            unavailable_since: Some(now),
            failures: 0,
            openings: 0,
            last_answer: None,
        }
    }

    pub(super) fn admission(&self, now: Monotonic) -> Admission {
        if let Some(since) = self.unavailable_since.filter(|_| stands(Safeguard::Unavailable)) {
            return Admission::Wait(now.since(since).clamp(PAUSE_BASE, ROW_WAIT_CAP));
        }
        match self.state {
            State::Closed => Admission::Full,
            State::Open { until, .. } if now >= until => Admission::Probe,
            State::Open { until, asked: true } => Admission::Wait(until.since(now)),
            State::Open { until, asked: false } => Admission::Wait(until.since(now).min(ROW_WAIT_CAP)),
            State::Probing if !stands(Safeguard::OneProbe) => Admission::Probe,
            State::Probing => Admission::Wait(PAUSE_BASE),
        }
    }

    /// When an open breaker lets a probe through, if waiting is all it takes.
    pub(super) fn probe_at(&self) -> Option<Monotonic> {
        match (self.unavailable_since, self.state) {
            (None, State::Open { until, .. }) => Some(until),
            (None, State::Closed | State::Probing) | (Some(_), _) => None,
        }
    }

    pub(super) fn probing(&mut self) {
        self.state = State::Probing;
    }

    /// A probe ended without a word about the destination: another one may go at once.
    pub(super) fn probe_withdrawn(&mut self, now: Monotonic) {
        if self.state == State::Probing {
            self.state = State::Open { until: now, asked: false };
        }
    }

    /// The destination answered about a message: it is healthy, whatever it said.
    pub(super) fn answered(&mut self, now: Monotonic) {
        self.last_answer = Some(now);
        self.failures = 0;
        self.openings = 0;
        self.state = State::Closed;
    }

    /// A failure that the destination must answer for. True when this opened the breaker.
    pub(super) fn failed(
        &mut self,
        now: Monotonic,
        retry_after: Option<Duration>,
        draw: &mut impl Draw,
    ) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Probing => true,
            State::Closed => self.failures >= FAILURES_TO_OPEN || retry_after.is_some(),
            State::Open { .. } => false,
        };
        if opens {
            let ceiling = PAUSE_BASE.saturating_mul(1 << self.openings.min(5)).min(PAUSE_CAP);
            let pause = ceiling.mul_f64(0.5 + draw.fraction() / 2.0);
            let pause = pause.max(retry_after.map(granted).unwrap_or_default());
            self.openings = self.openings.saturating_add(1);
            self.state = State::Open { until: now.plus(pause), asked: retry_after.is_some() };
        }
        opens
    }

    pub(super) fn unavailable(&mut self, now: Monotonic) {
        self.unavailable_since.get_or_insert(now);
    }

    /// The adapter is connected and unblocked: what was learnt before says little, so a probe goes out at once.
    pub(super) fn accepting(&mut self, now: Monotonic) {
        self.unavailable_since = None;
        if let State::Open { .. } | State::Probing = self.state {
            self.state = State::Open { until: now, asked: false };
        }
    }

    /// True while nothing speaks against the destination.
    pub(super) fn healthy(&self) -> bool {
        self.unavailable_since.is_none() && self.state == State::Closed
    }

    /// True while the adapter reports the destination as away or blocked.
    pub(super) fn is_unavailable(&self) -> bool {
        self.unavailable_since.is_some()
    }

    /// True when the destination answered about some message after `moment`.
    pub(super) fn answered_since(&self, moment: Monotonic) -> bool {
        self.last_answer.is_some_and(|answer| answer > moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Fixed;

    const NOW: Monotonic = Monotonic::new(Duration::from_secs(1000));

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// The circuit of a destination that accepts.
    fn closed() -> Circuit {
        let mut circuit = Circuit::new(NOW);
        circuit.accepting(NOW);
        circuit
    }

    /// Fails until the breaker opens; how long its pause is.
    fn pause(circuit: &mut Circuit, retry_after: Option<Duration>, fraction: f64) -> Duration {
        let mut failures = 0..FAILURES_TO_OPEN;
        assert!(failures.any(|_| circuit.failed(NOW, retry_after, &mut Fixed(fraction))), "it opens");
        circuit.probe_at().expect("it is open").since(NOW)
    }

    #[test]
    fn the_first_pause_is_half_a_second_to_a_second() {
        assert_eq!(pause(&mut closed(), None, 0.0), millis(500));
        assert_eq!(pause(&mut closed(), None, 0.5), millis(750));
    }

    #[test]
    fn a_pause_doubles_with_every_failed_probe_until_something_is_answered() {
        let mut circuit = closed();

        let pauses: Vec<Duration> = (0..8)
            .map(|_| {
                let pause = pause(&mut circuit, None, 0.0);
                circuit.probing();
                pause
            })
            .collect();
        circuit.answered(NOW);

        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000].map(millis));
        assert_eq!(pause(&mut circuit, None, 0.0), millis(500));
    }

    #[test]
    fn a_destination_lengthens_its_pause_up_to_an_hour_and_never_shortens_it() {
        let hour = Duration::from_hours(1);

        assert_eq!(pause(&mut closed(), Some(millis(40_000)), 0.0), millis(40_000));
        assert_eq!(pause(&mut closed(), Some(millis(1)), 0.0), millis(500));
        assert_eq!(pause(&mut closed(), Some(hour * 9), 0.0), hour);
    }

    #[test]
    fn an_open_breaker_sends_rows_away_for_seconds_unless_the_destination_asked_for_more() {
        for (asked, wait) in [(None, 5_000), (Some(millis(9_000)), 9_000)] {
            let mut circuit = Circuit { openings: 4, ..closed() };
            pause(&mut circuit, asked, 1.0);
            // The pause itself is 16 seconds.
            let moment = NOW.plus(millis(7_000));

            assert_eq!(circuit.admission(moment), Admission::Wait(millis(wait)), "{asked:?}");
            assert_eq!(circuit.admission(NOW.plus(millis(16_000))), Admission::Probe);
        }
    }

    #[test]
    fn a_row_waits_as_long_as_its_destination_has_been_away_between_one_and_five_seconds() {
        let mut circuit = closed();
        circuit.unavailable(NOW);
        circuit.unavailable(NOW.plus(millis(2_000)));

        for (after, wait) in [(0, 1_000), (3_000, 3_000), (60_000, 5_000)] {
            assert_eq!(circuit.admission(NOW.plus(millis(after))), Admission::Wait(millis(wait)));
        }
        assert!(circuit.is_unavailable());
        assert_eq!(circuit.probe_at(), None, "waiting is not all it takes");
    }

    #[test]
    fn a_probe_that_says_nothing_makes_room_for_another_and_closes_nothing() {
        let mut circuit = closed();
        circuit.probe_withdrawn(NOW);
        assert_eq!(circuit.admission(NOW), Admission::Full);

        pause(&mut circuit, None, 0.0);
        circuit.probe_withdrawn(NOW);
        assert_eq!(circuit.admission(NOW), Admission::Wait(millis(500)), "none was under way");
        circuit.probing();
        assert_eq!(circuit.admission(NOW), Admission::Wait(millis(1_000)));
        circuit.probe_withdrawn(NOW);
        assert_eq!(circuit.admission(NOW), Admission::Probe);
    }

    #[test]
    fn a_destination_is_healthy_while_it_accepts_and_its_breaker_is_closed() {
        let mut open = closed();
        pause(&mut open, None, 0.0);
        let mut away = closed();
        away.unavailable(NOW);

        assert!(closed().healthy() && !closed().is_unavailable());
        assert!(!open.healthy() && !open.is_unavailable());
        assert!(!away.healthy());
    }

    #[test]
    fn an_answer_counts_for_what_was_published_before_it() {
        let mut circuit = closed();
        assert!(!circuit.answered_since(NOW));

        circuit.answered(NOW);

        assert!(circuit.answered_since(NOW.minus(millis(1))));
        assert!(!circuit.answered_since(NOW), "at the same moment nobody knows");
        assert!(!circuit.answered_since(NOW.plus(millis(1))));
    }
}
