//! Topics, as a broker keeps them, and their routes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::broker::BrokerData;
use crate::TopicKind;

/// The attribute that holds a topic's kind.
const MESSAGE_TYPE: &str = "message.type";

/// Readable and writable.
const READ_AND_WRITE: u32 = 6;

/// A topic on one broker.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicConfig {
    /// Its name.
    #[serde(rename = "topicName")]
    pub name: String,
    /// How many queues consumers read.
    #[serde(rename = "readQueueNums")]
    pub read_queues: u32,
    /// How many queues producers write.
    #[serde(rename = "writeQueueNums")]
    pub write_queues: u32,
    /// What may be done with it: 4 read, 2 write, 6 both.
    #[serde(rename = "perm")]
    pub permission: u32,
    /// Whether the name server keeps its queues in order while brokers come and go.
    #[serde(default)]
    pub order: bool,
    /// Its attributes, `message.type` among them.
    #[serde(default)]
    pub attributes: BTreeMap<String, String>,
}

impl TopicConfig {
    /// A readable and writable topic. FIFO topics are ordered.
    pub fn new(name: impl Into<String>, kind: &TopicKind, queues: u32) -> Self {
        Self {
            name: name.into(),
            read_queues: queues,
            write_queues: queues,
            permission: READ_AND_WRITE,
            order: *kind == TopicKind::Fifo,
            attributes: BTreeMap::from([(MESSAGE_TYPE.to_owned(), kind.as_str().to_owned())]),
        }
    }

    /// Its kind; topics without the attribute are [`TopicKind::Normal`].
    pub fn kind(&self) -> TopicKind {
        self.attributes.get(MESSAGE_TYPE).map_or(TopicKind::Normal, |name| TopicKind::new(name))
    }

    /// Whether consumers may read it.
    pub const fn readable(&self) -> bool {
        self.permission & 4 != 0
    }

    /// Whether producers may write it.
    pub const fn writable(&self) -> bool {
        self.permission & 2 != 0
    }

    /// The attributes in the form in which a broker adds them.
    pub(super) fn attributes_added(&self) -> String {
        let added: Vec<String> =
            self.attributes.iter().map(|(name, value)| format!("+{name}={value}")).collect();
        added.join(",")
    }
}

/// Where the queues of a topic are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The brokers that hold queues of it.
    pub queues: Vec<RouteQueues>,
}

/// The queues of a topic on the brokers of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteQueues {
    /// The name of the brokers.
    pub broker: String,
    /// Host and port of the master; `None` while there is none.
    pub master: Option<String>,
    /// How many queues consumers read.
    pub read_queues: u32,
    /// How many queues producers write.
    pub write_queues: u32,
    /// What may be done with them: 4 read, 2 write, 6 both.
    pub permission: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RouteData {
    #[serde(default)]
    queue_datas: Vec<QueueData>,
    #[serde(default)]
    broker_datas: Vec<BrokerData>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueueData {
    broker_name: String,
    read_queue_nums: u32,
    write_queue_nums: u32,
    perm: u32,
}

impl RouteData {
    pub(super) fn route(self) -> Route {
        let master = |name: &str| {
            let broker = self.broker_datas.iter().find(|broker| broker.name() == name)?;
            broker.master().map(str::to_owned)
        };
        let mut queues: Vec<RouteQueues> = self
            .queue_datas
            .iter()
            .map(|queues| RouteQueues {
                master: master(&queues.broker_name),
                broker: queues.broker_name.clone(),
                read_queues: queues.read_queue_nums,
                write_queues: queues.write_queue_nums,
                permission: queues.perm,
            })
            .collect();
        queues.sort_unstable_by(|one, other| one.broker.cmp(&other.broker));
        Route { queues }
    }
}
