//! Where a topic's queues are.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::generated::messages::{self, MessageType, Permission, QueryRouteResponse};
use crate::options::Address;
use crate::topic_kind::TopicKind;

/// What a proxy said about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRoute {
    /// The kinds of messages the topic takes; several for a MIXED one.
    pub accepts: Vec<TopicKind>,
    /// Names of the brokers with queues that can be written.
    pub writable: Vec<String>,
    /// Names of the brokers with queues that can be read.
    pub readable: Vec<String>,
}

/// The brokers of a topic and the proxies in front of each.
#[derive(Debug)]
pub(crate) struct Route {
    writable: Vec<Broker>,
    readable: Vec<Broker>,
    accepts: Vec<TopicKind>,
    turn: AtomicUsize,
}

/// A broker, and the proxies that lead to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) name: String,
    /// In the order in which the proxy gave them.
    pub(crate) addresses: Vec<Address>,
}

impl Route {
    pub(crate) fn new(response: QueryRouteResponse) -> Self {
        let (mut writable, mut readable, mut accepts) = (Vec::new(), Vec::new(), Vec::new());
        for queue in response.message_queues {
            for kind in queue.accept_message_types.iter().map(|kind| topic_kind(*kind)) {
                if !accepts.contains(&kind) {
                    accepts.push(kind);
                }
            }
            let permission = Permission::try_from(queue.permission).unwrap_or(Permission::Unspecified);
            // Followers (any id but 0) do not take part: what is popped there cannot be acknowledged there.
            let Some(broker) = queue.broker.filter(|broker| broker.id == 0).and_then(broker) else {
                continue;
            };
            let (reads, writes) = match permission {
                Permission::Read => (true, false),
                Permission::Write => (false, true),
                Permission::ReadWrite => (true, true),
                Permission::Unspecified | Permission::None => (false, false),
            };
            for (brokers, wanted) in [(&mut readable, reads), (&mut writable, writes)] {
                if wanted && !brokers.contains(&broker) {
                    brokers.push(broker.clone());
                }
            }
        }
        // A message group chooses by place, so the place must not depend on the order of the answer.
        writable.sort_by(|one, other| one.name.cmp(&other.name));
        readable.sort_by(|one, other| one.name.cmp(&other.name));
        Self { writable, readable, accepts, turn: AtomicUsize::new(0) }
    }

    /// Puts these proxies in front of every broker.
    pub(crate) fn lead_to(&mut self, addresses: &[Address]) {
        for broker in self.writable.iter_mut().chain(&mut self.readable) {
            broker.addresses = addresses.to_vec();
        }
    }

    /// All proxies a client of this topic should be known to.
    pub(crate) fn addresses(&self) -> BTreeSet<Address> {
        let brokers = self.writable.iter().chain(&self.readable);
        brokers.flat_map(|broker| broker.addresses.iter().cloned()).collect()
    }

    pub(crate) fn readable(&self) -> &[Broker] {
        &self.readable
    }

    /// The proxies for the next message, best first. Those of one broker for a group: always the same one while the
    /// brokers stay the same. Otherwise the brokers take turns, and the others come after the one whose turn it is. The
    /// proxy chooses the queue, for a group by a hash of its own.
    pub(crate) fn writable_for(&self, group: Option<&str>) -> Vec<Address> {
        let Some(count) = NonZeroUsize::new(self.writable.len()) else { return Vec::new() };
        if let Some(group) = group {
            // The hasher has fixed keys: the same group goes the same way in every process of this build.
            let mut hasher = DefaultHasher::new();
            group.hash(&mut hasher);
            let place = usize::try_from(hasher.finish() % count.get() as u64).unwrap_or(0);
            return self.writable[place].addresses.clone();
        }
        let (before, from) = self.writable.split_at(self.turn.fetch_add(1, Ordering::Relaxed) % count);
        let mut addresses: Vec<Address> = Vec::new();
        for address in from.iter().chain(before).flat_map(|broker| &broker.addresses) {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    pub(crate) fn summary(&self) -> TopicRoute {
        let names = |brokers: &[Broker]| brokers.iter().map(|broker| broker.name.clone()).collect();
        TopicRoute {
            accepts: self.accepts.clone(),
            writable: names(&self.writable),
            readable: names(&self.readable),
        }
    }
}

fn broker(broker: messages::Broker) -> Option<Broker> {
    let addresses = broker.endpoints.into_iter().flat_map(|endpoints| endpoints.addresses);
    let addresses: Vec<Address> = addresses
        .filter_map(|address| Some(Address::new(address.host, u16::try_from(address.port).ok()?)))
        .filter(|address| !address.host.is_empty() && address.port > 0)
        .collect();
    (!addresses.is_empty()).then_some(Broker { name: broker.name, addresses })
}

fn topic_kind(kind: i32) -> TopicKind {
    match MessageType::try_from(kind) {
        Ok(MessageType::Normal) => TopicKind::Normal,
        Ok(MessageType::Fifo) => TopicKind::Fifo,
        Ok(MessageType::Delay) => TopicKind::Delay,
        Ok(MessageType::Transaction) => TopicKind::Transaction,
        Ok(MessageType::Unspecified) => TopicKind::Unspecified,
        Ok(other @ (MessageType::Lite | MessageType::Priority)) => TopicKind::new(other.as_str_name()),
        Err(_) => TopicKind::Other(kind.to_string()),
    }
}
