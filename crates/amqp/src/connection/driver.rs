//! The task of a connection: the only owner of its socket.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::command::Command;
use crate::frame::decode;
use crate::session::Session;

/// Requests taken from the queue at a time, so that many publishes go out in one write.
const BATCH: usize = 256;

/// Slices handed to the socket in one write.
const SLICES: usize = 128;

/// Room kept free in the read buffer.
const READ_SIZE: usize = 64 * 1024;

/// Time for a clean end when nobody is left to say how long.
const ORPHAN_CLOSE: Duration = Duration::from_secs(2);

/// Time to shut the socket down, which sends what TLS has to say at the end.
const SHUTDOWN: Duration = Duration::from_secs(1);

/// A sleep this long stands for none.
const IDLE: Duration = Duration::from_hours(24);

/// Moves bytes and requests between the socket, the handles and the session.
pub(super) struct Driver<S> {
    stream: S,
    session: Session,
    commands: mpsc::UnboundedReceiver<Command>,
    batch: Vec<Command>,
    buffer: BytesMut,
    sleep: Pin<Box<Sleep>>,
    /// Whether the socket took nothing when it was last asked.
    stuck: bool,
    /// Whether bytes may rest in a layer above the socket.
    unflushed: bool,
    orphaned: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(super) fn new(
        stream: S,
        session: Session,
        commands: mpsc::UnboundedReceiver<Command>,
        buffer: BytesMut,
    ) -> Self {
        Self {
            stream,
            session,
            commands,
            batch: Vec::with_capacity(BATCH),
            buffer,
            sleep: Box::pin(sleep_until(Instant::now() + IDLE)),
            stuck: false,
            unflushed: false,
            orphaned: false,
        }
    }

    /// Runs until the connection has ended and everyone who waits on it was told.
    pub(super) async fn run(mut self) {
        // Frames may have come together with the last one of the handshake.
        self.take_frames(Instant::now());
        loop {
            let now = Instant::now();
            self.session.on_time(now);
            if self.session.is_over(now) {
                break;
            }
            self.arm(now);
            std::future::poll_fn(|context| self.poll(context)).await;
        }
        // From here on sending fails at the handles; what was sent before is still answered. A request may be half
        // way into the queue at this moment, which only `recv` waits for: left there, it would never be answered.
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.session.refuse(command);
        }
        // Nobody depends on the outcome.
        drop(timeout(SHUTDOWN, self.stream.shutdown()).await);
    }

    /// Sets the timer. It is only ever moved forwards to something earlier or after it has fired, for
    /// deadlines change with every publish and moving a timer is not free.
    fn arm(&mut self, now: Instant) {
        let wake = self.session.next_wake().unwrap_or(now + IDLE);
        if self.sleep.is_elapsed() || wake < self.sleep.deadline() {
            self.sleep.as_mut().reset(wake);
        }
    }

    /// Does what can be done now; ready when the session may have something new to do. Requests come
    /// first, so that they share a write; all three directions get their turn in every round. A dropped
    /// poll loses nothing: every completed step was already reported to the session.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let commands = self.poll_commands(context);
        let write = self.poll_write(context);
        let read = self.poll_read(context);
        if commands.is_ready() || write.is_ready() || read.is_ready() {
            return Poll::Ready(());
        }
        self.sleep.as_mut().poll(context)
    }

    fn poll_commands(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.orphaned {
            return Poll::Pending;
        }
        let received = ready!(self.commands.poll_recv_many(context, &mut self.batch, BATCH));
        let now = Instant::now();
        if received == 0 {
            self.orphaned = true;
            self.session.start_close(now + ORPHAN_CLOSE);
        }
        for command in self.batch.drain(..) {
            self.session.command(command, now);
        }
        Poll::Ready(())
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // While other bytes wait for the socket, acks gather.
        if !self.stuck || self.session.output().is_empty() {
            self.session.flush_acks();
        }
        let mut stream = Pin::new(&mut self.stream);
        let result = if self.session.output().is_empty() {
            if !self.unflushed {
                return Poll::Pending;
            }
            ready!(stream.poll_flush(context)).map(|()| 0)
        } else {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let filled = self.session.output().fill(&mut slices);
            let written = stream.as_mut().poll_write_vectored(context, &slices[..filled]);
            self.stuck = written.is_pending();
            match ready!(written) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                other => other,
            }
        };
        let now = Instant::now();
        match result {
            Ok(written) => {
                self.unflushed = written > 0;
                self.session.on_written(written, now);
            }
            Err(error) => {
                // The server may have said why before it hung up.
                while self.session.is_reading() && self.poll_read(context).is_ready() {}
                self.session.on_lost(format!("writing failed: {error}"), now);
            }
        }
        Poll::Ready(())
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !self.session.is_reading() {
            return Poll::Pending;
        }
        self.buffer.reserve(READ_SIZE);
        // The future holds no state: dropped while pending, it has read nothing.
        let result = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(context));
        let now = Instant::now();
        match result {
            Ok(0) => self.session.on_lost("the server hung up".to_owned(), now),
            Ok(_) => {
                self.session.on_read(now);
                self.take_frames(now);
            }
            Err(error) => self.session.on_lost(format!("reading failed: {error}"), now),
        }
        Poll::Ready(())
    }

    fn take_frames(&mut self, now: Instant) {
        while self.session.is_reading() {
            let result = match decode(&mut self.buffer, self.session.frame_max()) {
                Ok(None) => return,
                Ok(Some(frame)) => self.session.on_frame(&frame, now),
                Err(fatal) => Err(fatal),
            };
            if let Err(fatal) = result {
                self.session.fail(fatal, now);
            }
        }
    }
}
