//! What is sent under a transaction: the message, its key, and whose markers decide about it.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::event::{EventId, Headers, InvalidEvent, NAME_BYTES_MAX};

/// The header that names the marker store a message belongs to.
pub const STORE_HEADER: &str = "consign-marker-store";
/// The header that says when the transaction began: microseconds since the Unix epoch, by the store's clock.
pub const BEGUN_HEADER: &str = "consign-begun-at";

/// The key of one transaction: its marker's primary key, and the message id of every copy of its message.
///
/// It is drawn for each attempt. An event that is sent again after a rollback gets another one, since a rollback marker
/// is there for good.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionKey(Box<str>);

impl TransactionKey {
    /// Makes a key in the form RocketMQ's own tools read: version 1, eight bytes for the producer, seconds since the beginning
    /// of 2021, a number; 34 hexadecimal digits. It is unique when `producer` is random and `number` counts: the seconds
    /// are for tools alone, and let the keys of a producer ascend, so that markers are inserted beside each other.
    pub fn draw(producer: [u8; 8], seconds: u32, number: u32) -> Self {
        use std::fmt::Write;
        let bytes = [1].into_iter().chain(producer).chain(seconds.to_be_bytes()).chain(number.to_be_bytes());
        let text = bytes.fold(String::with_capacity(34), |mut text, byte| {
            let _ = write!(text, "{byte:02X}");
            text
        });
        Self(text.into())
    }

    /// Takes a key as a broker or a store gives it.
    ///
    /// # Errors
    /// The key is empty or longer than [`NAME_BYTES_MAX`] bytes.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        Ok(Self(EventId::new(text)?.as_str().into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TransactionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for TransactionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TransactionKey({:?})", &self.0)
    }
}

/// The name of a marker store: the same for everybody who sees the same table, and for nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreName(Box<str>);

/// A name no marker store can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("marker store name {0:?} does not do: use 1 to 64 of a-z, A-Z, 0-9, '-', '_', '.' and ':'")]
pub struct InvalidStoreName(pub String);

impl StoreName {
    const BYTES_MAX: usize = 64;

    /// Takes a name.
    ///
    /// # Errors
    /// It is empty, too long, or holds characters that not every property takes.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, InvalidStoreName> {
        let text = text.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if text.is_empty() || text.len() > Self::BYTES_MAX || !text.bytes().all(plain) {
            return Err(InvalidStoreName(text.into()));
        }
        Ok(Self(text))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A message on its way into a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionMessage {
    /// The topic consumers read.
    pub topic: String,
    /// The event's id when it has one of its own; otherwise the transaction's key is its id.
    pub event_id: Option<EventId>,
    /// The event's type.
    pub event_type: String,
    /// The business key consumers deduplicate by.
    pub business_key: Option<String>,
    /// Headers to carry, such as the trace context.
    pub headers: Headers,
    /// The payload.
    pub payload: Bytes,
}

/// A message that cannot be sent under a transaction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// A field is empty.
    #[error("{0} is empty: a transaction message needs one")]
    Empty(&'static str),
    /// A field is too long.
    #[error("{field} has {bytes} bytes: shorten it to at most {NAME_BYTES_MAX}")]
    TooLong {
        /// The field.
        field: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A header has a name that consign uses itself, or one twice.
    #[error("header {0:?} is taken: name it otherwise")]
    HeaderTaken(String),
}

impl TransactionMessage {
    /// An event of `event_type` for `topic`.
    pub fn new(topic: impl Into<String>, event_type: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            event_id: None,
            event_type: event_type.into(),
            business_key: None,
            headers: Headers::new(),
            payload: payload.into(),
        }
    }

    /// The same message under an event id.
    #[must_use]
    pub fn with_event_id(mut self, id: EventId) -> Self {
        self.event_id = Some(id);
        self
    }

    /// The same message with a business key.
    #[must_use]
    pub fn with_business_key(mut self, key: impl Into<String>) -> Self {
        self.business_key = Some(key.into());
        self
    }

    /// The same message with one more header.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Checks what the marker table and every broker need.
    ///
    /// # Errors
    /// Names the field.
    pub fn check(&self) -> Result<(), InvalidMessage> {
        if self.topic.is_empty() {
            return Err(InvalidMessage::Empty("topic"));
        }
        let business_key = self.business_key.as_deref().unwrap_or_default();
        for (field, text) in
            [("topic", &*self.topic), ("event_type", &self.event_type), ("business_key", business_key)]
        {
            if text.len() > NAME_BYTES_MAX {
                return Err(InvalidMessage::TooLong { field, bytes: text.len() });
            }
        }
        let mut names = std::collections::BTreeSet::from([STORE_HEADER, BEGUN_HEADER]);
        match self.headers.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(InvalidMessage::HeaderTaken(name.clone())),
            None => Ok(()),
        }
    }

    /// SHA-256 of the payload, in hexadecimal digits: whether a copy is the same message.
    pub fn digest(&self) -> String {
        use std::fmt::Write;
        Sha256::digest(&self.payload).iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_form_that_the_brokers_tools_read() {
        let key = TransactionKey::draw(*b"MACHINEP", 0x0102_0304, 0x0a0b_0c0d);

        assert_eq!(key.as_str(), "014D414348494E4550010203040A0B0C0D");
        assert_eq!(key.to_string(), key.as_str());
        assert_eq!(format!("{key:?}"), r#"TransactionKey("014D414348494E4550010203040A0B0C0D")"#);
        assert_eq!(TransactionKey::new(key.as_str()), Ok(key));
        assert!(TransactionKey::new("").is_err() && TransactionKey::new("x".repeat(256)).is_err());
    }

    #[test]
    fn names_that_not_every_property_takes_are_refused() {
        assert!(StoreName::new("orders-db:3306/x").is_err());
        assert!(StoreName::new("").is_err());
        assert!(StoreName::new("a".repeat(65)).is_err());
        assert!(StoreName::new("a".repeat(64)).is_ok());
        assert_eq!(StoreName::new("orders_db.v2:a-Z").unwrap().as_str(), "orders_db.v2:a-Z");
    }

    #[test]
    fn a_message_carries_what_it_was_given_and_its_digest_is_that_of_its_payload() {
        let message = TransactionMessage::new("orders", "OrderPaid", "{}")
            .with_event_id(EventId::stored("e1"))
            .with_business_key("order:1:paid")
            .with_header("trace", "t1");

        assert_eq!((message.topic.as_str(), message.event_type.as_str()), ("orders", "OrderPaid"));
        assert_eq!(message.event_id, Some(EventId::stored("e1")));
        assert_eq!(message.business_key.as_deref(), Some("order:1:paid"));
        assert_eq!(message.headers, [("trace".to_owned(), "t1".to_owned())]);
        // printf '{}' | sha256sum
        let digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        assert_eq!(message.digest(), digest);
        assert_eq!(message.check(), Ok(()));
    }

    #[test]
    fn a_header_of_consigns_own_and_one_twice_are_refused() {
        let message = TransactionMessage::new("orders", "OrderPaid", "{}");
        let taken = |name: &str| Err(InvalidMessage::HeaderTaken(name.to_owned()));

        assert_eq!(message.check(), Ok(()));
        assert_eq!(message.clone().with_header(STORE_HEADER, "x").check(), taken(STORE_HEADER));
        assert_eq!(message.clone().with_header("a", "1").with_header("a", "2").check(), taken("a"));
        let typed = |bytes| TransactionMessage { event_type: "x".repeat(bytes), ..message.clone() };
        assert_eq!(typed(255).check(), Ok(()));
        assert_eq!(typed(256).check(), Err(InvalidMessage::TooLong { field: "event_type", bytes: 256 }));
        let nowhere = TransactionMessage { topic: String::new(), ..message.clone() };
        assert_eq!(nowhere.check(), Err(InvalidMessage::Empty("topic")));
    }
}
