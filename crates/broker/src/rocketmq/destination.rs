//! Sending to the topics of one type.

use std::fmt;
use std::sync::Arc;

use consign_core::lease::Publish;
use consign_core::outcome::{Doubt, Outcome};
use consign_core::ports::{Destination, Lane, Readiness};
use consign_failpoint as failpoint;
use consign_rocketmq::{Kind, Message, Options, Producer, StartError};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use self::batch::Batches;
use self::groups::{Groups, TurnedBack};
use self::mapping::Mapping;
use self::outcome::{outcome, refused};

mod accepted;
mod batch;
mod groups;
pub(super) mod mapping;
mod outcome;

pub use self::accepted::StoredStatus;
pub use self::mapping::{EmptyBody, MessageType};

/// The default of `maxMessageSize` in broker and proxy.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many messages are under way in requests of their own.
const SINGLE_REQUESTS_MAX: usize = 128;

/// How to send to topics of one type.
#[derive(Clone, Debug)]
pub struct DestinationOptions {
    /// How to reach the cluster.
    pub connect: Options,
    /// Topics that are known beforehand: their proxies are connected to at the start. Others are found when a route key
    /// names them.
    pub topics: Vec<String>,
    /// What kind of messages is sent.
    pub message_type: MessageType,
    /// Which answers count as proof although the message is not yet safe.
    pub accepted: Vec<StoredStatus>,
    /// Larger bodies are rejected unsent.
    pub body_bytes_max: usize,
    /// What becomes of an empty payload.
    pub empty_body: EmptyBody,
    /// The CloudEvents `datacontenttype`; empty for none.
    pub content_type: String,
    /// The CloudEvents source.
    pub source: Arc<str>,
}

impl DestinationOptions {
    /// Normal JSON messages, of which only `SEND_OK` is proof.
    pub fn new(connect: Options) -> Self {
        Self {
            connect,
            topics: Vec::new(),
            message_type: MessageType::Normal,
            accepted: Vec::new(),
            body_bytes_max: BODY_BYTES_MAX,
            empty_body: EmptyBody::Reject,
            content_type: "application/json".to_owned(),
            source: "consign".into(),
        }
    }
}

/// A destination whose route keys are topics. Every copy of an event carries the event id as its message id.
///
/// Normal messages share requests with others of their topic. Messages with a group or a delay, and those in quarantine,
/// travel alone.
pub struct RocketMqDestination {
    mapping: Mapping,
    accepted: Arc<[StoredStatus]>,
    origin: Instant,
    producer: Producer,
    batches: Batches,
    groups: Groups,
    singles: Semaphore,
}

impl fmt::Debug for RocketMqDestination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RocketMqDestination")
            .field("client_id", &self.producer.client_id())
            .field("mapping", &self.mapping)
            .finish_non_exhaustive()
    }
}

impl RocketMqDestination {
    /// Starts connecting and returns at once. `origin` is the moment the relay's monotonic clock counts from. Must run
    /// on a tokio runtime.
    ///
    /// # Errors
    /// The options make no client, as with a CA file that does not load.
    pub async fn start(options: DestinationOptions, origin: Instant) -> Result<Self, StartError> {
        let DestinationOptions {
            connect,
            topics,
            message_type,
            accepted,
            body_bytes_max,
            empty_body,
            content_type,
            source,
        } = options;
        let accepted: Arc<[StoredStatus]> = accepted.into();
        let producer = Producer::start(&connect, topics).await?;
        Ok(Self {
            mapping: Mapping { message_type, body_bytes_max, empty_body, content_type, source },
            origin,
            batches: Batches::start(producer.clone(), Arc::clone(&accepted)),
            accepted,
            producer,
            groups: Groups::default(),
            singles: Semaphore::new(SINGLE_REQUESTS_MAX),
        })
    }

    /// Ends the registration with the proxies. Publishes under way go on.
    pub async fn close(&self) {
        self.producer.close().await;
    }

    /// Why nothing can be sent now. A connection that ended may still look open to a call, which would then end Unknown.
    fn disconnected(&self) -> Option<String> {
        match &*self.producer.readiness().borrow() {
            consign_rocketmq::Readiness::Connected | consign_rocketmq::Readiness::Starting => None,
            consign_rocketmq::Readiness::NotConnected(reason) => Some(reason.clone()),
            consign_rocketmq::Readiness::Closed => Some("the destination is closed".to_owned()),
        }
    }

    async fn publish_alone(&self, message: Message, deadline: Instant) -> Outcome {
        let Ok(Ok(_permit)) = timeout_at(deadline, self.singles.acquire()).await else {
            return refused("no request was free before the publish deadline");
        };
        // Boxed: a call is large, and most publishes make none of their own.
        let sending = Box::pin(self.producer.send(message, deadline));
        // On its way to the socket, or through it.
        failpoint::pass("publish.before_confirm");
        match timeout_at(deadline, sending).await {
            Ok(result) => outcome(result, &self.accepted),
            Err(_) => Outcome::Unknown(Doubt::ConfirmTimedOut),
        }
    }

    async fn publish_in_order(&self, group: &str, message: Message, deadline: Instant) -> Outcome {
        let turn = match self.groups.enter(group, deadline).await {
            Ok(turn) => turn,
            Err(TurnedBack::Broken) => {
                return refused("an earlier message of its message group was not confirmed");
            }
            Err(TurnedBack::TooLate) => {
                return refused("earlier messages of its message group took until the publish deadline");
            }
        };
        let outcome = self.publish_alone(message, deadline).await;
        turn.end(matches!(outcome, Outcome::Confirmed(_)));
        outcome
    }
}

impl Destination for RocketMqDestination {
    async fn publish(&self, lane: Lane, publish: Publish) -> Outcome {
        let deadline = self.origin + publish.deadline.since_origin();
        let message = match self.mapping.message(&publish.event, publish.route.key) {
            Ok(message) => message,
            Err(outcome) => return outcome,
        };
        if deadline <= Instant::now() {
            return refused("the publish deadline has passed already");
        }
        if let Some(reason) = self.disconnected() {
            return refused(reason);
        }
        match (&message.kind, lane) {
            (Kind::Fifo { group }, _) => {
                let group = group.clone();
                self.publish_in_order(&group, message, deadline).await
            }
            (Kind::Normal, Lane::Window) => self.batches.publish(message, deadline).await,
            (Kind::Normal, Lane::Quarantine) | (Kind::Delay { .. }, _) => {
                self.publish_alone(message, deadline).await
            }
        }
    }

    async fn readiness_after(&self, known: &Readiness) -> Readiness {
        let mut readiness = self.producer.readiness();
        loop {
            let now = judged(&readiness.borrow_and_update());
            if now != *known {
                return now;
            }
            if readiness.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

fn judged(readiness: &consign_rocketmq::Readiness) -> Readiness {
    match readiness {
        consign_rocketmq::Readiness::Connected => Readiness::Accepting,
        consign_rocketmq::Readiness::Starting => Readiness::Unavailable("not connected yet".to_owned()),
        consign_rocketmq::Readiness::NotConnected(reason) => Readiness::Unavailable(reason.clone()),
        consign_rocketmq::Readiness::Closed => Readiness::Unavailable("the destination is closed".to_owned()),
    }
}
