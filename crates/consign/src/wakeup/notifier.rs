//! The producer's side: one datagram after each commit.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Arc;

use super::Address;

/// Tells a relay on this machine that a transaction with events was committed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notifier {
    socket: Arc<Socket>,
    outbox: Arc<str>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram, PathBuf),
    Udp(UdpSocket, SocketAddr),
}

impl Notifier {
    /// A notifier of the relay that listens at `address`, now or later.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn new(address: Address) -> io::Result<Self> {
        let socket = match address {
            Address::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                Socket::Unix(socket, path)
            }
            Address::Udp(address) => {
                let own: SocketAddr = match address {
                    SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
                };
                let socket = UdpSocket::bind(own)?;
                socket.set_nonblocking(true)?;
                Socket::Udp(socket, address)
            }
        };
        Ok(Self { socket: Arc::new(socket), outbox: "".into() })
    }

    /// The same notifier for one outbox only, by its name in the relay's config; without it all of them are woken.
    #[must_use]
    pub fn for_outbox(self, name: &str) -> Self {
        Self { outbox: name.into(), ..self }
    }

    /// Says that something was committed: call it after COMMIT, never before. Never waits and never fails; when nobody
    /// listens, or too many packets are under way, the relay finds the events by polling.
    pub fn notify(&self) {
        let packet = self.outbox.as_bytes();
        let _ = match self.socket.as_ref() {
            Socket::Unix(socket, path) => socket.send_to(packet, path),
            Socket::Udp(socket, address) => socket.send_to(packet, address),
        };
    }
}
