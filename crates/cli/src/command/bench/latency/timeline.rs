//! When each event was due, begun, committed and delivered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::command::bench::spans::Spans;

/// Moments of events, in microseconds since a common origin. Every moment is noted once: copies of an event do not move it.
pub struct Timeline {
    origin: Instant,
    begun: Vec<AtomicU64>,
    committed: Vec<AtomicU64>,
    delivered: Vec<AtomicU64>,
    every: Duration,
}

impl Timeline {
    /// `events` events, the first one due now, `rate` of them a second.
    pub fn start(events: u32, rate: u32) -> Self {
        let moments = || (0..events).map(|_| AtomicU64::new(0)).collect();
        Self {
            origin: Instant::now(),
            begun: moments(),
            committed: moments(),
            delivered: moments(),
            every: Duration::from_secs(1) / rate,
        }
    }

    /// When the event is to be begun.
    pub fn due(&self, event: u32) -> Instant {
        self.origin + self.every * event
    }

    /// Notes the begin of the event's transaction.
    pub fn begun(&self, event: u32) {
        self.note(&self.begun, event);
    }

    /// Notes that its COMMIT returned.
    pub fn committed(&self, event: u32) {
        self.note(&self.committed, event);
    }

    /// Notes its delivery; true for the first copy.
    pub fn delivered(&self, event: u32) -> bool {
        self.note(&self.delivered, event)
    }

    fn note(&self, moments: &[AtomicU64], event: u32) -> bool {
        let now = u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        let moment = moments.get(event as usize);
        moment
            .is_some_and(|moment| moment.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst).is_ok())
    }

    /// How many events have not been delivered.
    pub fn missing(&self) -> u64 {
        self.delivered.iter().map(|moment| u64::from(moment.load(Ordering::SeqCst) == 0)).sum()
    }

    /// From COMMIT's return to the delivery, for the events from `first` on that were delivered. A delivery that came before
    /// its producer learned of the commit took no time.
    pub fn latencies(&self, first: u32) -> Spans {
        spans(&self.committed, &self.delivered, first)
    }

    /// From the begin of the transaction to COMMIT's return.
    pub fn commits(&self, first: u32) -> Spans {
        spans(&self.begun, &self.committed, first)
    }

    /// How far behind the schedule transactions were begun.
    pub fn lateness(&self, first: u32) -> Spans {
        let late = (first..).zip(self.begun.iter().skip(first as usize)).map(|(event, begun)| {
            let due = u64::try_from((self.every * event).as_micros()).unwrap_or(u64::MAX);
            begun.load(Ordering::SeqCst).saturating_sub(due)
        });
        Spans::of(late)
    }
}

fn spans(from: &[AtomicU64], to: &[AtomicU64], first: u32) -> Spans {
    let pairs = from.iter().zip(to).skip(first as usize);
    let pairs = pairs.map(|(from, to)| (from.load(Ordering::SeqCst), to.load(Ordering::SeqCst)));
    Spans::of(pairs.filter(|(_, to)| *to != 0).map(|(from, to)| to.saturating_sub(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_copy_counts_and_what_never_came_is_missing() {
        let timeline = Timeline::start(3, 1000);
        (0..3).for_each(|event| timeline.committed(event));

        assert!(timeline.delivered(0));
        assert!(!timeline.delivered(0), "a copy");
        assert!(!timeline.delivered(7), "not the bench's");

        assert_eq!(timeline.missing(), 2);
        assert_eq!(timeline.latencies(0).count(), 1);
    }
}
