//! What handles ask of the connection's task.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::consumer::ConsumerEnd;
use crate::error::{ChannelError, ChannelId};
use crate::method::{Content, Incoming, MethodId, Origin};
use crate::publisher::Verdict;
use crate::request::Frames;

/// One request to the connection's task. Requests are served in the order they were sent.
#[derive(Debug)]
pub(crate) enum Command {
    OpenChannel {
        reply: oneshot::Sender<Result<OpenedChannel, ChannelError>>,
    },
    Call(Call),
    Publish(Publish),
    /// An ack, which shares a frame with others where it may.
    Ack {
        key: ChannelKey,
        tag: u64,
    },
    /// A refusal or a return of these deliveries.
    GiveBack {
        key: ChannelKey,
        tags: RangeInclusive<u64>,
        frame: Bytes,
    },
    /// A method without an answer.
    Send {
        key: ChannelKey,
        frame: Bytes,
    },
    CloseChannel {
        key: ChannelKey,
    },
    Close {
        deadline: Instant,
    },
}

/// A channel within its connection. Numbers are used again, serials never are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelKey {
    pub(crate) number: u16,
    pub(crate) serial: u64,
}

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) method: Incoming,
    pub(crate) content: Option<Content>,
}

pub(crate) type ReplySender = oneshot::Sender<Result<Reply, ChannelError>>;

/// A method that has an answer.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: ChannelKey,
    pub(crate) frame: Bytes,
    pub(crate) expects: &'static [MethodId],
    /// Where deliveries go, when the method is `basic.consume`.
    pub(crate) sink: Option<Sink>,
    pub(crate) reply: ReplySender,
}

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) key: ChannelKey,
    pub(crate) frames: Frames,
    pub(crate) message_id: String,
    pub(crate) deadline: Instant,
    pub(crate) reply: oneshot::Sender<Verdict>,
}

/// Where a consumer's deliveries go.
#[derive(Debug)]
pub(crate) struct Sink {
    /// Unbounded, but the session lets at most `prefetch` unsettled deliveries through.
    pub(crate) deliveries: mpsc::UnboundedSender<(Origin, Content)>,
    pub(crate) prefetch: u16,
    pub(crate) end: Arc<OnceLock<ConsumerEnd>>,
}

/// A channel number that was given out; `opened` resolves when the server agreed.
#[derive(Debug)]
pub(crate) struct OpenedChannel {
    pub(crate) lease: ChannelLease,
    pub(crate) opened: oneshot::Receiver<Result<Reply, ChannelError>>,
}

/// The right to use a channel; the last owner's drop closes it.
#[derive(Debug)]
pub(crate) struct ChannelLease {
    pub(crate) id: ChannelId,
    pub(crate) key: ChannelKey,
    pub(crate) frame_max: usize,
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    /// Set once, when the channel ends.
    pub(crate) end: watch::Receiver<Option<ChannelError>>,
}

impl ChannelLease {
    /// Why the channel ended, if it did.
    pub(crate) fn ended(&self) -> Option<ChannelError> {
        self.end.borrow().clone()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.end.borrow().is_none()
    }

    /// The reason to give when the task no longer takes requests.
    pub(crate) fn lost(&self) -> ChannelError {
        self.ended().unwrap_or_else(|| ChannelError::Closed {
            code: 0,
            text: "the task of the connection is gone".to_owned(),
        })
    }

    /// Sends a method and waits for its answer.
    pub(crate) async fn call(
        &self,
        frame: Bytes,
        expects: &'static [MethodId],
        sink: Option<Sink>,
    ) -> Result<Reply, ChannelError> {
        if frame.len() > self.frame_max {
            let text =
                format!("it takes {} bytes, a frame of this connection {}", frame.len(), self.frame_max);
            return Err(ChannelError::Invalid(text));
        }
        if let Some(reason) = self.ended() {
            return Err(reason);
        }
        let (reply, answer) = oneshot::channel();
        let call = Call { key: self.key, frame, expects, sink, reply };
        if self.commands.send(Command::Call(call)).is_err() {
            return Err(self.lost());
        }
        answer.await.unwrap_or_else(|_| Err(self.lost()))
    }
}

impl Drop for ChannelLease {
    fn drop(&mut self) {
        // Fails only when the task is gone, and the channel with it.
        drop(self.commands.send(Command::CloseChannel { key: self.key }));
    }
}
