//! The broker's side: half messages, and its questions about them.

use std::future::Future;

use crate::transaction::message::{StoreName, TransactionKey, TransactionMessage};
use crate::transaction::{End, Verdict};

/// A message about to be held back by the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfMessage {
    /// The message id of every copy.
    pub key: TransactionKey,
    /// Whose markers decide about it.
    pub store: StoreName,
    /// When its transaction began, by the store's clock, in microseconds since the Unix epoch.
    pub begun_at_micros: i64,
    /// The message.
    pub message: TransactionMessage,
}

/// The broker does not hold a half message that can be relied on: the local transaction must not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HalfError {
    /// Nothing left this process.
    #[error("the half message was not sent: {0}")]
    NotSent(String),
    /// The broker refused it, or took it with a reservation and was told to drop it.
    #[error("the broker did not take the half message: {0}")]
    Refused(String),
    /// Nobody knows. Should the broker have it, it will ask, and is told that nothing was committed.
    #[error("the half message has no answer: {0}")]
    Unknown(String),
}

/// An end that could not even be sent. It would have proved nothing anyway: the broker asks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the end of the transaction could not be sent: {0}")]
pub struct EndLost(pub String);

/// What the broker wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The message id.
    pub key: TransactionKey,
    /// The topic.
    pub topic: String,
    /// The marker store the message names.
    pub store: Option<String>,
    /// When the message says that its transaction began.
    pub begun_at_micros: Option<i64>,
}

/// A question that waits for its answer.
pub trait Orphan: Send + Sized {
    /// What is asked.
    fn question(&self) -> Question;

    /// Answers. An answer that gets lost is asked for again.
    fn answer(self, verdict: Verdict) -> impl Future<Output = Result<(), EndLost>> + Send;
}

/// A broker that holds messages back until it is told how their transactions ended.
pub trait HalfMessages: Send + Sync {
    /// Where a half message is, to end it there.
    type Half: Send + 'static;

    /// A question.
    type Orphan: Orphan;

    /// Sends a half message. `Ok` only when the broker took it without reservation.
    fn send_half(&self, half: &HalfMessage) -> impl Future<Output = Result<Self::Half, HalfError>> + Send;

    /// Tells how the transaction ended. `Ok` proves nothing.
    fn end(&self, half: Self::Half, end: End) -> impl Future<Output = Result<(), EndLost>> + Send;

    /// The next question. `None` after the connection was closed for good.
    fn next_orphan(&self) -> impl Future<Output = Option<Self::Orphan>> + Send;
}
