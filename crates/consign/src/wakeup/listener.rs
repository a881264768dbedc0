//! The relay's side: packets become wake-ups.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net as unix;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UdpSocket, UnixDatagram};

use crate::shutdown::Shutdown;

use super::{Address, Wakeup};

/// Who may wake: the owner and the group of the socket's file.
const MODE: u32 = 0o660;
/// How often an address that another process has is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// So many packets are read in one go; a flood of more is left to wait for [`FLOOD_PAUSE`].
const PACKETS_PER_TURN: u32 = 64;
/// What a flood may cost: packets that do not fit into the socket meanwhile are dropped, and the rest wakes as well.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

/// Why nobody can listen at an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process listens there.
    #[error("{0} is in use by another process")]
    Taken(Address),
    /// Something else than a socket has the name.
    #[error("{0} is a file that is not a socket: remove it or choose another path")]
    NotSocket(Address),
    /// The system refuses.
    #[error("cannot listen for wake-ups at {0}: {1}")]
    Refused(Address, io::Error),
}

/// Listens at `address` and wakes, until `shutdown` asks for a drain. A packet that holds the name of one of `wakeups`
/// wakes that one, any other packet wakes all; nothing else in a packet means anything.
///
/// Must be called on a tokio runtime. An address that another process has is no failure: it is taken over once it is free,
/// and until then the relay polls.
///
/// # Errors
/// The address cannot be listened at, now or later.
pub fn listen(
    address: Address,
    wakeups: BTreeMap<String, Wakeup>,
    mut shutdown: Shutdown,
) -> Result<impl Future<Output = ()> + Send, ListenError> {
    let listener = match Listener::bind(&address) {
        Ok(listener) => Some(listener),
        Err(error @ ListenError::Taken(_)) => {
            tracing::warn!(%error, "no wake-ups until it is free, events are found by polling");
            None
        }
        Err(error) => return Err(error),
    };
    Ok(async move {
        tokio::select! {
            () = serve(address, listener, &wakeups) => {}
            () = shutdown.requested() => {}
        }
    })
}

async fn serve(address: Address, first: Option<Listener>, wakeups: &BTreeMap<String, Wakeup>) {
    let mut listener = first;
    loop {
        if let Some(listener) = listener.take() {
            let error = listener.run(wakeups).await;
            tracing::warn!(%address, %error, "listening for wake-ups failed, trying again");
        }
        tokio::time::sleep(RETRY).await;
        if let Ok(bound) = Listener::bind(&address) {
            tracing::info!(%address, "listening for wake-ups");
            listener = Some(bound);
            // What was said meanwhile was said to others.
            wake_all(wakeups);
        }
    }
}

fn wake_all(wakeups: &BTreeMap<String, Wakeup>) {
    wakeups.values().for_each(Wakeup::wake);
}

#[derive(Debug)]
struct Listener {
    socket: Socket,
    _file: Option<SocketFile>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Listener {
    fn bind(address: &Address) -> Result<Self, ListenError> {
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => ListenError::Taken(address.clone()),
            _ => ListenError::Refused(address.clone(), error),
        };
        match address {
            Address::Unix(path) => {
                remove_stale(address, path)?;
                let socket = unix::UnixDatagram::bind(path).map_err(refused)?;
                let file = SocketFile::open_to_group(path).map_err(refused)?;
                socket.set_nonblocking(true).map_err(refused)?;
                let socket = Socket::Unix(UnixDatagram::from_std(socket).map_err(refused)?);
                Ok(Self { socket, _file: Some(file) })
            }
            Address::Udp(address) => {
                let socket = std::net::UdpSocket::bind(address).map_err(refused)?;
                socket.set_nonblocking(true).map_err(refused)?;
                let socket = Socket::Udp(UdpSocket::from_std(socket).map_err(refused)?);
                Ok(Self { socket, _file: None })
            }
        }
    }

    /// Turns packets into wake-ups until the socket fails.
    async fn run(self, wakeups: &BTreeMap<String, Wakeup>) -> io::Error {
        let mut packet = [0; 256];
        loop {
            let first = match &self.socket {
                Socket::Unix(socket) => socket.recv(&mut packet).await,
                Socket::Udp(socket) => socket.recv(&mut packet).await,
            };
            let mut received = first;
            let mut packets = 0;
            loop {
                match received {
                    Ok(length) => wake(wakeups, &packet[..length]),
                    Err(error) if packets > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return error,
                }
                packets += 1;
                if packets == PACKETS_PER_TURN {
                    tokio::time::sleep(FLOOD_PAUSE).await;
                    break;
                }
                received = match &self.socket {
                    Socket::Unix(socket) => socket.try_recv(&mut packet),
                    Socket::Udp(socket) => socket.try_recv(&mut packet),
                };
            }
        }
    }
}

fn wake(wakeups: &BTreeMap<String, Wakeup>, packet: &[u8]) {
    let name = std::str::from_utf8(packet).unwrap_or_default().trim();
    match wakeups.get(name) {
        Some(wakeup) => wakeup.wake(),
        None => wake_all(wakeups),
    }
}

/// Removes the socket of a process that is gone; one that somebody listens at stays.
fn remove_stale(address: &Address, path: &Path) -> Result<(), ListenError> {
    let refused = |error| ListenError::Refused(address.clone(), error);
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(refused(error)),
    };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotSocket(address.clone()));
    }
    match unix::UnixDatagram::unbound().and_then(|probe| probe.connect(path)) {
        Ok(()) => Err(ListenError::Taken(address.clone())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}

/// The file of a socket; removed with it, unless another one has taken its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    inode: u64,
}

impl SocketFile {
    fn open_to_group(path: &Path) -> io::Result<Self> {
        fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
        Ok(Self { path: path.into(), inode: fs::symlink_metadata(path)?.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod fuzz {
    use futures_util::FutureExt;
    use seeded_fuzz::run;

    use super::*;

    /// Whatever a packet holds, it wakes the one it names or everybody, and nothing else happens.
    #[test]
    fn wakeup_packets() {
        const NAMES: [&str; 3] = ["outbox", "orders", "中"];
        run("wakeup_packets", |source| {
            let wakeups: BTreeMap<String, Wakeup> =
                NAMES.iter().map(|name| ((*name).to_owned(), Wakeup::default())).collect();
            let packet =
                if source.one_in(2) { source.text(3, &NAMES).into_bytes() } else { source.bytes(256) };

            wake(&wakeups, &packet);

            let woken: Vec<&str> =
                NAMES.into_iter().filter(|name| wakeups[*name].woken().now_or_never().is_some()).collect();
            let text = String::from_utf8(packet).unwrap_or_default();
            match NAMES.iter().find(|name| **name == text.trim()) {
                Some(name) => assert_eq!(woken, [*name]),
                None => assert_eq!(woken, NAMES),
            }
        });
    }

    /// An address that was read is shown as it can be read again.
    #[test]
    fn wakeup_addresses() {
        run("wakeup_addresses", |source| {
            let text = source.text(5, &["unix:", "udp:", "127.0.0.1", ":7171", "/run/wakeup.sock", "[::1]"]);
            if let Ok(address) = text.parse::<Address>() {
                assert_eq!(address.to_string().parse(), Ok(address), "{text:?}");
            }
        });
    }
}
