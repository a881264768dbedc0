//! Forgetting: what an outbox keeps of events that were sent and of attempts that came to an end, and for how long.

use std::future::Future;
use std::time::Duration;

use consign_core::ports::StoreError;

/// What becomes of a row whose publish was proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSent {
    /// It stays as SENT until it is purged: it can be looked at and replayed.
    #[default]
    Keep,
    /// It is deleted by the settle itself.
    Delete,
}

/// Which attempts leave a row in `consign_attempt`. Settlements that came too late always do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttemptLog {
    /// Every attempt that came to an end.
    #[default]
    All,
    /// Those that did not end in SENT.
    Failures,
    /// None.
    Off,
}

/// What an outbox keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeping {
    /// Of sent rows.
    pub on_sent: OnSent,
    /// Of attempts.
    pub attempts: AttemptLog,
    /// How long a claim's lease is: an attempt began this long before the lease would have ended.
    pub lease: Duration,
}

impl Default for Keeping {
    /// Everything, with the relay's default lease.
    fn default() -> Self {
        Self {
            on_sent: OnSent::default(),
            attempts: AttemptLog::default(),
            lease: consign_core::relay::RelaySettings::default().lease,
        }
    }
}

/// A place among the sent rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentPosition {
    /// When the row was due.
    pub due_at: String,
    /// The row.
    pub event_id: String,
}

/// What one step looked at, and what it deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeStep {
    /// Rows looked at.
    pub examined: u64,
    /// Rows that are old enough.
    pub old: u64,
    /// The date of the oldest of them.
    pub oldest: Option<String>,
    /// Rows deleted.
    pub purged: u64,
    /// How long the transaction that deleted took.
    pub took: Duration,
    /// Where the step ended.
    pub last: Option<SentPosition>,
    /// There are more behind it.
    pub more: bool,
}

/// A table that forgets in small steps. Each step reads without locks and deletes by primary key in one short
/// transaction; any number of processes may do so at once.
pub trait Retention: Send + Sync {
    /// The database's time so long ago, as text: the date before which rows are old, taken once for a whole walk.
    fn before(&self, age: Duration) -> impl Future<Output = Result<String, StoreError>> + Send;

    /// Looks at the next `rows` SENT rows behind `after`, and deletes none.
    fn look_at_sent(
        &self,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> impl Future<Output = Result<PurgeStep, StoreError>> + Send;

    /// Looks at the next `rows` SENT rows behind `after`, and deletes those sent before the date. A row that is SENT no
    /// longer when its turn comes stays.
    fn purge_sent(
        &self,
        before: &str,
        after: Option<&SentPosition>,
        rows: u32,
    ) -> impl Future<Output = Result<PurgeStep, StoreError>> + Send;

    /// Deletes the oldest `rows` attempts, as far as they were recorded before the date. A database without the table has
    /// none.
    fn purge_attempts(
        &self,
        before: &str,
        rows: u32,
    ) -> impl Future<Output = Result<PurgeStep, StoreError>> + Send;
}

/// How many rows a step takes, so that no transaction holds its locks for longer than some 50 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSize {
    rows: u32,
    rows_max: u32,
}

impl StepSize {
    /// The longest a step's transaction may take.
    pub const TARGET: Duration = Duration::from_millis(50);
    const FIRST: u32 = 64;

    /// A small first step, later ones of at most `rows_max`.
    pub fn new(rows_max: u32) -> Self {
        let rows_max = rows_max.max(1);
        Self { rows: Self::FIRST.min(rows_max), rows_max }
    }

    /// Rows of the next step.
    pub const fn rows(self) -> u32 {
        self.rows
    }

    /// Learns from a step: one that took more than the target halves the next, one well below it doubles it.
    pub fn learn(&mut self, step: &PurgeStep) {
        if step.took > Self::TARGET {
            self.shrink();
        } else if step.took < Self::TARGET / 4 {
            self.rows = self.rows.saturating_mul(2).min(self.rows_max);
        }
    }

    /// After a step that waited for others' locks.
    pub fn shrink(&mut self) {
        self.rows = (self.rows / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(millis: u64) -> PurgeStep {
        PurgeStep { took: Duration::from_millis(millis), ..PurgeStep::default() }
    }

    #[test]
    fn steps_grow_while_they_are_quick_and_shrink_when_they_are_slow() {
        let mut size = StepSize::new(1000);
        assert_eq!(size.rows(), 64);

        for _ in 0..6 {
            size.learn(&took(3));
        }
        assert_eq!(size.rows(), 1000);
        size.learn(&took(30));
        assert_eq!(size.rows(), 1000, "neither quick nor slow");
        for _ in 0..12 {
            size.learn(&took(51));
        }
        assert_eq!(size.rows(), 1, "never zero");
        size.learn(&took(0));
        assert_eq!(size.rows(), 2);
        assert_eq!(StepSize::new(0).rows(), 1);
    }
}
