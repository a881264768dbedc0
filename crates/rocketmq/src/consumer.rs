//! Receiving messages: leased by the broker for a time, and settled by their handles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::code::Code;
use crate::error::{CallError, StartError};
use crate::generated::messages::receive_message_response::Content;
use crate::generated::messages::settings::PubSub;
use crate::generated::messages::{
    self, ClientType, FilterExpression, FilterType, MessageQueue, ReceiveMessageRequest, SubscriptionEntry,
};
use crate::group_settings::GroupSettings;
use crate::identity::{Identity, upper_hex};
use crate::message::duration;
use crate::options::Options;
use crate::readiness::Readiness;
use crate::route::{Broker, TopicRoute};
use crate::session::{Role, Session, lock};
use crate::status::check;
use crate::transport::{Link, Messages};

mod received;
mod settle;

pub use received::{Handle, Received};
pub use settle::HandleKept;

/// The shortest long poll a proxy makes by default, whatever it is asked for; a deadline before its end is refused with
/// `ILLEGAL_POLLING_TIME` (`grpcClientConsumerMinLongPollingTimeoutMillis` of apache/rocketmq).
const POLL_MIN: Duration = Duration::from_secs(5);

/// Which messages of a topic are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All of them.
    #[default]
    All,
    /// Those with one of these tags, written `a || b`.
    Tag(String),
    /// Those an SQL-92 condition on the properties is true for; needs `enablePropertyFilter` at the broker.
    Sql(String),
}

/// A topic and a filter. All consumers of a group must have the same: a proxy *acknowledges* what the filter of the
/// request does not match (`ConsumerProcessor` of apache/rocketmq), so another consumer of the group never sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Topic, without namespace.
    pub topic: String,
    /// The filter.
    pub filter: Filter,
}

impl Filter {
    fn on_the_wire(&self) -> FilterExpression {
        let (kind, expression) = match self {
            Self::All => (FilterType::Tag, "*"),
            Self::Tag(expression) => (FilterType::Tag, expression.as_str()),
            Self::Sql(expression) => (FilterType::Sql, expression.as_str()),
        };
        FilterExpression { r#type: kind.into(), expression: expression.to_owned() }
    }
}

/// A consumer of one group. Clones share it; its tasks end when the last clone is dropped, or with
/// [`close`](Self::close). Messages received and not settled come again after their invisible time.
///
/// A group that receives for the first time starts at the end of the topic: earlier messages are never seen
/// (`ReceiveMessageActivity` of apache/rocketmq pops with `ConsumeInitMode.MAX`).
#[derive(Clone)]
pub struct Consumer {
    inner: Arc<Inner>,
}

struct Inner {
    session: Session,
    group: messages::Resource,
    subscriptions: Vec<Subscription>,
    turn: AtomicUsize,
    /// Attempt ids whose answers got lost, per lane.
    lost_attempts: Mutex<BTreeMap<(String, String), Vec<String>>>,
}

/// Where one long poll goes: a topic and one of its brokers.
enum Lane {
    Broker(Subscription, Broker),
    /// The topic has no route yet.
    Unrouted(Subscription),
}

impl Consumer {
    /// Starts a consumer. Connections are made in the background: a proxy that is down delays nobody, see
    /// [`readiness`](Self::readiness). Must run on a tokio runtime.
    pub async fn start(
        options: &Options,
        group: &str,
        subscriptions: Vec<Subscription>,
    ) -> Result<Self, StartError> {
        let topics: BTreeSet<&str> =
            subscriptions.iter().map(|subscription| subscription.topic.as_str()).collect();
        if topics.len() != subscriptions.len() {
            return Err(StartError::Invalid(format!("group {group} subscribes twice to one topic")));
        }
        let identity = Arc::new(Identity::new(options)?);
        let group = identity.resource(group);
        let entries = subscriptions.iter().map(|subscription| SubscriptionEntry {
            topic: Some(identity.resource(&subscription.topic)),
            expression: Some(subscription.filter.on_the_wire()),
        });
        let subscription = messages::Subscription {
            group: Some(group.clone()),
            subscriptions: entries.collect(),
            ..messages::Subscription::default()
        };
        let role = Role {
            client_type: ClientType::SimpleConsumer,
            pub_sub: PubSub::Subscription(subscription),
            group: Some(group.clone()),
            topics: topics.into_iter().map(str::to_owned).collect(),
            orphans: None,
        };
        let session = Session::start(options, identity, role).await?;
        let (turn, lost_attempts) = (AtomicUsize::new(0), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { session, group, subscriptions, turn, lost_attempts }) })
    }

    /// The id this consumer has at the proxies.
    pub fn client_id(&self) -> &str {
        self.inner.session.shared().identity.client_id()
    }

    /// Whether a proxy knows this consumer.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.inner.session.shared().readiness()
    }

    /// What a proxy last said about the group; `None` until one has answered.
    pub fn settings(&self) -> watch::Receiver<Option<GroupSettings>> {
        self.inner.session.shared().told.subscribe()
    }

    /// What a proxy says about a topic, at most 30 seconds old.
    pub async fn route(&self, topic: &str, deadline: Instant) -> Result<TopicRoute, CallError> {
        Ok(self.inner.session.shared().route(topic, deadline).await?.summary())
    }

    /// How many lanes there are, pairs of a topic and a broker of it, each polled by itself. With fewer
    /// [`receive`](Self::receive) calls side by side than lanes, a message waits for its lane's turn.
    pub async fn lanes(&self, deadline: Instant) -> Result<usize, CallError> {
        let shared = self.inner.session.shared();
        let mut count = 0;
        for subscription in &self.inner.subscriptions {
            count += shared.route(&subscription.topic, deadline).await?.readable().len();
        }
        Ok(count)
    }

    /// Makes one long poll on the lane whose turn it is, for at most `max` messages (1 to 32), which then stay
    /// invisible to others for `invisible` (10 seconds to 12 hours under a proxy's defaults). No message within `wait`
    /// is an empty answer; a proxy waits 5 seconds at least, 20 at most, by its defaults.
    ///
    /// Calls may be made side by side, and dropped: the poll goes on to its end without its caller, and gives back what
    /// it brings. Nothing here cancels a poll, because a proxy answers one whose client is gone by giving the message
    /// back at once, and a broker of 5.5 loses what is given back in the millisecond it was taken
    /// (see [`change_invisible`](Self::change_invisible)).
    pub async fn receive(
        &self,
        max: u32,
        invisible: Duration,
        wait: Duration,
    ) -> Result<Vec<Received>, CallError> {
        let (answer, answered) = oneshot::channel();
        let consumer = self.clone();
        tokio::spawn(async move {
            let received = consumer.poll(max, invisible, wait).await;
            if let Err(Ok(unwanted)) = answer.send(received) {
                consumer.give_back(unwanted).await;
            }
        });
        answered.await.unwrap_or_else(|_| Err(CallError::unknown("the runtime ended during the poll")))
    }

    async fn give_back(&self, unwanted: Vec<Received>) {
        for Received { handle, .. } in unwanted {
            let deadline = Instant::now() + self.inner.session.shared().options.request_timeout;
            if let Err(kept) = self.change_invisible(handle, Duration::ZERO, deadline).await {
                tracing::debug!(%kept, "not given back: it comes again when its invisible time is over");
            }
        }
    }

    async fn poll(&self, max: u32, invisible: Duration, wait: Duration) -> Result<Vec<Received>, CallError> {
        let shared = self.inner.session.shared();
        let deadline = Instant::now() + wait.max(POLL_MIN) + shared.options.request_timeout;
        let (subscription, broker) = match self.inner.next_lane() {
            None => return Err(CallError::not_sent("no subscribed topic has a readable queue")),
            Some(Lane::Broker(subscription, broker)) => (subscription, broker),
            Some(Lane::Unrouted(subscription)) => {
                let route = shared.route(&subscription.topic, deadline).await?;
                let broker = route.readable().first().cloned();
                let text =
                    || CallError::not_sent(format!("topic {} has no readable queue", subscription.topic));
                (subscription.clone(), broker.ok_or_else(text)?)
            }
        };
        let attempt = Attempt::begin(&self.inner, &subscription.topic, &broker.name)?;
        let request = ReceiveMessageRequest {
            group: Some(self.inner.group.clone()),
            message_queue: Some(MessageQueue {
                topic: Some(shared.identity.resource(&subscription.topic)),
                // The proxy pops all queues of the broker.
                id: -1,
                broker: Some(messages::Broker { name: broker.name.clone(), id: 0, endpoints: None }),
                ..MessageQueue::default()
            }),
            filter_expression: Some(subscription.filter.on_the_wire()),
            batch_size: i32::try_from(max).unwrap_or(i32::MAX),
            invisible_duration: Some(duration(invisible)),
            auto_renew: false,
            long_polling_timeout: Some(duration(wait)),
            attempt_id: Some(attempt.id.clone()),
        };
        let mut failure = CallError::not_sent("no proxy has taken the settings of this client");
        for address in shared.standing.known_among(&broker.addresses, deadline).await? {
            let link = shared.link(&address);
            match link.receive(request.clone(), deadline).await {
                Ok(messages) => {
                    let received = collect(messages, &link, &broker).await;
                    attempt.answered(&received);
                    return received;
                }
                Err(error @ CallError::NotSent { .. }) => failure = error,
                Err(error) => return Err(error),
            }
        }
        Err(failure)
    }

    /// Ends the consumer: its tasks, and its registration with the proxies. Calls under way go on.
    pub async fn close(&self) {
        self.inner.session.close().await;
    }
}

impl Inner {
    fn next_lane(&self) -> Option<Lane> {
        let mut lanes = Vec::new();
        for subscription in &self.subscriptions {
            match self.session.shared().known_route(&subscription.topic) {
                Some(route) => lanes.extend(
                    route.readable().iter().map(|broker| Lane::Broker(subscription.clone(), broker.clone())),
                ),
                None => lanes.push(Lane::Unrouted(subscription.clone())),
            }
        }
        if lanes.is_empty() {
            return None;
        }
        let place = self.turn.fetch_add(1, Ordering::Relaxed) % lanes.len();
        Some(lanes.swap_remove(place))
    }
}

/// Reads the answer to its end. Messages that arrived are leased, so they are returned even when the rest got lost.
async fn collect(
    mut messages: Messages,
    link: &Arc<Link>,
    broker: &Broker,
) -> Result<Vec<Received>, CallError> {
    let (mut received, mut status) = (Vec::new(), None);
    let ended = loop {
        match messages.next().await {
            Ok(Some(response)) => match response.content {
                Some(Content::Message(message)) => received.push(Received::new(message, link, broker)),
                Some(Content::Status(content)) => status = Some(content),
                Some(Content::DeliveryTimestamp(_)) | None => {}
            },
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if !received.is_empty() {
        return Ok(received);
    }
    ended?;
    match check(status.as_ref()) {
        Err(CallError::Answered { code: Code::MESSAGE_NOT_FOUND, .. }) | Ok(()) => Ok(received),
        Err(error) => {
            // A proxy that lost the settings fails here rather than saying so (apache/rocketmq-clients#1137).
            if matches!(error.code(), Some(Code::UNRECOGNIZED_CLIENT_TYPE | Code::INTERNAL_SERVER_ERROR)) {
                link.want_settings();
            }
            Err(error)
        }
    }
}

/// The id of one attempt to receive. Until it is answered it counts as lost: the next attempt on the lane takes the same
/// id, by which an ordered group's broker knows a repetition, and gives the same messages at once.
struct Attempt<'a> {
    inner: &'a Inner,
    lane: (String, String),
    id: String,
    lost: bool,
}

impl<'a> Attempt<'a> {
    fn begin(inner: &'a Inner, topic: &str, broker: &str) -> Result<Self, CallError> {
        let lane = (topic.to_owned(), broker.to_owned());
        let repeated = lock(&inner.lost_attempts).get_mut(&lane).and_then(Vec::pop);
        let id = if let Some(id) = repeated {
            id
        } else {
            let mut random = [0; 16];
            getrandom::fill(&mut random)
                .map_err(|error| CallError::not_sent(format!("no random numbers: {error}")))?;
            upper_hex(&random)
        };
        Ok(Self { inner, lane, id, lost: true })
    }

    fn answered(mut self, received: &Result<Vec<Received>, CallError>) {
        self.lost = matches!(received, Err(CallError::Unknown { .. }));
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.lost {
            let (lane, id) = (std::mem::take(&mut self.lane), std::mem::take(&mut self.id));
            lock(&self.inner.lost_attempts).entry(lane).or_default().push(id);
        }
    }
}
