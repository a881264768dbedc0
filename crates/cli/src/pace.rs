//! How fast bulk work may go, and whether somebody asked it to stop.

use std::num::NonZeroU32;
use std::time::Duration;

use consign::shutdown::{Shutdown, shutdown};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::signals;

/// A batch takes at most this share of the rate, so that the work is spread evenly.
const BATCH_SPAN: Duration = Duration::from_millis(100);
/// The most items of a batch, which share a transaction.
pub const BATCH_MAX: usize = 100;

/// How fast at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    number: NonZeroU32,
    per: Duration,
}

impl Rate {
    /// How long so many items take.
    pub fn span(self, items: u64) -> Duration {
        let nanos = self.per.as_nanos().saturating_mul(items.into()) / u128::from(self.number.get());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Items that share a batch.
    fn batch(self) -> usize {
        let items = BATCH_SPAN.as_nanos() * u128::from(self.number.get()) / self.per.as_nanos();
        usize::try_from(items).unwrap_or(BATCH_MAX).clamp(1, BATCH_MAX)
    }
}

/// Reads `50/s`, `300/m`, or `50`, which is per second.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    const FORM: &str = "write a number from 1 on per second or minute, such as 50/s or 300/m";
    let (number, per) = match text.split_once('/') {
        None | Some((_, "s")) => (text.split('/').next().unwrap_or_default(), Duration::from_secs(1)),
        Some((number, "m")) => (number, Duration::from_mins(1)),
        Some(_) => return Err(FORM.into()),
    };
    let number = number.parse().map_err(|_| FORM.to_owned())?;
    Ok(Rate { number, per })
}

/// When the next batch may go, and whether somebody asked to stop.
pub struct Pace {
    rate: Option<Rate>,
    due: Instant,
    stop: Shutdown,
}

impl Pace {
    /// Watches for Ctrl-C and SIGTERM from now on.
    pub fn new(rate: Option<Rate>) -> anyhow::Result<Self> {
        let (trigger, stop) = shutdown();
        signals::watch_between_steps(trigger)?;
        Ok(Self { rate, due: Instant::now(), stop })
    }

    /// How many items may share a batch.
    pub fn batch(&self) -> usize {
        self.rate.map_or(BATCH_MAX, Rate::batch)
    }

    /// Whether somebody asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.clone().requested().now_or_never().is_some()
    }

    /// Waits for the turn of a batch of so many. `false` when somebody asked to stop.
    pub async fn next(&mut self, items: usize) -> bool {
        tokio::select! {
            biased;
            () = self.stop.requested() => return false,
            () = tokio::time::sleep_until(self.due) => {}
        }
        // After a slow batch the rate goes on; it is not caught up with.
        self.due = Instant::now() + self.rate.map_or(Duration::ZERO, |rate| rate.span(items as u64));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_per_second_or_minute() {
        let rate = |number, seconds| Rate {
            number: NonZeroU32::new(number).unwrap(),
            per: Duration::from_secs(seconds),
        };

        assert_eq!(parse_rate("50/s"), Ok(rate(50, 1)));
        assert_eq!(parse_rate("50"), Ok(rate(50, 1)));
        assert_eq!(parse_rate("300/m"), Ok(rate(300, 60)));
        for text in ["", "0/s", "0", "/s", "50/", "50/h", "-1/s", "1.5/s", "50/s/s"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_batch_is_a_tenth_of_a_second_of_the_rate() {
        let batch = |text: &str| parse_rate(text).unwrap().batch();

        assert_eq!((batch("5/s"), batch("100/s"), batch("300/m")), (1, 10, 1));
        assert_eq!(batch("4000000000/s"), BATCH_MAX);
        assert_eq!(parse_rate("100/s").unwrap().span(250), Duration::from_millis(2_500));
    }
}
