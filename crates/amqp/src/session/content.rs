//! Putting a message together from its header and body frames.

use bytes::{Buf, Bytes, BytesMut};

use crate::frame::Fatal;
use crate::method::{Content, Incoming};

/// Largest body taken from a broker; it is also the largest `RabbitMQ` ever took by default.
pub(crate) const BODY_MAX: u64 = 128 * 1024 * 1024;

/// Received parts up to this size are copied, so that a small message does not keep a whole read
/// buffer alive while its handler works.
const COPY_LIMIT: usize = 16 * 1024;

/// Memory set aside at once for a body, whatever its header promises.
const RESERVE_MAX: u64 = 1024 * 1024;

/// A message of which not all frames have come.
#[derive(Debug)]
pub(crate) struct Assembly {
    method: Incoming,
    /// Whether the body is of use; the body of a return is not.
    keep_body: bool,
    header: Option<Header>,
}

#[derive(Debug)]
struct Header {
    properties: Bytes,
    size: u64,
    received: u64,
    body: BytesMut,
    /// The body, when it came in one frame.
    whole: Bytes,
}

/// What a frame did to a message.
#[derive(Debug)]
pub(crate) enum Progress {
    Incomplete(Assembly),
    Complete(Incoming, Content),
    /// The body is larger than this client takes.
    TooLarge(u64),
}

impl Assembly {
    pub(crate) fn new(method: Incoming) -> Self {
        let keep_body = !matches!(method, Incoming::Return { .. });
        Self { method, keep_body, header: None }
    }

    /// Takes the content header.
    pub(crate) fn header(mut self, payload: &Bytes) -> Result<Progress, Fatal> {
        if self.header.is_some() {
            return Err(Fatal::unexpected("a second content header for one message"));
        }
        if payload.len() < 14 {
            return Err(Fatal::syntax("a content header ends too early"));
        }
        // Class and weight come first and say nothing.
        let size = (&payload[4..12]).get_u64();
        if self.keep_body && size > BODY_MAX {
            return Ok(Progress::TooLarge(size));
        }
        let reserve = if self.keep_body { size.min(RESERVE_MAX) } else { 0 };
        self.header = Some(Header {
            properties: detach(&payload.slice(12..)),
            size,
            received: 0,
            body: BytesMut::with_capacity(usize::try_from(reserve).unwrap_or(0)),
            whole: Bytes::new(),
        });
        Ok(self.progress())
    }

    /// Takes a part of the body.
    pub(crate) fn body(mut self, payload: &Bytes) -> Result<Progress, Fatal> {
        let Some(header) = &mut self.header else {
            return Err(Fatal::unexpected("a body frame before its content header"));
        };
        let length = payload.len() as u64;
        if length > header.size - header.received {
            return Err(Fatal::frame("a body is longer than its header says"));
        }
        if self.keep_body {
            if header.received == 0 && length == header.size {
                header.body = BytesMut::new();
                header.whole = detach(payload);
            } else {
                header.body.extend_from_slice(payload);
            }
        }
        header.received += length;
        Ok(self.progress())
    }

    fn progress(self) -> Progress {
        match self.header {
            Some(header) if header.received == header.size => {
                let body = if header.whole.is_empty() { header.body.freeze() } else { header.whole };
                Progress::Complete(self.method, Content { properties: header.properties, body })
            }
            header => Progress::Incomplete(Self { header, ..self }),
        }
    }
}

/// The same bytes, independent of the read buffer when they are few.
fn detach(bytes: &Bytes) -> Bytes {
    if bytes.len() <= COPY_LIMIT { Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}
