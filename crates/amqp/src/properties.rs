//! The basic content properties of a message.

use bytes::{BufMut, Bytes, BytesMut};

use crate::table::FieldTable;
use crate::wire::{Reader, TooLong, WireError, put_short, put_table};

const CONTENT_TYPE: u16 = 1 << 15;
const CONTENT_ENCODING: u16 = 1 << 14;
const HEADERS: u16 = 1 << 13;
const DELIVERY_MODE: u16 = 1 << 12;
const PRIORITY: u16 = 1 << 11;
const CORRELATION_ID: u16 = 1 << 10;
const REPLY_TO: u16 = 1 << 9;
const EXPIRATION: u16 = 1 << 8;
const MESSAGE_ID: u16 = 1 << 7;
const TIMESTAMP: u16 = 1 << 6;
const KIND: u16 = 1 << 5;
const USER_ID: u16 = 1 << 4;
const APP_ID: u16 = 1 << 3;
const CLUSTER_ID: u16 = 1 << 2;

/// The standard properties of a message. Texts are at most 255 bytes each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties {
    /// MIME type of the body.
    pub content_type: Option<String>,
    /// Encoding of the body, such as `gzip`.
    pub content_encoding: Option<String>,
    /// Application headers; an empty table is not sent.
    pub headers: FieldTable,
    /// 1 is transient, 2 is persistent.
    pub delivery_mode: Option<u8>,
    /// Priority within a priority queue.
    pub priority: Option<u8>,
    /// Identifier of the request this message answers.
    pub correlation_id: Option<String>,
    /// Queue for answers.
    pub reply_to: Option<String>,
    /// Time to live in milliseconds, as decimal text.
    pub expiration: Option<String>,
    /// Identifier of the message; returns are paired with publishes by it.
    pub message_id: Option<String>,
    /// Seconds since the Unix epoch.
    pub timestamp: Option<u64>,
    /// The `type` property.
    pub kind: Option<String>,
    /// Name of the publishing user; the broker checks it.
    pub user_id: Option<String>,
    /// Name of the publishing application.
    pub app_id: Option<String>,
}

/// Properties of one delivery that do not decode; the connection is not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the properties of the delivery do not decode: {reason}")]
pub struct UndecodableProperties {
    /// What is wrong with the bytes.
    pub reason: String,
    /// The property flags and the property list as they came.
    pub raw: Bytes,
}

impl Properties {
    pub(crate) fn encode(&self, buffer: &mut BytesMut) -> Result<(), TooLong> {
        let flags_at = buffer.len();
        buffer.put_u16(0);
        let mut flags = 0;
        let mut text = |buffer: &mut BytesMut, flag: u16, field: &'static str, value: &Option<String>| {
            let Some(value) = value else { return Ok(()) };
            flags |= flag;
            put_short(buffer, field, value)
        };
        text(buffer, CONTENT_TYPE, "content_type", &self.content_type)?;
        text(buffer, CONTENT_ENCODING, "content_encoding", &self.content_encoding)?;
        if !self.headers.is_empty() {
            put_table(buffer, &self.headers)?;
        }
        if let Some(mode) = self.delivery_mode {
            buffer.put_u8(mode);
        }
        if let Some(priority) = self.priority {
            buffer.put_u8(priority);
        }
        text(buffer, CORRELATION_ID, "correlation_id", &self.correlation_id)?;
        text(buffer, REPLY_TO, "reply_to", &self.reply_to)?;
        text(buffer, EXPIRATION, "expiration", &self.expiration)?;
        text(buffer, MESSAGE_ID, "message_id", &self.message_id)?;
        if let Some(timestamp) = self.timestamp {
            buffer.put_u64(timestamp);
        }
        text(buffer, KIND, "type", &self.kind)?;
        text(buffer, USER_ID, "user_id", &self.user_id)?;
        text(buffer, APP_ID, "app_id", &self.app_id)?;
        for (present, flag) in [
            (!self.headers.is_empty(), HEADERS),
            (self.delivery_mode.is_some(), DELIVERY_MODE),
            (self.priority.is_some(), PRIORITY),
            (self.timestamp.is_some(), TIMESTAMP),
        ] {
            if present {
                flags |= flag;
            }
        }
        buffer[flags_at..flags_at + 2].copy_from_slice(&flags.to_be_bytes());
        Ok(())
    }

    /// Decodes property flags and list.
    pub(crate) fn decode(raw: &Bytes) -> Result<Self, UndecodableProperties> {
        Self::parse(raw)
            .map_err(|error| UndecodableProperties { reason: error.to_string(), raw: raw.clone() })
    }

    fn parse(raw: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(raw);
        let flags = read_flags(&mut reader)?;
        let has = |flag: u16| flags & flag != 0;
        let text = |reader: &mut Reader<'_>, flag| has(flag).then(|| reader.short()).transpose();
        let mut properties = Self {
            content_type: text(&mut reader, CONTENT_TYPE)?,
            content_encoding: text(&mut reader, CONTENT_ENCODING)?,
            ..Self::default()
        };
        if has(HEADERS) {
            properties.headers = reader.table()?;
        }
        properties.delivery_mode = has(DELIVERY_MODE).then(|| reader.u8()).transpose()?;
        properties.priority = has(PRIORITY).then(|| reader.u8()).transpose()?;
        properties.correlation_id = text(&mut reader, CORRELATION_ID)?;
        properties.reply_to = text(&mut reader, REPLY_TO)?;
        properties.expiration = text(&mut reader, EXPIRATION)?;
        properties.message_id = text(&mut reader, MESSAGE_ID)?;
        properties.timestamp = has(TIMESTAMP).then(|| reader.u64()).transpose()?;
        properties.kind = text(&mut reader, KIND)?;
        properties.user_id = text(&mut reader, USER_ID)?;
        properties.app_id = text(&mut reader, APP_ID)?;
        // Reserved by the protocol, once called the cluster id: read so that the end can be checked.
        text(&mut reader, CLUSTER_ID)?;
        if !reader.is_empty() {
            return Err(WireError::Other("bytes follow the last property"));
        }
        Ok(properties)
    }

    /// The message id alone, read past a header table whose content may not decode.
    ///
    /// A return must be paired even when a field type in its headers is unknown here.
    pub(crate) fn message_id_of(raw: &[u8]) -> Result<Option<String>, WireError> {
        let mut reader = Reader::new(raw);
        let flags = read_flags(&mut reader)?;
        for flag in [CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY] {
            if flags & flag != 0 {
                match flag {
                    HEADERS => drop(reader.long_bytes("a table")?),
                    DELIVERY_MODE | PRIORITY => drop(reader.u8()?),
                    _ => drop(reader.short_bytes()?),
                }
            }
        }
        for flag in [CORRELATION_ID, REPLY_TO, EXPIRATION] {
            if flags & flag != 0 {
                reader.short_bytes()?;
            }
        }
        if flags & MESSAGE_ID == 0 {
            return Ok(None);
        }
        reader.short().map(Some)
    }
}

/// The flag word; AMQP allows further words, which the basic class does not define.
fn read_flags(reader: &mut Reader<'_>) -> Result<u16, WireError> {
    let flags = reader.u16()?;
    if flags & 0b11 != 0 {
        return Err(WireError::Other("a property flag is unknown"));
    }
    Ok(flags)
}

#[cfg(test)]
mod tests;
