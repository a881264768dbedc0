//! Half messages: sending, ending, and answering the broker's checks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::Instant;

use super::{Producer, Receipt, receipt};
use crate::error::CallError;
use crate::generated::messages::{
    EndTransactionRequest, Message as WireMessage, Resource, TransactionResolution, TransactionSource,
};
use crate::message::{Kind, Message, Stage, date};
use crate::options::Address;
use crate::readiness::Readiness;
use crate::session::Recovered;
use crate::status::check;
use crate::transport::Link;

/// How a half message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Consumers get it.
    Commit,
    /// Nobody does.
    Rollback,
}

impl Resolution {
    fn on_the_wire(self) -> TransactionResolution {
        match self {
            Self::Commit => TransactionResolution::Commit,
            Self::Rollback => TransactionResolution::Rollback,
        }
    }
}

/// That an end was taken by the proxy. It proves nothing: the proxy answers before the broker has acted, and passes the
/// end on one-way (`ClusterMessageService.endTransactionOneway` of apache/rocketmq).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndSent {
    pub(crate) _private: (),
}

/// A stored half message that awaits its end. It remembers the proxy that took it, since only that one knows where in
/// the broker it is, and only for about 30 seconds (`TransactionDataManager` of apache/rocketmq).
///
/// Dropping it leaves the decision to the broker's checks.
#[must_use = "a half message awaits its end; dropped, it waits for the broker's check"]
pub struct Half {
    receipt: Receipt,
    transaction_id: String,
    topic: Resource,
    trace_context: String,
    link: Arc<Link>,
}

impl Half {
    /// The proof that the broker has it.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// The id the broker knows the transaction by.
    pub fn transaction_id(&self) -> &str {
        &self.transaction_id
    }

    /// The topic, without namespace.
    pub fn topic(&self) -> &str {
        &self.topic.name
    }
}

impl std::fmt::Debug for Half {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Half")
            .field("receipt", &self.receipt)
            .field("transaction_id", &self.transaction_id)
            .field("topic", &self.topic.name)
            .finish_non_exhaustive()
    }
}

impl Producer {
    /// Sends a half message: stored, and visible to nobody before its end. Its kind must be [`Kind::Normal`].
    ///
    /// A half message that is stored without the configured durability
    /// ([`Code::is_stored_not_safe`](crate::Code::is_stored_not_safe)) is rolled back at once and reported as
    /// [`CallError::Answered`]: no local transaction must depend on it (`DefaultMQProducerImpl` of apache/rocketmq does
    /// the same). The proxies known so far keep no transaction of such a send, so the rollback may find nothing; then
    /// the broker's check finds no marker and is answered with a rollback.
    pub async fn send_half(&self, message: Message, deadline: Instant) -> Result<Half, CallError> {
        if message.kind != Kind::Normal {
            return Err(CallError::not_sent("a half message has neither group nor delivery time"));
        }
        let trace_context = message.trace_context.clone().unwrap_or_default();
        let topic = self.session.shared().identity.resource(&message.topic);
        let message_id = message.message_id.clone();
        let (mut entry, link) = self.send_one(message, Stage::Half, deadline).await?;
        let status = check(entry.status.as_ref());
        // The broker takes the message id for the transaction's (`SendMessageProcessor` of apache/rocketmq), and the
        // three statuses come without it.
        let transaction_id = Some(std::mem::take(&mut entry.transaction_id)).filter(|id| !id.is_empty());
        let transaction_id = transaction_id.unwrap_or_else(|| message_id.clone());
        let receipt = receipt(message_id, &entry, &link);
        let half = Half { receipt, transaction_id, topic, trace_context, link };
        let Err(error) = status else { return Ok(half) };
        if error.code().is_some_and(crate::Code::is_stored_not_safe) {
            let deadline = Instant::now() + self.session.shared().options.request_timeout;
            if let Err(error) = self.end(half, Resolution::Rollback, deadline).await {
                tracing::debug!(%error, "the rollback of an unsafe half message was not taken");
            }
        }
        Err(error)
    }

    /// Ends a half message at the proxy that took it. Whatever comes back, only evidence from elsewhere (the message
    /// itself, or that no check comes) tells that the broker has done it; after an error the broker's check decides.
    pub async fn end(
        &self,
        half: Half,
        resolution: Resolution,
        deadline: Instant,
    ) -> Result<EndSent, CallError> {
        let request = EndTransactionRequest {
            topic: Some(half.topic),
            message_id: half.receipt.message_id,
            transaction_id: half.transaction_id,
            resolution: resolution.on_the_wire().into(),
            source: TransactionSource::SourceClient.into(),
            trace_context: half.trace_context,
        };
        end(&half.link, request, deadline).await
    }

    /// The checks of half messages, for any producer of their topics. Clones, and several calls, share one queue: each
    /// check comes to one of them.
    pub fn orphans(&self) -> Orphans {
        Orphans { recovered: self.orphans.clone(), readiness: self.readiness() }
    }
}

async fn end(link: &Link, request: EndTransactionRequest, deadline: Instant) -> Result<EndSent, CallError> {
    let ended =
        link.call(request, deadline, |mut stub, request| async move { stub.end_transaction(request).await });
    check(ended.await?.status.as_ref())?;
    Ok(EndSent { _private: () })
}

/// A stream of checks.
#[derive(Clone)]
pub struct Orphans {
    recovered: Arc<Mutex<mpsc::Receiver<Recovered>>>,
    readiness: watch::Receiver<Readiness>,
}

impl Orphans {
    /// The next check; `None` when the producer was closed. Dropping the future loses nothing.
    pub async fn next(&self) -> Option<Orphan> {
        let mut readiness = self.readiness.clone();
        loop {
            let recovered = tokio::select! {
                biased;
                recovered = async { self.recovered.lock().await.recv().await } => recovered?,
                _ = readiness.wait_for(|readiness| *readiness == Readiness::Closed) => return None,
            };
            // A command without a message names nothing that could be answered.
            if let Some(orphan) = Orphan::new(recovered) {
                return Some(orphan);
            }
        }
    }
}

/// A half message whose end the broker asks for. The same one may come several times, also after its end was sent
/// (apache/rocketmq#1517).
#[derive(Clone)]
pub struct Orphan {
    /// Topic, without namespace.
    pub topic: String,
    /// Our own id of the message.
    pub message_id: String,
    /// The broker's id of the transaction.
    pub transaction_id: String,
    /// The tag.
    pub tag: Option<String>,
    /// The keys.
    pub keys: Vec<String>,
    /// User properties.
    pub properties: BTreeMap<String, String>,
    /// The body.
    pub body: Bytes,
    /// When the message was born, by the clock of who sent it.
    pub born_at: Option<SystemTime>,
    /// When the broker stored this copy; each check is stored anew.
    pub stored_at: Option<SystemTime>,
    /// The proxy that asks.
    pub endpoint: Address,
    resource: Resource,
    trace_context: String,
    link: Arc<Link>,
}

impl Orphan {
    fn new(recovered: Recovered) -> Option<Self> {
        let Recovered { command, link } = recovered;
        let WireMessage { topic, user_properties, system_properties, body } = command.message?;
        let (resource, system) = (topic?, system_properties?);
        let (born_at, stored_at) =
            (date(system.born_timestamp.as_ref()), date(system.store_timestamp.as_ref()));
        Some(Self {
            topic: resource.name.clone(),
            message_id: system.message_id,
            transaction_id: command.transaction_id,
            tag: system.tag,
            keys: system.keys,
            properties: user_properties,
            body,
            born_at,
            stored_at,
            endpoint: link.address().clone(),
            resource,
            trace_context: system.trace_context.unwrap_or_default(),
            link,
        })
    }

    /// Answers the check, at the proxy that asked. When nothing is decided there is nothing to answer: the broker counts
    /// the check by itself and asks again, up to its maximum.
    pub async fn answer(&self, resolution: Resolution, deadline: Instant) -> Result<EndSent, CallError> {
        let request = EndTransactionRequest {
            topic: Some(self.resource.clone()),
            message_id: self.message_id.clone(),
            transaction_id: self.transaction_id.clone(),
            resolution: resolution.on_the_wire().into(),
            source: TransactionSource::SourceServerCheck.into(),
            trace_context: self.trace_context.clone(),
        };
        end(&self.link, request, deadline).await
    }
}

impl std::fmt::Debug for Orphan {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Orphan")
            .field("topic", &self.topic)
            .field("message_id", &self.message_id)
            .field("transaction_id", &self.transaction_id)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
