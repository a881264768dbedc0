//! The one task that writes: takes every command that waits, runs all in one `BEGIN IMMEDIATE` transaction and
//! answers after COMMIT. Nothing aborts it, so no unit of work is cut off half-way.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use consign_core::event::Event;
use consign_core::outcome::{Doubt, Outcome, Proof};
use consign_core::ports::Readiness;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Row, SqliteExecutor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{QueueCounts, QueueError, milliseconds, statement};
use crate::envelope;

/// How many commands share a transaction at most: bounds how long its first one waits.
const BATCH_MAX: usize = 256;
/// How long SQLite waits for another process's write lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How often an unavailable file is tried again when nobody asks.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// One unit of work, or a part of a shared one.
#[derive(Debug)]
pub(super) enum Command {
    Publish(PublishCommand),
    Settle { message: LeasedId, to: SettleTo, answer: oneshot::Sender<Result<bool, QueueError>> },
    Claim(ClaimCommand),
    Declare { queue: String, topics: Vec<String>, answer: oneshot::Sender<Result<(), QueueError>> },
    Count { answer: oneshot::Sender<Result<Vec<QueueCounts>, QueueError>> },
}

#[derive(Debug)]
pub(super) struct PublishCommand {
    pub event: Arc<Event>,
    pub topic: String,
    pub source: Arc<str>,
    /// Whoever raises it first, the writer that begins or the caller whose deadline came, decides whether the
    /// message is published at all.
    pub decided: Arc<AtomicBool>,
    pub answer: oneshot::Sender<Outcome>,
}

#[derive(Debug)]
pub(super) struct ClaimCommand {
    pub queue: String,
    pub limit: u32,
    pub length: Duration,
    pub token: Arc<str>,
    pub answer: oneshot::Sender<Result<Vec<Leased>, QueueError>>,
}

/// A message together with the lease it is held under.
#[derive(Clone, Debug)]
pub(super) struct LeasedId {
    pub id: i64,
    pub token: Arc<str>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SettleTo {
    Acknowledged,
    Retry(Duration),
    /// Never seen by a consumer: the delivery does not count.
    Released,
}

/// A claimed row.
#[derive(Debug)]
pub(super) struct Leased {
    pub id: i64,
    pub message_id: String,
    pub message_type: String,
    pub headers: String,
    pub delivery_count: u32,
    pub body: Vec<u8>,
}

/// An answer that waits for COMMIT.
enum Answer {
    Publish(oneshot::Sender<Outcome>, Outcome),
    Settle(oneshot::Sender<Result<bool, QueueError>>, bool),
    Claim(oneshot::Sender<Result<Vec<Leased>, QueueError>>, Vec<Leased>),
    Declare(oneshot::Sender<Result<(), QueueError>>),
    Count(oneshot::Sender<Result<Vec<QueueCounts>, QueueError>>, Vec<QueueCounts>),
}

/// Why a batch ended without COMMIT succeeding.
enum BatchError {
    /// Certainly rolled back.
    RolledBack(String),
    /// COMMIT failed: nobody knows.
    CommitUnknown(String),
}

pub(super) struct Writer {
    path: PathBuf,
    commands: mpsc::Receiver<Command>,
    readiness: watch::Sender<Readiness>,
    arrivals: watch::Sender<u64>,
    connection: Option<SqliteConnection>,
}

impl Writer {
    pub async fn open(
        path: &Path,
        commands: mpsc::Receiver<Command>,
        readiness: watch::Sender<Readiness>,
        arrivals: watch::Sender<u64>,
    ) -> Result<Self, QueueError> {
        let connection = connect(path).await.map_err(|error| unavailable(path, &error))?;
        Ok(Self { path: path.to_owned(), commands, readiness, arrivals, connection: Some(connection) })
    }

    pub async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let accepting = *self.readiness.borrow() == Readiness::Accepting;
            let received = if accepting {
                self.commands.recv_many(&mut batch, BATCH_MAX).await
            } else if let Ok(received) =
                timeout(PROBE_INTERVAL, self.commands.recv_many(&mut batch, BATCH_MAX)).await
            {
                received
            } else {
                // Nobody asks while the file is unavailable: an empty transaction tells when it is back.
                self.serve(Vec::new()).await;
                continue;
            };
            if received == 0 {
                break;
            }
            let writes = self.serve_reads(std::mem::take(&mut batch)).await;
            if !writes.is_empty() {
                self.serve(writes).await;
            }
        }
        if let Some(connection) = self.connection.take() {
            // Closing checkpoints; a failure leaves the write-ahead log for the next process to read.
            let _ = connection.close().await;
        }
    }

    /// Answers a batch that may not need the write lock and returns what does. A batch with writes in it takes the
    /// lock anyway.
    async fn serve_reads(&mut self, batch: Vec<Command>) -> Vec<Command> {
        if batch.iter().any(|command| !matches!(command, Command::Claim(_) | Command::Count { .. })) {
            return batch;
        }
        let mut writes = Vec::with_capacity(batch.len());
        for command in batch {
            match command {
                Command::Count { answer } => {
                    let counted = match self.connection().await {
                        Ok(connection) => count(connection).await,
                        Err(error) => Err(error),
                    };
                    let _ = answer.send(counted.map_err(|error| unavailable(&self.path, &error)));
                }
                Command::Claim(claim) => match self.claimable(&claim.queue).await {
                    Ok(true) => writes.push(Command::Claim(claim)),
                    Ok(false) => drop(claim.answer.send(Ok(Vec::new()))),
                    Err(error) => drop(claim.answer.send(Err(unavailable(&self.path, &error)))),
                },
                other => writes.push(other),
            }
        }
        writes
    }

    async fn claimable(&mut self, queue: &str) -> Result<bool, sqlx::Error> {
        let connection = self.connection().await?;
        sqlx::query_scalar(statement::CLAIMABLE).bind(queue).fetch_one(connection).await
    }

    /// Runs the commands in one transaction and answers each.
    async fn serve(&mut self, batch: Vec<Command>) {
        let mut rest = batch.into_iter();
        let mut answers = Vec::with_capacity(rest.len());
        match self.transact(&mut rest, &mut answers).await {
            Ok(arrived) => {
                self.readiness.send_if_modified(|readiness| {
                    std::mem::replace(readiness, Readiness::Accepting) != Readiness::Accepting
                });
                if arrived {
                    self.arrivals.send_modify(|count| *count += 1);
                }
                answers.into_iter().for_each(Answer::committed);
            }
            Err(failure) => {
                let (BatchError::RolledBack(reason) | BatchError::CommitUnknown(reason)) = &failure;
                tracing::error!(path = %self.path.display(), %reason, "the embedded queue's transaction failed");
                self.readiness.send_replace(Readiness::Unavailable(reason.clone()));
                // The next use opens a fresh connection; closing this one rolls back whatever is still open.
                self.connection = None;
                for answer in answers {
                    answer.failed(&self.path, &failure);
                }
                for command in rest {
                    command.failed(&self.path, reason);
                }
            }
        }
    }

    async fn transact(
        &mut self,
        batch: &mut impl Iterator<Item = Command>,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, BatchError> {
        let rolled_back = |error: sqlx::Error| BatchError::RolledBack(error.to_string());
        let connection = self.connection().await.map_err(rolled_back)?;
        execute(&mut *connection, "BEGIN IMMEDIATE").await.map_err(rolled_back)?;
        let mut arrived = false;
        for command in batch {
            match run(connection, command, answers).await {
                Ok(made_available) => arrived |= made_available,
                Err(error) => {
                    let reason = error.to_string();
                    if let Err(rollback) = execute(&mut *connection, "ROLLBACK").await {
                        // Some errors roll back by themselves; the connection is thrown away in any case.
                        tracing::debug!(%rollback, "rolling back after a failed statement");
                    }
                    return Err(BatchError::RolledBack(reason));
                }
            }
        }
        execute(connection, "COMMIT").await.map_err(|error| BatchError::CommitUnknown(error.to_string()))?;
        Ok(arrived)
    }

    async fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        if self.connection.is_none() {
            self.connection = Some(connect(&self.path).await?);
        }
        Ok(self.connection.as_mut().expect("it was opened above"))
    }
}

/// Runs one command inside the open transaction. Returns whether it made messages available.
///
/// # Errors
/// The whole transaction is spoilt; the command's answer is already among the answers.
async fn run(
    connection: &mut SqliteConnection,
    command: Command,
    answers: &mut Vec<Answer>,
) -> Result<bool, sqlx::Error> {
    match command {
        Command::Publish(publish) => {
            if publish.decided.swap(true, Ordering::AcqRel) {
                return Ok(false);
            }
            let (outcome, failure) = match append(connection, &publish).await {
                Ok(outcome) => (outcome, None),
                Err(error) if message_at_fault(&error) => (
                    Outcome::Rejected { reason: format!("the queue file refused the message: {error}") },
                    None,
                ),
                Err(error) => (refused(&error.to_string()), Some(error)),
            };
            let arrived = matches!(outcome, Outcome::Confirmed(_));
            answers.push(Answer::Publish(publish.answer, outcome));
            failure.map_or(Ok(arrived), Err)
        }
        Command::Settle { message, to, answer } => {
            let settled = settle(connection, &message, to).await;
            let held = *settled.as_ref().unwrap_or(&false);
            answers.push(Answer::Settle(answer, held));
            settled.map(|held| held && !matches!(to, SettleTo::Acknowledged))
        }
        Command::Claim(request) => {
            if request.answer.is_closed() {
                return Ok(false);
            }
            let (leased, failure) = match claim(connection, &request).await {
                Ok(leased) => (leased, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            answers.push(Answer::Claim(request.answer, leased));
            failure.map_or(Ok(false), Err)
        }
        Command::Declare { queue, topics, answer } => {
            let declared = declare(connection, &queue, &topics).await;
            answers.push(Answer::Declare(answer));
            declared.map(|()| false)
        }
        Command::Count { answer } => {
            let (counts, failure) = match count(connection).await {
                Ok(counts) => (counts, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            answers.push(Answer::Count(answer, counts));
            failure.map_or(Ok(false), Err)
        }
    }
}

async fn append(connection: &mut SqliteConnection, publish: &PublishCommand) -> Result<Outcome, sqlx::Error> {
    let event = &publish.event;
    let headers = envelope::headers(event, &publish.source);
    let headers = serde_json::to_string(&headers).expect("pairs of strings always have a JSON form");
    let ids: Vec<i64> = sqlx::query_scalar(statement::PUBLISH)
        .bind(&publish.topic)
        .bind(event.id.as_str())
        .bind(&event.event_type)
        .bind(headers)
        .bind(event.payload.as_deref().unwrap_or_default())
        .fetch_all(connection)
        .await?;
    Ok(match ids.first() {
        Some(id) => Outcome::Confirmed(Proof::Appended { partition: 0, offset: *id }),
        // The code RabbitMQ gives: one policy covers both.
        None => {
            Outcome::Unroutable { code: 312, text: format!("no queue is bound to topic {:?}", publish.topic) }
        }
    })
}

async fn settle(
    connection: &mut SqliteConnection,
    message: &LeasedId,
    to: SettleTo,
) -> Result<bool, sqlx::Error> {
    let query = match to {
        SettleTo::Acknowledged => sqlx::query(statement::ACKNOWLEDGE).bind(message.id).bind(&*message.token),
        SettleTo::Retry(delay) => {
            sqlx::query(statement::RETRY).bind(message.id).bind(&*message.token).bind(milliseconds(delay))
        }
        SettleTo::Released => sqlx::query(statement::RELEASE).bind(message.id).bind(&*message.token),
    };
    Ok(query.execute(connection).await?.rows_affected() == 1)
}

async fn claim(connection: &mut SqliteConnection, claim: &ClaimCommand) -> Result<Vec<Leased>, sqlx::Error> {
    let rows = sqlx::query(statement::CLAIM)
        .bind(&claim.queue)
        .bind(&*claim.token)
        .bind(milliseconds(claim.length))
        .bind(claim.limit)
        .fetch_all(connection)
        .await?;
    let mut leased = rows
        .iter()
        .map(|row| {
            Ok(Leased {
                id: row.try_get(0)?,
                message_id: row.try_get(1)?,
                message_type: row.try_get(2)?,
                headers: row.try_get(3)?,
                delivery_count: u32::try_from(row.try_get::<i64, _>(4)?).unwrap_or(u32::MAX),
                body: row.try_get(5)?,
            })
        })
        .collect::<Result<Vec<_>, sqlx::Error>>()?;
    // RETURNING promises no order.
    leased.sort_by_key(|leased| leased.id);
    Ok(leased)
}

async fn declare(
    connection: &mut SqliteConnection,
    queue: &str,
    topics: &[String],
) -> Result<(), sqlx::Error> {
    sqlx::query(statement::DECLARE_QUEUE).bind(queue).execute(&mut *connection).await?;
    for topic in topics {
        sqlx::query(statement::DECLARE_BINDING).bind(topic).bind(queue).execute(&mut *connection).await?;
    }
    Ok(())
}

async fn count(connection: &mut SqliteConnection) -> Result<Vec<QueueCounts>, sqlx::Error> {
    let rows = sqlx::query(statement::COUNTS).fetch_all(connection).await?;
    rows.iter()
        .map(|row| {
            let number = |index: usize| row.try_get::<i64, _>(index).map(i64::unsigned_abs);
            Ok(QueueCounts {
                queue: row.try_get(0)?,
                ready: number(1)?,
                delayed: number(2)?,
                leased: number(3)?,
            })
        })
        .collect()
}

async fn execute(executor: impl SqliteExecutor<'_>, sql: &'static str) -> Result<(), sqlx::Error> {
    sqlx::query(sql).execute(executor).await.map(drop)
}

/// Opens the file in WAL mode with every commit made durable, and creates the tables.
///
/// Switching a file to WAL does not wait for other processes, so a locked file is tried again here.
async fn connect(path: &Path) -> Result<SqliteConnection, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging();
    let given_up = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connect_once(&options).await {
            Err(error) if busy(&error) && Instant::now() < given_up => sleep(Duration::from_millis(20)).await,
            opened => return opened,
        }
    }
}

async fn connect_once(options: &SqliteConnectOptions) -> Result<SqliteConnection, sqlx::Error> {
    let mut connection = options.connect().await?;
    execute(&mut connection, "BEGIN IMMEDIATE").await?;
    sqlx::raw_sql(statement::SCHEMA).execute(&mut connection).await?;
    execute(&mut connection, "COMMIT").await?;
    Ok(connection)
}

/// SQLite's primary result code: the low byte of the extended one.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

fn busy(error: &sqlx::Error) -> bool {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    matches!(primary_code(error), Some(BUSY | LOCKED))
}

/// Errors that undo one statement and leave the transaction alive: too big, or against a constraint.
fn message_at_fault(error: &sqlx::Error) -> bool {
    const TOO_BIG: i32 = 18;
    const CONSTRAINT: i32 = 19;
    matches!(primary_code(error), Some(TOO_BIG | CONSTRAINT))
}

fn unavailable(path: &Path, error: &sqlx::Error) -> QueueError {
    QueueError::Unavailable { path: path.to_owned(), reason: error.to_string() }
}

fn refused(reason: &str) -> Outcome {
    Outcome::Refused { reason: format!("the queue file is unavailable: {reason}"), retry_after: None }
}

impl Answer {
    /// The transaction is durable. A caller that stopped waiting needs no answer, but a claim nobody received is
    /// left to its lease.
    fn committed(self) {
        match self {
            Self::Publish(answer, outcome) => drop(answer.send(outcome)),
            Self::Settle(answer, held) => drop(answer.send(Ok(held))),
            Self::Claim(answer, leased) => drop(answer.send(Ok(leased))),
            Self::Declare(answer) => drop(answer.send(Ok(()))),
            Self::Count(answer, counts) => drop(answer.send(Ok(counts))),
        }
    }

    fn failed(self, path: &Path, failure: &BatchError) {
        let error = || match failure {
            BatchError::RolledBack(reason) => {
                QueueError::Unavailable { path: path.to_owned(), reason: reason.clone() }
            }
            BatchError::CommitUnknown(reason) => QueueError::CommitUnknown(reason.clone()),
        };
        match self {
            // These two were judged by the statement itself, whatever became of the transaction.
            Self::Publish(answer, outcome @ (Outcome::Rejected { .. } | Outcome::Unroutable { .. })) => {
                drop(answer.send(outcome));
            }
            Self::Publish(answer, _) => drop(answer.send(match failure {
                BatchError::RolledBack(reason) => refused(reason),
                BatchError::CommitUnknown(reason) => Outcome::Unknown(Doubt::ConnectionLost(reason.clone())),
            })),
            Self::Settle(answer, _) => drop(answer.send(Err(error()))),
            Self::Claim(answer, _) => drop(answer.send(Err(error()))),
            Self::Declare(answer) => drop(answer.send(Err(error()))),
            Self::Count(answer, _) => drop(answer.send(Err(error()))),
        }
    }
}

impl Command {
    /// The transaction failed before this command was run.
    fn failed(self, path: &Path, reason: &str) {
        let error = || QueueError::Unavailable { path: path.to_owned(), reason: reason.to_owned() };
        match self {
            Self::Publish(publish) => drop(publish.answer.send(refused(reason))),
            Self::Settle { answer, .. } => drop(answer.send(Err(error()))),
            Self::Claim(claim) => drop(claim.answer.send(Err(error()))),
            Self::Declare { answer, .. } => drop(answer.send(Err(error()))),
            Self::Count { answer } => drop(answer.send(Err(error()))),
        }
    }
}
