//! A TCP proxy that breaks connections on command: what networks and brokers do on their worst day.
//!
//! ```text
//! client ──► Proxy (127.0.0.1:port) ──► upstream
//!              └ faults: latency, hold or black hole per direction, cut after N bytes, refuse, cut now
//! ```
//!
//! A black hole keeps both sockets open and reads on, so that neither side notices anything but silence.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const CHUNK_BYTES: usize = 16 * 1024;

/// A direction through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the client sends.
    ToServer,
    /// What the server answers.
    ToClient,
}

/// How a connection ends when it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// FIN on both sides, as when a process exits.
    Close,
    /// RST on both sides, as when a host or a firewall drops the connection.
    Reset,
}

/// What happens to bytes in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass at once.
    #[default]
    Pass,
    /// They pass after this delay.
    Delay(Duration),
    /// They pass in small slices, so many bytes in a second.
    Slow(u64),
    /// They wait until the flow is another one, and pass then.
    Hold,
    /// They are read and thrown away: the sender believes that they arrived.
    Swallow,
    /// They pass until this many more bytes of one connection went by; then the connection is cut.
    CutAfter(u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    to_server: Flow,
    to_client: Flow,
    refuse: bool,
    /// Counts the changes of flows, so that a connection knows when its byte budget starts anew.
    generation: u64,
    /// Counts the cuts; every connection older than the latest one ends.
    cuts: u64,
    cut_resets: bool,
}

impl Faults {
    fn flow(&self, direction: Direction) -> Flow {
        match direction {
            Direction::ToServer => self.to_server,
            Direction::ToClient => self.to_client,
        }
    }

    fn cut(&self) -> Cut {
        if self.cut_resets { Cut::Reset } else { Cut::Close }
    }
}

#[derive(Debug, Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Counts {
    fn bytes(&self, direction: Direction) -> &AtomicU64 {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// A running proxy; it ends, with all its connections, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    faults: watch::Sender<Faults>,
    counts: Arc<Counts>,
}

impl Proxy {
    /// Listens on a free loopback port and forwards to `upstream`.
    ///
    /// # Errors
    /// No port could be bound.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (faults, watcher) = watch::channel(Faults::default());
        let counts = Arc::new(Counts::default());
        tokio::spawn(accept(listener, upstream, watcher, Arc::clone(&counts)));
        Ok(Self { address, faults, counts })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what happens to bytes in `direction` from now on, on open and on new connections.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.faults.send_modify(|faults| {
            match direction {
                Direction::ToServer => faults.to_server = flow,
                Direction::ToClient => faults.to_client = flow,
            }
            faults.generation += 1;
        });
    }

    /// Ends every fault: bytes pass both ways and connections are taken. Swallowed bytes stay lost.
    pub fn heal(&self) {
        self.faults.send_modify(|faults| {
            faults.to_server = Flow::Pass;
            faults.to_client = Flow::Pass;
            faults.refuse = false;
            faults.generation += 1;
        });
    }

    /// Takes a connection and resets it at once, until [`Proxy::heal`]. Open connections live on.
    pub fn refuse(&self) {
        self.faults.send_modify(|faults| faults.refuse = true);
    }

    /// Ends every open connection now.
    pub fn cut(&self, how: Cut) {
        self.faults.send_modify(|faults| {
            faults.cuts += 1;
            faults.cut_resets = how == Cut::Reset;
        });
    }

    /// How many connections were forwarded.
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    /// How many connections were refused.
    pub fn refused(&self) -> u64 {
        self.counts.refused.load(Ordering::SeqCst)
    }

    /// How many bytes were read in `direction`, swallowed ones included.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.counts.bytes(direction).load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    mut faults: watch::Receiver<Faults>,
    counts: Arc<Counts>,
) {
    loop {
        let client = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(_) => continue,
            },
            () = dropped(&mut faults) => return,
        };
        if faults.borrow().refuse {
            counts.refused.fetch_add(1, Ordering::SeqCst);
            end(&client, Cut::Reset);
            continue;
        }
        let (faults, counts) = (faults.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(upstream).await else {
                end(&client, Cut::Reset);
                return;
            };
            counts.connections.fetch_add(1, Ordering::SeqCst);
            forward(client, server, faults, &counts).await;
        });
    }
}

/// Resolves when the proxy was dropped.
async fn dropped(faults: &mut watch::Receiver<Faults>) {
    while faults.changed().await.is_ok() {}
}

async fn forward(client: TcpStream, server: TcpStream, faults: watch::Receiver<Faults>, counts: &Counts) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut up = Pump::new(from_client, to_server, Direction::ToServer, faults.clone(), counts);
    let mut down = Pump::new(from_server, to_client, Direction::ToClient, faults.clone(), counts);
    let how = tokio::select! {
        how = both_finished(&mut up, &mut down) => how,
        how = wait_for_cut(faults) => how,
    };
    for pump in [up, down] {
        end(pump.from.as_ref(), how);
        if how == Cut::Reset {
            // A write half that is dropped says goodbye by FIN, before the reset.
            pump.to.forget();
        }
    }
}

/// A connection ends when a byte budget is spent, or when both directions reached their end.
async fn both_finished(up: &mut Pump<'_>, down: &mut Pump<'_>) -> Cut {
    let (mut up_open, mut down_open) = (true, true);
    while up_open || down_open {
        let (cut, open) = tokio::select! {
            cut = up.run(), if up_open => (cut, &mut up_open),
            cut = down.run(), if down_open => (cut, &mut down_open),
        };
        if let Some(how) = cut {
            return how;
        }
        *open = false;
    }
    Cut::Close
}

async fn wait_for_cut(mut faults: watch::Receiver<Faults>) -> Cut {
    let seen = faults.borrow().cuts;
    match faults.wait_for(|now| now.cuts != seen).await {
        Ok(now) => now.cut(),
        // The proxy is gone.
        Err(_) => Cut::Close,
    }
}

fn end(stream: &TcpStream, how: Cut) {
    if how == Cut::Reset {
        // Linger zero sends RST on close; should the option fail, the connection still ends.
        let _ = stream.set_zero_linger();
    }
}

/// One direction of one connection.
struct Pump<'a> {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    direction: Direction,
    faults: watch::Receiver<Faults>,
    counts: &'a Counts,
    generation: u64,
    passed: u64,
}

impl<'a> Pump<'a> {
    fn new(
        from: OwnedReadHalf,
        to: OwnedWriteHalf,
        direction: Direction,
        faults: watch::Receiver<Faults>,
        counts: &'a Counts,
    ) -> Self {
        Self { from, to, direction, faults, counts, generation: 0, passed: 0 }
    }

    /// Moves bytes until their end (`None`) or until the connection is to be cut.
    async fn run(&mut self) -> Option<Cut> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let count = match self.from.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            self.counts.bytes(self.direction).fetch_add(count as u64, Ordering::SeqCst);
            let faults = *self.faults.borrow();
            if faults.generation != self.generation {
                self.generation = faults.generation;
                self.passed = 0;
            }
            if let Flow::Slow(bytes_per_second) = faults.flow(self.direction) {
                if self.trickle(&buffer[..count], bytes_per_second).await.is_err() {
                    break;
                }
                continue;
            }
            let allowed = match faults.flow(self.direction) {
                Flow::Pass | Flow::Slow(_) => count,
                Flow::Hold => {
                    let direction = self.direction;
                    // An error means that the proxy is gone, which ends the connection anyway.
                    let _ = self.faults.wait_for(|now| now.flow(direction) != Flow::Hold).await;
                    count
                }
                Flow::Swallow => 0,
                Flow::Delay(span) => {
                    tokio::time::sleep(span).await;
                    count
                }
                Flow::CutAfter(budget) => {
                    count.min(usize::try_from(budget - self.passed.min(budget)).unwrap_or(count))
                }
            };
            self.passed += count as u64;
            if self.to.write_all(&buffer[..allowed]).await.is_err() {
                break;
            }
            if matches!(faults.flow(self.direction), Flow::CutAfter(budget) if self.passed >= budget) {
                return Some(Cut::Reset);
            }
        }
        // Half-close: the other direction may still have something to say.
        let _ = self.to.shutdown().await;
        None
    }

    /// Slices of odd lengths, so that they fall anywhere into the frames of the protocol.
    async fn trickle(&mut self, bytes: &[u8], bytes_per_second: u64) -> io::Result<()> {
        const SLICE_BYTES: usize = 509;
        for slice in bytes.chunks(SLICE_BYTES) {
            self.to.write_all(slice).await?;
            let micros = slice.len() as u64 * 1_000_000 / bytes_per_second.max(1);
            tokio::time::sleep(Duration::from_micros(micros)).await;
        }
        Ok(())
    }
}
