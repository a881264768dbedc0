//! Messages as a broker stores them, in the bytes of its commit log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};

/// The first number of a message with a short topic name.
const MAGIC: u32 = 0xdaa3_20a7;
/// The first number of a message with a topic name of more than 127 bytes.
const MAGIC_LONG_TOPIC: u32 = 0xdaa3_20ab;

const COMPRESSED: u32 = 1;
const BORN_HOST_V6: u32 = 1 << 4;
const STORE_HOST_V6: u32 = 1 << 5;

/// The names that RocketMQ keeps for itself, sorted.
const SYSTEM_PROPERTIES: [&str; 61] = [
    "1ST_POP_TIME",
    "ARRIVE_TIME",
    "BORN_TIMESTAMP",
    "BUYER_ID",
    "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "CLUSTER",
    "CONSUME_START_TIME",
    "CORRECTION_FLAG",
    "CORRELATION_ID",
    "DELAY",
    "DLQ_ORIGIN_MESSAGE_ID",
    "DLQ_ORIGIN_TOPIC",
    "DUP_INFO",
    "EXTEND_UNIQ_INFO",
    "INNER_BASE",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INSTANCE_ID",
    "KEYS",
    "MAX_OFFSET",
    "MAX_RECONSUME_TIMES",
    "MIN_OFFSET",
    "MQ2_FLAG",
    "MSG_REGION",
    "MSG_TYPE",
    "ORIGIN_MESSAGE_ID",
    "PGROUP",
    "POP_CK",
    "POP_CK_OFFSET",
    "PROPERTY_FORWARD_QUEUE_ID",
    "PUSH_REPLY_TIME",
    "REAL_QID",
    "REAL_TOPIC",
    "RECONSUME_TIME",
    "REDIRECT",
    "REPLY_TO_CLIENT",
    "RETRY_TOPIC",
    "TAGS",
    "TIMER_DELAY_LEVEL",
    "TIMER_DELAY_MS",
    "TIMER_DELAY_SEC",
    "TIMER_DELIVER_MS",
    "TIMER_DEL_UNIQKEY",
    "TIMER_DEQUEUE_MS",
    "TIMER_ENQUEUE_MS",
    "TIMER_OUT_MS",
    "TIMER_ROLL_TIMES",
    "TRACE_CONTEXT",
    "TRACE_ON",
    "TRANSACTION_CHECK_TIMES",
    "TRANSFER_FLAG",
    "TRAN_MSG",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "TTL",
    "UNIQ_KEY",
    "WAIT",
    "__BORNHOST",
    "__CRC32#",
    "__SHARDINGKEY",
    "__transactionId__",
];

/// Whether RocketMQ keeps this name of a property for itself. Not all of them are refused by a proxy: some would make
/// another message of it.
pub fn is_system_property(name: &str) -> bool {
    SYSTEM_PROPERTIES.binary_search(&name).is_ok() || name.starts_with("__RMQ.TRANSIENT.")
}

/// A stored message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The topic it is stored in; a system topic for half and discarded messages.
    pub topic: String,
    /// The queue it is stored in.
    pub queue_id: u32,
    /// Its place in the queue.
    pub queue_offset: u64,
    /// Its place in the broker's commit log.
    pub log_offset: u64,
    /// When its producer made it, by the producer's clock.
    pub born_at: SystemTime,
    /// When the broker stored it, by the broker's clock.
    pub stored_at: SystemTime,
    /// The broker that stored it.
    pub store_host: SocketAddr,
    /// Whether the body is compressed. It is not decompressed here: consign sends bodies as they are.
    pub compressed: bool,
    /// The body.
    pub body: Bytes,
    /// The properties, the system's own among them.
    pub properties: BTreeMap<String, String>,
}

impl StoredMessage {
    /// The id its producer gave it, the same for all copies.
    pub fn message_id(&self) -> Option<&str> {
        self.property("UNIQ_KEY")
    }

    /// The id of this copy: where it is stored.
    pub fn copy_id(&self) -> String {
        let address: Vec<u8> = match self.store_host.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let port = u32::from(self.store_host.port()).to_be_bytes();
        let bytes = address.into_iter().chain(port).chain(self.log_offset.to_be_bytes());
        bytes.fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02X}").expect("a text takes what is written to it");
            text
        })
    }

    /// The topic that its producer named, when it is stored in a system topic.
    pub fn real_topic(&self) -> Option<&str> {
        self.property("REAL_TOPIC")
    }

    /// Its tag.
    pub fn tag(&self) -> Option<&str> {
        self.property("TAGS")
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.property("KEYS").unwrap_or_default().split(' ').filter(|key| !key.is_empty())
    }

    /// The producer group of a half message; over the proxy it is the topic.
    pub fn producer_group(&self) -> Option<&str> {
        self.property("PGROUP")
    }

    /// How often the producer was asked about this half message.
    pub fn checks(&self) -> u32 {
        self.property("TRANSACTION_CHECK_TIMES").and_then(|times| times.parse().ok()).unwrap_or(0)
    }

    /// The properties that its producer set, without those of RocketMQ itself.
    pub fn user_properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| !is_system_property(name))
    }

    /// A property by its name.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.properties.get(name).map(String::as_str)
    }

    /// All messages in the body of an answer.
    ///
    /// # Errors
    /// What does not fit, in words. Never contains payloads.
    pub(super) fn decode_all(mut bytes: Bytes) -> Result<Vec<Self>, String> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let length = bytes.clone().try_get_u32().map_err(|_| "a message without a length".to_owned())?;
            let length = usize::try_from(length).map_err(|_| "a message longer than memory".to_owned())?;
            if length < 4 || length > bytes.len() {
                return Err(format!("a message of {length} bytes in {} bytes", bytes.len()));
            }
            let number = messages.len();
            let message = bytes.split_to(length);
            messages.push(decode(message).map_err(|reason| format!("message {number}: {reason}"))?);
        }
        Ok(messages)
    }
}

fn decode(mut bytes: Bytes) -> Result<StoredMessage, String> {
    read(&mut bytes).map_err(|error| match error {
        Malformed::Short => "it ends too early".to_owned(),
        Malformed::Value(reason) => reason,
    })
}

enum Malformed {
    Short,
    Value(String),
}

impl From<bytes::TryGetError> for Malformed {
    fn from(_: bytes::TryGetError) -> Self {
        Self::Short
    }
}

fn read(bytes: &mut Bytes) -> Result<StoredMessage, Malformed> {
    let _total = bytes.try_get_u32()?;
    let magic = bytes.try_get_u32()?;
    if magic != MAGIC && magic != MAGIC_LONG_TOPIC {
        return Err(Malformed::Value(format!("it begins with {magic:#x}, which no message does")));
    }
    let _body_checksum = bytes.try_get_u32()?;
    let queue_id = bytes.try_get_u32()?;
    let _user_flag = bytes.try_get_u32()?;
    let queue_offset = bytes.try_get_u64()?;
    let log_offset = bytes.try_get_u64()?;
    let flags = bytes.try_get_u32()?;
    let born_at = date(bytes.try_get_u64()?)?;
    let _born_host = host(bytes, flags & BORN_HOST_V6 != 0)?;
    let stored_at = date(bytes.try_get_u64()?)?;
    let store_host = host(bytes, flags & STORE_HOST_V6 != 0)?;
    let _consumed_again = bytes.try_get_u32()?;
    let _half_offset = bytes.try_get_u64()?;
    let body_length = bytes.try_get_u32()?;
    let body = piece(bytes, body_length)?;
    let topic_length =
        if magic == MAGIC { u32::from(bytes.try_get_u8()?) } else { u32::from(bytes.try_get_u16()?) };
    let topic = text(piece(bytes, topic_length)?, "topic")?;
    let properties_length = u32::from(bytes.try_get_u16()?);
    let properties = text(piece(bytes, properties_length)?, "properties")?;
    Ok(StoredMessage {
        topic,
        queue_id,
        queue_offset,
        log_offset,
        born_at,
        stored_at,
        store_host,
        compressed: flags & COMPRESSED != 0,
        body,
        properties: split_properties(&properties),
    })
}

fn date(milliseconds: u64) -> Result<SystemTime, Malformed> {
    SystemTime::UNIX_EPOCH
        .checked_add(Duration::from_millis(milliseconds))
        .ok_or_else(|| Malformed::Value(format!("{milliseconds} milliseconds are no date")))
}

fn host(bytes: &mut Bytes, v6: bool) -> Result<SocketAddr, Malformed> {
    let address: IpAddr = if v6 {
        Ipv6Addr::from(bytes.try_get_u128()?).into()
    } else {
        Ipv4Addr::from(bytes.try_get_u32()?).into()
    };
    let port = bytes.try_get_u32()?;
    let port = u16::try_from(port).map_err(|_| Malformed::Value(format!("{port} is no port")))?;
    Ok(SocketAddr::new(address, port))
}

fn piece(bytes: &mut Bytes, length: u32) -> Result<Bytes, Malformed> {
    let length = usize::try_from(length).map_err(|_| Malformed::Short)?;
    if length > bytes.len() {
        return Err(Malformed::Short);
    }
    Ok(bytes.split_to(length))
}

fn text(bytes: Bytes, what: &str) -> Result<String, Malformed> {
    String::from_utf8(bytes.into()).map_err(|_| Malformed::Value(format!("the {what} are not UTF-8")))
}

/// Names end with byte 1, values with byte 2; the last value may be unended.
fn split_properties(text: &str) -> BTreeMap<String, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('\u{1}')?;
        Some((name.to_owned(), value.to_owned()))
    };
    text.split('\u{2}').filter_map(pair).collect()
}

#[cfg(test)]
pub(super) mod tests;
