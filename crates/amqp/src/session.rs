//! The state of a connection after its handshake. No socket in here: bytes written and frames read are
//! reported to it, and it says what to write and when to wake it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::command::{ChannelKey, ChannelLease, Command, OpenedChannel, Publish};
use crate::error::{ChannelError, ChannelId, CloseReason, ClosedBy};
use crate::frame::{Fatal, Frame, FrameKind};
use crate::method::{self, Incoming};
use crate::publisher::Verdict;
use crate::request::{self, HEARTBEAT};

pub(crate) mod channel;
pub(crate) mod content;
pub(crate) mod deadlines;
mod incoming;
pub(crate) mod output;
pub(crate) mod unsettled;

use channel::{ChannelState, Waiter};
use deadlines::Deadlines;
use output::{Output, Queued};

/// Time to write the last frame of a connection that has ended.
const FAREWELL: Duration = Duration::from_secs(1);

/// What was agreed in the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) incarnation: u64,
    /// Largest frame either side may send, in bytes.
    pub(crate) frame_max: usize,
    pub(crate) channel_max: u16,
    /// Zero: no heartbeats.
    pub(crate) heartbeat: Duration,
}

/// How far the connection is.
#[derive(Debug)]
enum Phase {
    Open,
    /// This side sent `connection.close` and waits for the answer until then.
    Closing(Instant),
    /// It has ended; what is left to write may be written until then.
    Ended(Instant),
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    settings: Settings,
    /// For the leases of new channels; weak, so that the session does not keep itself alive.
    handles: mpsc::WeakUnboundedSender<Command>,
    phase: Phase,
    channels: BTreeMap<u16, ChannelState>,
    last_number: u16,
    last_serial: u64,
    output: Output,
    /// Numbers of channels on which acks wait.
    acking: BTreeSet<u16>,
    deadlines: Deadlines,
    blocked: watch::Sender<Option<String>>,
    closed: watch::Sender<Option<CloseReason>>,
    last_read: Instant,
    last_write: Instant,
    started: Vec<Queued>,
}

impl Session {
    pub(crate) fn new(
        settings: Settings,
        handles: mpsc::WeakUnboundedSender<Command>,
        blocked: watch::Sender<Option<String>>,
        closed: watch::Sender<Option<CloseReason>>,
        now: Instant,
    ) -> Self {
        Self {
            settings,
            handles,
            phase: Phase::Open,
            channels: BTreeMap::new(),
            last_number: 0,
            last_serial: 0,
            output: Output::default(),
            acking: BTreeSet::new(),
            deadlines: Deadlines::default(),
            blocked,
            closed,
            last_read: now,
            last_write: now,
            started: Vec::new(),
        }
    }

    /// Largest frame agreed, in bytes.
    pub(crate) fn frame_max(&self) -> usize {
        self.settings.frame_max
    }

    /// What to write.
    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    /// Whether frames from the server still matter.
    pub(crate) fn is_reading(&self) -> bool {
        !matches!(self.phase, Phase::Ended(_))
    }

    /// Whether there is nothing left to do.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        matches!(self.phase, Phase::Ended(farewell) if self.output.is_empty() || farewell <= now)
    }

    /// When to call [`on_time`](Self::on_time) next.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Open => None,
            Phase::Closing(deadline) | Phase::Ended(deadline) => Some(deadline),
        };
        let heartbeat = self.settings.heartbeat;
        let beating = !heartbeat.is_zero() && self.is_reading();
        let silent = beating.then(|| self.last_read + heartbeat * 2);
        // While something waits to be written it serves as the heartbeat as soon as it goes.
        let beat = (beating && self.output.is_empty()).then(|| self.last_write + heartbeat / 2);
        [phase, silent, beat, self.deadlines.first()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub(crate) fn on_time(&mut self, now: Instant) {
        self.expire(now);
        match self.phase {
            Phase::Closing(deadline) if deadline <= now => {
                self.finish(wanted("the server did not answer the close in time"), now);
            }
            _ => {}
        }
        let heartbeat = self.settings.heartbeat;
        if heartbeat.is_zero() || !self.is_reading() {
            return;
        }
        if self.last_read + heartbeat * 2 <= now {
            let seconds = (heartbeat * 2).as_secs();
            let text = format!("not a byte from the server for two heartbeats ({seconds} s)");
            self.finish(CloseReason { code: 0, text, by: ClosedBy::Network }, now);
        } else if self.output.is_empty() && self.last_write + heartbeat / 2 <= now {
            self.output.push(Bytes::from_static(HEARTBEAT));
        }
    }

    /// Gives the verdict on publishes whose deadline has come.
    fn expire(&mut self, now: Instant) {
        let mut unwritten = HashSet::new();
        let blocked = self.blocked.borrow().is_some();
        let mut exhausted = None;
        while let Some((serial, due)) = self.deadlines.pop(now) {
            let Some(tag) = due.tag else {
                unwritten.insert(serial);
                continue;
            };
            let Some(channel) = self.channels.get_mut(&due.channel) else { continue };
            let blocked = blocked || !channel.flowing;
            let Some(confirms) = &mut channel.confirms else { continue };
            if let Some(waiter) = confirms.on_deadline(tag) {
                drop(waiter.reply.send(Verdict::TimedOut { blocked }));
            }
            if let Err(violation) = confirms.check_tombstones() {
                exhausted = Some((due.channel, violation));
            }
        }
        if !unwritten.is_empty() {
            let reason = "the deadline passed before it could be written";
            self.refuse_queued(reason, |queued| unwritten.contains(&queued.due.1));
        }
        if let Some((number, violation)) = exhausted {
            self.give_up(number, &violation.to_string());
        }
    }

    /// The socket took `written` bytes.
    pub(crate) fn on_written(&mut self, written: usize, now: Instant) {
        self.last_write = now;
        let mut started = std::mem::take(&mut self.started);
        self.output.advance(written, &mut started);
        for Queued { key, message_id, due, reply } in started.drain(..) {
            // Publishes of a channel that ended were taken back then.
            let channel = self.channels.get_mut(&key.number).filter(|channel| channel.key == key);
            if let Some(confirms) = channel.and_then(|channel| channel.confirms.as_mut()) {
                let tag = confirms.register(message_id, Waiter { reply, due });
                self.deadlines.written(due, tag);
            }
        }
        self.started = started;
    }

    /// The socket gave some bytes.
    pub(crate) fn on_read(&mut self, now: Instant) {
        self.last_read = now;
    }

    /// The socket failed or ended.
    pub(crate) fn on_lost(&mut self, text: String, now: Instant) {
        match self.phase {
            Phase::Open => self.finish(CloseReason { code: 0, text, by: ClosedBy::Network }, now),
            Phase::Closing(_) => self.finish(wanted("closed without the server's answer"), now),
            Phase::Ended(_) => {}
        }
        self.output.clear_all();
    }

    /// All handles are gone, or one of them asked to close.
    pub(crate) fn start_close(&mut self, deadline: Instant) {
        if matches!(self.phase, Phase::Open) {
            self.refuse_queued("the connection is being closed", |_| true);
            self.flush_acks();
            self.output.push(request::close(0, method::CONNECTION_CLOSE, 200, "bye"));
            self.phase = Phase::Closing(deadline);
        }
    }

    /// Serves a request of a handle.
    pub(crate) fn command(&mut self, command: Command, now: Instant) {
        if !matches!(self.phase, Phase::Open) {
            // Deliveries can still be settled while the close is on its way, but nobody would answer.
            self.refuse(command);
            return;
        }
        match command {
            Command::OpenChannel { reply } => self.open_channel(reply),
            Command::Call(call) => {
                // Without a channel the call is dropped; its lease knows why the channel ended.
                let number = call.key.number;
                if let Some(frame) = self.open_channel_mut(call.key).map(|channel| channel.called(call)) {
                    self.send(number, frame);
                }
            }
            Command::Publish(publish) => self.publish(publish, now),
            Command::Ack { key, tag } => {
                if self.open_channel_mut(key).is_some_and(|channel| channel.unsettled.ack(tag)) {
                    self.acking.insert(key.number);
                }
            }
            Command::GiveBack { key, tags, frame } => {
                if let Some(frames) =
                    self.open_channel_mut(key).map(|channel| channel.give_back(tags, &frame))
                {
                    self.output.push(frames);
                }
            }
            Command::Send { key, frame } => {
                if self.open_channel_mut(key).is_some() {
                    self.send(key.number, frame);
                }
            }
            Command::CloseChannel { key } => {
                if self.open_channel_mut(key).is_some() {
                    self.close_channel(key.number, 200, "closed by this side");
                }
            }
            Command::Close { deadline } => self.start_close(deadline),
        }
    }

    /// Answers a request that came too late.
    pub(crate) fn refuse(&self, command: Command) {
        let reason = self.closed.borrow().clone();
        let reason = reason.unwrap_or_else(|| wanted("the connection is being closed"));
        match command {
            Command::OpenChannel { reply } => drop(reply.send(Err(ChannelError::ConnectionLost(reason)))),
            Command::Call(call) => drop(call.reply.send(Err(ChannelError::ConnectionLost(reason)))),
            Command::Publish(publish) => {
                drop(publish.reply.send(Verdict::unavailable(format!("connection is gone: {reason}"))));
            }
            Command::Ack { .. }
            | Command::GiveBack { .. }
            | Command::Send { .. }
            | Command::CloseChannel { .. }
            | Command::Close { .. } => {}
        }
    }

    /// Hands the acks that wait to the output. To be called when the socket may take something: until then
    /// more of them may come and share a frame.
    pub(crate) fn flush_acks(&mut self) {
        while let Some(number) = self.acking.pop_first() {
            self.flush_acks_of(number);
        }
    }

    fn flush_acks_of(&mut self, number: u16) {
        if let Some(channel) = self.channels.get_mut(&number) {
            self.output.push(channel.take_acks());
        }
    }

    /// Appends a frame of a channel, behind the acks that wait on it: the broker sees a channel's frames in
    /// the order in which they were asked for.
    fn send(&mut self, number: u16, frame: Bytes) {
        self.flush_acks_of(number);
        self.output.push(frame);
    }

    fn open_channel(&mut self, reply: oneshot::Sender<Result<OpenedChannel, ChannelError>>) {
        let Some(commands) = self.handles.upgrade() else { return };
        let Some(number) = self.free_number() else {
            let text = format!("all {} channels of the connection are in use", self.settings.channel_max);
            drop(reply.send(Err(ChannelError::Invalid(text))));
            return;
        };
        self.last_number = number;
        self.last_serial += 1;
        let key = ChannelKey { number, serial: self.last_serial };
        let (mut state, end) = ChannelState::new(key);
        let (opened_sender, opened) = oneshot::channel();
        let call = crate::command::Call {
            key,
            frame: request::fixed_method(number, method::CHANNEL_OPEN, &[0]),
            expects: &[method::CHANNEL_OPEN_OK],
            sink: None,
            reply: opened_sender,
        };
        self.output.push(state.called(call));
        self.channels.insert(number, state);
        let id = ChannelId { incarnation: self.settings.incarnation, number };
        let lease = ChannelLease { id, key, frame_max: self.settings.frame_max, commands, end };
        // If nobody waits any more, the lease is dropped here and closes the channel again.
        drop(reply.send(Ok(OpenedChannel { lease, opened })));
    }

    /// The next number that is free, so that a number is used again as late as possible.
    fn free_number(&self) -> Option<u16> {
        let after = (self.last_number..self.settings.channel_max).map(|number| number + 1);
        let before = 1..=self.last_number;
        after.chain(before).find(|number| !self.channels.contains_key(number))
    }

    fn open_channel_mut(&mut self, key: ChannelKey) -> Option<&mut ChannelState> {
        self.channels.get_mut(&key.number).filter(|channel| channel.key == key && !channel.closing)
    }

    fn publish(&mut self, publish: Publish, now: Instant) {
        let Publish { key, frames, message_id, deadline, reply } = publish;
        let blocked = self.blocked.borrow().as_ref().map(|reason| blocked_text(reason));
        let refusal = match self.open_channel_mut(key) {
            None => Some("the channel is closed".to_owned()),
            Some(channel) if channel.confirms.is_none() => Some("the channel has no confirms".to_owned()),
            Some(_) if blocked.is_some() => blocked,
            Some(channel) if !channel.flowing => Some(FLOW_STOPPED.to_owned()),
            Some(_) if deadline <= now => Some("its deadline has passed already".to_owned()),
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            drop(reply.send(Verdict::unavailable(refusal)));
            return;
        }
        self.last_serial += 1;
        let due = (deadline, self.last_serial);
        self.deadlines.insert(due, key.number);
        self.output.push_publish(frames, Queued { key, message_id, due, reply });
    }

    /// Gives back the publishes that `unwanted` picks, if nothing of them was written.
    fn refuse_queued(&mut self, reason: &str, unwanted: impl Fn(&Queued) -> bool) {
        for queued in self.output.take_back(unwanted) {
            self.deadlines.remove(queued.due);
            drop(queued.reply.send(Verdict::unavailable(reason)));
        }
    }

    /// Closes a channel from this side.
    fn close_channel(&mut self, number: u16, code: u16, text: &str) {
        self.flush_acks_of(number);
        self.end_channel(number, &ChannelError::Closed { code, text: text.to_owned() });
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.closing = true;
            self.output.push(request::close(number, method::CHANNEL_CLOSE, code, text));
        }
    }

    /// Closes a channel whose peer broke the rules, without a word of what is outstanding on it.
    fn give_up(&mut self, number: u16, text: &str) {
        self.close_channel(number, 505, &format!("channel given up: {text}"));
    }

    /// Tells everyone on a channel that it has ended.
    fn end_channel(&mut self, number: u16, reason: &ChannelError) {
        self.refuse_queued(&reason.to_string(), |queued| queued.key.number == number);
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.end(reason, &mut self.deadlines);
        }
    }

    /// The peer broke the protocol: says so and ends.
    pub(crate) fn fail(&mut self, fatal: Fatal, now: Instant) {
        let Fatal { code, text } = fatal;
        let close = request::close(0, method::CONNECTION_CLOSE, code, &text);
        let text = format!("the peer broke the protocol: {text}");
        self.finish(CloseReason { code, text, by: ClosedBy::Client }, now);
        self.output.push(close);
    }

    /// Ends the connection for everyone.
    fn finish(&mut self, reason: CloseReason, now: Instant) {
        if matches!(self.phase, Phase::Ended(_)) {
            return;
        }
        self.phase = Phase::Ended(now + FAREWELL);
        self.closed.send_replace(Some(reason.clone()));
        self.refuse_queued(&format!("connection is gone: {reason}"), |_| true);
        self.output.clear_unwritten();
        let reason = ChannelError::ConnectionLost(reason);
        for channel in self.channels.values_mut() {
            channel.end(&reason, &mut self.deadlines);
        }
        self.channels.clear();
    }
}

const FLOW_STOPPED: &str = "the broker stopped the flow of this channel";

fn blocked_text(reason: &str) -> String {
    format!("the broker blocks publishing: {reason}")
}

/// The reason of an end this side asked for.
fn wanted(text: &str) -> CloseReason {
    CloseReason { code: 200, text: text.to_owned(), by: ClosedBy::Client }
}

/// What a frame from the server means.
impl Session {
    /// Takes one frame. Frames must be given in the order of the wire.
    pub(crate) fn on_frame(&mut self, frame: &Frame, now: Instant) -> Result<(), Fatal> {
        match (frame.kind, frame.channel) {
            (FrameKind::Heartbeat, 0) => Ok(()),
            (FrameKind::Heartbeat, _) => Err(Fatal::unexpected("a heartbeat on a channel")),
            (FrameKind::Method, channel) => {
                let method =
                    Incoming::decode(&frame.payload).map_err(|error| Fatal::syntax(error.to_string()))?;
                if channel == 0 {
                    self.on_connection_method(method, now)
                } else {
                    self.on_method(channel, method)
                }
            }
            (FrameKind::Header | FrameKind::Body, 0) => Err(Fatal::unexpected("a message on channel 0")),
            (FrameKind::Header | FrameKind::Body, channel) => self.on_content(channel, frame),
        }
    }
}

#[cfg(test)]
mod tests;
