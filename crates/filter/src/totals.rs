//! What a filter counts.

use std::sync::atomic::{AtomicU64, Ordering};

use consign_core::filter::Hint;

/// Counts since the filter was made; they only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilterTotals {
    /// Operations that were seen before with the same comparison.
    pub hits: u64,
    /// Operations of which nothing usable was stored.
    pub misses: u64,
    /// Operations that were seen before with another comparison.
    pub contradictions: u64,
    /// Round trips that failed: no answer in time, a broken connection, a refusal.
    pub errors: u64,
    /// Operations that were neither looked up nor remembered because the circuit was open.
    pub skipped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    hits: AtomicU64,
    misses: AtomicU64,
    contradictions: AtomicU64,
    errors: AtomicU64,
    skipped: AtomicU64,
}

impl Tally {
    pub(crate) fn answered(&self, hint: Hint) {
        let count = match hint {
            Hint::Repeat => &self.hits,
            Hint::Unknown => &self.misses,
            Hint::Contradiction => &self.contradictions,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn skipped(&self, operations: usize) {
        self.skipped.fetch_add(operations as u64, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> FilterTotals {
        FilterTotals {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            contradictions: self.contradictions.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }
}
