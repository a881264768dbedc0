//! Why an administrative call failed.

use std::io;
use std::time::Duration;

/// An administrative call that did not succeed. Never contains the secret key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The name servers are not given as addresses.
    #[error(
        "name server {value:?} is not an address, write host:port and separate several with semicolons (the port is \
         9876 unless configured otherwise)"
    )]
    Address {
        /// The value as given.
        value: String,
    },
    /// Nothing listens there, or the connection broke before it was usable.
    #[error("{address} cannot be reached ({source}), start the server or correct its address")]
    Unreachable {
        /// Host and port.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// The call took longer than its deadline. What it asked for may have happened.
    #[error("{address} did not answer {call} within {deadline:?}, raise the deadline or look at the server")]
    TimedOut {
        /// Host and port.
        address: String,
        /// What was asked.
        call: &'static str,
        /// The deadline of a call.
        deadline: Duration,
    },
    /// The connection broke before the answer. What the call asked for may have happened.
    #[error("the connection to {address} broke during {call}: {source}")]
    Broken {
        /// Host and port.
        address: String,
        /// What was asked.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The answer is not what the protocol says.
    #[error(
        "{address} answered {call} with something else than the remoting protocol of RocketMQ 5: {reason}, check \
         that the address is a name server or broker and not a proxy"
    )]
    Malformed {
        /// Host and port.
        address: String,
        /// What was asked.
        call: &'static str,
        /// What did not fit.
        reason: String,
    },
    /// The server understood the call and refused it.
    #[error("{address} refused {call} with code {code}: {remark}")]
    Refused {
        /// Host and port.
        address: String,
        /// What was asked.
        call: &'static str,
        /// The response code.
        code: i32,
        /// The server's words.
        remark: String,
    },
    /// The name server knows no broker to administrate.
    #[error(
        "the name server knows no master broker{}, start one or correct the cluster",
        cluster.as_ref().map(|name| format!(" of cluster {name:?}")).unwrap_or_default()
    )]
    NoBroker {
        /// The cluster asked for; `None` is any.
        cluster: Option<String>,
    },
}

impl AdminError {
    /// Whether the server refused with that response code.
    pub fn is_refusal(&self, wanted: i32) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }
}
