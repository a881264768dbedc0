//! An event as a RocketMQ message. Pure. What the proxy would refuse is refused here, by name: it answers most
//! refusals of the broker with one and the same code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use consign_core::event::Event;
use consign_core::outcome::Outcome;
use consign_rocketmq::{Code, Kind, Message};
use sha2::{Digest, Sha256};

use crate::envelope;
use crate::rocketmq::property;

/// The longest topic, in bytes (`Validators.TOPIC_MAX_LENGTH` of apache/rocketmq).
const TOPIC_BYTES_MAX: usize = 127;
/// How many user properties a proxy takes by default (`userPropertyMaxNum`).
const PROPERTIES_MAX: usize = 128;
/// How many bytes of user properties, tag and keys a proxy takes by default (`maxUserPropertySize`).
const PROPERTIES_BYTES_MAX: usize = 16 * 1024;
/// A message group must be shorter (`maxMessageGroupSize`).
const GROUP_BYTES_END: usize = 64;
/// The proxy's words for what stands between an event's CloudEvents attributes and their values, as the `CloudEvents`
/// SDK binds them to RocketMQ.
const CLOUD_EVENTS_PREFIX: &str = "CE_";
/// What stands for an empty body, as in the `CloudEvents` SDK.
pub(in crate::rocketmq) const PLACEHOLDER: &[u8] = &[0];

/// What kind of messages a destination sends. RocketMQ's types exclude each other, and a topic takes one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageType {
    /// Without order; sent in batches.
    #[default]
    Normal,
    /// In order within an aggregate, one message of it at a time. Needs a relay in ordered mode.
    Fifo,
    /// Visible to consumers this long after the event's `created_at`. The proxy takes at most 24 hours ahead.
    Delay(Duration),
}

/// What becomes of an event whose payload is empty or NULL: a proxy takes no empty body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmptyBody {
    /// It is rejected.
    #[default]
    Reject,
    /// One zero byte stands for it, and the property `consign-empty` says so. A source of consign gives it out as
    /// empty; others see the byte.
    Placeholder,
}

/// What every message of a destination has in common.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub message_type: MessageType,
    pub body_bytes_max: usize,
    pub empty_body: EmptyBody,
    pub content_type: String,
    pub source: Arc<str>,
}

impl Mapping {
    /// The message for `event` in `topic`.
    ///
    /// # Errors
    /// The outcome of a message that cannot be sent, which names the field and the fix.
    pub fn message(&self, event: &Event, topic: String) -> Result<Message, Outcome> {
        check_topic(&topic)?;
        self.expressed(event, topic).map_err(|reason| Outcome::Rejected { reason })
    }

    fn expressed(&self, event: &Event, topic: String) -> Result<Message, String> {
        event.check().map_err(|invalid| invalid.to_string())?;
        let id = event.id.as_str();
        if id.chars().all(char::is_whitespace) {
            return Err("event_id is blank, which RocketMQ takes for none: give every event an id".to_owned());
        }
        check_characters("event_id", id)?;
        check_characters("event_type", &event.event_type)?;
        let (body, empty) = self.body(event)?;
        let (tag, spelled_out) = tag(&event.event_type);
        let mut properties = self.properties(event)?;
        if spelled_out {
            properties.insert(property::EVENT_TYPE.to_owned(), event.event_type.clone());
        }
        if empty {
            properties.insert(property::EMPTY.to_owned(), "1".to_owned());
        }
        let keys = keys(event);
        check_size(&properties, tag.as_deref(), &keys)?;
        Ok(Message {
            topic,
            message_id: id.to_owned(),
            body,
            tag,
            keys,
            trace_context: properties.get("traceparent").cloned(),
            properties,
            kind: self.kind(event)?,
            born_at: event.created_at_micros.and_then(date),
            check_after: None,
        })
    }

    /// The body, and whether it stands for an empty one.
    fn body(&self, event: &Event) -> Result<(Bytes, bool), String> {
        let body = event.payload.clone().unwrap_or_default();
        if body.len() > self.body_bytes_max {
            return Err(format!(
                "the payload has {} bytes, the destination takes at most {}: shrink it, or raise the broker's and the \
                 proxy's maxMessageSize and the destination's message_bytes_max",
                body.len(),
                self.body_bytes_max
            ));
        }
        if !body.is_empty() {
            return Ok((body, false));
        }
        match self.empty_body {
            EmptyBody::Placeholder => Ok((Bytes::from_static(PLACEHOLDER), true)),
            EmptyBody::Reject => {
                Err("the payload is empty or NULL, and RocketMQ takes no empty body: write a \
                                      payload, or set empty_body = \"placeholder\""
                    .to_owned())
            }
        }
    }

    /// The event's headers and envelope. RocketMQ has no property with an empty value: such a header does not travel.
    fn properties(&self, event: &Event) -> Result<BTreeMap<String, String>, String> {
        let mut properties = BTreeMap::new();
        for (name, value) in envelope::headers(event, &self.source) {
            let attribute = name.strip_prefix(envelope::CLOUD_EVENTS_PREFIX);
            let name =
                attribute.map_or(name.clone(), |attribute| format!("{CLOUD_EVENTS_PREFIX}{attribute}"));
            if value.is_empty() || property::ALL.contains(&name.as_str()) {
                continue;
            }
            check_property(&name, &value)?;
            properties.insert(name, value);
        }
        if properties.contains_key("CE_id") && !self.content_type.is_empty() {
            properties.insert("CE_datacontenttype".to_owned(), self.content_type.clone());
        }
        Ok(properties)
    }

    fn kind(&self, event: &Event) -> Result<Kind, String> {
        match self.message_type {
            MessageType::Normal => Ok(Kind::Normal),
            MessageType::Fifo => Ok(Kind::Fifo { group: group(event) }),
            MessageType::Delay(delay) => {
                let created_at = event.created_at_micros.and_then(date);
                let deliver_at = created_at.and_then(|at| at.checked_add(delay)).ok_or_else(|| {
                    "created_at is missing or out of range, and the delay counts from it: fill it, or use another \
                     message_type"
                        .to_owned()
                })?;
                Ok(Kind::Delay { deliver_at })
            }
        }
    }
}

fn check_topic(topic: &str) -> Result<(), Outcome> {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"%|_-".contains(&byte);
    if (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic.bytes().all(valid) {
        return Ok(());
    }
    let code = u16::try_from(Code::ILLEGAL_TOPIC.number()).unwrap_or(u16::MAX);
    let text = format!(
        "the route key is the topic, and this is no name for one: use 1 to {TOPIC_BYTES_MAX} letters, digits, _ and -"
    );
    Err(Outcome::Unroutable { code, text })
}

/// Control characters separate a message's properties inside the broker.
pub(in crate::rocketmq) fn check_characters(field: &str, text: &str) -> Result<(), String> {
    if text.chars().any(char::is_control) {
        return Err(format!("{field} has a control character, which RocketMQ refuses: remove it"));
    }
    Ok(())
}

pub(in crate::rocketmq) fn check_property(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a header has an empty name: name it".to_owned());
    }
    if name.chars().chain(value.chars()).any(char::is_control) {
        let name: String = name.escape_debug().take(40).collect();
        return Err(format!(
            "header \"{name}\" has a control character in its name or value, which RocketMQ refuses: remove it"
        ));
    }
    if property::is_reserved(name) {
        return Err(format!("header {name:?} has a meaning of its own in RocketMQ: give it another name"));
    }
    Ok(())
}

pub(in crate::rocketmq) fn check_size(
    properties: &BTreeMap<String, String>,
    tag: Option<&str>,
    keys: &[String],
) -> Result<(), String> {
    if properties.len() > PROPERTIES_MAX {
        return Err(format!(
            "the event makes {} user properties, RocketMQ takes at most {PROPERTIES_MAX}: write fewer headers",
            properties.len()
        ));
    }
    let named: usize = properties.iter().map(|(name, value)| name.len() + value.len()).sum();
    let bytes = named + tag.map_or(0, str::len) + keys.iter().map(String::len).sum::<usize>();
    if bytes > PROPERTIES_BYTES_MAX {
        return Err(format!(
            "headers, event_type and keys have {bytes} bytes together, RocketMQ takes at most {PROPERTIES_BYTES_MAX}: \
             shorten the headers"
        ));
    }
    Ok(())
}

/// The tag, and whether the type must be spelled out in a property because it cannot be one: a `|` separates tags in a
/// subscription, which also trims them, and `*` means all of them there.
pub(in crate::rocketmq) fn tag(event_type: &str) -> (Option<String>, bool) {
    if event_type.is_empty() {
        return (None, false);
    }
    if event_type.contains('|') || event_type == "*" || event_type.trim() != event_type {
        return (None, true);
    }
    (Some(event_type.to_owned()), false)
}

/// Event id and business key, by which the broker's index finds the message.
fn keys(event: &Event) -> Vec<String> {
    let mut keys = vec![key(event.id.as_str())];
    let business_key = event.business_key.as_deref().filter(|key| !key.is_empty()).map(key);
    keys.extend(business_key.filter(|key| *key != keys[0]));
    keys
}

/// Spaces separate keys in the broker, so that white space is written as in a URL, and so is the percent sign.
pub(in crate::rocketmq) fn key(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    for character in text.chars() {
        if character == '%' || character.is_whitespace() || character.is_control() {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                write!(key, "%{byte:02X}").expect("a string takes everything");
            }
        } else {
            key.push(character);
        }
    }
    key
}

/// The message group: the aggregate. An event without one has a group of its own.
fn group(event: &Event) -> String {
    let aggregate = &event.aggregate;
    let id = aggregate.id.as_deref().filter(|id| !id.is_empty());
    let group = match (aggregate.kind.as_deref().filter(|kind| !kind.is_empty()), id) {
        (Some(kind), Some(id)) => format!("{kind}:{id}"),
        (None, Some(id)) => id.to_owned(),
        (_, None) => event.id.as_str().to_owned(),
    };
    let plain = group.len() < GROUP_BYTES_END
        && !group.chars().all(char::is_whitespace)
        && !group.chars().any(char::is_control);
    if plain { group } else { digest(&group) }
}

/// A name for a group whose own the proxy refuses. Two groups of one name would only wait for each other.
fn digest(group: &str) -> String {
    let digest = Sha256::digest(group.as_bytes());
    let mut name = "sha256:".to_owned();
    for byte in digest.iter().take(20) {
        write!(name, "{byte:02x}").expect("a string takes everything");
    }
    name
}

fn date(micros: i64) -> Option<SystemTime> {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(micros).ok()?))
}

#[cfg(test)]
mod tests;
