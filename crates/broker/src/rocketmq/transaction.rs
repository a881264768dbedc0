//! Transaction messages: half messages, their ends, the broker's questions, and what the brokers hold of them.
//!
//! - [`RocketMqHalves`]: the producer's side, over a proxy. [`RocketMqOrphan`]: a question.
//! - [`RocketMqLedger`]: what the brokers hold, over their administration.

mod ledger;
mod mapping;

use std::fmt;
use std::time::Duration;

use consign_core::transaction::half::{EndLost, HalfError, HalfMessage, HalfMessages, Orphan, Question};
use consign_core::transaction::message::{BEGUN_HEADER, STORE_HEADER, TransactionKey};
use consign_core::transaction::{End, Verdict};
use consign_rocketmq::{CallError, Code, Half, Options, Orphans, Producer, Resolution, StartError};
use tokio::time::Instant;

pub use ledger::RocketMqLedger;

/// Half messages on a cluster, and its questions about those of some topics.
///
/// A proxy asks any client that declared the topic. So every instance which declares it must see the marker store, and two
/// applications with stores of their own need topics of their own, or get each other's questions and can only let them
/// wait.
#[derive(Clone)]
pub struct RocketMqHalves {
    producer: Producer,
    orphans: Orphans,
    check_after: Option<Duration>,
    call_timeout: Duration,
}

impl fmt::Debug for RocketMqHalves {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RocketMqHalves")
            .field("client_id", &self.producer.client_id())
            .field("check_after", &self.check_after)
            .finish_non_exhaustive()
    }
}

impl RocketMqHalves {
    /// Starts connecting and returns at once. `topics` are those whose questions are answered here; their type is
    /// TRANSACTION, since for MIXED ones no proxy asks. `check_after` is the age at which the broker asks for the first
    /// time; `None` leaves it to the broker. An end that comes later than that is refused, and the question decides.
    ///
    /// # Errors
    /// The options make no client.
    pub async fn start(
        connect: &Options,
        topics: impl IntoIterator<Item = String>,
        check_after: Option<Duration>,
    ) -> Result<Self, StartError> {
        let producer = Producer::start(connect, topics).await?;
        let orphans = producer.orphans();
        Ok(Self { producer, orphans, check_after, call_timeout: connect.request_timeout })
    }

    /// Ends the registration with the proxies: questions go to others from now on.
    pub async fn close(&self) {
        self.producer.close().await;
    }
}

impl HalfMessages for RocketMqHalves {
    type Half = Half;
    type Orphan = RocketMqOrphan;

    async fn send_half(&self, half: &HalfMessage) -> Result<Half, HalfError> {
        let message = mapping::message(half, self.check_after).map_err(HalfError::NotSent)?;
        let sent = self.producer.send_half(message, Instant::now() + self.call_timeout).await;
        sent.map_err(|error| match error {
            CallError::NotSent { reason } => HalfError::NotSent(reason),
            CallError::Unknown { reason } => HalfError::Unknown(reason),
            CallError::Answered { code, message } => {
                let text = format!("{code}: {message}");
                // The proxy has one code for nearly everything that happens behind it, and another for no answer.
                if matches!(code, Code::INTERNAL_SERVER_ERROR | Code::PROXY_TIMEOUT) {
                    HalfError::Unknown(text)
                } else {
                    HalfError::Refused(text)
                }
            }
        })
    }

    async fn end(&self, half: Half, end: End) -> Result<(), EndLost> {
        let resolution = match end {
            End::Commit(_) => Resolution::Commit,
            End::Rollback(_) => Resolution::Rollback,
        };
        let sent = self.producer.end(half, resolution, Instant::now() + self.call_timeout).await;
        sent.map(drop).map_err(|error| EndLost(error.to_string()))
    }

    async fn next_orphan(&self) -> Option<RocketMqOrphan> {
        loop {
            let orphan = self.orphans.next().await?;
            match TransactionKey::new(orphan.message_id.as_str()) {
                Ok(key) => {
                    return Some(RocketMqOrphan { key, orphan, call_timeout: self.call_timeout });
                }
                // No key of ours: whoever sent it may answer.
                Err(error) => {
                    tracing::warn!(topic = orphan.topic, %error, "question about a foreign half message");
                }
            }
        }
    }
}

/// A question of the broker that waits for its answer.
#[derive(Debug)]
pub struct RocketMqOrphan {
    key: TransactionKey,
    orphan: consign_rocketmq::Orphan,
    call_timeout: Duration,
}

impl Orphan for RocketMqOrphan {
    fn question(&self) -> Question {
        let property = |name: &str| self.orphan.properties.get(name);
        Question {
            key: self.key.clone(),
            topic: self.orphan.topic.clone(),
            store: property(STORE_HEADER).cloned(),
            begun_at_micros: property(BEGUN_HEADER).and_then(|micros| micros.parse().ok()),
        }
    }

    async fn answer(self, verdict: Verdict) -> Result<(), EndLost> {
        let resolution = match verdict {
            Verdict::Commit(_) => Resolution::Commit,
            Verdict::Rollback(_) => Resolution::Rollback,
            // Nothing is decided: the broker counts, and asks again.
            Verdict::Unknown(_) => return Ok(()),
        };
        let answered = self.orphan.answer(resolution, Instant::now() + self.call_timeout).await;
        answered.map(drop).map_err(|error| EndLost(error.to_string()))
    }
}
