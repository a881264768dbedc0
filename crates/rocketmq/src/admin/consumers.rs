//! Consumer groups: what a broker keeps of them, how far they have come, and who consumes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::command::Command;
use super::{Admin, AdminError, missing_as_none, number, parsed, request, response};

/// A consumer group on one broker.
///
/// Attributes and retry policies that this crate does not know are not kept: put a group only to create it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupConfig {
    /// Its name.
    #[serde(rename = "groupName")]
    pub name: String,
    /// Whether it may consume.
    #[serde(rename = "consumeEnable")]
    pub enabled: bool,
    /// Whether messages of one group are delivered one after the other. Without it a FIFO topic is consumed in
    /// parallel.
    #[serde(rename = "consumeMessageOrderly", default)]
    pub ordered: bool,
    /// How often a message is delivered again before it goes to the group's dead-letter topic.
    #[serde(rename = "retryMaxTimes")]
    pub retries: u32,
}

impl GroupConfig {
    /// A group that may consume.
    pub fn new(name: impl Into<String>, ordered: bool, retries: u32) -> Self {
        Self { name: name.into(), enabled: true, ordered, retries }
    }
}

/// Who consumes in a group now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumers {
    /// The ids of the connected clients, sorted.
    pub clients: Vec<String>,
    /// What the group subscribes to, by topic. A broker keeps one subscription per topic for the whole group: the one
    /// that was told last.
    pub subscriptions: Vec<Subscribed>,
}

/// A subscription of a group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subscribed {
    /// The topic.
    pub topic: String,
    /// The language of the expression: `TAG` or `SQL92`.
    #[serde(rename = "expressionType", default)]
    pub language: Option<String>,
    /// The filter; `*` is everything.
    #[serde(rename = "subString", default)]
    pub expression: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupTable {
    #[serde(default)]
    subscription_group_table: BTreeMap<String, GroupConfig>,
    #[serde(default)]
    data_version: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConsumerConnection {
    #[serde(default)]
    connection_set: Vec<Connection>,
    #[serde(default)]
    subscription_table: BTreeMap<String, Subscribed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Connection {
    client_id: String,
}

impl Admin {
    /// Makes a consumer group on every master of the cluster. `ordered` is needed to consume FIFO topics in order;
    /// `retries` counts deliveries after the first. An existing group of that name takes these settings and the
    /// defaults for all others.
    pub async fn create_group(&self, name: &str, ordered: bool, retries: u32) -> Result<(), AdminError> {
        let group = GroupConfig::new(name, ordered, retries);
        for broker in self.masters().await? {
            self.put_group(&broker.address, &group).await?;
        }
        Ok(())
    }

    /// All consumer groups on the broker at `address`, by name. Asked for a single group that it does not have, a broker
    /// with `autoCreateSubscriptionGroup` makes one; so that is never asked.
    pub async fn groups(&self, address: &str) -> Result<BTreeMap<String, GroupConfig>, AdminError> {
        const CALL: &str = "for the consumer groups";
        let mut groups = BTreeMap::new();
        let mut version = None;
        loop {
            // Later releases tell them in pages, which belong together while the version is the same.
            let mut request =
                Command::request(request::GET_GROUPS).with("groupSeq", groups.len().to_string());
            if let Some(version) = version {
                request = request.with("dataVersion", serde_json::Value::to_string(&version));
            }
            let answer = self.call(address, CALL, request).await?;
            let page: GroupTable = parsed(address, CALL, &answer)?;
            let known = groups.len();
            groups.extend(page.subscription_group_table);
            let all = answer.fields.get("totalGroupNum").and_then(|total| total.parse().ok()).unwrap_or(0);
            if groups.len() >= all || groups.len() == known {
                return Ok(groups);
            }
            version = Some(page.data_version);
        }
    }

    /// A consumer group on the broker at `address`; `None` when it does not have it.
    pub async fn group(&self, address: &str, name: &str) -> Result<Option<GroupConfig>, AdminError> {
        Ok(self.groups(address).await?.remove(name))
    }

    /// Makes a consumer group on the broker at `address`, or sets an existing one to these settings and the defaults.
    pub async fn put_group(&self, address: &str, group: &GroupConfig) -> Result<(), AdminError> {
        let body = serde_json::to_vec(group).expect("a group is names and numbers");
        let request = Command::request(request::UPDATE_AND_CREATE_GROUP).with_body(body);
        self.call(address, "to put a consumer group", request).await.map(drop)
    }

    /// Deletes a consumer group, on every master of the cluster, and what it remembers of its offsets.
    pub async fn delete_group(&self, name: &str) -> Result<(), AdminError> {
        for broker in self.masters().await? {
            let request =
                Command::request(request::DELETE_GROUP).with("groupName", name).with("cleanOffset", true);
            self.call(&broker.address, "to delete a consumer group", request).await?;
        }
        Ok(())
    }

    /// Who consumes in a group, as the broker at `address` sees it; `None` when nobody does.
    pub async fn consumers(&self, address: &str, group: &str) -> Result<Option<Consumers>, AdminError> {
        let request = Command::request(request::GET_CONSUMERS).with("consumerGroup", group);
        let answered = self.ask::<ConsumerConnection>(address, "for the consumers of a group", request).await;
        let Some(answer) = missing_as_none(answered, response::CONSUMERS_NOT_ONLINE)? else {
            return Ok(None);
        };
        let mut clients: Vec<String> =
            answer.connection_set.into_iter().map(|connection| connection.client_id).collect();
        clients.sort_unstable();
        let subscriptions = answer.subscription_table.into_values().collect();
        Ok(Some(Consumers { clients, subscriptions }))
    }

    /// The offset that the next message of a queue will have.
    pub async fn end_offset(&self, address: &str, topic: &str, queue: u32) -> Result<u64, AdminError> {
        const CALL: &str = "for the end of a queue";
        let request = Command::request(request::GET_MAX_OFFSET).with("topic", topic).with("queueId", queue);
        let answer = self.call(address, CALL, request).await?;
        number(address, CALL, &answer, "offset")
    }

    /// How far a group has come in a queue; `None` when it has consumed nothing of it yet.
    pub async fn group_offset(
        &self,
        address: &str,
        group: &str,
        topic: &str,
        queue: u32,
    ) -> Result<Option<u64>, AdminError> {
        const CALL: &str = "for the offset of a group";
        let request = Command::request(request::QUERY_CONSUMER_OFFSET)
            .with("consumerGroup", group)
            .with("topic", topic)
            .with("queueId", queue)
            .with("setZeroIfNotFound", false);
        let answered = self.call(address, CALL, request).await;
        match missing_as_none(answered, response::QUERY_NOT_FOUND)? {
            Some(answer) => number(address, CALL, &answer, "offset").map(Some),
            None => Ok(None),
        }
    }

    /// Remembers how far a group has come in a queue. The broker writes it to its disk every few seconds: after a
    /// crash an older offset may come back.
    pub async fn put_group_offset(
        &self,
        address: &str,
        group: &str,
        topic: &str,
        queue: u32,
        offset: u64,
    ) -> Result<(), AdminError> {
        let request = Command::request(request::UPDATE_CONSUMER_OFFSET)
            .with("consumerGroup", group)
            .with("topic", topic)
            .with("queueId", queue)
            .with("commitOffset", offset);
        self.call(address, "to put the offset of a group", request).await.map(drop)
    }
}
