//! What waits to be written.
//!
//! Every entry knows whether a byte of it was handed to the socket. A publish takes its delivery tag
//! only with its first byte, so that one that never left can be taken back without a gap in the tags.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::command::ChannelKey;
use crate::publisher::Verdict;
use crate::request::Frames;

/// A publish that was not written yet.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) key: ChannelKey,
    pub(crate) message_id: String,
    /// Deadline and serial: the key in [`Deadlines`](super::deadlines::Deadlines).
    pub(crate) due: (Instant, u64),
    pub(crate) reply: oneshot::Sender<Verdict>,
}

#[derive(Debug)]
struct Entry {
    /// Chunks and bytes that are left of it.
    chunks: usize,
    left: usize,
    /// Present until the first byte is written; `None` for everything that is no publish.
    publish: Option<Queued>,
}

/// The bytes to write, in order.
#[derive(Debug, Default)]
pub(crate) struct Output {
    entries: VecDeque<Entry>,
    /// The chunks of all entries.
    chunks: VecDeque<Bytes>,
    /// Whether the first entry was partly written.
    front_started: bool,
}

impl Output {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends frames that are no publish; none at all are fine.
    pub(crate) fn push(&mut self, frames: Bytes) {
        if !frames.is_empty() {
            self.entries.push_back(Entry { chunks: 1, left: frames.len(), publish: None });
            self.chunks.push_back(frames);
        }
    }

    /// Appends a publish.
    pub(crate) fn push_publish(&mut self, frames: Frames, publish: Queued) {
        let Frames { head, rest } = frames;
        let left = head.len() + rest.iter().map(Bytes::len).sum::<usize>();
        self.entries.push_back(Entry { chunks: 1 + rest.len(), left, publish: Some(publish) });
        self.chunks.push_back(head);
        self.chunks.extend(rest);
    }

    /// Fills `slices` with the next bytes to write and returns how many slices were filled.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slot, chunk) in slices.iter_mut().zip(&self.chunks) {
            *slot = IoSlice::new(chunk);
            filled += 1;
        }
        filled
    }

    /// Drops the first `written` bytes; publishes whose first byte is among them go to `started`.
    pub(crate) fn advance(&mut self, mut written: usize, started: &mut Vec<Queued>) {
        while written > 0 {
            let (Some(entry), Some(chunk)) = (self.entries.front_mut(), self.chunks.front_mut()) else {
                return;
            };
            started.extend(entry.publish.take());
            let step = written.min(chunk.len());
            chunk.advance(step);
            written -= step;
            entry.left -= step;
            self.front_started = true;
            if chunk.is_empty() {
                self.chunks.pop_front();
                entry.chunks -= 1;
            }
            if entry.left == 0 {
                self.entries.pop_front();
                self.front_started = false;
            }
        }
    }

    /// Takes back the publishes that `unwanted` picks and of which nothing was written.
    pub(crate) fn take_back(&mut self, unwanted: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let mut taken = Vec::new();
        let wanted = |entry: &Entry| !entry.publish.as_ref().is_some_and(&unwanted);
        if self.entries.iter().all(&wanted) {
            return taken;
        }
        let mut chunks = std::mem::take(&mut self.chunks).into_iter();
        for entry in std::mem::take(&mut self.entries) {
            let own = chunks.by_ref().take(entry.chunks);
            if wanted(&entry) {
                self.chunks.extend(own);
                self.entries.push_back(entry);
            } else {
                own.for_each(drop);
                taken.extend(entry.publish);
            }
        }
        taken
    }

    /// Drops everything: the socket is gone. Publishes must have been taken back.
    pub(crate) fn clear_all(&mut self) {
        self.front_started = false;
        self.clear_unwritten();
    }

    /// Drops everything but the rest of a partly written entry. Publishes must have been taken back.
    pub(crate) fn clear_unwritten(&mut self) {
        let kept = usize::from(self.front_started);
        self.entries.truncate(kept);
        self.chunks.truncate(self.entries.front().map_or(0, |entry| entry.chunks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(serial: u64, rest: &[&'static [u8]]) -> (Frames, Queued) {
        let (reply, _) = oneshot::channel();
        let key = ChannelKey { number: 1, serial: 1 };
        let due = (Instant::now(), serial);
        let frames = Frames {
            head: Bytes::from_static(b"head"),
            rest: rest.iter().map(|part| Bytes::from_static(part)).collect(),
        };
        (frames, Queued { key, message_id: serial.to_string(), due, reply })
    }

    fn bytes(output: &Output) -> Vec<u8> {
        output.chunks.iter().flatten().copied().collect()
    }

    #[tokio::test]
    async fn publish_starts_with_its_first_byte_and_cannot_be_taken_back_then() {
        let mut output = Output::default();
        for serial in 1..=3 {
            let (frames, queued) = publish(serial, &[b"body"]);
            output.push_publish(frames, queued);
        }
        output.push(Bytes::from_static(b"ack"));
        let mut started = Vec::new();
        output.advance(8, &mut started);
        assert_eq!(started.len(), 1, "the second publish has no byte written yet");
        output.advance(5, &mut started);
        assert_eq!(started.iter().map(|queued| queued.due.1).collect::<Vec<_>>(), [1, 2]);
        let taken = output.take_back(|_| true);
        assert_eq!(taken.iter().map(|queued| queued.due.1).collect::<Vec<_>>(), [3]);
        assert_eq!(bytes(&output), b"odyack");
        output.clear_unwritten();
        assert_eq!(bytes(&output), b"ody");
        output.advance(3, &mut started);
        assert!(output.is_empty() && bytes(&output).is_empty());
    }

    #[tokio::test]
    async fn clearing_a_queue_nobody_wrote_from_leaves_nothing() {
        let mut output = Output::default();
        output.push(Bytes::from_static(b"ack"));
        output.clear_unwritten();
        assert!(output.is_empty() && bytes(&output).is_empty());
    }

    #[tokio::test]
    async fn slices_follow_the_order_of_the_queue() {
        let mut output = Output::default();
        output.push(Bytes::from_static(b"a"));
        let (frames, queued) = publish(1, &[b"b", b"c"]);
        output.push_publish(frames, queued);
        let mut slices = [IoSlice::new(&[]); 3];
        assert_eq!(output.fill(&mut slices), 3);
        assert_eq!(slices.iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat(), b"aheadb");
    }
}
