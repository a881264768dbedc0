//! What a publish came to. Each arm holds its evidence; only [`Outcome::Confirmed`] can lead to SENT.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// The result of one publish. Not a `Result`: no `?` can carry a failure past its classification, and there is
/// no default and no conversion from a timeout.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker took the message and proved it.
    Confirmed(Proof),
    /// The broker has nowhere to put the message (basic.return, missing exchange, topic without route).
    Unroutable {
        /// The broker's reply code, for instance 312.
        code: u16,
        /// The broker's reply text.
        text: String,
    },
    /// The message is at fault and will never be taken as it is.
    Rejected {
        /// Why, for the row's `last_error`.
        reason: String,
    },
    /// The destination is at fault; the message was certainly not taken or the broker said so.
    Refused {
        /// Why.
        reason: String,
        /// How long the destination asked to be left alone.
        retry_after: Option<Duration>,
    },
    /// Nobody knows: the message may or may not have been taken.
    Unknown(Doubt),
}

/// A positive answer. Each arm needs fields that only such an answer carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A publisher confirm without a return for the same message.
    PublisherConfirm {
        /// The channel it came on.
        channel: ChannelId,
        /// The confirmed delivery tag.
        tag: DeliveryTag,
    },
    /// The message was appended to a log or table at this offset.
    Appended {
        /// The partition or queue number.
        partition: i32,
        /// The offset or row id.
        offset: i64,
    },
    /// The broker answered that it stored the message as safely as it is configured to.
    Stored {
        /// Who answered.
        endpoint: String,
        /// The offset in a queue that the answer does not name.
        offset: i64,
    },
    /// The broker answered that it stored the message, though less safely, and the config accepts this answer by name.
    AcceptedAs {
        /// The broker's name for it.
        status: &'static str,
    },
}

/// Why an outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// No confirm arrived before the publish deadline.
    ConfirmTimedOut,
    /// The connection ended after bytes of the message may have left.
    ConnectionLost(String),
    /// The channel was closed by the broker while other messages were in flight on it too.
    ChannelClosed(String),
    /// The broker answered, and its answer proves neither that the message is safe nor that it was not taken.
    Inconclusive(String),
    /// The relay stopped waiting, for instance at the end of its drain.
    Abandoned,
}

impl fmt::Display for Doubt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfirmTimedOut => formatter.write_str("no confirm before the publish deadline"),
            Self::ConnectionLost(reason) => write!(formatter, "connection lost: {reason}"),
            Self::ChannelClosed(reason) => write!(formatter, "channel closed: {reason}"),
            Self::Inconclusive(answer) => write!(formatter, "the answer proves nothing: {answer}"),
            Self::Abandoned => formatter.write_str("abandoned while waiting for the outcome"),
        }
    }
}

/// One incarnation of a broker channel. A reopened channel has another incarnation, so a tag of the old one
/// can never be mistaken for a tag of the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChannelId {
    /// Counts connections in this process.
    pub incarnation: u64,
    /// The channel's number on that connection.
    pub number: u16,
}

/// A delivery tag. Zero means "all" in AMQP 0-9-1 and is not a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryTag(pub NonZeroU64);
