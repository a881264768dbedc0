//! A scripted AMQP server on the loopback interface.
//!
//! It shares no code with the client: what it reads and writes is decoded and encoded here again, so that
//! a mistake in the client's codec cannot hide behind the same mistake in the test.

use std::time::Duration;

use consign_amqp::{ConnectOptions, Connection, Properties, Publication, Publisher};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

/// Longest wait for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for something that must happen soon.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|_| panic!("{what} did not happen within {PATIENCE:?}"))
}

/// A deadline no test reaches.
pub fn far() -> Instant {
    Instant::now() + Duration::from_mins(2)
}

/// A small message with this id.
pub fn message(id: &str) -> Publication {
    Publication {
        exchange: "events".to_owned(),
        routing_key: "order.paid".to_owned(),
        properties: Properties { message_id: Some(id.to_owned()), ..Properties::default() },
        body: "{}".into(),
    }
}

/// What the peer proposes in its tune.
#[derive(Clone, Copy)]
pub struct Tune {
    pub channel_max: u16,
    pub frame_max: u32,
    pub heartbeat: u16,
}

impl Default for Tune {
    fn default() -> Self {
        Self { channel_max: 2047, frame_max: 131_072, heartbeat: 60 }
    }
}

/// The listening side.
pub struct Listener(TcpListener);

impl Listener {
    pub async fn bind() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn options(&self) -> ConnectOptions {
        let address = self.0.local_addr().unwrap();
        format!("amqp://app:s3cr3t@{address}/orders?heartbeat=60").parse().unwrap()
    }

    /// Takes a connection without a word.
    pub async fn accept(&self) -> Peer {
        let (stream, _) = soon("a connection", self.0.accept()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream, sliced: false }
    }

    /// Takes a connection through the handshake.
    pub async fn serve(&self, tune: Tune) -> Peer {
        let mut peer = self.accept().await;
        peer.greet().await;
        peer.send(&method(
            0,
            10,
            30,
            &[&tune.channel_max.to_be_bytes(), &tune.frame_max.to_be_bytes(), &tune.heartbeat.to_be_bytes()],
        ))
        .await;
        peer.expect(0, 10, 31).await;
        let open = peer.expect(0, 10, 40).await;
        assert_eq!(open, b"\x06orders\0\0");
        peer.send(&method(0, 10, 41, &[&[0]])).await;
        peer
    }
}

/// A connection and its peer after the handshake.
pub async fn connected(tune: Tune) -> (Connection, Peer) {
    let listener = Listener::bind().await;
    let options = listener.options();
    let (connection, peer) = tokio::join!(Connection::open(&options), listener.serve(tune));
    (connection.unwrap(), peer)
}

/// A connection with a channel in confirm mode.
pub async fn publishing() -> (Connection, Publisher, Peer) {
    let (connection, mut peer) = connected(Tune::default()).await;
    let publisher = peer.publisher(&connection).await;
    (connection, publisher, peer)
}

/// A frame as it came.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub channel: u16,
    pub payload: Vec<u8>,
}

/// A message the client published.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    pub channel: u16,
    pub exchange: String,
    pub routing_key: String,
    pub message_id: String,
    pub body: Vec<u8>,
}

/// The server's end of one connection.
pub struct Peer {
    pub stream: TcpStream,
    /// Whether everything is sent byte by byte.
    pub sliced: bool,
}

impl Peer {
    /// Reads the protocol header and introduces itself; returns the arguments of start-ok.
    pub async fn greet(&mut self) -> Vec<u8> {
        let mut header = [0; 8];
        soon("the protocol header", self.stream.read_exact(&mut header)).await.unwrap();
        assert_eq!(&header, b"AMQP\0\0\x09\x01");
        let capabilities = table(&[("publisher_confirms", b"t\x01"), ("basic.nack", b"t\x00")]);
        let server = table(&[
            ("product", &long_text("Scripted")),
            ("version", &long_text("1.2.3")),
            ("capabilities", &[b"F", &capabilities[..]].concat()),
        ]);
        let arguments: [&[u8]; 4] = [b"\x00\x09", &server, b"\0\0\0\x0ePLAIN AMQPLAIN", b"\0\0\0\x05en_US"];
        self.send(&method(0, 10, 10, &arguments)).await;
        self.expect(0, 10, 11).await
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        let pieces = if self.sliced { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(pieces) {
            soon("writing to the client", self.stream.write_all(piece)).await.unwrap();
            if self.sliced {
                tokio::task::yield_now().await;
            }
        }
    }

    /// The next frame, or `None` when the client hung up.
    pub async fn frame_or_end(&mut self) -> Option<Frame> {
        let mut header = [0; 7];
        soon("a frame from the client", self.stream.read_exact(&mut header)).await.ok()?;
        let length = u32::from_be_bytes(header[3..7].try_into().unwrap()) as usize;
        let mut payload = vec![0; length + 1];
        soon("the payload of a frame", self.stream.read_exact(&mut payload)).await.ok()?;
        assert_eq!(payload.pop(), Some(0xCE));
        Some(Frame { kind: header[0], channel: u16::from_be_bytes([header[1], header[2]]), payload })
    }

    /// The next frame that is no heartbeat.
    pub async fn frame(&mut self) -> Frame {
        loop {
            let frame = self.frame_or_end().await.expect("the client goes on");
            if frame.kind != 8 {
                return frame;
            }
        }
    }

    /// Reads one method and returns its arguments.
    pub async fn expect(&mut self, channel: u16, class: u16, number: u16) -> Vec<u8> {
        let frame = self.frame().await;
        let id = [class.to_be_bytes(), number.to_be_bytes()].concat();
        assert_eq!((frame.kind, frame.channel, &frame.payload[..4]), (1, channel, &id[..]), "{frame:?}");
        frame.payload[4..].to_vec()
    }

    /// Serves the opening of a channel and returns its number.
    pub async fn channel_opened(&mut self) -> u16 {
        let frame = self.frame().await;
        assert_eq!((frame.kind, &frame.payload[..]), (1, &b"\0\x14\0\x0a\0"[..]));
        self.send(&method(frame.channel, 20, 11, &[&[0; 4]])).await;
        frame.channel
    }

    /// Serves the opening of a publisher.
    pub async fn publisher(&mut self, connection: &Connection) -> Publisher {
        let (publisher, ()) = tokio::join!(connection.open_publisher(), async {
            let channel = self.channel_opened().await;
            assert_eq!(self.expect(channel, 85, 10).await, [0]);
            self.send(&method(channel, 85, 11, &[])).await;
        });
        publisher.unwrap()
    }

    /// Reads one published message; every one must be mandatory.
    pub async fn published(&mut self) -> Published {
        let frame = self.frame().await;
        assert_eq!((frame.kind, &frame.payload[..4]), (1, &b"\0\x3c\0\x28"[..]), "{frame:?}");
        let channel = frame.channel;
        let mut arguments = &frame.payload[6..];
        let exchange = take_short(&mut arguments);
        let routing_key = take_short(&mut arguments);
        assert_eq!(arguments, [1], "the mandatory flag alone");
        let header = self.frame().await;
        assert_eq!((header.kind, header.channel, &header.payload[..4]), (2, channel, &b"\0\x3c\0\0"[..]));
        let size = u64::from_be_bytes(header.payload[4..12].try_into().unwrap());
        let message_id = message_id(&header.payload[12..]);
        let mut body = Vec::new();
        while (body.len() as u64) < size {
            let part = self.frame().await;
            assert_eq!((part.kind, part.channel), (3, channel));
            body.extend_from_slice(&part.payload);
        }
        assert_eq!(body.len() as u64, size);
        Published { channel, exchange, routing_key, message_id, body }
    }

    /// Reads this many published messages and returns their ids.
    pub async fn published_ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.published().await.message_id);
        }
        ids
    }

    /// Cuts the connection so that the client sees a reset.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
    }
}

fn take_short(bytes: &mut &[u8]) -> String {
    let (text, rest) = bytes[1..].split_at(usize::from(bytes[0]));
    *bytes = rest;
    String::from_utf8(text.to_vec()).unwrap()
}

/// The message id in a property list, read by the letter of the specification.
fn message_id(list: &[u8]) -> String {
    let flags = u16::from_be_bytes([list[0], list[1]]);
    let mut rest = &list[2..];
    for bit in (7..16).rev() {
        if flags & 1 << bit == 0 {
            continue;
        }
        match bit {
            13 => {
                let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
                rest = &rest[4 + length..];
            }
            11 | 12 => rest = &rest[1..],
            7 => return take_short(&mut rest),
            _ => drop(take_short(&mut rest)),
        }
    }
    panic!("a message without an id: flags {flags:016b}");
}

/// A frame.
pub fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    [&[kind][..], &channel.to_be_bytes(), &length.to_be_bytes(), payload, &[0xCE]].concat()
}

/// A method frame.
pub fn method(channel: u16, class: u16, number: u16, arguments: &[&[u8]]) -> Vec<u8> {
    let id = [class.to_be_bytes(), number.to_be_bytes()].concat();
    frame(1, channel, &[&id[..], &arguments.concat()].concat())
}

pub fn short_text(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

/// A field value of type text.
pub fn long_text(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    [b"S", &length.to_be_bytes()[..], text.as_bytes()].concat()
}

/// A field table; values bring their type tag.
pub fn table(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in entries {
        content.extend(short_text(key));
        content.extend_from_slice(value);
    }
    [&u32::try_from(content.len()).unwrap().to_be_bytes()[..], &content].concat()
}

/// Content header and body, the body in frames of at most `part` bytes.
pub fn content(channel: u16, properties: &[u8], body: &[u8], part: usize) -> Vec<u8> {
    let size = (body.len() as u64).to_be_bytes();
    let mut bytes = frame(2, channel, &[b"\0\x3c\0\0", &size[..], properties].concat());
    for part in body.chunks(part) {
        bytes.extend(frame(3, channel, part));
    }
    bytes
}

/// A property list with a message id only.
pub fn id_property(message_id: &str) -> Vec<u8> {
    [&0x0080_u16.to_be_bytes()[..], &short_text(message_id)].concat()
}

pub fn ack(channel: u16, tag: u64, multiple: bool) -> Vec<u8> {
    method(channel, 60, 80, &[&tag.to_be_bytes(), &[u8::from(multiple)]])
}

pub fn nack(channel: u16, tag: u64, multiple: bool) -> Vec<u8> {
    method(channel, 60, 120, &[&tag.to_be_bytes(), &[u8::from(multiple)]])
}

/// A whole return: method, header, body.
pub fn returned(channel: u16, message_id: &str) -> Vec<u8> {
    let arguments: [&[u8]; 4] =
        [&312_u16.to_be_bytes(), &short_text("NO_ROUTE"), &short_text("events"), &short_text("order.paid")];
    [method(channel, 60, 50, &arguments), content(channel, &id_property(message_id), b"{}", 1)].concat()
}

/// A close of a channel or, on channel 0, of the connection.
pub fn close(channel: u16, code: u16, text: &str) -> Vec<u8> {
    let (class, number) = if channel == 0 { (10, 50) } else { (20, 40) };
    method(channel, class, number, &[&code.to_be_bytes(), &short_text(text), &[0; 4]])
}
