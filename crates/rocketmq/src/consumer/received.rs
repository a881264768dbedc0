//! A message received, and the handle it is settled by.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::time::Instant;

use crate::body;
use crate::generated::messages::{self, Resource};
use crate::message::date;
use crate::options::Address;
use crate::route::Broker;
use crate::transport::Link;

/// The right to settle one delivery of one message, until its invisible time is over. Settling takes it by value; a
/// settlement that was not proven gives it back.
#[derive(Debug)]
#[must_use = "a delivery that is not settled comes again"]
pub struct Handle {
    pub(super) origin: Arc<Origin>,
    pub(super) message_id: String,
    pub(super) receipt: String,
    /// When it was given out, at the latest.
    pub(super) given: Instant,
}

/// Where deliveries came from.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) topic: Resource,
    /// The proxies that lead to the broker, first the one the delivery came through.
    pub(super) addresses: Vec<Address>,
}

impl Handle {
    /// The id of the message.
    pub fn message_id(&self) -> &str {
        &self.message_id
    }

    /// The broker's text of the handle; it differs with each delivery.
    pub fn as_str(&self) -> &str {
        &self.receipt
    }
}

/// A message received.
#[derive(Debug)]
pub struct Received {
    /// Topic, without namespace.
    pub topic: String,
    /// The id its producer gave it; the same for all copies.
    pub message_id: String,
    /// The tag.
    pub tag: Option<String>,
    /// The keys.
    pub keys: Vec<String>,
    /// The message group.
    pub group: Option<String>,
    /// The body, decompressed; as it arrived when `undecodable` says why.
    pub body: Bytes,
    /// Why the body could not be read: a digest that does not fit, a compression nobody knows.
    pub undecodable: Option<String>,
    /// User properties.
    pub properties: BTreeMap<String, String>,
    /// Trace context that travelled with the message.
    pub trace_context: Option<String>,
    /// When the message was born, by the clock of who sent it.
    pub born_at: Option<SystemTime>,
    /// When the broker stored it; a redelivery was stored anew.
    pub stored_at: Option<SystemTime>,
    /// Which delivery this is, the first is 1.
    pub delivery_attempt: u32,
    /// Name of the broker it lies at.
    pub broker: String,
    /// Queue at the broker.
    pub queue_id: i32,
    /// Offset in the queue.
    pub offset: i64,
    /// For a message of a dead-letter topic: the topic it came from.
    pub dead_letter_topic: Option<String>,
    /// The right to settle this delivery.
    pub handle: Handle,
}

impl Received {
    pub(super) fn new(message: messages::Message, link: &Link, broker: &Broker) -> Self {
        let messages::Message { topic, user_properties, system_properties, body } = message;
        let (topic, system) = (topic.unwrap_or_default(), system_properties.unwrap_or_default());
        let (body, undecodable) = body::decode(body, &system);
        let others = broker.addresses.iter().filter(|address| *address != link.address());
        let addresses = std::iter::once(link.address()).chain(others).cloned().collect();
        let handle = Handle {
            origin: Arc::new(Origin { topic: topic.clone(), addresses }),
            message_id: system.message_id.clone(),
            receipt: system.receipt_handle.unwrap_or_default(),
            given: Instant::now(),
        };
        Self {
            topic: topic.name,
            message_id: system.message_id,
            tag: system.tag,
            keys: system.keys,
            group: system.message_group,
            body,
            undecodable,
            properties: user_properties,
            trace_context: system.trace_context,
            born_at: date(system.born_timestamp.as_ref()),
            stored_at: date(system.store_timestamp.as_ref()),
            delivery_attempt: system
                .delivery_attempt
                .and_then(|attempt| attempt.try_into().ok())
                .unwrap_or(1),
            broker: broker.name.clone(),
            queue_id: system.queue_id,
            offset: system.queue_offset.unwrap_or_default(),
            dead_letter_topic: system.dead_letter_queue.map(|origin| origin.topic),
            handle,
        }
    }
}
