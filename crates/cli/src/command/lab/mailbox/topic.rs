//! A topic and a consumer group of RocketMQ, as hand-written code uses them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use consign_rocketmq::admin::{Admin, StoredMessage};
use consign_rocketmq::{
    CallError, Code, Consumer, Filter, Handle, Kind, Message, Producer, Received, Subscription,
};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

use super::{ANSWER, Answer, ROUTE};
use crate::command::lab::database::Database;
use crate::command::lab::place::{INVISIBLE, Messages, Place};

/// The shortest long poll that a proxy makes by its defaults.
const POLL: Duration = Duration::from_secs(5);
const PULL: u32 = 32;
/// How often is looked. A look asks two servers.
pub const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The group that reads what is stored, and consumes nothing.
pub fn reader(name: &str) -> String {
    format!("{name}_audit")
}

/// One side's topic.
pub struct Topic {
    place: Place,
    producer: Producer,
    /// Joins its group with the first receive.
    consumer: OnceCell<Consumer>,
    admin: Admin,
    master: String,
    seen: Mutex<Seen>,
    database: Database,
}

/// What was found in the topic so far.
#[derive(Default)]
struct Seen {
    next_offset: u64,
    copies: BTreeMap<String, i64>,
}

impl Topic {
    /// Opens the topic; `through` is a way to the proxy other than the straight one.
    pub async fn open(place: &Place, database: &Database, through: Option<u16>) -> anyhow::Result<Self> {
        let cluster = place.cluster()?;
        let producer = Producer::start(&cluster.options_through(through), [place.name.clone()]).await?;
        let admin = cluster.admin()?;
        let master = admin.masters().await?.remove(0).address;
        Ok(Self {
            place: place.clone(),
            producer,
            consumer: OnceCell::new(),
            admin,
            master,
            seen: Mutex::default(),
            database: database.clone(),
        })
    }

    /// A message of the lab. Those of a FIFO topic are all of one message group.
    pub fn message(&self, id: &str, body: &str) -> Message {
        Message {
            topic: self.place.name.clone(),
            message_id: id.to_owned(),
            body: body.to_owned().into(),
            tag: Some(ROUTE.to_owned()),
            kind: match self.place.messages {
                Messages::Fifo => Kind::Fifo { group: "orders".to_owned() },
                Messages::Normal | Messages::Transaction => Kind::Normal,
            },
            ..Message::default()
        }
    }

    /// Sends a message and waits for its status, no longer than `within`.
    pub async fn publish(&self, message: Message, within: Duration) -> anyhow::Result<Answer> {
        match self.producer.send(message, Instant::now() + within).await {
            Ok(_) => Ok(Answer::Taken),
            Err(CallError::Answered { code: Code::TOPIC_NOT_FOUND, .. }) => Ok(Answer::NoQueue),
            Err(CallError::Answered { .. } | CallError::Unknown { .. }) => Ok(Answer::None),
            Err(CallError::NotSent { reason }) => bail!("not sent: {reason}"),
        }
    }

    /// Sends a message, and nobody looks at the status that comes back.
    pub fn send_blindly(&self, message: Message) {
        let producer = self.producer.clone();
        tokio::spawn(async move { producer.send(message, Instant::now() + ANSWER).await });
    }

    async fn consumer(&self) -> anyhow::Result<&Consumer> {
        let starting = || async {
            let subscription = Subscription { topic: self.place.name.clone(), filter: Filter::All };
            Consumer::start(&self.place.cluster()?.options(), &self.place.name, vec![subscription])
                .await
                .context("cannot join the group")
        };
        self.consumer.get_or_try_init(starting).await
    }

    /// At most this many messages, if any come within one long poll. They are invisible to others for [`INVISIBLE`].
    pub async fn receive(&self, max: u32) -> anyhow::Result<Vec<Received>> {
        match self.consumer().await?.receive(max, INVISIBLE, POLL).await {
            Ok(received) => Ok(received),
            // The proxy does not know this client yet, or any more: it is asked again.
            Err(CallError::NotSent { .. } | CallError::Answered { .. } | CallError::Unknown { .. }) => {
                tokio::time::sleep(LOOK_EVERY).await;
                Ok(Vec::new())
            }
        }
    }

    /// Acknowledges. A handle whose time is over is good for nothing, and the message comes again.
    pub async fn ack(&self, id: &str, handle: Handle) -> anyhow::Result<()> {
        if self.consumer().await?.ack(handle, Instant::now() + ANSWER).await.is_ok() {
            acknowledged(&self.database, id).await?;
        }
        Ok(())
    }

    /// Gives a message back to be delivered again soon.
    pub async fn requeue(&self, handle: Handle) -> anyhow::Result<()> {
        const SOON: Duration = Duration::from_millis(100);
        let given_back = self.consumer().await?.change_invisible(handle, SOON, Instant::now() + ANSWER).await;
        given_back.map(drop).map_err(|kept| kept.error.into())
    }

    /// How many of the topic's messages nobody has acknowledged. RocketMQ shows nobody what consumers hold, so the lab notes
    /// acknowledgements itself.
    pub async fn left(&self) -> anyhow::Result<u64> {
        let mut seen = self.seen.lock().await;
        let (messages, next_offset) = self.stored_from(seen.next_offset).await?;
        for message in messages {
            *seen.copies.entry(message.message_id().unwrap_or_default().to_owned()).or_default() += 1;
        }
        seen.next_offset = next_offset;
        let acknowledged = self
            .database
            .rows("SELECT COUNT(*), message_id FROM acknowledged_message GROUP BY message_id")
            .await?;
        let acknowledged: BTreeMap<String, i64> =
            acknowledged.into_iter().map(|(count, id)| (id, count)).collect();
        let left = seen.copies.iter().map(|(id, copies)| copies - acknowledged.get(id).unwrap_or(&0));
        Ok(left.map(|left| left.max(0).unsigned_abs()).sum())
    }

    /// Everything that consumers of the topic can get or got, read past all groups.
    pub async fn stored(&self) -> anyhow::Result<Vec<StoredMessage>> {
        Ok(self.stored_from(0).await?.0)
    }

    /// Waits until so many messages are there for consumers.
    pub async fn wait_for(&self, count: usize) -> anyhow::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let deadline = Instant::now() + PATIENCE;
        while self.stored().await?.len() < count {
            anyhow::ensure!(Instant::now() < deadline, "{count} messages were not there within {PATIENCE:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn stored_from(&self, mut offset: u64) -> anyhow::Result<(Vec<StoredMessage>, u64)> {
        let (reader, topic) = (reader(&self.place.name), &self.place.name);
        let mut stored = Vec::new();
        loop {
            let pulled = self.admin.pull(&self.master, &reader, topic, 0, offset, PULL).await?;
            offset = pulled.next_offset;
            stored.extend(pulled.messages);
            if !pulled.more {
                return Ok((stored, offset));
            }
        }
    }
}

/// Notes that a message was acknowledged.
pub async fn acknowledged(database: &Database, id: &str) -> anyhow::Result<()> {
    let sql = "INSERT INTO acknowledged_message (message_id) VALUES (?)";
    database.execute(sql, &[id.into()]).await.map(drop)
}
