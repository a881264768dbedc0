//! The horizon: how long after an event's first copy another copy of it may still come.
//!
//! A marker that is forgotten earlier lets a late copy be applied again; a filter that forgets earlier is of less use.

use std::fmt;
use std::time::Duration;

use consign_core::relay::RelaySettings;
use consign_core::retry::RetryPolicy;

use super::checker::Checker;
use super::consumer::ConsumerConfig;
use super::store::{InboxConfig, OutboxConfig};

/// The longest pause between two tries of a delivery, however long `retry_delay_seconds` doubles.
const CONSUMER_PAUSE_MAX: Duration = Duration::from_mins(1);

const DAY: u64 = 86_400;

/// How late a copy of an event may come, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// How long the relay may go on publishing a row: all its attempts, each with the longest lease and delay.
    pub publishing: Duration,
    /// How long a consumer may go on trying a delivery: all its attempts with the longest pause, and the wait for a
    /// gap.
    pub consuming: Duration,
    /// How far back somebody may publish events again.
    pub replay: Duration,
}

impl Horizon {
    /// The horizon of these settings. Rows and deliveries that wait for a database or a broker that is away count no
    /// attempts; `replay_horizon_days` must be longer than the longest such outage.
    ///
    /// `others` are the retry policies of destinations and routes: the most patient one counts.
    pub fn of<'a>(
        relay: &'a RelaySettings,
        others: impl IntoIterator<Item = &'a RetryPolicy>,
        inbox: &InboxConfig,
        consumers: &[ConsumerConfig],
    ) -> Self {
        let publishing = |retry: &RetryPolicy| {
            let attempt = retry.cap.max(relay.sweep_delay).saturating_add(relay.lease);
            let attempts = attempt.saturating_mul(retry.attempts_max);
            attempts.max(retry.min_age_before_dead.saturating_add(attempt))
        };
        let most = others.into_iter().map(publishing).fold(publishing(&relay.retry), Duration::max);
        let consuming = consumers.iter().map(|consumer| {
            let pause = consumer.retry_delay.max(CONSUMER_PAUSE_MAX);
            pause.saturating_mul(consumer.attempts_max).saturating_add(consumer.gap_wait.unwrap_or_default())
        });
        Self {
            publishing: most,
            consuming: consuming.max().unwrap_or_default(),
            replay: inbox.replay_horizon,
        }
    }

    /// All of it.
    pub fn total(self) -> Duration {
        self.publishing.saturating_add(self.consuming).saturating_add(self.replay)
    }
}

impl fmt::Display for Horizon {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} s: {} s of publishing, {} s of consuming and {} s of replay",
            self.total().as_secs(),
            self.publishing.as_secs(),
            self.consuming.as_secs(),
            self.replay.as_secs()
        )
    }
}

/// Refuses to purge sent events while somebody may replay them.
pub fn check_sent_retention(checker: &mut Checker<'_>, outboxes: &[OutboxConfig], inbox: &InboxConfig) {
    let days = |span: Duration| span.as_secs() / DAY;
    for (index, outbox) in outboxes.iter().enumerate() {
        if let Some(retention) = outbox.retention.filter(|retention| *retention < inbox.replay_horizon) {
            checker.refuse(
                &format!("outbox[{index}].retention_days"),
                format!(
                    "{} is less than replay_horizon_days, which is {}: a sent event that is purged cannot be replayed; raise \
                     it to {} or more, or lower replay_horizon_days",
                    days(retention),
                    days(inbox.replay_horizon),
                    days(inbox.replay_horizon)
                ),
            );
        }
    }
}

/// Refuses to forget markers while copies of their events may still come.
pub fn check_retention(checker: &mut Checker<'_>, inbox: &InboxConfig, horizon: Horizon) {
    let Some(retention) = inbox.retention.filter(|retention| *retention < horizon.total()) else { return };
    checker.refuse(
        "inbox.retention_days",
        format!(
            "{} days are {} s, and copies of an event may come for {horizon}: raise it to {} or more, or lower \
             replay_horizon_days",
            retention.as_secs() / DAY,
            retention.as_secs(),
            horizon.total().as_secs().div_ceil(DAY)
        ),
    );
}
