//! The task behind a source: it keeps receives in flight, and tells the broker what was decided.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consign_core::time::Monotonic;
use consign_rocketmq::{CallError, Code, Consumer, GroupSettings, Handle, HandleKept, Received};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::SourceOptions;
use super::holdings::{Answer, Ask, Call, Holdings, Settlement, Terms, Ticket};
use super::mapping::arrival;

/// How long a receive waits for a message: the least a proxy does. A consumer that dies leaves its polls behind, and what
/// they take meanwhile is late, or lost by a broker that is not set up for it (docs/operations/rocketmq.md).
const POLL: Duration = Duration::from_secs(5);
/// No proxy gives more at once.
const RECEIVE_MAX: usize = 32;
/// Receives side by side at least, so that the next one is asked while an answer is read.
const RECEIVES_MIN: usize = 2;
/// Receives side by side at most.
const RECEIVES_MAX: usize = 16;
/// How often it is looked how many lanes there are to poll.
const LANES_EVERY: Duration = Duration::from_secs(30);
/// How long one settlement may take.
const CALL_WAIT: Duration = Duration::from_secs(3);
/// Settlements in flight, and how many acknowledgements share one.
const CALLS_MAX: usize = 8;
const ACKS_PER_CALL: usize = 64;
/// How long a closing source waits for the broker: a poll has to end by itself, since one that is cancelled may lose a
/// message.
pub(super) const CLOSE_WAIT: Duration = Duration::from_secs(8);
/// The pauses after a receive that failed.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// What a source, its receipts and its task share.
#[derive(Debug)]
pub(super) struct Shared {
    holdings: Mutex<Holdings<Handle>>,
    origin: Instant,
    /// A message may be ready.
    arrived: Notify,
    /// Something was decided.
    decided: Notify,
    closing: watch::Sender<bool>,
    pub ordered: bool,
    pub broker_retries: bool,
    pub dead_letter_topic: bool,
}

impl Shared {
    pub fn new(options: &SourceOptions) -> Self {
        let SourceOptions { prefetch, invisible, ordered, .. } = *options;
        let terms = Terms { prefetch: prefetch.get().into(), invisible, ordered };
        Self {
            holdings: Mutex::new(Holdings::new(terms)),
            origin: Instant::now(),
            arrived: Notify::new(),
            decided: Notify::new(),
            closing: watch::Sender::new(false),
            ordered,
            broker_retries: options.broker_retries,
            dead_letter_topic: options.dead_letter_topic,
        }
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings<Handle>> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, instant: Instant) -> Monotonic {
        Monotonic::new(instant.saturating_duration_since(self.origin))
    }

    fn now(&self) -> Monotonic {
        self.moment(Instant::now())
    }

    /// The next message to hand out. Dropping the future loses nothing.
    pub async fn next(&self) -> (Ticket, consign_core::delivery::Message) {
        loop {
            let next = self.holdings().next(self.now());
            if let Some(next) = next {
                return next;
            }
            self.arrived.notified().await;
        }
    }

    /// Decides about a message that is out; `false` when its handle has lapsed.
    pub fn settle(&self, ticket: Ticket, settlement: Settlement) -> bool {
        let settled = self.holdings().settle(ticket, settlement, self.now());
        self.decided.notify_one();
        // In an ordered group the one behind it may have its turn now.
        self.arrived.notify_one();
        settled.is_ok()
    }

    pub fn stop(&self) {
        self.holdings().stop(self.now());
        self.decided.notify_one();
    }

    /// Lets the task end when nothing is out any more.
    pub fn close(&self) {
        self.stop();
        self.closing.send_replace(true);
        self.decided.notify_one();
    }
}

/// What a call brought.
type Answered = (Vec<(Ticket, Ask, Answer<Handle>)>, Instant);

/// What a receive brought.
struct Receive {
    slots: usize,
    asked: Instant,
    result: Result<Vec<Received>, CallError>,
}

/// The task's state.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    consumer: Consumer,
    options: SourceOptions,
    settings: watch::Receiver<Option<GroupSettings>>,
    receiving: JoinSet<Receive>,
    calling: JoinSet<Answered>,
    counting: JoinSet<Result<usize, CallError>>,
    lanes: usize,
    count_at: Instant,
    receive_at: Instant,
    pause: Duration,
    /// The last trouble that was logged, so that an absent topic is one line.
    said: String,
    /// When a closing source gives up on the broker.
    end_by: Option<Instant>,
}

impl Keeper {
    pub fn new(shared: Arc<Shared>, consumer: Consumer, options: SourceOptions) -> Self {
        let now = Instant::now();
        Self {
            settings: consumer.settings(),
            shared,
            consumer,
            options,
            receiving: JoinSet::new(),
            calling: JoinSet::new(),
            counting: JoinSet::new(),
            lanes: 1,
            count_at: now,
            receive_at: now,
            pause: PAUSE_MIN,
            said: String::new(),
            end_by: None,
        }
    }

    /// Runs until the source is closed and nothing is held, or the broker was waited for long enough.
    pub async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            self.start();
            if self.over() {
                break;
            }
            let wake_at = self.wake_at();
            tokio::select! {
                Some(received) = self.receiving.join_next() => self.received(received),
                Some(answered) = self.calling.join_next() => self.answered(answered),
                Some(counted) = self.counting.join_next() => self.counted(&counted),
                Ok(()) = self.settings.changed() => {}
                () = shared.decided.notified() => {}
                () = sleep_until(wake_at) => {}
            }
            // A pause may be over, or a message may have come.
            shared.arrived.notify_one();
        }
        self.consumer.close().await;
    }

    fn start(&mut self) {
        if !*self.shared.closing.borrow() {
            self.count_lanes();
            self.start_receives();
        }
        self.start_calls();
    }

    fn over(&mut self) -> bool {
        if !*self.shared.closing.borrow() {
            return false;
        }
        let holdings = self.shared.holdings();
        if holdings.idle() {
            return true;
        }
        if holdings.any_out() {
            return false;
        }
        let end_by = *self.end_by.get_or_insert_with(|| Instant::now() + CLOSE_WAIT);
        Instant::now() >= end_by
    }

    fn wake_at(&self) -> Instant {
        let far = Instant::now() + LANES_EVERY;
        let held = self.shared.holdings().next_moment();
        let held = held.map(|moment| self.shared.origin + moment.since_origin());
        let receive = (self.receive_at > Instant::now()).then_some(self.receive_at);
        [held, receive, self.end_by].into_iter().flatten().fold(far, Instant::min)
    }

    fn count_lanes(&mut self) {
        if Instant::now() >= self.count_at && self.counting.is_empty() {
            self.count_at = Instant::now() + LANES_EVERY;
            let consumer = self.consumer.clone();
            self.counting.spawn(async move { consumer.lanes(Instant::now() + CALL_WAIT).await });
        }
    }

    fn counted(&mut self, counted: &Result<Result<usize, CallError>, JoinError>) {
        if let Ok(Ok(lanes)) = counted {
            self.lanes = *lanes;
        }
    }

    /// Keeps one receive in flight for each lane, within what may be unsettled.
    fn start_receives(&mut self) {
        if Instant::now() < self.receive_at || !self.may_receive() {
            return;
        }
        let side_by_side = self.lanes.clamp(RECEIVES_MIN, RECEIVES_MAX);
        let share = (usize::from(self.options.prefetch.get()) / side_by_side).clamp(1, RECEIVE_MAX);
        while self.receiving.len() < side_by_side {
            let slots = self.shared.holdings().reserve(share);
            if slots == 0 {
                return;
            }
            let (consumer, invisible) = (self.consumer.clone(), self.options.invisible);
            let max = u32::try_from(slots).expect("a receive takes few messages");
            self.receiving.spawn(async move {
                let asked = Instant::now();
                let result = consumer.receive(max, invisible, POLL).await;
                Receive { slots, asked, result }
            });
        }
    }

    /// The broker and the options must agree whether the group is an ordered one: an unordered group delivers side by
    /// side (apache/rocketmq#8154), and an ordered one loses its order to parked deliveries.
    fn may_receive(&mut self) -> bool {
        let told = self.settings.borrow_and_update().and_then(|settings| settings.fifo);
        match (self.options.ordered, told) {
            (true, Some(true)) | (false, Some(false) | None) => true,
            (true, None) => false,
            (true, Some(false)) => {
                self.say("the group is not ordered at the broker: create it with consumeMessageOrderly");
                false
            }
            (false, Some(true)) => {
                self.say("the group is ordered at the broker and not in the config: set ordered = true");
                false
            }
        }
    }

    fn received(&mut self, received: Result<Receive, JoinError>) {
        let Some(Receive { slots, asked, result }) = finished(received) else { return };
        let (arrivals, trouble) = match result {
            Ok(received) => (received.into_iter().map(arrival).collect(), None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let (asked, now) = (self.shared.moment(asked), self.shared.now());
        self.shared.holdings().received(slots, arrivals, asked, now);
        match trouble {
            None => {
                self.pause = PAUSE_MIN;
                self.said.clear();
            }
            Some(error) => {
                self.say(&error.to_string());
                self.receive_at = Instant::now() + self.pause;
                self.pause = (self.pause * 2).min(PAUSE_MAX);
            }
        }
    }

    fn say(&mut self, reason: &str) {
        let SourceOptions { group, topic, .. } = &self.options;
        if reason == self.said {
            tracing::debug!(%group, %topic, reason, "still not receiving");
        } else {
            tracing::warn!(%group, %topic, reason, "not receiving, trying again");
            reason.clone_into(&mut self.said);
        }
    }

    fn start_calls(&mut self) {
        while self.calling.len() < CALLS_MAX {
            let now = self.shared.now();
            let calls = self.shared.holdings().calls(ACKS_PER_CALL, now);
            if calls.is_empty() {
                return;
            }
            let acks = |call: &Call<Handle>| call.ask == Ask::Settle(Settlement::Ack);
            let (acks, others): (Vec<_>, Vec<_>) = calls.into_iter().partition(acks);
            if !acks.is_empty() {
                self.calling.spawn(acknowledge(self.consumer.clone(), acks));
            }
            for call in others {
                let max_attempts = self.settings.borrow().and_then(|settings| settings.max_attempts);
                self.calling.spawn(one_call(self.consumer.clone(), call, max_attempts));
            }
        }
    }

    fn answered(&mut self, answered: Result<Answered, JoinError>) {
        let Some((answers, sent)) = finished(answered) else { return };
        let (sent, now) = (self.shared.moment(sent), self.shared.now());
        let mut holdings = self.shared.holdings();
        for (ticket, ask, answer) in answers {
            holdings.answered(ticket, ask, answer, sent, now);
        }
    }
}

/// What a task came to; `None` when the runtime ended before it did, and with it everything here.
fn finished<T>(task: Result<T, JoinError>) -> Option<T> {
    match task {
        Ok(done) => Some(done),
        Err(error) if error.is_cancelled() => None,
        Err(error) => panic!("a receive and a settlement do not panic: {error}"),
    }
}

async fn acknowledge(consumer: Consumer, calls: Vec<Call<Handle>>) -> Answered {
    let sent = Instant::now();
    let (tickets, handles): (Vec<_>, Vec<_>) =
        calls.into_iter().map(|call| (call.ticket, call.handle)).unzip();
    let results = consumer.ack_many(handles, sent + CALL_WAIT).await;
    let answers = tickets.into_iter().zip(results).map(|(ticket, result)| {
        let answer = result.map_or_else(judge, |()| Answer::Done);
        (ticket, Ask::Settle(Settlement::Ack), answer)
    });
    (answers.collect(), sent)
}

async fn one_call(consumer: Consumer, call: Call<Handle>, max_attempts: Option<u32>) -> Answered {
    let Call { ticket, handle, ask, attempt } = call;
    let sent = Instant::now();
    let deadline = sent + CALL_WAIT;
    let result = match ask {
        Ask::Settle(Settlement::Ack) => consumer.ack(handle, deadline).await.map(|()| Answer::Done),
        Ask::Settle(Settlement::PutAside) => {
            let max_attempts = max_attempts.unwrap_or(attempt);
            let forwarded = consumer.forward_to_dead_letter(handle, attempt, max_attempts, deadline).await;
            forwarded.map(|()| Answer::Done)
        }
        Ask::Settle(Settlement::Return(delay)) => {
            consumer.change_invisible(handle, delay, deadline).await.map(|_| Answer::Done)
        }
        Ask::Extend(span) => consumer.change_invisible(handle, span, deadline).await.map(Answer::Extended),
    };
    (vec![(ticket, ask, result.unwrap_or_else(judge))], sent)
}

/// What a failed settlement means. Servers hide many passing troubles behind their codes from 50000 on.
fn judge(kept: HandleKept) -> Answer<Handle> {
    const SERVERS_FAULT: i32 = 50_000;
    let HandleKept { handle, error } = kept;
    tracing::debug!(message = handle.message_id(), %error, "not settled");
    match error.code() {
        Some(Code::INVALID_RECEIPT_HANDLE) => Answer::Lapsed,
        None | Some(Code::TOO_MANY_REQUESTS | Code::UNRECOGNIZED_CLIENT_TYPE) => Answer::Again(handle),
        Some(code) if code.number() >= SERVERS_FAULT => Answer::Again(handle),
        Some(_) => Answer::Refused(handle),
    }
}
