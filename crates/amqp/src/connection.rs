//! The connection handle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::channel::Channel;
use crate::command::{ChannelLease, Command};
use crate::consumer::{ConsumeOptions, Consumer};
use crate::error::{ChannelError, CloseReason, ClosedBy, ConnectError};
use crate::method;
use crate::options::ConnectOptions;
use crate::publisher::Publisher;
use crate::request::fixed_method;
use crate::session::{Session, Settings};

mod driver;
mod handshake;
mod transport;

use driver::Driver;

/// Incarnation of the next connection that does not bring its own.
static NEXT_INCARNATION: AtomicU64 = AtomicU64::new(1);

/// What the server said about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Product name, such as `RabbitMQ`.
    pub product: String,
    /// Version, such as `4.1.0`.
    pub version: String,
    /// Name of the cluster; empty when not told.
    pub cluster_name: String,
    /// Names of the capabilities it has.
    pub capabilities: BTreeSet<String>,
}

/// A connection. Clones share it; it is closed when the last handle of any kind is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    commands: mpsc::UnboundedSender<Command>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    incarnation: u64,
    server: ServerInfo,
    blocked: watch::Receiver<Option<String>>,
    closed: watch::Receiver<Option<CloseReason>>,
}

impl Connection {
    /// Opens a connection: resolves, connects, secures, authenticates, all within
    /// [`ConnectOptions::connection_timeout`]. Must run on a tokio runtime.
    pub async fn open(options: &ConnectOptions) -> Result<Self, ConnectError> {
        let within = options.connection_timeout;
        let deadline = Instant::now() + within;
        let stream = in_time(deadline, within, "connecting", transport::connect(options)).await?;
        match &options.tls {
            None => Self::establish(stream, options, deadline).await,
            Some(tls) => {
                let secured = transport::secure(stream, options, tls);
                let stream = in_time(deadline, within, "the tls handshake", secured).await?;
                Self::establish(stream, options, deadline).await
            }
        }
    }

    async fn establish<S>(
        mut stream: S,
        options: &ConnectOptions,
        deadline: Instant,
    ) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let within = options.connection_timeout;
        let shaken = handshake::shake(&mut stream, options);
        let agreed = in_time(deadline, within, "the amqp handshake", shaken).await?;
        let incarnation =
            options.incarnation.unwrap_or_else(|| NEXT_INCARNATION.fetch_add(1, Ordering::Relaxed));
        let settings = Settings {
            incarnation,
            frame_max: agreed.frame_max,
            channel_max: agreed.channel_max,
            heartbeat: agreed.heartbeat,
        };
        let (commands, requests) = mpsc::unbounded_channel();
        let (block, blocked) = watch::channel(None);
        let (close, closed) = watch::channel(None);
        let session = Session::new(settings, commands.downgrade(), block, close, Instant::now());
        tokio::spawn(Driver::new(stream, session, requests, agreed.rest).run());
        let shared = Shared { incarnation, server: agreed.server, blocked, closed };
        Ok(Self { commands, shared: Arc::new(shared) })
    }

    /// Incarnation number: another one for each connection.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// What the server said about itself.
    pub fn server(&self) -> &ServerInfo {
        &self.shared.server
    }

    /// Whether the broker refuses publishes (`connection.blocked`), and its reason.
    pub fn blocked(&self) -> watch::Receiver<Option<String>> {
        self.shared.blocked.clone()
    }

    /// Whether the connection has not ended.
    pub fn is_open(&self) -> bool {
        self.shared.closed.borrow().is_none()
    }

    /// Waits until the connection has ended. Any number of callers may wait.
    pub async fn closed(&self) -> CloseReason {
        let mut closed = self.shared.closed.clone();
        let reason = closed.wait_for(Option::is_some).await.ok().and_then(|reason| (*reason).clone());
        reason.unwrap_or_else(task_gone)
    }

    /// Closes the connection and waits until it has ended, at most `within`.
    ///
    /// Publishes not yet written are [`NotSent`](crate::NotSent); confirms that arrive before the
    /// server's answer still count.
    pub async fn close(&self, within: Duration) -> CloseReason {
        // When the task is gone the reason is already there.
        drop(self.commands.send(Command::Close { deadline: Instant::now() + within }));
        self.closed().await
    }

    /// Opens a channel for management.
    pub async fn open_channel(&self) -> Result<Channel, ChannelError> {
        Ok(Channel::new(self.lease_channel().await?))
    }

    /// Opens a channel in confirm mode.
    pub async fn open_publisher(&self) -> Result<Publisher, ChannelError> {
        let lease = self.lease_channel().await?;
        let select = fixed_method(lease.id.number, method::CONFIRM_SELECT, &[0]);
        lease.call(select, &[method::CONFIRM_SELECT_OK], None).await?;
        Ok(Publisher::new(lease))
    }

    /// Opens a channel and consumes from `queue` on it.
    pub async fn open_consumer(
        &self,
        queue: &str,
        options: ConsumeOptions,
    ) -> Result<Consumer, ChannelError> {
        let lease = self.lease_channel().await?;
        Consumer::start(lease, queue, &options).await
    }

    async fn lease_channel(&self) -> Result<ChannelLease, ChannelError> {
        let (reply, leased) = oneshot::channel();
        if self.commands.send(Command::OpenChannel { reply }).is_err() {
            return Err(self.lost());
        }
        let channel = leased.await.unwrap_or_else(|_| Err(self.lost()))?;
        channel.opened.await.unwrap_or_else(|_| Err(self.lost()))?;
        Ok(channel.lease)
    }

    fn lost(&self) -> ChannelError {
        let reason = self.shared.closed.borrow().clone();
        ChannelError::ConnectionLost(reason.unwrap_or_else(task_gone))
    }
}

async fn in_time<T>(
    deadline: Instant,
    after: Duration,
    stage: &'static str,
    work: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    timeout_at(deadline, work).await.unwrap_or(Err(ConnectError::Timeout { after, stage }))
}

/// The reason when the runtime dropped the connection's task.
fn task_gone() -> CloseReason {
    CloseReason { code: 0, text: "the task of the connection is gone".to_owned(), by: ClosedBy::Network }
}

#[cfg(test)]
mod tests;
