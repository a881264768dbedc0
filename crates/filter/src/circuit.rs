//! When the server is asked, and when it is left alone.

use std::time::Duration;

use consign_core::time::Monotonic;

/// So many failures in a row open the circuit.
const FAILURES_TO_OPEN: u32 = 3;
/// The first pause of an open circuit; every failed probe doubles it.
const PAUSE_BASE: Duration = Duration::from_secs(5);
/// No pause is longer.
const PAUSE_CAP: Duration = Duration::from_mins(1);

/// Closed: everybody asks. Open: nobody does until the pause is over, and then one probe.
#[derive(Debug)]
pub(crate) struct Circuit {
    state: State,
    /// The length of the next pause.
    pause: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Monotonic,
    },
    /// One probe is under way; it was due at that moment.
    Probing {
        due: Monotonic,
    },
}

/// The right to ask once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    Ordinary,
    /// The one question that decides whether the circuit closes.
    Probe,
}

impl Circuit {
    pub(crate) fn new() -> Self {
        Self { state: State::Closed { failures: 0 }, pause: PAUSE_BASE }
    }

    /// `None`: do not ask.
    pub(crate) fn admit(&mut self, now: Monotonic) -> Option<Pass> {
        match self.state {
            State::Closed { .. } => Some(Pass::Ordinary),
            State::Open { until } if now >= until => {
                self.state = State::Probing { due: until };
                Some(Pass::Probe)
            }
            State::Open { .. } | State::Probing { .. } => None,
        }
    }

    /// The server answered. True when that closed the circuit.
    ///
    /// Only the probe closes an open circuit: an older question's answer says little about now.
    pub(crate) fn answered(&mut self, pass: Pass) -> bool {
        match (self.state, pass) {
            (State::Closed { .. }, _) => self.state = State::Closed { failures: 0 },
            (State::Probing { .. }, Pass::Probe) => {
                *self = Self::new();
                return true;
            }
            (State::Open { .. }, _) | (State::Probing { .. }, Pass::Ordinary) => {}
        }
        false
    }

    /// The server failed. The pause, when that opened the circuit.
    pub(crate) fn failed(&mut self, now: Monotonic, pass: Pass) -> Option<Duration> {
        match (self.state, pass) {
            (State::Closed { failures }, _) if failures + 1 < FAILURES_TO_OPEN => {
                self.state = State::Closed { failures: failures + 1 };
                None
            }
            (State::Closed { .. }, _) | (State::Probing { .. }, Pass::Probe) => {
                let pause = self.pause;
                self.state = State::Open { until: now.plus(pause) };
                self.pause = pause.saturating_mul(2).min(PAUSE_CAP);
                Some(pause)
            }
            (State::Open { .. }, _) | (State::Probing { .. }, Pass::Ordinary) => None,
        }
    }

    /// The question was dropped before its answer; if it was the probe, another one may go.
    pub(crate) fn withdrawn(&mut self, pass: Pass) {
        if let (State::Probing { due }, Pass::Probe) = (self.state, pass) {
            self.state = State::Open { until: due };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::new(Duration::from_secs(seconds))
    }

    /// A circuit that three failures opened at second 100.
    fn open() -> Circuit {
        let mut circuit = Circuit::new();
        for failure in 1..=FAILURES_TO_OPEN {
            let pass = circuit.admit(at(100)).unwrap();
            let pause = circuit.failed(at(100), pass);
            assert_eq!(pause.is_some(), failure == FAILURES_TO_OPEN);
        }
        circuit
    }

    #[test]
    fn two_failures_leave_it_closed_and_the_third_opens_it() {
        let mut circuit = open();

        assert_eq!(circuit.admit(at(100)), None);
        assert_eq!(circuit.admit(at(104)), None);
    }

    #[test]
    fn an_answer_in_between_starts_the_count_anew() {
        let mut circuit = Circuit::new();
        for _ in 0..5 {
            assert_eq!(circuit.failed(at(1), Pass::Ordinary), None);
            assert_eq!(circuit.failed(at(1), Pass::Ordinary), None);
            assert!(!circuit.answered(Pass::Ordinary));
        }

        assert_eq!(circuit.admit(at(1)), Some(Pass::Ordinary));
    }

    #[test]
    fn exactly_one_probe_goes_after_the_pause() {
        let mut circuit = open();

        assert_eq!(circuit.admit(at(105)), Some(Pass::Probe));
        assert_eq!(circuit.admit(at(105)), None);
        assert_eq!(circuit.admit(at(999)), None);
    }

    #[test]
    fn answered_probe_closes_it_and_the_next_pause_is_the_shortest_again() {
        let mut circuit = open();
        let probe = circuit.admit(at(105)).unwrap();
        circuit.failed(at(105), probe);
        let probe = circuit.admit(at(115)).unwrap();

        assert!(circuit.answered(probe));

        assert_eq!(circuit.admit(at(115)), Some(Pass::Ordinary));
        let pauses: Vec<_> = (0..3).map(|_| circuit.failed(at(115), Pass::Ordinary)).collect();
        assert_eq!(pauses, [None, None, Some(PAUSE_BASE)]);
    }

    #[test]
    fn failed_probes_double_the_pause_up_to_a_minute() {
        let mut circuit = open();
        let mut now = Monotonic::new(Duration::from_secs(105));
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let probe = circuit.admit(now).unwrap();
            let pause = circuit.failed(now, probe).unwrap();
            assert_eq!(circuit.admit(now.plus(pause).minus(Duration::from_nanos(1))), None);
            now = now.plus(pause);
            pauses.push(pause.as_secs());
        }

        assert_eq!(pauses, [10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn late_ends_of_older_questions_change_nothing() {
        let mut circuit = open();
        assert!(!circuit.answered(Pass::Ordinary));
        assert_eq!(circuit.failed(at(104), Pass::Ordinary), None);
        assert_eq!(circuit.admit(at(104)), None);

        let probe = circuit.admit(at(105)).unwrap();
        assert!(!circuit.answered(Pass::Ordinary));
        assert_eq!(circuit.failed(at(105), Pass::Ordinary), None);
        assert_eq!(circuit.admit(at(105)), None);
        assert!(circuit.answered(probe));
    }

    #[test]
    fn withdrawn_probe_makes_room_for_another_one() {
        let mut circuit = open();
        let probe = circuit.admit(at(105)).unwrap();

        circuit.withdrawn(Pass::Ordinary);
        assert_eq!(circuit.admit(at(105)), None);
        circuit.withdrawn(probe);

        assert_eq!(circuit.admit(at(105)), Some(Pass::Probe));
    }
}
