//! Half messages that the brokers gave up on: asked about too often without a decisive answer.
//!
//! A broker moves such a message to a topic of its own and forgets it, even when the local transaction committed. The
//! scavenger reads that topic on every master in its order and hands each message to a [`Judge`], who knows the markers
//! and publishes again what was committed. The place reached is remembered by the brokers, under a consumer group that
//! is the scavenger's alone; one group per marker store, since everybody's given-up messages are in the one topic.

use std::future::Future;

use consign_rocketmq::admin::{Admin, AdminError, Broker, DISCARDED_TOPIC, GroupConfig, StoredMessage};

/// The discard topic has one queue.
const QUEUE: u32 = 0;

/// How many messages are read at once, at most.
const BATCH: u32 = 32;

/// Reads what the brokers gave up on.
#[derive(Clone, Debug)]
pub struct Scavenger {
    admin: Admin,
    group: String,
}

/// A message that a broker gave up on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    /// Host and port of the broker that holds it, for [`Admin::resume_checks`].
    pub broker: String,
    /// The message, with the properties its producer set.
    pub message: StoredMessage,
}

impl Discarded {
    /// The id its producer gave it; over the proxy it is the transaction id as well.
    pub fn message_id(&self) -> Option<&str> {
        self.message.message_id()
    }

    /// The topic it was meant for.
    pub fn topic(&self) -> Option<&str> {
        self.message.real_topic()
    }
}

/// What becomes of a discarded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Nothing is left to do: it was published again, rolled back, or belongs to somebody else.
    Settled,
    /// It could not be decided now. It and all behind it on its broker come again in the next round.
    Later,
}

/// Who decides about discarded messages.
pub trait Judge: Send + Sync {
    /// Decides, and acts. The same message may come again: after a crash, and after a broker's crash that forgot how
    /// far it was read.
    fn judge(&self, discarded: &Discarded) -> impl Future<Output = Ruling> + Send;
}

/// What a round came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round {
    /// Messages that are settled.
    pub settled: usize,
    /// Brokers where a message has to wait.
    pub waiting: usize,
}

impl Scavenger {
    /// A scavenger that remembers its places under `group`.
    pub fn new(admin: Admin, group: impl Into<String>) -> Self {
        Self { admin, group: group.into() }
    }

    /// Reads everything that was given up since the last round. Dropping the future loses at most the place within a
    /// batch.
    ///
    /// # Errors
    /// A name server or broker could not be asked. What was settled before is remembered.
    pub async fn round(&self, judge: &impl Judge) -> Result<Round, AdminError> {
        let mut round = Round::default();
        for broker in self.admin.masters().await? {
            self.read(&broker, judge, &mut round).await?;
        }
        Ok(round)
    }

    /// How many given-up messages no round has settled yet.
    ///
    /// # Errors
    /// A name server or broker could not be asked.
    pub async fn unread(&self) -> Result<u64, AdminError> {
        let mut unread = 0;
        for broker in self.admin.masters().await? {
            let end = self.admin.end_offset(&broker.address, DISCARDED_TOPIC, QUEUE).await?;
            unread += end.saturating_sub(self.place(&broker).await?.unwrap_or(0));
        }
        Ok(unread)
    }

    async fn read(&self, broker: &Broker, judge: &impl Judge, round: &mut Round) -> Result<(), AdminError> {
        let known = self.place(broker).await?;
        if known.is_none() {
            self.make_group(broker).await?;
        }
        let place = known.unwrap_or(0);
        let mut offset = place;
        loop {
            let pulled =
                self.admin.pull(&broker.address, &self.group, DISCARDED_TOPIC, QUEUE, offset, BATCH).await?;
            let read = !pulled.messages.is_empty();
            for message in pulled.messages {
                let next = message.queue_offset + 1;
                let discarded = Discarded { broker: broker.address.clone(), message };
                if judge.judge(&discarded).await == Ruling::Later {
                    round.waiting += 1;
                    return self.remember(broker, place, offset).await;
                }
                round.settled += 1;
                offset = next;
            }
            // A place outside of the queue is corrected by the broker, forwards and backwards.
            let moved = pulled.next_offset != offset || read;
            offset = pulled.next_offset;
            self.remember(broker, place, offset).await?;
            if !(pulled.more && moved) {
                return Ok(());
            }
        }
    }

    async fn place(&self, broker: &Broker) -> Result<Option<u64>, AdminError> {
        self.admin.group_offset(&broker.address, &self.group, DISCARDED_TOPIC, QUEUE).await
    }

    /// A broker remembers places only of groups and topics that it knows; the topic comes with the first message.
    async fn remember(&self, broker: &Broker, before: u64, offset: u64) -> Result<(), AdminError> {
        if offset == before {
            return Ok(());
        }
        self.admin.put_group_offset(&broker.address, &self.group, DISCARDED_TOPIC, QUEUE, offset).await
    }

    async fn make_group(&self, broker: &Broker) -> Result<(), AdminError> {
        if self.admin.group(&broker.address, &self.group).await?.is_some() {
            return Ok(());
        }
        let group = GroupConfig::new(self.group.as_str(), false, 0);
        self.admin.put_group(&broker.address, &group).await
    }
}
