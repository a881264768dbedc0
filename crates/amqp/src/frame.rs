//! Cutting the byte stream into frames.

use bytes::{Buf, Bytes, BytesMut};

use crate::request::{FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD, FRAME_OVERHEAD};

/// A breach of the protocol that ends the connection, with the AMQP reply code for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fatal {
    pub(crate) code: u16,
    pub(crate) text: String,
}

impl Fatal {
    /// 501: a frame that is malformed.
    pub(crate) fn frame(text: impl Into<String>) -> Self {
        Self { code: 501, text: text.into() }
    }

    /// 502: a method whose arguments do not decode.
    pub(crate) fn syntax(text: impl Into<String>) -> Self {
        Self { code: 502, text: text.into() }
    }

    /// 505: a frame that has no place here.
    pub(crate) fn unexpected(text: impl Into<String>) -> Self {
        Self { code: 505, text: text.into() }
    }
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Method,
    Header,
    Body,
    Heartbeat,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: FrameKind,
    pub(crate) channel: u16,
    pub(crate) payload: Bytes,
}

/// Takes the first frame off `buffer`, if it is complete. `frame_max` counts the whole frame.
pub(crate) fn decode(buffer: &mut BytesMut, frame_max: usize) -> Result<Option<Frame>, Fatal> {
    let Some((header, _)) = buffer.split_first_chunk::<7>() else {
        return Ok(None);
    };
    let kind = match header[0] {
        FRAME_METHOD => FrameKind::Method,
        FRAME_HEADER => FrameKind::Header,
        FRAME_BODY => FrameKind::Body,
        FRAME_HEARTBEAT => FrameKind::Heartbeat,
        other => return Err(Fatal::frame(format!("frame type {other} is unknown"))),
    };
    let channel = u16::from_be_bytes([header[1], header[2]]);
    let length = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
    let total = length.saturating_add(FRAME_OVERHEAD);
    if total > frame_max {
        return Err(Fatal::frame(format!("a frame takes {total} bytes, agreed are {frame_max}")));
    }
    if buffer.len() < total {
        buffer.reserve(total - buffer.len());
        return Ok(None);
    }
    let mut frame = buffer.split_to(total);
    if frame[total - 1] != FRAME_END {
        return Err(Fatal::frame("a frame does not end with its end mark"));
    }
    frame.advance(7);
    frame.truncate(length);
    Ok(Some(Frame { kind, channel, payload: frame.freeze() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::HEARTBEAT;

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let mut buffer = BytesMut::new();
        let wire = [HEARTBEAT, &[3, 0, 7, 0, 0, 0, 2, b'h', b'i', FRAME_END], HEARTBEAT].concat();
        let mut frames = Vec::new();
        for byte in wire {
            buffer.extend_from_slice(&[byte]);
            while let Some(frame) = decode(&mut buffer, 4096).unwrap() {
                frames.push((frame.kind, frame.channel, frame.payload));
            }
        }
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[1], (FrameKind::Body, 7, Bytes::from_static(b"hi")));
        assert!(buffer.is_empty());
    }

    #[test]
    fn wrong_frames_are_refused() {
        let code = |bytes: &[u8]| decode(&mut BytesMut::from(bytes), 4096).unwrap_err().code;
        assert_eq!(code(&[4, 0, 0, 0, 0, 0, 0, FRAME_END]), 501);
        assert_eq!(code(&[1, 0, 0, 0, 0, 0, 0, 0xCD]), 501);
        assert_eq!(code(&[3, 0, 1, 0, 0, 0x10, 0]), 501, "4096 bytes of payload need a frame of 4104");
        assert_eq!(code(&[3, 0, 1, 0xff, 0xff, 0xff, 0xff]), 501);
        assert_eq!(code(b"AMQP\x00\x00\x09\x01"), 501);
    }
}
