//! The process's monotonic clock, as the engines see it.

use std::time::Duration;

use consign_core::time::Monotonic;
use tokio::time::Instant;

/// Readings count from the moment the clock was made. All parts of one process share one clock, so that a
/// deadline computed by the relay means the same moment to a destination.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    origin: Instant,
}

impl ProcessClock {
    /// A clock whose origin is now.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// The clock's origin, for adapters that turn deadlines into instants.
    pub const fn origin(&self) -> Instant {
        self.origin
    }

    /// The reading now.
    pub fn now(&self) -> Monotonic {
        Monotonic::new(self.origin.elapsed())
    }

    /// The instant a reading stands for.
    pub fn instant(&self, moment: Monotonic) -> Instant {
        self.origin + moment.since_origin()
    }

    /// Resolves at `moment`; a moment that never comes is a day away.
    pub async fn sleep_until(&self, moment: Option<Monotonic>) {
        const NEVER: Duration = Duration::from_hours(24);
        match moment {
            Some(moment) => tokio::time::sleep_until(self.instant(moment)).await,
            None => tokio::time::sleep(NEVER).await,
        }
    }
}
