//! Frames this side sends.

use bytes::{BufMut, Bytes, BytesMut};

use crate::method::{self, MethodId};
use crate::properties::Properties;
use crate::table::FieldTable;
use crate::wire::{TooLong, put_long, put_short, put_table};

pub(crate) const FRAME_METHOD: u8 = 1;
pub(crate) const FRAME_HEADER: u8 = 2;
pub(crate) const FRAME_BODY: u8 = 3;
pub(crate) const FRAME_HEARTBEAT: u8 = 8;
pub(crate) const FRAME_END: u8 = 0xCE;
/// Bytes of a frame that are not payload: seven in front, one behind.
pub(crate) const FRAME_OVERHEAD: usize = 8;
/// Greeting of the protocol.
pub(crate) const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
/// The whole heartbeat frame.
pub(crate) const HEARTBEAT: &[u8] = &[FRAME_HEARTBEAT, 0, 0, 0, 0, 0, 0, FRAME_END];

/// Bodies up to this size are copied behind their header; larger ones are chained without a copy.
const COPY_LIMIT: usize = 16 * 1024;

type Written = Result<(), TooLong>;

/// Builds one method frame.
pub(crate) fn method_frame(
    channel: u16,
    id: MethodId,
    write: impl FnOnce(&mut BytesMut) -> Written,
) -> Result<Bytes, TooLong> {
    let mut buffer = BytesMut::with_capacity(64);
    put_frame(&mut buffer, FRAME_METHOD, channel, |buffer| {
        buffer.put_u16(id.class);
        buffer.put_u16(id.method);
        write(buffer)
    })?;
    Ok(buffer.freeze())
}

/// A method without arguments.
pub(crate) fn bare_method(channel: u16, id: MethodId) -> Bytes {
    fixed_method(channel, id, &[])
}

/// A method whose arguments are already encoded and of a size that always fits.
pub(crate) fn fixed_method(channel: u16, id: MethodId, arguments: &[u8]) -> Bytes {
    method_frame(channel, id, |buffer| {
        buffer.put_slice(arguments);
        Ok(())
    })
    .expect("no argument of this method has a length limit")
}

fn put_frame(
    buffer: &mut BytesMut,
    kind: u8,
    channel: u16,
    write: impl FnOnce(&mut BytesMut) -> Written,
) -> Written {
    buffer.put_u8(kind);
    buffer.put_u16(channel);
    let length_at = buffer.len();
    buffer.put_u32(0);
    write(buffer)?;
    let length = buffer.len() - length_at - 4;
    let limit = u32::MAX as usize;
    let length = u32::try_from(length).map_err(|_| TooLong { field: "a frame", length, limit })?;
    buffer[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
    buffer.put_u8(FRAME_END);
    Ok(())
}

/// The longest start of `text` that fits a short string.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(255)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// `connection.close` or `channel.close` (by `id`) with a reason cut to what fits.
pub(crate) fn close(channel: u16, id: MethodId, code: u16, text: &str) -> Bytes {
    method_frame(channel, id, |buffer| {
        buffer.put_u16(code);
        put_short(buffer, "a reply text", cut(text))?;
        buffer.put_u32(0);
        Ok(())
    })
    .expect("the text was cut to what fits")
}

/// The answer to a cancel from the server.
pub(crate) fn cancel_ok(channel: u16, consumer_tag: &str) -> Bytes {
    let write = |buffer: &mut BytesMut| put_short(buffer, "consumer_tag", cut(consumer_tag));
    method_frame(channel, method::BASIC_CANCEL_OK, write).expect("the tag was cut to what fits")
}

/// Appends `basic.ack` of one delivery or, with `multiple`, of all up to it.
pub(crate) fn put_ack(buffer: &mut BytesMut, channel: u16, tag: u64, multiple: bool) {
    put_frame(buffer, FRAME_METHOD, channel, |buffer| {
        buffer.put_u16(method::BASIC_ACK.class);
        buffer.put_u16(method::BASIC_ACK.method);
        buffer.put_u64(tag);
        buffer.put_u8(u8::from(multiple));
        Ok(())
    })
    .expect("no argument of this method has a length limit");
}

/// `basic.nack` or `basic.reject` of one delivery.
pub(crate) fn give_back(channel: u16, id: MethodId, tag: u64, requeue: bool) -> Bytes {
    let mut arguments = BytesMut::with_capacity(9);
    arguments.put_u64(tag);
    // Bits share an octet: reject has `requeue`, nack has `multiple, requeue`.
    arguments.put_u8(if id == method::BASIC_NACK { u8::from(requeue) << 1 } else { u8::from(requeue) });
    fixed_method(channel, id, &arguments)
}

/// `basic.nack` for this delivery and all before it, back to the queue.
pub(crate) fn return_up_to(channel: u16, tag: u64) -> Bytes {
    const MULTIPLE: u8 = 1;
    const REQUEUE: u8 = 1 << 1;
    let mut arguments = BytesMut::with_capacity(9);
    arguments.put_u64(tag);
    arguments.put_u8(MULTIPLE | REQUEUE);
    fixed_method(channel, method::BASIC_NACK, &arguments)
}

/// The arguments of `connection.start-ok`.
pub(crate) fn start_ok(client: &FieldTable, mechanism: &str, response: &[u8]) -> Result<Bytes, TooLong> {
    method_frame(0, method::CONNECTION_START_OK, |buffer| {
        put_table(buffer, client)?;
        put_short(buffer, "a mechanism", mechanism)?;
        put_long(buffer, "credentials", response)?;
        put_short(buffer, "a locale", "en_US")
    })
}

/// A method whose arguments are names, flags and a table, in the shape all declarations share.
pub(crate) struct Declaration<'a> {
    pub(crate) channel: u16,
    pub(crate) id: MethodId,
    /// Short strings in order, after the reserved short.
    pub(crate) names: &'a [(&'static str, &'a str)],
    /// Bits in order; `None` when the method has none.
    pub(crate) flags: Option<&'a [bool]>,
    /// The arguments; `None` when the method has none.
    pub(crate) arguments: Option<&'a FieldTable>,
}

impl Declaration<'_> {
    pub(crate) fn encode(&self) -> Result<Bytes, TooLong> {
        method_frame(self.channel, self.id, |buffer| {
            buffer.put_u16(0);
            for (field, name) in self.names {
                put_short(buffer, field, name)?;
            }
            if let Some(flags) = self.flags {
                let bits = flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag));
                buffer.put_u8(bits);
            }
            match self.arguments {
                Some(arguments) => put_table(buffer, arguments),
                None => Ok(()),
            }
        })
    }
}

/// A message ready for the wire: the first bytes, then the parts that are not copied.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) head: Bytes,
    pub(crate) rest: Vec<Bytes>,
}

/// Why a message cannot be framed: it is the message's own fault.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unframeable {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error("the properties take {length} bytes, a header frame of this connection holds {limit}")]
    Header { length: usize, limit: usize },
}

/// Frames of `basic.publish` with the mandatory flag, content header and body.
pub(crate) fn publish(
    channel: u16,
    frame_max: usize,
    exchange: &str,
    routing_key: &str,
    properties: &Properties,
    body: &Bytes,
) -> Result<Frames, Unframeable> {
    let payload_max = frame_max - FRAME_OVERHEAD;
    let inline = body.len() <= COPY_LIMIT.min(payload_max);
    let mut head = BytesMut::with_capacity(256 + if inline { body.len() } else { 0 });
    put_frame(&mut head, FRAME_METHOD, channel, |buffer| {
        buffer.put_u16(method::BASIC_PUBLISH.class);
        buffer.put_u16(method::BASIC_PUBLISH.method);
        buffer.put_u16(0);
        put_short(buffer, "exchange", exchange)?;
        put_short(buffer, "routing_key", routing_key)?;
        buffer.put_u8(1);
        Ok(())
    })?;
    let header_at = head.len();
    put_frame(&mut head, FRAME_HEADER, channel, |buffer| {
        buffer.put_u16(method::BASIC_PUBLISH.class);
        buffer.put_u16(0);
        buffer.put_u64(body.len() as u64);
        properties.encode(buffer)
    })?;
    let header = head.len() - header_at - FRAME_OVERHEAD;
    if header > payload_max {
        return Err(Unframeable::Header { length: header, limit: payload_max });
    }
    if inline {
        if !body.is_empty() {
            put_frame(&mut head, FRAME_BODY, channel, |buffer| {
                buffer.put_slice(body);
                Ok(())
            })?;
        }
        return Ok(Frames { head: head.freeze(), rest: Vec::new() });
    }
    Ok(chain_body(channel, payload_max, head, body))
}

/// Splits a body at the frame limit; its bytes are shared, not copied.
fn chain_body(channel: u16, payload_max: usize, mut head: BytesMut, body: &Bytes) -> Frames {
    let parts = body.len().div_ceil(payload_max);
    let mut rest = Vec::with_capacity(parts * 2);
    let mut separators = BytesMut::with_capacity(parts * FRAME_OVERHEAD);
    for (index, start) in (0..body.len()).step_by(payload_max).enumerate() {
        let end = body.len().min(start + payload_max);
        let target = if index == 0 { &mut head } else { &mut separators };
        target.put_u8(FRAME_BODY);
        target.put_u16(channel);
        target.put_u32(u32::try_from(end - start).expect("a frame is at most u32::MAX bytes long"));
        if index > 0 {
            rest.push(separators.split().freeze());
        }
        rest.push(body.slice(start..end));
        separators.put_u8(FRAME_END);
    }
    rest.push(separators.freeze());
    Frames { head: head.freeze(), rest }
}
