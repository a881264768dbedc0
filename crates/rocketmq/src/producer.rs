//! Sending messages, and half messages with their ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;

use crate::code::Code;
use crate::error::{CallError, StartError};
use crate::generated::messages::settings::PubSub;
use crate::generated::messages::{
    ClientType, Publishing, SendMessageRequest, SendMessageResponse, SendResultEntry,
};
use crate::identity::Identity;
use crate::message::{Kind, Message, Stage};
use crate::options::{Address, Options};
use crate::readiness::Readiness;
use crate::route::TopicRoute;
use crate::session::{Recovered, Role, Session};
use crate::status::check;
use crate::transport::Link;

mod transaction;

pub use transaction::{EndSent, Half, Orphan, Orphans, Resolution};

/// How many checks of half messages may wait for an answer. The broker repeats what is dropped.
const ORPHANS_MAX: usize = 1024;
/// What the proxy is told about body sizes; it enforces its own limit.
const BODY_BYTES_MAX: i32 = 4 << 20;

/// The proof that the broker took a message, under its own policy of flushing and replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The message id, as it was given.
    pub message_id: String,
    /// Offset in the queue; the protocol does not say in which one.
    pub offset: i64,
    /// For a delayed message: what it can be recalled by.
    pub recall_handle: Option<String>,
    /// The proxy that took it.
    pub endpoint: Address,
}

/// A producer. Clones share it; its tasks end when the last clone is dropped, or with [`close`](Self::close).
///
/// Nothing is retried. Before a request leaves, another proxy of the same broker is tried when one does not connect;
/// afterwards never.
#[derive(Clone)]
pub struct Producer {
    session: Arc<Session>,
    orphans: Arc<Mutex<mpsc::Receiver<Recovered>>>,
}

impl Producer {
    /// Starts a producer for these topics. Connections are made in the background: a proxy that is down delays nobody,
    /// see [`readiness`](Self::readiness).
    ///
    /// Checks of half messages of exactly these topics may come to this producer: to the broker, the topic is the
    /// producer group. Must run on a tokio runtime.
    pub async fn start(
        options: &Options,
        topics: impl IntoIterator<Item = String>,
    ) -> Result<Self, StartError> {
        let identity = Arc::new(Identity::new(options)?);
        let topics: BTreeSet<String> = topics.into_iter().collect();
        let publishing = Publishing {
            topics: topics.iter().map(|topic| identity.resource(topic)).collect(),
            max_body_size: BODY_BYTES_MAX,
            validate_message_type: true,
        };
        let (orphans, recovered) = mpsc::channel(ORPHANS_MAX);
        let role = Role {
            client_type: ClientType::Producer,
            pub_sub: PubSub::Publishing(publishing),
            group: None,
            topics: topics.into_iter().collect(),
            orphans: Some(orphans),
        };
        let session = Session::start(options, identity, role).await?;
        Ok(Self { session: Arc::new(session), orphans: Arc::new(Mutex::new(recovered)) })
    }

    /// The id this producer has at the proxies.
    pub fn client_id(&self) -> &str {
        self.session.shared().identity.client_id()
    }

    /// Whether a proxy knows this producer.
    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.session.shared().readiness()
    }

    /// What a proxy says about a topic, at most 30 seconds old.
    pub async fn route(&self, topic: &str, deadline: Instant) -> Result<TopicRoute, CallError> {
        Ok(self.session.shared().route(topic, deadline).await?.summary())
    }

    /// Sends one message. Dropping the future leaves open whether it was sent.
    pub async fn send(&self, message: Message, deadline: Instant) -> Result<Receipt, CallError> {
        let message_id = message.message_id.clone();
        let (entry, link) = self.send_one(message, Stage::Whole, deadline).await?;
        check(entry.status.as_ref())?;
        Ok(receipt(message_id, &entry, &link))
    }

    /// Sends several messages of one topic in one request, each with a result of its own, in the order given.
    ///
    /// The broker stores such a request as one batch in one queue, all or nothing, and the proxy answers it with one
    /// entry, which is every message's status then; their offsets follow each other
    /// (`SendMessageActivity` and `LocalMessageService` of apache/rocketmq).
    ///
    /// Messages with a group are not for this call: the proxy ignores the group of a batch (apache/rocketmq#10924).
    /// Neither are delayed ones, nor several topics: then nothing is sent.
    pub async fn send_many(
        &self,
        messages: Vec<Message>,
        deadline: Instant,
    ) -> Vec<Result<Receipt, CallError>> {
        let count = messages.len();
        let Some(topic) = messages.first().map(|message| message.topic.clone()) else { return Vec::new() };
        if messages.iter().any(|message| message.topic != topic || message.kind != Kind::Normal) {
            let text = "a batch takes messages of one topic, without group and without delay";
            return vec![Err(CallError::not_sent(text)); count];
        }
        let identity = &self.session.shared().identity;
        let ids: Vec<String> = messages.iter().map(|message| message.message_id.clone()).collect();
        let messages =
            messages.into_iter().map(|message| message.into_wire(identity, Stage::Whole)).collect();
        let (entries, link) =
            match self.request(&topic, None, SendMessageRequest { messages }, deadline).await {
                Ok(answer) => answer,
                Err(error) => return vec![Err(error); count],
            };
        let result = |entry: &SendResultEntry, id, behind| {
            check(entry.status.as_ref())?;
            let offset = entry.offset.saturating_add(behind);
            Ok(Receipt { offset, ..receipt(id, entry, &link) })
        };
        match entries.as_slice() {
            [entry] => ids.into_iter().zip(0..).map(|(id, place)| result(entry, id, place)).collect(),
            entries if entries.len() == count => {
                ids.into_iter().zip(entries).map(|(id, entry)| result(entry, id, 0)).collect()
            }
            entries => {
                let text = format!("{} entries answered {count} messages", entries.len());
                vec![Err(CallError::unknown(text)); count]
            }
        }
    }

    async fn send_one(
        &self,
        message: Message,
        stage: Stage,
        deadline: Instant,
    ) -> Result<(SendResultEntry, Arc<Link>), CallError> {
        let topic = message.topic.clone();
        let group = match &message.kind {
            Kind::Fifo { group } => Some(group.clone()),
            Kind::Normal | Kind::Delay { .. } => None,
        };
        let wire = message.into_wire(&self.session.shared().identity, stage);
        let request = SendMessageRequest { messages: vec![wire] };
        let (entries, link) = self.request(&topic, group.as_deref(), request, deadline).await?;
        let count = entries.len();
        match <[SendResultEntry; 1]>::try_from(entries) {
            Ok([entry]) => Ok((entry, link)),
            Err(_) => Err(CallError::unknown(format!("{count} entries answered one message"))),
        }
    }

    /// Makes the request and returns its entries, which alone say what happened to each message.
    async fn request(
        &self,
        topic: &str,
        group: Option<&str>,
        request: SendMessageRequest,
        deadline: Instant,
    ) -> Result<(Vec<SendResultEntry>, Arc<Link>), CallError> {
        let shared = self.session.shared();
        let route = shared.route(topic, deadline).await?;
        let addresses = route.writable_for(group);
        if addresses.is_empty() {
            shared.forget_route(topic);
            let message = format!("topic {topic} has no writable queue");
            return Err(CallError::Answered { code: Code::FORBIDDEN, message });
        }
        let mut failure = CallError::not_sent(format!("topic {topic} has no proxy"));
        for link in addresses.iter().map(|address| shared.link(address)) {
            let sent = link.call(request.clone(), deadline, |mut stub, request| async move {
                stub.send_message(request).await
            });
            match sent.await {
                Ok(response) => {
                    let answer = entries(response);
                    if answer.as_ref().is_err_and(|error| error.code() == Some(Code::TOPIC_NOT_FOUND)) {
                        shared.forget_route(topic);
                    }
                    return answer.map(|entries| (entries, link));
                }
                // Nothing left, so another way may be tried.
                Err(error @ CallError::NotSent { .. }) => failure = error,
                Err(error) => return Err(error),
            }
        }
        shared.forget_route(topic);
        Err(failure)
    }

    /// Ends the producer: its tasks, and its registration with the proxies. Calls under way go on.
    pub async fn close(&self) {
        self.session.close().await;
    }
}

/// The entries of an answer, or the error of a request that failed as a whole, before there were entries.
fn entries(response: SendMessageResponse) -> Result<Vec<SendResultEntry>, CallError> {
    if response.entries.is_empty() {
        check(response.status.as_ref())?;
        return Err(CallError::unknown("the answer has no entries"));
    }
    Ok(response.entries)
}

/// The receipt of a message under its own id: the entry of a batch has another one.
fn receipt(message_id: String, entry: &SendResultEntry, link: &Link) -> Receipt {
    Receipt {
        message_id,
        offset: entry.offset,
        recall_handle: Some(entry.recall_handle.clone()).filter(|handle| !handle.is_empty()),
        endpoint: link.address().clone(),
    }
}
