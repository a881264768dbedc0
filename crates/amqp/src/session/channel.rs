//! The state of one channel.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::content::Assembly;
use super::deadlines::Deadlines;
use super::unsettled::Unsettled;
use crate::command::{Call, ChannelKey, Reply, ReplySender, Sink};
use crate::confirms::{Confirms, Settled, Violation};
use crate::consumer::ConsumerEnd;
use crate::error::ChannelError;
use crate::frame::Fatal;
use crate::method::{Content, Incoming, MethodId, Origin};
use crate::properties::Properties;
use crate::publisher::Verdict;
use crate::request::put_ack;

/// Who waits for a publish.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) reply: oneshot::Sender<Verdict>,
    /// The key in [`Deadlines`].
    pub(crate) due: (Instant, u64),
}

/// Where a consumer stands.
#[derive(Debug)]
struct Consuming {
    /// Gone when the consumer was cancelled.
    sink: Option<Sink>,
}

#[derive(Debug)]
struct PendingCall {
    expects: &'static [MethodId],
    reply: ReplySender,
}

/// What became of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Delivered {
    Taken,
    /// Nobody takes deliveries any more; it goes back to the queue.
    Unwanted(u64),
    /// The broker sent more than the prefetch allows.
    Excess,
    /// Its tag is not above the last one.
    Disordered,
}

/// One channel, from the request to open it to its `close-ok`.
#[derive(Debug)]
pub(crate) struct ChannelState {
    pub(crate) key: ChannelKey,
    /// Whether this side asked to close it: everything but the answer is then ignored.
    pub(crate) closing: bool,
    /// Whether the broker takes publishes (`channel.flow`).
    pub(crate) flowing: bool,
    /// The message whose frames are coming in.
    pub(crate) content: Option<Assembly>,
    pub(crate) confirms: Option<Confirms<Waiter>>,
    pub(crate) unsettled: Unsettled,
    consuming: Option<Consuming>,
    calls: VecDeque<PendingCall>,
    end: watch::Sender<Option<ChannelError>>,
}

impl ChannelState {
    pub(crate) fn new(key: ChannelKey) -> (Self, watch::Receiver<Option<ChannelError>>) {
        let (end, ended) = watch::channel(None);
        let state = Self {
            key,
            closing: false,
            flowing: true,
            content: None,
            confirms: None,
            unsettled: Unsettled::default(),
            consuming: None,
            calls: VecDeque::new(),
            end,
        };
        (state, ended)
    }

    /// Notes that a call was sent; answers come in the order of the calls.
    pub(crate) fn called(&mut self, call: Call) -> Bytes {
        if let Some(sink) = call.sink {
            self.consuming = Some(Consuming { sink: Some(sink) });
        }
        self.calls.push_back(PendingCall { expects: call.expects, reply: call.reply });
        call.frame
    }

    /// Hands an answer to the call that waits for it.
    pub(crate) fn answer(&mut self, method: Incoming, content: Option<Content>) -> Result<(), Fatal> {
        let id = method.id();
        match self.calls.pop_front() {
            Some(call) if call.expects.contains(&id) => {
                if id == crate::method::CONFIRM_SELECT_OK {
                    self.confirms = Some(Confirms::new());
                }
                // The caller may have stopped waiting.
                drop(call.reply.send(Ok(Reply { method, content })));
                Ok(())
            }
            _ => Err(Fatal::unexpected(format!("method {id} answers no call"))),
        }
    }

    /// A confirm; settles those it covers.
    pub(crate) fn confirm(
        &mut self,
        tag: u64,
        multiple: bool,
        positive: bool,
        deadlines: &mut Deadlines,
    ) -> Result<(), Violation> {
        let Some(confirms) = &mut self.confirms else {
            return Err(Violation::UnmatchedConfirm { tag });
        };
        let settle = |waiter: Waiter, settled: Settled| {
            deadlines.remove(waiter.due);
            let verdict = match settled {
                Settled::Acked { tag } => Verdict::Acked { tag },
                Settled::Returned { code, text } => Verdict::Returned { code, text },
                Settled::Nacked => Verdict::Nacked,
            };
            drop(waiter.reply.send(verdict));
        };
        if positive {
            confirms.on_ack(tag, multiple, settle)
        } else {
            confirms.on_nack(tag, multiple, settle)
        }
    }

    /// A returned message, complete.
    pub(crate) fn returned(&mut self, code: u16, text: &str, content: &Content) -> Result<(), Violation> {
        let message_id = Properties::message_id_of(&content.properties).ok().flatten();
        match (&mut self.confirms, message_id) {
            (Some(confirms), Some(message_id)) => confirms.on_return(&message_id, code, text),
            _ => Err(Violation::UnmatchedReturn),
        }
    }

    /// A delivery for the consumer.
    pub(crate) fn deliver(&mut self, origin: Origin, content: Content) -> Result<Delivered, Fatal> {
        let Some(consuming) = &self.consuming else {
            return Err(Fatal::unexpected("a delivery on a channel without a consumer"));
        };
        let tag = origin.tag.get();
        let before = self.unsettled.open();
        if !self.unsettled.deliver(tag) {
            return Ok(Delivered::Disordered);
        }
        let Some(sink) = &consuming.sink else {
            return Ok(Delivered::Unwanted(tag));
        };
        if before >= usize::from(sink.prefetch) {
            return Ok(Delivered::Excess);
        }
        if sink.deliveries.send((origin, content)).is_err() {
            return Ok(Delivered::Unwanted(tag));
        }
        Ok(Delivered::Taken)
    }

    /// The frames of the acks that wait and, unless they went back before, of the return of these deliveries.
    pub(crate) fn give_back(&mut self, tags: RangeInclusive<u64>, frame: &[u8]) -> Bytes {
        let mut frames = BytesMut::new();
        let acks = |tag, multiple| put_ack(&mut frames, self.key.number, tag, multiple);
        if self.unsettled.give_back(tags, acks) {
            frames.extend_from_slice(frame);
        }
        frames.freeze()
    }

    /// The frames of the acks that wait.
    pub(crate) fn take_acks(&mut self) -> Bytes {
        let mut frames = BytesMut::new();
        self.unsettled.take_acks(|tag, multiple| put_ack(&mut frames, self.key.number, tag, multiple));
        frames.freeze()
    }

    /// The broker cancelled the consumer.
    pub(crate) fn cancelled(&mut self) {
        if let Some(sink) = self.consuming.as_mut().and_then(|consuming| consuming.sink.take()) {
            // Cancelled from both sides at once: the first word stands.
            let _ = sink.end.set(ConsumerEnd::CancelledByServer);
        }
    }

    /// Ends the channel for everyone who waits on it. Publishes that were not written are the caller's.
    pub(crate) fn end(&mut self, reason: &ChannelError, deadlines: &mut Deadlines) {
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            if first {
                *end = Some(reason.clone());
            }
            first
        });
        for call in self.calls.drain(..) {
            drop(call.reply.send(Err(reason.clone())));
        }
        // The sender goes, and with it the consumer's last wait.
        self.consuming = None;
        self.content = None;
        if let Some(confirms) = self.confirms.take() {
            let in_flight = confirms.in_flight();
            for waiter in confirms.on_close() {
                deadlines.remove(waiter.due);
                drop(waiter.reply.send(verdict(reason, in_flight)));
            }
        }
    }
}

/// The verdict on what was outstanding when its channel ended.
fn verdict(reason: &ChannelError, in_flight: usize) -> Verdict {
    match reason {
        ChannelError::Closed { code, text } => {
            Verdict::ChannelClosed { code: *code, text: text.clone(), in_flight }
        }
        ChannelError::ConnectionLost(reason) => {
            Verdict::ConnectionLost { reason: reason.to_string(), in_flight }
        }
        // Never the end of a channel; an outstanding publish is in doubt whatever the words.
        ChannelError::Invalid(text) => Verdict::ChannelClosed { code: 0, text: text.clone(), in_flight },
    }
}
