//! One supervised connection: reconnects for ever, with jitter, and tells whether the broker takes publishes.

use std::time::Duration;

use consign_amqp::{ConnectError, ConnectOptions, Connection};
use consign_core::ports::Readiness;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A connection that lived this long was healthy: the next pause starts small again.
const HEALTHY_AFTER: Duration = Duration::from_secs(10);

/// How long the broker may take to answer that a connection is closed.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Decorrelated jitter: each pause is drawn between the floor and three times the last one, so that clients that
/// lost one broker together do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    previous: Duration,
}

impl Backoff {
    const FLOOR: Duration = Duration::from_millis(100);
    const CAP: Duration = Duration::from_secs(5);

    pub fn new() -> Self {
        Self { previous: Self::FLOOR }
    }

    pub fn reset(&mut self) {
        self.previous = Self::FLOOR;
    }

    pub fn pause(&mut self) -> Duration {
        self.pause_at(fraction())
    }

    fn pause_at(&mut self, fraction: f64) -> Duration {
        let ceiling = (self.previous * 3).min(Self::CAP);
        self.previous = Self::FLOOR + ceiling.saturating_sub(Self::FLOOR).mul_f64(fraction);
        self.previous
    }
}

/// A number drawn evenly from `0.0..1.0` by the operating system.
fn fraction() -> f64 {
    let mut bits = [0; 4];
    getrandom::fill(&mut bits).expect("the operating system always has random bits");
    f64::from(u32::from_le_bytes(bits)) / (f64::from(u32::MAX) + 1.0)
}

/// Keeps one connection open until it is dropped.
#[derive(Debug)]
pub(super) struct Supervisor {
    connection: watch::Receiver<Option<Connection>>,
    readiness: watch::Receiver<Readiness>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// Starts connecting. `purpose` names the connection in the broker's tools, unless the options do.
    pub fn start(mut options: ConnectOptions, purpose: &str) -> Self {
        options.connection_name.get_or_insert_with(|| format!("consign {purpose}"));
        let (connections, connection) = watch::channel(None);
        let (readiness_sender, readiness) =
            watch::channel(Readiness::Unavailable("not connected yet".to_owned()));
        let keeper = Keeper {
            options,
            connections,
            readiness: readiness_sender,
            backoff: Backoff::new(),
            said: String::new(),
        };
        Self { connection, readiness, task: tokio::spawn(keeper.run()) }
    }

    /// The connection, as soon as there is one; it may end at any moment.
    pub fn connection(&self) -> Opening {
        Opening(self.connection.clone())
    }

    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }

    /// Closes the connection, after everything that was handed to it, and opens no other.
    pub async fn close(&self) {
        self.task.abort();
        let connection = self.connection.borrow().clone();
        if let Some(connection) = connection {
            let reason = connection.close(CLOSE_LIMIT).await;
            tracing::debug!(incarnation = connection.incarnation(), %reason, "connection closed");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for open connections of one supervisor.
#[derive(Clone, Debug)]
pub(super) struct Opening(watch::Receiver<Option<Connection>>);

impl Opening {
    /// The open connection; waits for the next one while there is none. `None` when the supervisor is gone.
    pub async fn next(&mut self) -> Option<Connection> {
        let open = |connection: &Option<Connection>| connection.as_ref().is_some_and(Connection::is_open);
        self.0.wait_for(open).await.ok().and_then(|connection| connection.clone())
    }
}

struct Keeper {
    options: ConnectOptions,
    connections: watch::Sender<Option<Connection>>,
    readiness: watch::Sender<Readiness>,
    backoff: Backoff,
    /// The last failure that was logged: an outage is one line, not one line a second.
    said: String,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            match Connection::open(&self.options).await {
                Ok(connection) => self.attend(connection).await,
                Err(error) => self.failed(&error),
            }
            sleep(self.backoff.pause()).await;
        }
    }

    /// Follows one connection to its end.
    async fn attend(&mut self, connection: Connection) {
        let server = connection.server();
        tracing::info!(
            broker = %self.options,
            incarnation = connection.incarnation(),
            product = %server.product,
            version = %server.version,
            "connected"
        );
        self.said.clear();
        let opened_at = Instant::now();
        let mut blocked = connection.blocked();
        self.connections.send_replace(Some(connection.clone()));
        let reason = loop {
            let now = match &*blocked.borrow_and_update() {
                None => Readiness::Accepting,
                Some(reason) => Readiness::Unavailable(format!("blocked by the broker: {reason}")),
            };
            self.announce(now);
            tokio::select! {
                reason = connection.closed() => break reason,
                Ok(()) = blocked.changed() => {}
            }
        };
        tracing::warn!(broker = %self.options, incarnation = connection.incarnation(), %reason, "connection ended");
        self.announce(Readiness::Unavailable(format!("the connection ended: {reason}")));
        self.connections.send_replace(None);
        if opened_at.elapsed() > HEALTHY_AFTER {
            self.backoff.reset();
        }
    }

    fn failed(&mut self, error: &ConnectError) {
        let reason = with_causes(error);
        if reason != self.said {
            match error {
                ConnectError::AuthenticationRefused { .. } | ConnectError::VirtualHostRefused { .. } => {
                    tracing::error!(broker = %self.options, %reason, "the broker refuses this user: fix the credentials or the permissions");
                }
                _ => tracing::warn!(broker = %self.options, %reason, "connecting failed, trying again"),
            }
            self.said.clone_from(&reason);
        }
        self.announce(Readiness::Unavailable(reason));
    }

    fn announce(&self, now: Readiness) {
        self.readiness.send_if_modified(|known| {
            let differs = *known != now;
            if differs {
                if matches!(
                    (&*known, &now),
                    (Readiness::Accepting, Readiness::Unavailable(_)) | (_, Readiness::Accepting)
                ) {
                    tracing::info!(broker = %self.options, readiness = ?now, "readiness changed");
                }
                *known = now;
            }
            differs
        });
    }
}

/// An error and what caused it, in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_a_tenth_of_a_second_to_five_seconds_at_most() {
        let mut backoff = Backoff::new();

        let longest: Vec<_> = (0..6).map(|_| backoff.pause_at(1.0).as_millis()).collect();

        assert_eq!(longest, [300, 900, 2700, 5000, 5000, 5000]);
        assert_eq!(backoff.pause_at(0.0), Backoff::FLOOR);
        assert_eq!(backoff.pause_at(1.0).as_millis(), 300, "a short draw lowers the next ceiling");
    }

    #[test]
    fn a_reset_starts_small_again() {
        let mut backoff = Backoff::new();
        for _ in 0..5 {
            backoff.pause_at(1.0);
        }

        backoff.reset();

        assert_eq!(backoff.pause_at(1.0).as_millis(), 300);
    }
}
