//! Messages of a topic share a request.
//!
//! Nobody waits for a batch to fill: what comes while every request is under way leaves together in the next one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use consign_core::outcome::{Doubt, Outcome};
use consign_failpoint as failpoint;
use consign_rocketmq::{Message, Producer};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::accepted::StoredStatus;
use super::outcome::{outcome, refused};

/// How many requests are under way at once.
const REQUESTS_MAX: usize = 6;
/// How many messages share a request.
const MESSAGES_MAX: usize = 64;
/// How many bytes share a request. The broker takes a batch of at most its `maxMessageSize`, 4 MiB by default.
const BYTES_MAX: usize = 1024 * 1024;
/// How many messages wait in front of the dispatcher before those behind them wait for room.
const WAITING_MAX: usize = 4096;

/// A message on its way into a batch.
struct Parcel {
    message: Message,
    bytes: usize,
    deadline: Instant,
    /// Set by whoever is first: the dispatcher that sends it, or the publish that gives up before.
    taken: Arc<AtomicBool>,
    answer: oneshot::Sender<Outcome>,
}

/// The way into batches. Its task ends with it; requests under way end, too.
#[derive(Debug)]
pub(super) struct Batches {
    parcels: mpsc::Sender<Parcel>,
    _dispatcher: JoinSet<()>,
}

impl Batches {
    pub fn start(producer: Producer, accepted: Arc<[StoredStatus]>) -> Self {
        let (parcels, waiting) = mpsc::channel(WAITING_MAX);
        let mut dispatcher = JoinSet::new();
        dispatcher.spawn(Dispatcher { producer, accepted, lanes: Lanes::default() }.run(waiting));
        Self { parcels, _dispatcher: dispatcher }
    }

    /// Sends the message with whatever others of its topic wait, and resolves by the deadline.
    pub async fn publish(&self, message: Message, deadline: Instant) -> Outcome {
        let taken = Arc::new(AtomicBool::new(false));
        let (answer, answered) = oneshot::channel();
        let bytes = size(&message);
        let parcel = Parcel { message, bytes, deadline, taken: Arc::clone(&taken), answer };
        let exchange = async {
            if self.parcels.send(parcel).await.is_err() {
                return refused("the destination is closed");
            }
            // On its way to the socket, or through it.
            failpoint::pass("publish.before_confirm");
            answered.await.unwrap_or_else(|_| {
                Outcome::Unknown(Doubt::ConnectionLost("the destination was closed meanwhile".to_owned()))
            })
        };
        match timeout_at(deadline, exchange).await {
            Ok(outcome) => outcome,
            Err(_) if taken.swap(true, Ordering::AcqRel) => Outcome::Unknown(Doubt::ConfirmTimedOut),
            Err(_) => refused("no request was free before the publish deadline"),
        }
    }
}

/// About what a message adds to a request and to the broker's batch.
fn size(message: &Message) -> usize {
    const FRAME_BYTES: usize = 128;
    let properties: usize = message.properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    let keys: usize = message.keys.iter().map(String::len).sum();
    message.body.len() + properties + keys + message.message_id.len() + FRAME_BYTES
}

/// The messages that wait, by topic; topics take turns.
#[derive(Default)]
struct Lanes {
    waiting: HashMap<String, VecDeque<Parcel>>,
    turns: VecDeque<String>,
}

impl Lanes {
    fn push(&mut self, parcel: Parcel) {
        let topic = parcel.message.topic.clone();
        let lane = self.waiting.entry(topic.clone()).or_default();
        if lane.is_empty() {
            self.turns.push_back(topic);
        }
        lane.push_back(parcel);
    }

    /// The next batch, of one topic.
    fn next(&mut self) -> Option<Vec<Parcel>> {
        let topic = self.turns.pop_front()?;
        let lane = self.waiting.get_mut(&topic)?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(parcel) = lane.front() {
            if batch.len() == MESSAGES_MAX || (!batch.is_empty() && bytes + parcel.bytes > BYTES_MAX) {
                break;
            }
            bytes += parcel.bytes;
            batch.extend(lane.pop_front());
        }
        if lane.is_empty() {
            self.waiting.remove(&topic);
        } else {
            self.turns.push_back(topic);
        }
        Some(batch)
    }
}

struct Dispatcher {
    producer: Producer,
    accepted: Arc<[StoredStatus]>,
    lanes: Lanes,
}

impl Dispatcher {
    async fn run(mut self, mut waiting: mpsc::Receiver<Parcel>) {
        let mut requests = JoinSet::new();
        loop {
            tokio::select! {
                parcel = waiting.recv() => match parcel {
                    Some(parcel) => self.lanes.push(parcel),
                    None => return,
                },
                Some(_) = requests.join_next() => {}
            }
            // Those who publish at the same time get to send theirs before the request leaves.
            tokio::task::yield_now().await;
            while let Ok(parcel) = waiting.try_recv() {
                self.lanes.push(parcel);
            }
            while requests.len() < REQUESTS_MAX {
                let Some(batch) = self.lanes.next() else { break };
                let batch = still_wanted(batch);
                if !batch.is_empty() {
                    requests.spawn(send(self.producer.clone(), Arc::clone(&self.accepted), batch));
                }
            }
        }
    }
}

/// Leaves out messages whose publish has given up, which from now on must wait for what becomes of theirs.
fn still_wanted(batch: Vec<Parcel>) -> Vec<Parcel> {
    batch.into_iter().filter(|parcel| !parcel.taken.swap(true, Ordering::AcqRel)).collect()
}

async fn send(producer: Producer, accepted: Arc<[StoredStatus]>, batch: Vec<Parcel>) {
    // Each publish keeps its own deadline; the request may take as long as the last of them.
    let Some(deadline) = batch.iter().map(|parcel| parcel.deadline).max() else { return };
    let messages: Vec<Message> = batch.iter().map(|parcel| parcel.message.clone()).collect();
    let alone = messages.len() == 1;
    let results = producer.send_many(messages, deadline).await;
    let outcomes = results.into_iter().map(|result| outcome(result, &accepted));
    let mut suspects = Vec::new();
    for (parcel, outcome) in batch.into_iter().zip(outcomes) {
        // The broker stores a batch as a whole or not at all, and does not say whose fault a refusal was.
        if !alone && matches!(outcome, Outcome::Rejected { .. }) {
            suspects.push(parcel);
        } else {
            let _ = parcel.answer.send(outcome);
        }
    }
    for Parcel { message, deadline, answer, .. } in suspects {
        let result = Box::pin(producer.send(message, deadline)).await;
        let _ = answer.send(outcome(result, &accepted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(topic: &str, id: usize, bytes: usize) -> Parcel {
        let message = Message { topic: topic.into(), message_id: id.to_string(), ..Message::default() };
        Parcel {
            message,
            bytes,
            deadline: Instant::now(),
            taken: Arc::default(),
            answer: oneshot::channel().0,
        }
    }

    fn ids(batch: &[Parcel]) -> Vec<&str> {
        batch.iter().map(|parcel| parcel.message.message_id.as_str()).collect()
    }

    #[tokio::test]
    async fn a_batch_has_one_topic_and_topics_take_turns() {
        let mut lanes = Lanes::default();
        for (id, topic) in ["a", "b", "a", "b", "a"].into_iter().enumerate() {
            lanes.push(parcel(topic, id, 10));
        }

        assert_eq!(ids(&lanes.next().unwrap()), ["0", "2", "4"]);
        assert_eq!(ids(&lanes.next().unwrap()), ["1", "3"]);
        assert!(lanes.next().is_none() && lanes.waiting.is_empty());
    }

    #[tokio::test]
    async fn a_batch_ends_before_it_has_too_many_messages_or_bytes() {
        let mut lanes = Lanes::default();
        for id in 0..=MESSAGES_MAX {
            lanes.push(parcel("many", id, 10));
        }
        for (id, bytes) in [BYTES_MAX / 2, BYTES_MAX / 2, 1, 2 * BYTES_MAX, 1].into_iter().enumerate() {
            lanes.push(parcel("large", id, bytes));
        }

        let mut batches = std::iter::from_fn(|| lanes.next().map(|batch| batch.len()));

        assert_eq!(batches.by_ref().take(2).collect::<Vec<_>>(), [MESSAGES_MAX, 2]);
        assert_eq!(batches.collect::<Vec<_>>(), [1, 1, 1, 1], "the one too large travels alone");
    }

    #[tokio::test]
    async fn a_message_whose_publish_gave_up_is_left_out() {
        let (kept, gone) = (parcel("t", 0, 1), parcel("t", 1, 1));
        gone.taken.store(true, Ordering::Release);

        let batch = still_wanted(vec![kept, gone]);

        assert_eq!(ids(&batch), ["0"]);
        assert!(batch[0].taken.load(Ordering::Acquire), "from now on its publish must wait");
    }
}
