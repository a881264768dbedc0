//! Methods the server may send, and the numbers of all methods in use.

use std::fmt;
use std::num::NonZeroU64;

use bytes::Bytes;

use crate::table::FieldTable;
use crate::wire::{Reader, WireError};

/// Class and method number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MethodId {
    pub(crate) class: u16,
    pub(crate) method: u16,
}

impl fmt::Display for MethodId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.class, self.method)
    }
}

macro_rules! method_ids {
    ($($name:ident = $class:literal, $method:literal;)*) => {
        $(pub(crate) const $name: MethodId = MethodId { class: $class, method: $method };)*
    };
}

method_ids! {
    CONNECTION_START = 10, 10;
    CONNECTION_START_OK = 10, 11;
    CONNECTION_TUNE = 10, 30;
    CONNECTION_TUNE_OK = 10, 31;
    CONNECTION_OPEN = 10, 40;
    CONNECTION_OPEN_OK = 10, 41;
    CONNECTION_CLOSE = 10, 50;
    CONNECTION_CLOSE_OK = 10, 51;
    CONNECTION_BLOCKED = 10, 60;
    CONNECTION_UNBLOCKED = 10, 61;
    CHANNEL_OPEN = 20, 10;
    CHANNEL_OPEN_OK = 20, 11;
    CHANNEL_FLOW = 20, 20;
    CHANNEL_FLOW_OK = 20, 21;
    CHANNEL_CLOSE = 20, 40;
    CHANNEL_CLOSE_OK = 20, 41;
    EXCHANGE_DECLARE = 40, 10;
    EXCHANGE_DECLARE_OK = 40, 11;
    EXCHANGE_DELETE = 40, 20;
    EXCHANGE_DELETE_OK = 40, 21;
    EXCHANGE_BIND = 40, 30;
    EXCHANGE_BIND_OK = 40, 31;
    EXCHANGE_UNBIND = 40, 40;
    EXCHANGE_UNBIND_OK = 40, 51;
    QUEUE_DECLARE = 50, 10;
    QUEUE_DECLARE_OK = 50, 11;
    QUEUE_BIND = 50, 20;
    QUEUE_BIND_OK = 50, 21;
    QUEUE_PURGE = 50, 30;
    QUEUE_PURGE_OK = 50, 31;
    QUEUE_DELETE = 50, 40;
    QUEUE_DELETE_OK = 50, 41;
    QUEUE_UNBIND = 50, 50;
    QUEUE_UNBIND_OK = 50, 51;
    BASIC_QOS = 60, 10;
    BASIC_QOS_OK = 60, 11;
    BASIC_CONSUME = 60, 20;
    BASIC_CONSUME_OK = 60, 21;
    BASIC_CANCEL = 60, 30;
    BASIC_CANCEL_OK = 60, 31;
    BASIC_PUBLISH = 60, 40;
    BASIC_RETURN = 60, 50;
    BASIC_DELIVER = 60, 60;
    BASIC_GET = 60, 70;
    BASIC_GET_OK = 60, 71;
    BASIC_GET_EMPTY = 60, 72;
    BASIC_ACK = 60, 80;
    BASIC_REJECT = 60, 90;
    BASIC_NACK = 60, 120;
    CONFIRM_SELECT = 85, 10;
    CONFIRM_SELECT_OK = 85, 11;
}

/// Where a delivered or fetched message comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) consumer_tag: String,
    pub(crate) tag: NonZeroU64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
}

/// A method from the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Incoming {
    Start {
        server: FieldTable,
        mechanisms: String,
    },
    Tune {
        channel_max: u16,
        frame_max: u32,
        heartbeat: u16,
    },
    ConnectionClose {
        code: u16,
        text: String,
    },
    ConnectionCloseOk,
    Blocked {
        reason: String,
    },
    Unblocked,
    Flow {
        active: bool,
    },
    ChannelClose {
        code: u16,
        text: String,
    },
    ChannelCloseOk,
    QueueDeclareOk {
        queue: String,
        messages: u32,
        consumers: u32,
    },
    /// `queue.purge-ok` and `queue.delete-ok`.
    Counted {
        id: MethodId,
        messages: u32,
    },
    ConsumeOk {
        consumer_tag: String,
    },
    Cancel {
        consumer_tag: String,
        no_wait: bool,
    },
    Return {
        code: u16,
        text: String,
    },
    Deliver(Origin),
    GetOk(Origin),
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    /// An answer whose arguments, if any, say nothing of use.
    Done(MethodId),
}

impl Incoming {
    /// Decodes the payload of a method frame.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(payload);
        let id = MethodId { class: reader.u16()?, method: reader.u16()? };
        let reader = &mut reader;
        match id.class {
            10 => Self::decode_connection(id, reader),
            20 => Self::decode_channel(id, reader),
            50 => Self::decode_queue(id, reader),
            60 => Self::decode_basic(id, reader),
            _ if matches!(
                id,
                EXCHANGE_DECLARE_OK
                    | EXCHANGE_DELETE_OK
                    | EXCHANGE_BIND_OK
                    | EXCHANGE_UNBIND_OK
                    | CONFIRM_SELECT_OK
            ) =>
            {
                Ok(Self::Done(id))
            }
            _ => Err(WireError::Other("a method is unknown")),
        }
    }

    fn decode_connection(id: MethodId, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match id {
            CONNECTION_START => {
                reader.take(2, "the protocol version")?;
                let server = reader.table()?;
                let mechanisms = reader.long_bytes("the mechanisms")?;
                Self::Start { server, mechanisms: String::from_utf8_lossy(mechanisms).into_owned() }
            }
            CONNECTION_TUNE => {
                Self::Tune { channel_max: reader.u16()?, frame_max: reader.u32()?, heartbeat: reader.u16()? }
            }
            CONNECTION_CLOSE => Self::ConnectionClose { code: reader.u16()?, text: reader.short_lossy()? },
            CONNECTION_CLOSE_OK => Self::ConnectionCloseOk,
            CONNECTION_BLOCKED => Self::Blocked { reason: reader.short_lossy()? },
            CONNECTION_UNBLOCKED => Self::Unblocked,
            CONNECTION_OPEN_OK => Self::Done(id),
            _ => return Err(WireError::Other("a connection method is unknown")),
        })
    }

    fn decode_channel(id: MethodId, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match id {
            CHANNEL_FLOW => Self::Flow { active: reader.u8()? & 1 != 0 },
            CHANNEL_CLOSE => Self::ChannelClose { code: reader.u16()?, text: reader.short_lossy()? },
            CHANNEL_CLOSE_OK => Self::ChannelCloseOk,
            CHANNEL_OPEN_OK => Self::Done(id),
            _ => return Err(WireError::Other("a channel method is unknown")),
        })
    }

    fn decode_queue(id: MethodId, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match id {
            QUEUE_DECLARE_OK => Self::QueueDeclareOk {
                queue: reader.short_lossy()?,
                messages: reader.u32()?,
                consumers: reader.u32()?,
            },
            QUEUE_PURGE_OK | QUEUE_DELETE_OK => Self::Counted { id, messages: reader.u32()? },
            QUEUE_BIND_OK | QUEUE_UNBIND_OK => Self::Done(id),
            _ => return Err(WireError::Other("a queue method is unknown")),
        })
    }

    fn decode_basic(id: MethodId, reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match id {
            BASIC_ACK => Self::Ack { tag: reader.u64()?, multiple: reader.u8()? & 1 != 0 },
            BASIC_NACK => Self::Nack { tag: reader.u64()?, multiple: reader.u8()? & 1 != 0 },
            BASIC_DELIVER => {
                let consumer_tag = reader.short_lossy()?;
                Self::Deliver(decode_origin(consumer_tag, reader)?)
            }
            BASIC_GET_OK => Self::GetOk(decode_origin(String::new(), reader)?),
            BASIC_RETURN => Self::Return { code: reader.u16()?, text: reader.short_lossy()? },
            BASIC_CONSUME_OK => Self::ConsumeOk { consumer_tag: reader.short_lossy()? },
            BASIC_CANCEL => {
                Self::Cancel { consumer_tag: reader.short_lossy()?, no_wait: reader.u8()? & 1 != 0 }
            }
            BASIC_QOS_OK | BASIC_CANCEL_OK | BASIC_GET_EMPTY => Self::Done(id),
            _ => return Err(WireError::Other("a basic method is unknown")),
        })
    }

    /// The number of the method.
    pub(crate) fn id(&self) -> MethodId {
        match self {
            Self::Start { .. } => CONNECTION_START,
            Self::Tune { .. } => CONNECTION_TUNE,
            Self::ConnectionClose { .. } => CONNECTION_CLOSE,
            Self::ConnectionCloseOk => CONNECTION_CLOSE_OK,
            Self::Blocked { .. } => CONNECTION_BLOCKED,
            Self::Unblocked => CONNECTION_UNBLOCKED,
            Self::Flow { .. } => CHANNEL_FLOW,
            Self::ChannelClose { .. } => CHANNEL_CLOSE,
            Self::ChannelCloseOk => CHANNEL_CLOSE_OK,
            Self::QueueDeclareOk { .. } => QUEUE_DECLARE_OK,
            Self::ConsumeOk { .. } => BASIC_CONSUME_OK,
            Self::Cancel { .. } => BASIC_CANCEL,
            Self::Return { .. } => BASIC_RETURN,
            Self::Deliver(_) => BASIC_DELIVER,
            Self::GetOk(_) => BASIC_GET_OK,
            Self::Ack { .. } => BASIC_ACK,
            Self::Nack { .. } => BASIC_NACK,
            Self::Counted { id, .. } | Self::Done(id) => *id,
        }
    }
}

fn decode_origin(consumer_tag: String, reader: &mut Reader<'_>) -> Result<Origin, WireError> {
    Ok(Origin {
        consumer_tag,
        tag: NonZeroU64::new(reader.u64()?).ok_or(WireError::Other("a delivery tag is zero"))?,
        redelivered: reader.u8()? & 1 != 0,
        exchange: reader.short_lossy()?,
        routing_key: reader.short_lossy()?,
    })
}

/// A message that came in: the raw property flags and list, and the body.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) properties: Bytes,
    pub(crate) body: Bytes,
}
