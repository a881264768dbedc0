//! Progress of long work, on stderr.

use std::time::{Duration, Instant};

/// Nobody needs to be told more often.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// Tells how far the work is, every other second.
#[derive(Debug)]
pub struct Progress {
    told: Instant,
}

impl Progress {
    /// Nothing is told about work that takes no longer than two seconds.
    pub fn new() -> Self {
        Self { told: Instant::now() }
    }

    /// Tells `line` when it is time.
    pub fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            eprintln!("{}", line());
        }
    }
}
