//! Where wake-ups are sent to.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The longest path of a unix socket, without the byte that ends it.
const PATH_BYTES_MAX: usize = 107;

/// A place on this machine that takes datagrams: `unix:/run/consign.sock` or `udp:127.0.0.1:7171`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A datagram socket in the file system; its file mode says who may wake.
    Unix(PathBuf),
    /// A port of the loopback interface; every process of the machine may wake.
    Udp(SocketAddr),
}

/// Why a text is no address for wake-ups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// Neither of the known kinds.
    #[error("{text:?} is no address for wake-ups: write unix:/path.sock or udp:127.0.0.1:port")]
    Unknown {
        /// The text.
        text: String,
    },
    /// The system takes no longer paths.
    #[error("the path {path:?} has {bytes} bytes: a socket's path has 1 to 107")]
    PathLength {
        /// The path.
        path: String,
        /// Its length.
        bytes: usize,
    },
    /// Others than this machine's own processes could send.
    #[error("{address} is not a loopback address: write udp:127.0.0.1:{port}, since nothing says who sends", port = .address.port())]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// Producers could not know the port.
    #[error("{address} has no port: write one from 1 to 65535")]
    NoPort {
        /// The address.
        address: SocketAddr,
    },
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Self::unix(path.into());
        }
        let address: Option<SocketAddr> = text.strip_prefix("udp:").and_then(|address| address.parse().ok());
        match address {
            None => Err(InvalidAddress::Unknown { text: text.into() }),
            Some(address) if !address.ip().is_loopback() => Err(InvalidAddress::NotLoopback { address }),
            Some(address) if address.port() == 0 => Err(InvalidAddress::NoPort { address }),
            Some(address) => Ok(Self::Udp(address)),
        }
    }
}

impl Address {
    /// A socket at `path`.
    ///
    /// # Errors
    /// The path is empty or longer than the system takes.
    pub fn unix(path: PathBuf) -> Result<Self, InvalidAddress> {
        let bytes = path.as_os_str().len();
        if (1..=PATH_BYTES_MAX).contains(&bytes) {
            Ok(Self::Unix(path))
        } else {
            Err(InvalidAddress::PathLength { path: path.display().to_string(), bytes })
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Udp(address) => write!(formatter, "udp:{address}"),
        }
    }
}
