//! Administration over the remoting protocol of name server and broker.
//!
//! - [`Admin`]: topics, groups, settings, offsets, stored messages.
//! - [`TopicConfig`], [`GroupConfig`], [`BrokerSettings`]: what a broker keeps.
//! - [`StoredMessage`]: a message in the broker's own format, for system topics and as evidence.
//!
//! Every call is a connection of its own with a deadline. Calls may be repeated: creating what exists changes nothing.

mod broker;
mod command;
mod connection;
mod consumers;
mod error;
mod fastjson;
mod messages;
mod stored;
mod topic;

use std::time::Duration;

use serde::de::DeserializeOwned;

pub use broker::{Broker, BrokerRuntime, BrokerSettings, ServerVersion};
pub use consumers::{Consumers, GroupConfig, Subscribed};
pub use error::AdminError;
pub use messages::Pulled;
pub use stored::{StoredMessage, is_system_property};
pub use topic::{Route, RouteQueues, TopicConfig};

use crate::credentials::Credentials;
use crate::topic_kind::TopicKind;
use broker::{ClusterInfo, RuntimeTable};
use command::Command;
use topic::RouteData;

/// The topic of half messages that the broker gave up on: asked about too often, or older than the log reaches back.
pub const DISCARDED_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";

/// Request codes of RocketMQ 5.
mod request {
    pub const PULL_MESSAGE: i32 = 11;
    pub const QUERY_MESSAGE: i32 = 12;
    pub const QUERY_CONSUMER_OFFSET: i32 = 14;
    pub const UPDATE_CONSUMER_OFFSET: i32 = 15;
    pub const UPDATE_AND_CREATE_TOPIC: i32 = 17;
    pub const GET_BROKER_CONFIG: i32 = 26;
    pub const GET_BROKER_RUNTIME_INFO: i32 = 28;
    pub const GET_MAX_OFFSET: i32 = 30;
    pub const GET_ROUTE_OF_TOPIC: i32 = 105;
    pub const GET_CLUSTER_INFO: i32 = 106;
    pub const UPDATE_AND_CREATE_GROUP: i32 = 200;
    pub const GET_GROUPS: i32 = 201;
    pub const GET_CONSUMERS: i32 = 203;
    pub const DELETE_GROUP: i32 = 207;
    pub const DELETE_TOPIC_IN_BROKER: i32 = 215;
    pub const DELETE_TOPIC_IN_NAME_SERVER: i32 = 216;
    pub const RESUME_CHECK_HALF_MESSAGE: i32 = 323;
    pub const GET_TOPIC_CONFIG: i32 = 351;
}

/// Response codes that mean something of their own.
mod response {
    pub const SUCCESS: i32 = 0;
    pub const TOPIC_NOT_EXIST: i32 = 17;
    pub const PULL_NOT_FOUND: i32 = 19;
    pub const PULL_RETRY_IMMEDIATELY: i32 = 20;
    pub const PULL_OFFSET_MOVED: i32 = 21;
    pub const QUERY_NOT_FOUND: i32 = 22;
    pub const CONSUMERS_NOT_ONLINE: i32 = 206;
}

/// How long a call may take unless configured otherwise.
const DEADLINE: Duration = Duration::from_secs(5);

/// How to reach the name servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminOptions {
    /// Host and port of each; the first that answers is asked.
    pub name_servers: Vec<String>,
    /// The cluster to administrate; `None` is every cluster that the name server knows.
    pub cluster: Option<String>,
    /// Who calls, for brokers with access control.
    pub credentials: Option<Credentials>,
    /// How long one call may take, connecting included.
    pub deadline: Duration,
}

impl AdminOptions {
    /// The options for `host:port`, several separated by semicolons or commas. Only plain text is spoken: the
    /// remoting port of a broker that enforces TLS does not answer.
    ///
    /// # Errors
    /// [`AdminError::Address`]: an entry is not an address, or there is none.
    pub fn new(name_servers: &str) -> Result<Self, AdminError> {
        let entries = name_servers.split([';', ',']).map(str::trim).filter(|entry| !entry.is_empty());
        let name_servers: Vec<String> = entries.map(address).collect::<Result<_, _>>()?;
        if name_servers.is_empty() {
            return Err(AdminError::Address { value: String::new() });
        }
        Ok(Self { name_servers, cluster: None, credentials: None, deadline: DEADLINE })
    }
}

fn address(value: &str) -> Result<String, AdminError> {
    let parsed = value.rsplit_once(':').filter(|(host, port)| {
        !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    // What follows an at sign may belong to a password that was put here by mistake.
    let shown = value.rsplit('@').next().unwrap_or_default();
    parsed.map(|_| value.to_owned()).ok_or_else(|| AdminError::Address { value: shown.to_owned() })
}

/// A client for administration. Cheap to make; connects only while a call is under way.
#[derive(Clone, Debug)]
pub struct Admin {
    options: AdminOptions,
}

impl Admin {
    /// A client with these options.
    pub fn new(options: AdminOptions) -> Self {
        Self { options }
    }

    /// The options it was made with.
    pub const fn options(&self) -> &AdminOptions {
        &self.options
    }

    /// Makes a topic of that kind with so many queues on every master of the cluster. An existing topic of that name
    /// takes the new queues and kind: look with [`Self::topic`] first where that matters.
    pub async fn create_topic(&self, name: &str, kind: TopicKind, queues: u32) -> Result<(), AdminError> {
        let topic = TopicConfig::new(name, &kind, queues);
        for broker in self.masters().await? {
            self.put_topic(&broker.address, &topic).await?;
        }
        Ok(())
    }

    /// All brokers that the name server knows, replicas included; of the configured cluster when there is one.
    pub async fn brokers(&self) -> Result<Vec<Broker>, AdminError> {
        let request = Command::request(request::GET_CLUSTER_INFO);
        let answer: ClusterInfo = self.ask_name_server("for the cluster", request).await?;
        let wanted =
            |broker: &Broker| self.options.cluster.as_ref().is_none_or(|name| *name == broker.cluster);
        Ok(answer.brokers().into_iter().filter(wanted).collect())
    }

    /// The masters among [`Self::brokers`].
    ///
    /// # Errors
    /// Also [`AdminError::NoBroker`] when there is none.
    pub async fn masters(&self) -> Result<Vec<Broker>, AdminError> {
        let mut brokers = self.brokers().await?;
        brokers.retain(|broker| broker.id == 0);
        if brokers.is_empty() {
            return Err(AdminError::NoBroker { cluster: self.options.cluster.clone() });
        }
        Ok(brokers)
    }

    /// Where a topic's queues are, as clients see it; `None` when the name server does not know the topic (yet).
    pub async fn route(&self, topic: &str) -> Result<Option<Route>, AdminError> {
        let request = Command::request(request::GET_ROUTE_OF_TOPIC)
            .with("topic", topic)
            .with("acceptStandardJsonOnly", true);
        let answered = self.ask_name_server::<RouteData>("for the route of a topic", request).await;
        Ok(missing_as_none(answered, response::TOPIC_NOT_EXIST)?.map(RouteData::route))
    }

    /// A topic on the broker at `address`; `None` when it does not have it.
    pub async fn topic(&self, address: &str, name: &str) -> Result<Option<TopicConfig>, AdminError> {
        let request = Command::request(request::GET_TOPIC_CONFIG).with("topic", name);
        missing_as_none(self.ask(address, "for a topic", request).await, response::TOPIC_NOT_EXIST)
    }

    /// Makes or changes a topic on the broker at `address`. Attributes are added or changed, never removed.
    pub async fn put_topic(&self, address: &str, topic: &TopicConfig) -> Result<(), AdminError> {
        let request = Command::request(request::UPDATE_AND_CREATE_TOPIC)
            .with("topic", topic.name.as_str())
            .with("defaultTopic", "TBW102")
            .with("readQueueNums", topic.read_queues)
            .with("writeQueueNums", topic.write_queues)
            .with("perm", topic.permission)
            .with("topicFilterType", "SINGLE_TAG")
            .with("topicSysFlag", "0")
            .with("order", topic.order)
            .with("attributes", topic.attributes_added());
        self.call(address, "to put a topic", request).await.map(drop)
    }

    /// Deletes a topic with all its messages, on every master of the cluster and in every name server. Deleting what
    /// does not exist is a success.
    pub async fn delete_topic(&self, name: &str) -> Result<(), AdminError> {
        for broker in self.masters().await? {
            let request = Command::request(request::DELETE_TOPIC_IN_BROKER).with("topic", name);
            self.call(&broker.address, "to delete a topic", request).await?;
        }
        for server in &self.options.name_servers {
            let request = Command::request(request::DELETE_TOPIC_IN_NAME_SERVER).with("topic", name);
            self.call(server, "to delete a topic", request).await?;
        }
        Ok(())
    }

    /// What the broker at `address` is configured to do.
    pub async fn settings(&self, address: &str) -> Result<BrokerSettings, AdminError> {
        const CALL: &str = "for its settings";
        let answer = self.call(address, CALL, Command::request(request::GET_BROKER_CONFIG)).await?;
        let text = std::str::from_utf8(&answer.body).map_err(|error| AdminError::Malformed {
            address: address.to_owned(),
            call: CALL,
            reason: error.to_string(),
        })?;
        Ok(BrokerSettings::from_lines(text))
    }

    /// What the broker at `address` tells of itself as it runs.
    pub async fn runtime(&self, address: &str) -> Result<BrokerRuntime, AdminError> {
        let request = Command::request(request::GET_BROKER_RUNTIME_INFO);
        let told: RuntimeTable = self.ask(address, "for its state", request).await?;
        Ok(told.runtime())
    }

    /// Asks the name servers in turn until one answers.
    async fn ask_name_server<T: DeserializeOwned>(
        &self,
        call: &'static str,
        request: Command,
    ) -> Result<T, AdminError> {
        let (last, first) = self.options.name_servers.split_last().expect("options hold a name server");
        for server in first {
            match self.ask(server, call, request.clone()).await {
                Err(
                    AdminError::Unreachable { .. } | AdminError::TimedOut { .. } | AdminError::Broken { .. },
                ) => {}
                answered => return answered,
            }
        }
        self.ask(last, call, request).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        address: &str,
        call: &'static str,
        request: Command,
    ) -> Result<T, AdminError> {
        let answer = self.call(address, call, request).await?;
        parsed(address, call, &answer)
    }

    /// The answer, which is a success.
    async fn call(&self, address: &str, call: &'static str, request: Command) -> Result<Command, AdminError> {
        let answer = self.send(address, call, &request).await?;
        if answer.code == response::SUCCESS { Ok(answer) } else { Err(refused(address, call, answer)) }
    }

    async fn send(
        &self,
        address: &str,
        call: &'static str,
        request: &Command,
    ) -> Result<Command, AdminError> {
        let deadline = self.options.deadline;
        match &self.options.credentials {
            Some(credentials) => {
                connection::exchange(address, call, &request.clone().signed(credentials), deadline).await
            }
            None => connection::exchange(address, call, request, deadline).await,
        }
    }
}

fn refused(address: &str, call: &'static str, answer: Command) -> AdminError {
    let remark = answer.remark.unwrap_or_default();
    // The first line is the reason; stack traces and links follow.
    let remark = remark.lines().next().unwrap_or_default().trim().to_owned();
    AdminError::Refused { address: address.to_owned(), call, code: answer.code, remark }
}

fn missing_as_none<T>(answered: Result<T, AdminError>, missing: i32) -> Result<Option<T>, AdminError> {
    match answered {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_refusal(missing) => Ok(None),
        Err(error) => Err(error),
    }
}

fn parsed<T: DeserializeOwned>(address: &str, call: &'static str, answer: &Command) -> Result<T, AdminError> {
    fastjson::parse(&answer.body).map_err(|reason| AdminError::Malformed {
        address: address.to_owned(),
        call,
        reason,
    })
}

fn number(address: &str, call: &'static str, answer: &Command, field: &str) -> Result<u64, AdminError> {
    let value = answer.fields.get(field).map(String::as_str);
    value.and_then(|value| value.parse().ok()).ok_or_else(|| AdminError::Malformed {
        address: address.to_owned(),
        call,
        reason: format!("field {field} is {value:?}, expected a whole number"),
    })
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
