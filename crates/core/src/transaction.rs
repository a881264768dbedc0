//! Transaction messages: a message that consumers get exactly when a local transaction commits, on a broker that holds
//! it back until it is told so.
//!
//! ```text
//! begin ─► Prepared ─mark, in the caller's transaction─► Marked ─COMMIT─► "commit sent" ─found in its topic─► Evidence
//!             │                                            │
//!             └ abandon: Rollback                          └ rolled back: Rollback · unsure: nothing is said
//! check-back: Question ─look─► COMMITTED: Commit · ROLLED_BACK: Rollback · absent: Unknown, or fence, then Rollback
//! ```
//!
//! The marker row is the truth, and its key is the fence: a local transaction inserts COMMITTED, a check-back that finds
//! nothing after the longest local transaction inserts ROLLED_BACK, and only one of the two can be there. So a local
//! transaction that is late cannot commit any more, and "rolled back" is true when it is said.
//!
//! The final commit has no acknowledgement: it proves nothing. A message counts as out when it was found in its topic.
//!
//! [`Commit`] and [`Rollback`] are proofs; only this module makes them.
//!
//! - [`message`]: what is sent. [`marker`]: the store of markers. [`half`]: the broker's side.
//! - [`check`]: the answer to a question. [`local`]: the producer's way. [`repair`]: what the broker gave up on.

pub mod check;
pub mod half;
pub mod local;
pub mod marker;
pub mod message;
pub mod repair;

use std::fmt;
use std::time::Duration;

/// Proof that the local transaction committed.
///
/// ```compile_fail,E0423
/// use consign_core::transaction::Commit;
/// let guess = Commit(());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Commit(());

/// Proof that the local transaction did not commit and cannot any more.
///
/// ```compile_fail,E0423
/// use consign_core::transaction::Rollback;
/// let guess = Rollback(());
/// ```
#[derive(Debug, PartialEq, Eq)]
pub struct Rollback(());

/// How a transaction ended, as the broker is told.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Consumers may get the message.
    Commit(Commit),
    /// Nobody gets it.
    Rollback(Rollback),
}

/// What a check-back is answered.
#[must_use = "a question without an answer is asked again, and counts"]
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Consumers may get the message.
    Commit(Commit),
    /// Nobody gets it.
    Rollback(Rollback),
    /// Ask again.
    Unknown(Doubt),
}

/// Why a check-back is answered with "unknown".
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The message names another marker store, or none.
    Foreign,
    /// The message does not say when its transaction began.
    Undated,
    /// The local transaction may still be running.
    Young,
    /// The transaction is older than what the store remembers for certain.
    Forgotten,
    /// A fence found the key taken, and nobody has committed it.
    Contested,
    /// The store did not answer, or not as it must.
    Store(crate::ports::StoreError),
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => formatter.write_str("the message belongs to another marker store"),
            Self::Undated => formatter.write_str("the message does not say when its transaction began"),
            Self::Young => formatter.write_str("the local transaction may still be running"),
            Self::Forgotten => formatter.write_str("the transaction is older than what markers are kept for"),
            Self::Contested => formatter.write_str("the marker's key is taken by nothing that is committed"),
            Self::Store(error) => write!(formatter, "{error}"),
        }
    }
}

/// How long transactions take and how long they are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    longest: Duration,
    horizon: Duration,
    keep: Duration,
    keep_unconfirmed: Duration,
}

/// Spans that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpans {
    /// A local transaction may take as long as the broker asks.
    #[error(
        "longest_local {longest:?} reaches horizon {horizon:?}: a transaction must be over before the broker stops asking"
    )]
    LongestReachesHorizon {
        /// The longest local transaction.
        longest: Duration,
        /// How long the broker may ask.
        horizon: Duration,
    },
    /// Markers would be forgotten while the broker may still ask about them.
    #[error(
        "{field} {span:?} is less than horizon {horizon:?} and an hour: the broker may still ask about what is forgotten"
    )]
    ForgetsTooEarly {
        /// The span at fault.
        field: &'static str,
        /// Its value.
        span: Duration,
        /// How long the broker may ask.
        horizon: Duration,
    },
}

impl Spans {
    /// Between the last question the broker may ask and the first marker that is forgotten.
    const MARGIN: Duration = Duration::from_hours(1);

    /// `longest`: how long a local transaction may take. `horizon`: how long after its beginning the broker may still ask;
    /// later questions are answered "unknown". `keep`: how long markers stay that are confirmed or rolled back;
    /// `keep_unconfirmed`: those that are committed and were never found in their topic.
    ///
    /// # Errors
    /// `longest` reaches the horizon, or markers would be forgotten within it.
    pub fn new(
        longest: Duration,
        horizon: Duration,
        keep: Duration,
        keep_unconfirmed: Duration,
    ) -> Result<Self, InvalidSpans> {
        if longest >= horizon {
            return Err(InvalidSpans::LongestReachesHorizon { longest, horizon });
        }
        let floor = horizon.saturating_add(Self::MARGIN);
        for (field, span) in [("keep", keep), ("keep_unconfirmed", keep_unconfirmed)] {
            if span < floor {
                return Err(InvalidSpans::ForgetsTooEarly { field, span, horizon });
            }
        }
        Ok(Self { longest, horizon, keep, keep_unconfirmed })
    }

    /// How long a local transaction may take.
    pub const fn longest(self) -> Duration {
        self.longest
    }

    /// How long after its beginning the broker may ask about a transaction.
    pub const fn horizon(self) -> Duration {
        self.horizon
    }

    /// How long markers stay that are confirmed or rolled back.
    pub const fn keep(self) -> Duration {
        self.keep
    }

    /// How long markers stay that are committed and were never found in their topic.
    pub const fn keep_unconfirmed(self) -> Duration {
        self.keep_unconfirmed
    }
}

impl Default for Spans {
    /// One minute; three days, for which brokers keep messages; four days; thirty days.
    fn default() -> Self {
        Self {
            longest: Duration::from_mins(1),
            horizon: Duration::from_hours(72),
            keep: Duration::from_hours(96),
            keep_unconfirmed: Duration::from_hours(720),
        }
    }
}
