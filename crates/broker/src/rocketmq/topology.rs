//! What topics and consumer groups must be: made by `apply`, compared by `check`, over the remoting protocol of name
//! server and brokers.
//!
//! Nothing that exists is ever changed: a topic's kind decides what may be sent to it, and the number of its queues
//! which messages keep their order.

mod check_back;
mod durability;
mod groups;
mod topics;

use std::time::Duration;

use consign_core::finding::Finding;
use consign_rocketmq::admin::{Admin, AdminError, Broker, GroupConfig, TopicConfig};
use consign_rocketmq::{Subscription, TopicKind};

/// Topics and groups, and what transaction messages need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The topics.
    pub topics: Vec<Topic>,
    /// The consumer groups.
    pub groups: Vec<Group>,
    /// What the check-back has to bear; `None` when no transaction messages are sent.
    pub transactions: Option<Transactions>,
}

/// One topic, on every master of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// What may be sent to it.
    pub kind: TopicKind,
    /// How many queues it has on each master, for producers and consumers alike.
    pub queues: u32,
}

/// One consumer group, on every master of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Whether messages of one message group are delivered one after the other.
    pub ordered: bool,
    /// How often a message is delivered again before it goes to the group's dead-letter topic.
    pub retries: u32,
    /// What it consumes.
    pub subscriptions: Vec<Subscription>,
}

/// What the check-back has to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transactions {
    /// The longest that a local transaction may take.
    pub longest: Duration,
    /// When the broker asks for the first time, if messages say so themselves.
    pub first_check_after: Option<Duration>,
}

/// What `apply` made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Topics that a broker did not have.
    pub topics: usize,
    /// Groups that a broker did not have.
    pub groups: usize,
    /// Queues whose start was recorded for a group.
    pub starts: usize,
}

/// Why a topology could not be applied. What was made before stays; applying again is safe.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A name server or broker could not be asked.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// Something of that name exists and is not what the topology says. Everything missing was made before.
    #[error(
        "{subject} on broker {broker} has another {argument}: the topology says {wanted}, the broker has {found}; \
         change the topology, or the broker by hand (mqadmin) when nothing is lost by it"
    )]
    Differs {
        /// `topic "points"` or `group "points"`.
        subject: String,
        /// The name of the broker.
        broker: String,
        /// The argument that differs.
        argument: &'static str,
        /// What the topology says.
        wanted: String,
        /// What the broker has.
        found: String,
    },
}

/// One argument that is not what the topology says.
struct Difference {
    argument: &'static str,
    wanted: String,
    found: String,
}

/// What a check says when no name server is configured: the proxy shows neither kinds, groups nor settings.
pub fn without_name_server(destination: &str) -> Finding {
    Finding::warning(
        "broker-not-visible",
        destination,
        "no name server is configured: topics, groups, durability and the check-back budget are not checked",
        "set name_servers to host:9876 of the cluster's name servers",
    )
}

impl Topology {
    /// Makes what is missing, on every master. Where a group has no start in a queue it consumes, the queue's present
    /// end is recorded: without it, the broker lets a new group begin behind what was sent before its first receive.
    ///
    /// # Errors
    /// The cluster cannot be asked, refuses something, or has something else under a name.
    pub async fn apply(&self, admin: &Admin) -> Result<Applied, TopologyError> {
        let masters = admin.masters().await?;
        let mut applied = Applied::default();
        let mut differing: Option<TopologyError> = None;
        for broker in &masters {
            for topic in &self.topics {
                if let Some(found) = admin.topic(&broker.address, &topic.name).await? {
                    differing =
                        differing.or(differs("topic", &topic.name, broker, topic.differences(&found)));
                } else {
                    admin.put_topic(&broker.address, &topic.config()).await?;
                    applied.topics += 1;
                }
            }
            for group in &self.groups {
                if let Some(found) = admin.group(&broker.address, &group.name).await? {
                    differing =
                        differing.or(differs("group", &group.name, broker, group.differences(&found)));
                } else {
                    admin.put_group(&broker.address, &group.config()).await?;
                    applied.groups += 1;
                }
                applied.starts += groups::record_starts(group, admin, broker).await?;
            }
        }
        differing.map_or(Ok(applied), Err)
    }

    /// Compares with every master and judges what the brokers are configured to do: durability, release, topics
    /// created by accident, the check-back budget, and where groups start. Changes nothing.
    pub async fn check(&self, admin: &Admin) -> Vec<Finding> {
        let mut findings = Vec::new();
        let masters = match admin.masters().await {
            Ok(masters) => masters,
            Err(error) => return vec![unreachable(&admin.options().name_servers.join(";"), &error)],
        };
        for broker in &masters {
            if let Err(error) = self.check_broker(admin, broker, &mut findings).await {
                findings.push(unreachable(&broker.name, &error));
            }
        }
        if let Err(error) = topics::check_routes(self, admin, &mut findings).await {
            findings.push(unreachable(&admin.options().name_servers.join(";"), &error));
        }
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        findings
    }

    async fn check_broker(
        &self,
        admin: &Admin,
        broker: &Broker,
        findings: &mut Vec<Finding>,
    ) -> Result<(), AdminError> {
        let settings = admin.settings(&broker.address).await?;
        let runtime = admin.runtime(&broker.address).await?;
        findings.extend(durability::judge(&broker.name, &settings, runtime));
        if let Some(transactions) = &self.transactions {
            findings.extend(check_back::judge(&broker.name, &settings, transactions));
        }
        for topic in &self.topics {
            let found = admin.topic(&broker.address, &topic.name).await?;
            findings.extend(topics::compare(topic, &broker.name, found.as_ref()));
        }
        let existing = admin.groups(&broker.address).await?;
        for group in &self.groups {
            let found = existing.get(&group.name);
            findings.extend(groups::compare(group, &broker.name, found));
            if found.is_some() {
                findings.extend(groups::check_members(group, admin, broker).await?);
                findings.extend(groups::check_starts(group, admin, broker).await?);
            }
        }
        Ok(())
    }
}

impl Topic {
    fn config(&self) -> TopicConfig {
        TopicConfig::new(self.name.as_str(), &self.kind, self.queues)
    }

    fn differences(&self, found: &TopicConfig) -> Vec<Difference> {
        let queues = |argument, found: u32| Difference {
            argument,
            wanted: self.queues.to_string(),
            found: found.to_string(),
        };
        let mut differences = Vec::new();
        if found.kind() != self.kind {
            differences.push(Difference {
                argument: "message.type",
                wanted: self.kind.to_string(),
                found: found.kind().to_string(),
            });
        }
        if found.write_queues != self.queues {
            differences.push(queues("number of write queues", found.write_queues));
        }
        if found.read_queues != self.queues {
            differences.push(queues("number of read queues", found.read_queues));
        }
        differences
    }
}

impl Group {
    /// An error for every master that knows members of the group with another subscription: together with them, messages
    /// get lost.
    ///
    /// # Errors
    /// A name server or broker could not be asked.
    pub async fn check_members(&self, admin: &Admin) -> Result<Vec<Finding>, AdminError> {
        let mut findings = Vec::new();
        for broker in admin.masters().await? {
            findings.extend(groups::check_members(self, admin, &broker).await?);
        }
        Ok(findings)
    }

    fn config(&self) -> GroupConfig {
        GroupConfig::new(self.name.as_str(), self.ordered, self.retries)
    }

    fn differences(&self, found: &GroupConfig) -> Vec<Difference> {
        let mut differences = Vec::new();
        if found.ordered != self.ordered {
            differences.push(Difference {
                argument: "consumeMessageOrderly",
                wanted: self.ordered.to_string(),
                found: found.ordered.to_string(),
            });
        }
        if found.retries != self.retries {
            differences.push(Difference {
                argument: "retryMaxTimes",
                wanted: self.retries.to_string(),
                found: found.retries.to_string(),
            });
        }
        differences
    }
}

fn differs(what: &str, name: &str, broker: &Broker, differences: Vec<Difference>) -> Option<TopologyError> {
    let Difference { argument, wanted, found } = differences.into_iter().next()?;
    Some(TopologyError::Differs {
        subject: format!("{what} {name:?}"),
        broker: broker.name.clone(),
        argument,
        wanted,
        found,
    })
}

fn unreachable(subject: &str, error: &AdminError) -> Finding {
    Finding::error(
        "broker-unreachable",
        subject,
        error.to_string(),
        "start the name server and brokers, or correct name_servers and the credentials",
    )
}
