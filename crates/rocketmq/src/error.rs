//! Why a client did not start, and what a call came to when it was not an OK.

use crate::code::Code;

/// A client that could not be started. Never contains credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The TLS settings do not load.
    #[error("tls settings are not usable: {0}")]
    Tls(String),
    /// The options, topics or subscriptions make no client.
    #[error("{0}")]
    Invalid(String),
}

/// What a call came to when it did not end in OK.
///
/// The three arms differ in what the server may have done:
///
/// - [`NotSent`](Self::NotSent) is proven: no connection was there, the connection gave the request back unwritten, or
///   the server refused its stream unprocessed (RFC 9113, section 8.7).
/// - [`Answered`](Self::Answered) is the server's own word about this very entry.
/// - [`Unknown`](Self::Unknown) is everything else: once a request was handed to an open connection, a deadline, a
///   reset or a lost connection says nothing about what the server did.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Nothing left this side.
    #[error("not sent: {reason}")]
    NotSent {
        /// What stood in the way.
        reason: String,
    },
    /// The server answered with something else than OK.
    #[error("answered {code}: {message}")]
    Answered {
        /// The server's code.
        code: Code,
        /// The server's words; may be empty.
        message: String,
    },
    /// The request may have reached the server.
    #[error("unknown: {reason}")]
    Unknown {
        /// Why no answer is known.
        reason: String,
    },
}

impl CallError {
    /// The server's code, if it answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Answered { code, .. } => Some(*code),
            Self::NotSent { .. } | Self::Unknown { .. } => None,
        }
    }

    pub(crate) fn not_sent(reason: impl Into<String>) -> Self {
        Self::NotSent { reason: reason.into() }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown { reason: reason.into() }
    }
}
