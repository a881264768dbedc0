//! From a connected socket to an open AMQP connection.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::connection::ServerInfo;
use crate::error::ConnectError;
use crate::frame::{Fatal, FrameKind, decode};
use crate::method::{self, Incoming};
use crate::options::{ConnectOptions, FRAME_MIN};
use crate::request::{self, PROTOCOL_HEADER, method_frame};
use crate::table::{FieldTable, FieldValue};
use crate::wire::{TooLong, put_short};

/// Frame size before one was agreed. Servers may introduce themselves at length.
const FRAME_MAX_BEFORE: usize = 131_072;

const CAPABILITIES: [&str; 6] = [
    "publisher_confirms",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
    "exchange_exchange_bindings",
];

/// What the two sides agreed.
#[derive(Debug)]
pub(super) struct Agreed {
    pub(super) server: ServerInfo,
    pub(super) frame_max: usize,
    pub(super) channel_max: u16,
    pub(super) heartbeat: Duration,
    /// Bytes that came behind the last frame of the handshake.
    pub(super) rest: BytesMut,
}

/// How far the handshake is; it decides what a sudden end means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Greeting,
    Authenticating,
    OpeningVirtualHost,
}

struct Handshake<'a, S> {
    stream: &'a mut S,
    options: &'a ConnectOptions,
    buffer: BytesMut,
    frame_max: usize,
    stage: Stage,
}

/// Shakes hands.
pub(super) async fn shake<S>(stream: &mut S, options: &ConnectOptions) -> Result<Agreed, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let buffer = BytesMut::with_capacity(8192);
    let stage = Stage::Greeting;
    let mut handshake = Handshake { stream, options, buffer, frame_max: FRAME_MAX_BEFORE, stage };
    handshake.write(PROTOCOL_HEADER).await?;
    let (server, mechanisms) = match handshake.read().await? {
        Incoming::Start { server, mechanisms } => (server, mechanisms),
        other => return Err(unexpected(&other)),
    };
    let start_ok = handshake.start_ok(&mechanisms)?;
    handshake.stage = Stage::Authenticating;
    handshake.write(&start_ok).await?;
    let (channel_max, frame_max, heartbeat) = match handshake.read().await? {
        Incoming::Tune { channel_max, frame_max, heartbeat } => {
            handshake.agree(channel_max, frame_max, heartbeat)?
        }
        other => return Err(unexpected(&other)),
    };
    handshake.stage = Stage::OpeningVirtualHost;
    let mut tune_ok = BytesMut::with_capacity(8);
    tune_ok.put_u16(channel_max);
    tune_ok.put_u32(frame_max);
    tune_ok.put_u16(heartbeat);
    let mut last = BytesMut::from(&request::fixed_method(0, method::CONNECTION_TUNE_OK, &tune_ok)[..]);
    last.extend_from_slice(&open(&options.virtual_host).map_err(|error| too_long(&error))?);
    handshake.frame_max = frame_max as usize;
    handshake.write(&last).await?;
    match handshake.read().await? {
        Incoming::Done(method::CONNECTION_OPEN_OK) => Ok(Agreed {
            server: server_info(&server),
            frame_max: frame_max as usize,
            channel_max,
            heartbeat: Duration::from_secs(u64::from(heartbeat)),
            rest: handshake.buffer,
        }),
        other => Err(unexpected(&other)),
    }
}

fn open(virtual_host: &str) -> Result<Bytes, TooLong> {
    method_frame(0, method::CONNECTION_OPEN, |buffer| {
        put_short(buffer, "virtual host", virtual_host)?;
        buffer.put_u16(0);
        Ok(())
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Handshake<'_, S> {
    async fn write(&mut self, bytes: &[u8]) -> Result<(), ConnectError> {
        let written = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        written.await.map_err(|source| self.broken(source))
    }

    /// The next method; a close from the server is an error.
    async fn read(&mut self) -> Result<Incoming, ConnectError> {
        loop {
            while let Some(frame) = decode(&mut self.buffer, self.frame_max).map_err(protocol)? {
                match frame.kind {
                    FrameKind::Heartbeat => {}
                    FrameKind::Method if frame.channel == 0 => {
                        let method = Incoming::decode(&frame.payload)
                            .map_err(|error| ConnectError::Protocol(error.to_string()))?;
                        return self.check_close(method);
                    }
                    _ => return Err(ConnectError::Protocol("a message during the handshake".to_owned())),
                }
            }
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(self.broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(source) => return Err(self.broken(source)),
            }
        }
    }

    fn check_close(&self, method: Incoming) -> Result<Incoming, ConnectError> {
        let Incoming::ConnectionClose { code, text } = method else { return Ok(method) };
        let options = self.options;
        Err(match (code, self.stage) {
            (403, _) => ConnectError::AuthenticationRefused { user: options.user.clone(), text },
            (530, _) | (_, Stage::OpeningVirtualHost) => {
                let virtual_host = options.virtual_host.clone();
                ConnectError::VirtualHostRefused { virtual_host, text: format!("{code} {text}") }
            }
            _ => ConnectError::Closed { code, text },
        })
    }

    /// The socket ended. Old servers refuse a password in no other way.
    fn broken(&self, source: io::Error) -> ConnectError {
        let ConnectOptions { host, port, user, .. } = self.options;
        match self.stage {
            Stage::Authenticating if source.kind() == io::ErrorKind::UnexpectedEof => {
                let text = "the server hung up on the credentials".to_owned();
                ConnectError::AuthenticationRefused { user: user.clone(), text }
            }
            _ => ConnectError::Io { address: format!("{host}:{port}"), source },
        }
    }

    fn start_ok(&self, mechanisms: &str) -> Result<Bytes, ConnectError> {
        if !mechanisms.split(' ').any(|mechanism| mechanism == "PLAIN") {
            let text = format!("the server offers no PLAIN authentication, only {mechanisms}");
            return Err(ConnectError::Protocol(text));
        }
        let capabilities: FieldTable = CAPABILITIES.into_iter().map(|name| (name, true)).collect();
        let mut client = FieldTable::new()
            .with("product", "consign")
            .with("version", env!("CARGO_PKG_VERSION"))
            .with("platform", "Rust")
            .with("capabilities", capabilities);
        if let Some(name) = &self.options.connection_name {
            client.insert("connection_name", name.as_str());
        }
        let credentials = format!("\0{}\0{}", self.options.user, self.options.password);
        request::start_ok(&client, "PLAIN", credentials.as_bytes()).map_err(|error| too_long(&error))
    }

    /// What both sides can live with. Zero means no limit, and for heartbeats no wish.
    fn agree(
        &self,
        channel_max: u16,
        frame_max: u32,
        heartbeat: u16,
    ) -> Result<(u16, u32, u16), ConnectError> {
        let own_frame_max = self.options.frame_max.max(FRAME_MIN);
        let frame_max = if frame_max == 0 { own_frame_max } else { frame_max.min(own_frame_max) };
        if frame_max < FRAME_MIN {
            let text = format!("the server allows frames of {frame_max} bytes, less than {FRAME_MIN}");
            return Err(ConnectError::Protocol(text));
        }
        let own_channel_max = self.options.channel_max.max(1);
        let channel_max = if channel_max == 0 { own_channel_max } else { channel_max.min(own_channel_max) };
        let own_heartbeat = u16::try_from(self.options.heartbeat.as_secs()).unwrap_or(u16::MAX);
        let heartbeat = match (own_heartbeat, heartbeat) {
            // Without heartbeats a dead peer is found by its silence only at each publish's deadline;
            // whoever asks for that gets it.
            (0, _) => 0,
            (own, 0) => own,
            (own, theirs) => own.min(theirs),
        };
        Ok((channel_max, frame_max, heartbeat))
    }
}

fn server_info(properties: &FieldTable) -> ServerInfo {
    let text = |key| properties.get(key).and_then(FieldValue::as_text).unwrap_or_default().to_owned();
    let capabilities = properties.get("capabilities").and_then(FieldValue::as_table);
    ServerInfo {
        product: text("product"),
        version: text("version"),
        cluster_name: text("cluster_name"),
        capabilities: capabilities
            .into_iter()
            .flat_map(FieldTable::iter)
            .filter(|(_, value)| value.as_bool() == Some(true))
            .map(|(name, _)| name.to_owned())
            .collect::<BTreeSet<_>>(),
    }
}

fn protocol(fatal: Fatal) -> ConnectError {
    ConnectError::Protocol(fatal.text)
}

fn too_long(error: &TooLong) -> ConnectError {
    ConnectError::Protocol(error.to_string())
}

fn unexpected(method: &Incoming) -> ConnectError {
    ConnectError::Protocol(format!("method {} has no place in the handshake", method.id()))
}
