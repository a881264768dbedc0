//! The keys of `[relay]` about the log of attempts.

use std::time::Duration;

use consign_store::retention::AttemptLog;

use super::checker::Checker;
use super::raw::RawRelay;

/// A hundred years: longer spans are a misunderstanding.
const DAYS_MAX: u64 = 36_500;

/// The log of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptConfig {
    /// Which attempts leave a row.
    pub log: AttemptLog,
    /// How long the rows are kept.
    pub retention: Duration,
}

/// Checks the log's keys.
pub fn attempts(checker: &mut Checker<'_>, raw: &RawRelay) -> AttemptConfig {
    let words = [("all", AttemptLog::All), ("failures", AttemptLog::Failures), ("off", AttemptLog::Off)];
    let days: u64 = checker.within("relay.attempt_days", raw.attempt_days, 1..=DAYS_MAX);
    AttemptConfig {
        log: checker.choice("relay.attempt_log", &raw.attempt_log, &words).unwrap_or_default(),
        retention: Duration::from_hours(days * 24),
    }
}
