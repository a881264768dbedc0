//! Spans of time as the process measures them. Dates belong to the database alone.

use std::time::Duration;

/// A reading of the process's monotonic clock: the span since an origin fixed at start.
///
/// It orders moments inside one process and is never stored, sent or compared with a date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// The moment `since_origin` after the clock's origin.
    pub const fn new(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// The span since the clock's origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// The moment `span` later; saturates at the far end of the clock.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// The moment `span` earlier; saturates at the origin.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// The span from `earlier` to this moment; zero when `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Where the engines' randomness comes from: the operating system in production, a seed in simulation.
pub trait Draw {
    /// 128 fresh random bits. Two calls never return the same value in practice: lease tokens rest on it.
    fn bits(&mut self) -> [u8; 16];

    /// A number drawn evenly from `0.0..1.0`, for jitter.
    fn fraction(&mut self) -> f64 {
        let [a, b, c, d, ..] = self.bits();
        f64::from(u32::from_le_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
    }
}

/// Draws the same fraction always.
#[cfg(test)]
pub(crate) struct Fixed(pub f64);

#[cfg(test)]
impl Draw for Fixed {
    fn bits(&mut self) -> [u8; 16] {
        [0; 16]
    }

    fn fraction(&mut self) -> f64 {
        self.0
    }
}
