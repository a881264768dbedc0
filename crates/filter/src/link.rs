//! The connection: made when first needed, shared by everybody, thrown away at the first doubt.
//!
//! The client library's own manager is not used: it keeps a connection that only times out (redis-rs/redis-rs#1032), so
//! that one that is half open stays for minutes. The circuit bounds how often a slow server is connected to anew.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, Pipeline, RedisError};
use tokio::time::{Instant, timeout, timeout_at};

/// How long resolving, connecting, TLS and logging in may take together, in the background.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Why a round trip failed. What the server wrote is left out: some servers echo the commands, passwords included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no answer in time")]
    Late,
    #[error("the server refuses connections")]
    ConnectionRefused,
    #[error("the server answered with the error {0}")]
    Refused(String),
    #[error("the connection failed ({0})")]
    Broken(String),
}

impl Failure {
    /// Whether the connection cannot be relied on any more.
    fn spoils_connection(&self) -> bool {
        match self {
            // It may be half open, which no later question would notice either.
            Self::Late | Self::ConnectionRefused | Self::Broken(_) => true,
            // The server was the master when the connection was made; its name may lead elsewhere now.
            Self::Refused(code) => matches!(code.as_str(), "READONLY" | "MASTERDOWN"),
        }
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() {
            return Self::Late;
        }
        if error.is_connection_refusal() {
            return Self::ConnectionRefused;
        }
        let category = error.category().to_owned();
        let Some(refusals) = error.into_server_errors() else { return Self::Broken(category) };
        let code = refusals.first().map(|(_, refusal)| refusal.code()).filter(|code| is_plain(code));
        Self::Refused(code.unwrap_or("(of no name)").to_owned())
    }
}

/// Whether it looks like one of the words that servers begin their errors with.
fn is_plain(code: &str) -> bool {
    const BYTES_MAX: usize = 20;
    code.len() <= BYTES_MAX && code.bytes().all(|byte| byte.is_ascii_uppercase())
}

/// A connection that is being made or has been made; every waiting caller has a copy.
type Attempt = Shared<BoxFuture<'static, Result<MultiplexedConnection, Failure>>>;

#[derive(Debug)]
pub(crate) struct Link {
    client: Client,
    attempt: Mutex<Option<Attempt>>,
}

impl Link {
    /// Makes no connection yet.
    pub(crate) fn new(client: Client) -> Self {
        Self { client, attempt: Mutex::new(None) }
    }

    /// Sends the commands at once and reads their answers, all before `deadline`.
    pub(crate) async fn exchange<T: FromRedisValue>(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<T, Failure> {
        let attempt = self.attempt();
        // Who is late here gives up, but the attempt goes on: a slow handshake must not start anew with every call.
        let connected = timeout_at(deadline, attempt.clone()).await.map_err(|_| Failure::Late)?;
        let mut connection = connected.inspect_err(|_| self.discard(&attempt))?;
        let answered = timeout_at(deadline, commands.query_async(&mut connection)).await;
        let answer = answered.map_err(|_| Failure::Late).and_then(|answer| answer.map_err(Failure::from));
        answer.inspect_err(|failure| {
            if failure.spoils_connection() {
                self.discard(&attempt);
            }
        })
    }

    /// The attempt under way or done, or a new one.
    fn attempt(&self) -> Attempt {
        let mut slot = self.slot();
        let start = || {
            // A task of its own, so that it goes on when its callers have given up.
            let task = tokio::spawn(connect(self.client.clone()));
            let joined =
                task.map(|ended| ended.unwrap_or_else(|error| Err(Failure::Broken(error.to_string()))));
            joined.boxed().shared()
        };
        slot.get_or_insert_with(start).clone()
    }

    /// The next call connects anew, unless somebody has done so already.
    fn discard(&self, attempt: &Attempt) {
        let mut slot = self.slot();
        if slot.as_ref().is_some_and(|current| current.ptr_eq(attempt)) {
            *slot = None;
        }
    }

    fn slot(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(client: Client) -> Result<MultiplexedConnection, Failure> {
    // Callers have deadlines of their own.
    let settings = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    let connected =
        timeout(CONNECT_LIMIT, client.get_multiplexed_async_connection_with_config(&settings)).await;
    connected.map_err(|_| Failure::Late)?.map_err(Failure::from)
}
