//! Why a connection did not open, why it ended, and why a call failed.

use std::fmt;
use std::io;
use std::time::Duration;

/// A connection that could not be opened. Never contains credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The host name did not resolve.
    #[error("host {host} does not resolve")]
    Resolve {
        /// The host as configured.
        host: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// Nothing listens at the address.
    #[error("connection to {address} was refused")]
    Refused {
        /// Host and port.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The address could not be reached, or the connection broke during the handshake.
    #[error("connection to {address} failed")]
    Io {
        /// Host and port.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The connection was not usable in time.
    #[error("connection was not usable within {after:?}, it hung at: {stage}")]
    Timeout {
        /// The configured limit.
        after: Duration,
        /// What was going on.
        stage: &'static str,
    },
    /// The TLS settings do not load, or the TLS handshake failed.
    #[error("tls failed: {0}")]
    Tls(String),
    /// The user or the password was refused (403).
    #[error("authentication as {user} was refused: {text}")]
    AuthenticationRefused {
        /// The user name.
        user: String,
        /// The server's words.
        text: String,
    },
    /// The virtual host does not exist or is not open to this user (530).
    #[error("virtual host {virtual_host} was refused: {text}")]
    VirtualHostRefused {
        /// The virtual host asked for.
        virtual_host: String,
        /// The server's words.
        text: String,
    },
    /// The server closed the connection for another reason.
    #[error("the server closed the connection during the handshake: {code} {text}")]
    Closed {
        /// The AMQP reply code.
        code: u16,
        /// The server's words.
        text: String,
    },
    /// The peer does not speak AMQP 0-9-1 as it should.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// This side, on purpose or because the peer broke the protocol.
    Client,
    /// The server, with a close method.
    Server,
    /// Nobody said so: the socket failed, or heartbeats stopped.
    Network,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The AMQP reply code; 200 for a wanted end, 0 when no close method was seen.
    pub code: u16,
    /// What happened, in words.
    pub text: String,
    /// Who ended it.
    pub by: ClosedBy,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.by {
            ClosedBy::Client => "closed by this side",
            ClosedBy::Server => "closed by the server",
            ClosedBy::Network => "lost",
        };
        if self.code == 0 {
            write!(formatter, "{by}: {}", self.text)
        } else {
            write!(formatter, "{by}: {} {}", self.code, self.text)
        }
    }
}

/// Why a channel can no longer be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The channel was closed: by the server because of a soft error such as 404, 403 or 406, or by this side.
    #[error("channel was closed: {code} {text}")]
    Closed {
        /// The AMQP reply code.
        code: u16,
        /// The words of whoever closed it.
        text: String,
    },
    /// The whole connection is gone.
    #[error("connection is gone: {0}")]
    ConnectionLost(CloseReason),
    /// The request cannot be expressed in AMQP; nothing was sent and the channel is still good.
    #[error("request is invalid: {0}")]
    Invalid(String),
}

impl ChannelError {
    /// The AMQP reply code, when the channel was closed with one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Closed { code, .. } => Some(*code),
            Self::ConnectionLost(_) | Self::Invalid(_) => None,
        }
    }
}

/// Identity of a channel: the incarnation of its connection and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId {
    /// Incarnation number of the connection.
    pub incarnation: u64,
    /// Channel number.
    pub number: u16,
}

impl fmt::Display for ChannelId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.incarnation, self.number)
    }
}
