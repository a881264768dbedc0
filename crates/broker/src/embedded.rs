//! A queue in a SQLite file: topics, queues bound to them, messages under leases. Several processes share the file,
//! and any of them may be killed at any moment.
//!
//! ```text
//! publish, claim, acknowledge, retry ─► writer task: one BEGIN IMMEDIATE for all that wait ─► COMMIT ─► answers
//! ```
//!
//! Every call hands its unit of work to the queue's writer task and waits for the answer. Dropping a call's future
//! drops only the answer: the unit runs to its end. Calls that arrive while a transaction is being made durable go
//! together into the next one.

mod destination;
mod source;
mod statement;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use consign_core::event::NAME_BYTES_MAX;
use consign_core::ports::Readiness;
use tokio::sync::{mpsc, oneshot, watch};

pub use destination::EmbeddedDestination;
pub use source::{EmbeddedReceipt, EmbeddedSource, SourceOptions};
use writer::{Command, Writer};

/// How many calls may wait for the writer before further ones wait for a place.
const COMMANDS_MAX: usize = 1024;

/// Why the embedded queue did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The file cannot be opened, is locked for too long, is read-only or the disk is full. Nothing changed.
    #[error("the queue file {path} is unavailable: {reason}", path = path.display())]
    Unavailable {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        reason: String,
    },
    /// The outcome of COMMIT is unknown.
    #[error("the outcome of COMMIT on the queue file is unknown: {0}")]
    CommitUnknown(String),
    /// A queue or topic name cannot be used.
    #[error("{field} {name:?} {problem}")]
    InvalidName {
        /// `queue` or `topic`.
        field: &'static str,
        /// The name.
        name: String,
        /// What is wrong and what to write instead.
        problem: &'static str,
    },
    /// The writer task is gone, as when the runtime shuts down.
    #[error("the embedded queue is closed")]
    Closed,
}

/// How many messages a queue holds, by what can happen to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// The queue.
    pub queue: String,
    /// Due and leased to nobody.
    pub ready: u64,
    /// Handed back, due later.
    pub delayed: u64,
    /// Leased to a consumer.
    pub leased: u64,
}

/// A handle on one queue file. Clones share one writer; the file is closed when the last handle, destination,
/// source and receipt is gone.
#[derive(Clone, Debug)]
pub struct Queue {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    commands: mpsc::Sender<Command>,
    readiness: watch::Receiver<Readiness>,
    /// Raised by every commit that made messages available, so that sources in this process need not poll for them.
    arrivals: watch::Sender<u64>,
}

impl Queue {
    /// Opens the file, creating it and the tables when they are missing, and starts the writer task.
    ///
    /// # Errors
    /// The file cannot be opened or stays locked for ten seconds.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, QueueError> {
        let path = path.as_ref().to_owned();
        let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
        let (readiness_sender, readiness) = watch::channel(Readiness::Accepting);
        let arrivals = watch::Sender::new(0);
        let writer = Writer::open(&path, receiver, readiness_sender, arrivals.clone()).await?;
        tokio::spawn(writer.run());
        Ok(Self { shared: Arc::new(Shared { path, commands, readiness, arrivals }) })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Makes a queue known and binds topics to it. A topic is a route key, or a prefix followed by `*`. Declaring
    /// again adds what is new and removes nothing.
    ///
    /// # Errors
    /// A name is empty, too long or has a `*` in the middle; or the file is unavailable.
    pub async fn declare(&self, queue: &str, topics: &[&str]) -> Result<(), QueueError> {
        check_name("queue", queue)?;
        for topic in topics {
            check_name("topic", topic)?;
            if topic.find('*').is_some_and(|at| at + 1 < topic.len()) {
                return Err(QueueError::InvalidName {
                    field: "topic",
                    name: (*topic).to_owned(),
                    problem: "has a * before its end: write a prefix followed by one *",
                });
            }
        }
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        self.shared.ask(|answer| Command::Declare { queue: queue.to_owned(), topics, answer }).await?
    }

    /// Counts per declared queue, by name.
    ///
    /// # Errors
    /// The file is unavailable.
    pub async fn counts(&self) -> Result<Vec<QueueCounts>, QueueError> {
        self.shared.ask(|answer| Command::Count { answer }).await?
    }

    /// A destination that publishes into the queues bound to each route key. `origin` is the moment the relay's
    /// monotonic clock counts from; `source` becomes the CloudEvents source.
    pub fn destination(
        &self,
        origin: tokio::time::Instant,
        source: impl Into<Arc<str>>,
    ) -> EmbeddedDestination {
        EmbeddedDestination::new(Arc::clone(&self.shared), origin, source.into())
    }

    /// A source of one queue's messages.
    pub fn source(&self, options: SourceOptions) -> EmbeddedSource {
        EmbeddedSource::new(Arc::clone(&self.shared), options)
    }
}

impl Shared {
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<T, QueueError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| QueueError::Closed)?;
        answered.await.map_err(|_| QueueError::Closed)
    }
}

fn check_name(field: &'static str, name: &str) -> Result<(), QueueError> {
    let problem = match name.len() {
        0 => "is empty: give it a name",
        1..=NAME_BYTES_MAX => return Ok(()),
        _ => "is too long: use at most 255 bytes",
    };
    Err(QueueError::InvalidName { field, name: name.to_owned(), problem })
}

/// A duration as SQLite's milliseconds; far beyond any use at the upper end.
fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}
