//! The queue as hand-written code uses it: put a message in, take the next one out, acknowledge it or give it back.

mod topic;

use std::time::Duration;

use anyhow::{Context, bail};
use consign_amqp::{Channel, Connection, DeliveryHandle, Properties, Publication, Publisher, Verdict};
use sqlx::SqlitePool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use tokio::time::Instant;

use super::database::Database;
use super::place::{Broker, DELIVERY_LEASE, Place, redirect};

pub use topic::{Topic, acknowledged, reader};

/// The route key of every message.
pub const ROUTE: &str = "OrderPaid";
/// A queue that stays empty for so long is taken to be empty: a broker shows nobody the messages that a consumer died
/// with until it has noticed the death.
const QUIET: Duration = Duration::from_millis(600);
const LOOK_EVERY: Duration = Duration::from_millis(15);
const ANSWER: Duration = Duration::from_secs(10);
const BUSY: Duration = Duration::from_millis(700);
/// A message that does not come within this time is taken for one that nobody gets any more.
const PATIENCE: Duration = Duration::from_mins(1);

/// One side's queue.
pub struct Mailbox {
    name: String,
    kind: Kind,
}

enum Kind {
    File(SqlitePool),
    RabbitMq { channel: Channel, publisher: Publisher, _connection: Connection },
    RocketMq(Box<Topic>),
}

/// A message that was taken out and not settled.
pub struct Letter {
    /// The message id.
    pub id: String,
    /// The body.
    pub body: Vec<u8>,
    handle: Handle,
}

enum Handle {
    Row(i64),
    Delivery(DeliveryHandle),
    Receipt(consign_rocketmq::Handle),
}

/// What the broker said to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is in a queue.
    Taken,
    /// There is no queue for it.
    NoQueue,
    /// No answer came, or none that helps.
    None,
}

impl Mailbox {
    /// Opens the queue; `through` is a way to the broker other than the straight one.
    pub async fn open(place: &Place, database: &Database, through: Option<u16>) -> anyhow::Result<Self> {
        let kind = match &place.broker {
            Broker::File(path) => {
                // A file that others write to for longer is a broker that does not answer.
                let options = SqliteConnectOptions::new().filename(path).busy_timeout(BUSY);
                Kind::File(SqlitePoolOptions::new().max_connections(3).connect_with(options).await?)
            }
            Broker::RabbitMq(_) => {
                let mut options = place.rabbitmq()?;
                if let Some(port) = through {
                    redirect(&mut options, port);
                }
                let connection = Connection::open(&options).await.context("cannot connect to RabbitMQ")?;
                let channel = connection.open_channel().await?;
                let publisher = connection.open_publisher().await?;
                Kind::RabbitMq { channel, publisher, _connection: connection }
            }
            Broker::RocketMq(_) => Kind::RocketMq(Box::new(Topic::open(place, database, through).await?)),
        };
        Ok(Self { name: place.name.clone(), kind })
    }

    /// Publishes a message and waits for what the broker says, no longer than `within`.
    pub async fn publish(&self, id: &str, body: &str, within: Duration) -> anyhow::Result<Answer> {
        match &self.kind {
            Kind::File(file) => {
                let inserting = sqlx::query(
                    "INSERT INTO consign_queue_message (queue, message_id, type, headers, available_at, body)
                     SELECT queue, ?, 'OrderPaid', '[]', CAST(unixepoch('subsec') * 1000 AS INTEGER), ?
                     FROM consign_queue_binding WHERE topic = 'OrderPaid'",
                );
                let inserting = inserting.bind(id.to_owned()).bind(body.as_bytes().to_vec()).execute(file);
                match tokio::time::timeout(within, inserting).await {
                    Ok(Ok(inserted)) if inserted.rows_affected() == 0 => Ok(Answer::NoQueue),
                    Ok(Ok(_)) => Ok(Answer::Taken),
                    Ok(Err(sqlx::Error::Database(error))) if error.message().contains("locked") => {
                        Ok(Answer::None)
                    }
                    Ok(Err(error)) => Err(error.into()),
                    Err(_) => Ok(Answer::None),
                }
            }
            Kind::RabbitMq { publisher, .. } => {
                let publication = self.publication(id, body);
                match publisher.publish(publication, Instant::now() + within).await {
                    Verdict::Acked { .. } => Ok(Answer::Taken),
                    Verdict::Returned { .. } => Ok(Answer::NoQueue),
                    Verdict::NotSent { reason } => bail!("not sent: {reason}"),
                    Verdict::Nacked
                    | Verdict::TimedOut { .. }
                    | Verdict::ChannelClosed { .. }
                    | Verdict::ConnectionLost { .. } => Ok(Answer::None),
                }
            }
            Kind::RocketMq(topic) => topic.publish(topic.message(id, body), within).await,
        }
    }

    /// Publishes a message that must be taken.
    pub async fn send(&self, id: &str, body: &str) -> anyhow::Result<()> {
        match self.publish(id, body, ANSWER).await? {
            Answer::Taken => Ok(()),
            other => bail!("a message was not taken: {other:?}"),
        }
    }

    /// Hands a message over and does not wait for anything.
    pub fn send_blindly(&self, id: &str, body: &str) {
        match &self.kind {
            Kind::File(file) => {
                let (file, name, id, body) =
                    (file.clone(), self.name.clone(), id.to_owned(), body.to_owned());
                tokio::spawn(async move {
                    let mailbox = Self { name, kind: Kind::File(file) };
                    let _ = mailbox.publish(&id, &body, ANSWER).await;
                });
            }
            Kind::RabbitMq { publisher, .. } => {
                drop(publisher.publish(self.publication(id, body), Instant::now() + ANSWER));
            }
            Kind::RocketMq(topic) => topic.send_blindly(topic.message(id, body)),
        }
    }

    fn publication(&self, id: &str, body: &str) -> Publication {
        let properties =
            Properties { message_id: Some(id.into()), delivery_mode: Some(2), ..Properties::default() };
        Publication {
            exchange: self.name.clone(),
            routing_key: ROUTE.into(),
            properties,
            body: body.to_owned().into(),
        }
    }

    /// The next message, if one is there.
    pub async fn receive(&self) -> anyhow::Result<Option<Letter>> {
        match &self.kind {
            Kind::File(file) => {
                let found: Option<(i64, String, Vec<u8>)> = sqlx::query_as(
                    "UPDATE consign_queue_message
                     SET lease_token = 'mine', delivery_count = delivery_count + 1,
                         locked_until = CAST(unixepoch('subsec') * 1000 AS INTEGER) + ?
                     WHERE id = (SELECT id FROM consign_queue_message
                                 WHERE queue = ? AND (locked_until IS NULL
                                     OR locked_until <= CAST(unixepoch('subsec') * 1000 AS INTEGER))
                                 ORDER BY id LIMIT 1)
                     RETURNING id, message_id, body",
                )
                .bind(i64::try_from(DELIVERY_LEASE.as_millis())?)
                .bind(&self.name)
                .fetch_optional(file)
                .await?;
                Ok(found.map(|(row, id, body)| Letter { id, body, handle: Handle::Row(row) }))
            }
            Kind::RabbitMq { channel, .. } => {
                let Some(delivery) = channel.get(&self.name).await? else { return Ok(None) };
                let id = delivery.properties.ok().and_then(|properties| properties.message_id);
                let handle = Handle::Delivery(delivery.handle);
                Ok(Some(Letter { id: id.unwrap_or_default(), body: delivery.body.to_vec(), handle }))
            }
            Kind::RocketMq(topic) => Ok(topic.receive(1).await?.pop().map(|received| Letter {
                id: received.message_id,
                body: received.body.to_vec(),
                handle: Handle::Receipt(received.handle),
            })),
        }
    }

    /// The next message; `None` once the queue is and stays empty.
    pub async fn next(&self) -> anyhow::Result<Option<Letter>> {
        let mut empty_since: Option<Instant> = None;
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            // A long poll on a topic that has nothing more takes its time.
            let nothing_there = matches!(self.kind, Kind::RocketMq(_)) && self.left().await? == 0;
            if !nothing_there && let Some(letter) = self.receive().await? {
                return Ok(Some(letter));
            }
            let quiet = match self.left().await? {
                // Everything is leased to somebody, who may be dead.
                1.. => None,
                0 => Some(*empty_since.get_or_insert_with(Instant::now)),
            };
            empty_since = quiet;
            let patience = if matches!(self.kind, Kind::File(_)) { Duration::ZERO } else { QUIET };
            if quiet.is_some_and(|since| since.elapsed() >= patience) {
                return Ok(None);
            }
            tokio::time::sleep(self.look_every()).await;
        }
        Ok(None)
    }

    const fn look_every(&self) -> Duration {
        match self.kind {
            Kind::File(_) | Kind::RabbitMq { .. } => LOOK_EVERY,
            Kind::RocketMq(_) => topic::LOOK_EVERY,
        }
    }

    /// How many messages are in the queue; RabbitMQ does not count those that were handed out.
    pub async fn left(&self) -> anyhow::Result<u64> {
        match &self.kind {
            Kind::File(file) => {
                let count: i64 =
                    sqlx::query_scalar("SELECT COUNT(*) FROM consign_queue_message WHERE queue = ?")
                        .bind(&self.name)
                        .fetch_one(file)
                        .await?;
                Ok(count.unsigned_abs())
            }
            Kind::RabbitMq { channel, .. } => {
                Ok(channel.queue_declare_passive(&self.name).await?.messages.into())
            }
            Kind::RocketMq(topic) => topic.left().await,
        }
    }

    /// The topic, where the queue is one of RocketMQ's.
    pub fn topic(self) -> anyhow::Result<Topic> {
        match self.kind {
            Kind::RocketMq(topic) => Ok(*topic),
            Kind::File(_) | Kind::RabbitMq { .. } => bail!("this side has no RocketMQ"),
        }
    }

    /// Acknowledges; returns when the broker knows.
    pub async fn ack(&self, letter: Letter) -> anyhow::Result<()> {
        match (&self.kind, letter.handle) {
            (Kind::File(file), Handle::Row(row)) => {
                let sql = "DELETE FROM consign_queue_message WHERE id = ?";
                sqlx::query(sql).bind(row).execute(file).await?;
            }
            (Kind::RabbitMq { .. }, Handle::Delivery(handle)) => {
                handle.ack()?;
                self.left().await?;
            }
            (Kind::RocketMq(topic), Handle::Receipt(handle)) => topic.ack(&letter.id, handle).await?,
            (Kind::File(_) | Kind::RabbitMq { .. } | Kind::RocketMq(_), _) => {
                unreachable!("a letter is settled where it came from")
            }
        }
        Ok(())
    }

    /// Gives a message back to the head of the queue.
    pub async fn requeue(&self, letter: Letter) -> anyhow::Result<()> {
        match (&self.kind, letter.handle) {
            (Kind::File(file), Handle::Row(row)) => {
                let sql =
                    "UPDATE consign_queue_message SET locked_until = NULL, lease_token = NULL WHERE id = ?";
                sqlx::query(sql).bind(row).execute(file).await?;
            }
            (Kind::RabbitMq { .. }, Handle::Delivery(handle)) => {
                handle.nack(true)?;
                self.left().await?;
            }
            (Kind::RocketMq(topic), Handle::Receipt(handle)) => topic.requeue(handle).await?,
            (Kind::File(_) | Kind::RabbitMq { .. } | Kind::RocketMq(_), _) => {
                unreachable!("a letter is settled where it came from")
            }
        }
        Ok(())
    }
}
