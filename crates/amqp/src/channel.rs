//! Channels for management: declaring, binding, inspecting, fetching single messages.

use std::sync::Arc;

use bytes::{BufMut, Bytes};

use crate::command::{ChannelLease, Reply};
use crate::consumer::Delivery;
use crate::error::{ChannelError, ChannelId};
use crate::method::{self, Incoming, MethodId};
use crate::request::{Declaration, method_frame};
use crate::table::FieldTable;
use crate::wire::{TooLong, put_short};

impl From<TooLong> for ChannelError {
    fn from(error: TooLong) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// What an exchange is declared to be.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeDeclaration {
    /// `direct`, `topic`, `fanout`, `headers`, or a type a plugin brings.
    pub kind: String,
    /// Whether it survives a restart of the broker.
    pub durable: bool,
    /// Whether it goes when its last binding goes.
    pub auto_delete: bool,
    /// Whether only other exchanges can publish to it.
    pub internal: bool,
    /// Further arguments.
    pub arguments: FieldTable,
}

impl ExchangeDeclaration {
    /// A durable exchange of this kind.
    pub fn durable(kind: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: FieldTable::new(),
        }
    }
}

/// What a queue is declared to be.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueDeclaration {
    /// Whether it survives a restart of the broker.
    pub durable: bool,
    /// Whether only this connection may use it, and it goes with the connection.
    pub exclusive: bool,
    /// Whether it goes when its last consumer goes.
    pub auto_delete: bool,
    /// Further arguments, such as `x-queue-type`.
    pub arguments: FieldTable,
}

impl QueueDeclaration {
    /// A durable, shared queue with these arguments.
    pub fn durable(arguments: FieldTable) -> Self {
        Self { durable: true, exclusive: false, auto_delete: false, arguments }
    }
}

/// A queue as the broker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its name, chosen by the broker if the declared name was empty.
    pub name: String,
    /// Messages ready for delivery.
    pub messages: u32,
    /// Consumers.
    pub consumers: u32,
}

/// A channel for management. A soft error closes it: further calls return the same
/// [`ChannelError::Closed`], and the caller opens another one.
///
/// Dropping a call's future is safe; the request may still take effect. Calls have no deadline of their
/// own: heartbeats bound a dead connection, the caller bounds a slow broker.
#[derive(Debug)]
pub struct Channel {
    lease: Arc<ChannelLease>,
}

impl Channel {
    pub(crate) fn new(lease: ChannelLease) -> Self {
        Self { lease: Arc::new(lease) }
    }

    /// Identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.lease.id
    }

    /// Why the channel ended; `None` while it is open.
    pub fn ended(&self) -> Option<ChannelError> {
        self.lease.ended()
    }

    /// Declares an exchange; fails with 406 if it exists and differs.
    pub async fn exchange_declare(
        &self,
        name: &str,
        declaration: &ExchangeDeclaration,
    ) -> Result<(), ChannelError> {
        let flags = [false, declaration.durable, declaration.auto_delete, declaration.internal, false];
        let names = [("exchange", name), ("exchange type", &declaration.kind)];
        let id = method::EXCHANGE_DECLARE;
        self.declare(id, &names, Some(&flags), Some(&declaration.arguments), &[method::EXCHANGE_DECLARE_OK])
            .await
            .map(drop)
    }

    /// Checks that an exchange exists; fails with 404 if not. Nothing about it is compared.
    pub async fn exchange_declare_passive(&self, name: &str) -> Result<(), ChannelError> {
        let flags = [true, false, false, false, false];
        let names = [("exchange", name), ("exchange type", "")];
        let id = method::EXCHANGE_DECLARE;
        self.declare(id, &names, Some(&flags), Some(&FieldTable::new()), &[method::EXCHANGE_DECLARE_OK])
            .await
            .map(drop)
    }

    /// Deletes an exchange; with `if_unused` fails with 406 while it has bindings.
    pub async fn exchange_delete(&self, name: &str, if_unused: bool) -> Result<(), ChannelError> {
        let names = [("exchange", name)];
        let flags = [if_unused, false];
        self.declare(method::EXCHANGE_DELETE, &names, Some(&flags), None, &[method::EXCHANGE_DELETE_OK])
            .await
            .map(drop)
    }

    /// Binds exchange `destination` to exchange `source`.
    pub async fn exchange_bind(
        &self,
        destination: &str,
        source: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), ChannelError> {
        let names = [("destination", destination), ("source", source), ("routing_key", routing_key)];
        let expects = &[method::EXCHANGE_BIND_OK];
        self.declare(method::EXCHANGE_BIND, &names, Some(&[false]), Some(arguments), expects).await.map(drop)
    }

    /// Removes a binding between exchanges; one that does not exist is fine.
    pub async fn exchange_unbind(
        &self,
        destination: &str,
        source: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), ChannelError> {
        let names = [("destination", destination), ("source", source), ("routing_key", routing_key)];
        let expects = &[method::EXCHANGE_UNBIND_OK];
        self.declare(method::EXCHANGE_UNBIND, &names, Some(&[false]), Some(arguments), expects)
            .await
            .map(drop)
    }

    /// Declares a queue; fails with 406 if it exists and differs. An empty name lets the broker choose.
    pub async fn queue_declare(
        &self,
        name: &str,
        declaration: &QueueDeclaration,
    ) -> Result<QueueStatus, ChannelError> {
        let flags = [false, declaration.durable, declaration.exclusive, declaration.auto_delete, false];
        self.queue_status(name, &flags, &declaration.arguments).await
    }

    /// Describes a queue; fails with 404 if there is none. Nothing about it is compared.
    pub async fn queue_declare_passive(&self, name: &str) -> Result<QueueStatus, ChannelError> {
        self.queue_status(name, &[true, false, false, false, false], &FieldTable::new()).await
    }

    async fn queue_status(
        &self,
        name: &str,
        flags: &[bool],
        arguments: &FieldTable,
    ) -> Result<QueueStatus, ChannelError> {
        let names = [("queue", name)];
        let expects = &[method::QUEUE_DECLARE_OK];
        let reply =
            self.declare(method::QUEUE_DECLARE, &names, Some(flags), Some(arguments), expects).await?;
        match reply.method {
            Incoming::QueueDeclareOk { queue, messages, consumers } => {
                Ok(QueueStatus { name: queue, messages, consumers })
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Binds a queue to an exchange.
    pub async fn queue_bind(
        &self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), ChannelError> {
        let names = [("queue", queue), ("exchange", exchange), ("routing_key", routing_key)];
        let expects = &[method::QUEUE_BIND_OK];
        self.declare(method::QUEUE_BIND, &names, Some(&[false]), Some(arguments), expects).await.map(drop)
    }

    /// Removes a binding of a queue; one that does not exist is fine.
    pub async fn queue_unbind(
        &self,
        queue: &str,
        exchange: &str,
        routing_key: &str,
        arguments: &FieldTable,
    ) -> Result<(), ChannelError> {
        let names = [("queue", queue), ("exchange", exchange), ("routing_key", routing_key)];
        let expects = &[method::QUEUE_UNBIND_OK];
        self.declare(method::QUEUE_UNBIND, &names, None, Some(arguments), expects).await.map(drop)
    }

    /// Drops all ready messages of a queue and returns how many there were.
    pub async fn queue_purge(&self, name: &str) -> Result<u32, ChannelError> {
        let names = [("queue", name)];
        let expects = &[method::QUEUE_PURGE_OK];
        let reply = self.declare(method::QUEUE_PURGE, &names, Some(&[false]), None, expects).await?;
        counted(&reply)
    }

    /// Deletes a queue and returns how many messages went with it. With `if_unused` fails with 406
    /// while it has consumers, with `if_empty` while it has messages. Quorum queues know neither:
    /// `RabbitMQ` then closes the whole connection with 540.
    pub async fn queue_delete(
        &self,
        name: &str,
        if_unused: bool,
        if_empty: bool,
    ) -> Result<u32, ChannelError> {
        let names = [("queue", name)];
        let flags = [if_unused, if_empty, false];
        let expects = &[method::QUEUE_DELETE_OK];
        let reply = self.declare(method::QUEUE_DELETE, &names, Some(&flags), None, expects).await?;
        counted(&reply)
    }

    /// Fetches one message of a queue, if there is one; it must be acknowledged like any delivery.
    pub async fn get(&self, queue: &str) -> Result<Option<Delivery>, ChannelError> {
        let names = [("queue", queue)];
        let expects = &[method::BASIC_GET_OK, method::BASIC_GET_EMPTY];
        let reply = self.declare(method::BASIC_GET, &names, Some(&[false]), None, expects).await?;
        match (reply.method, reply.content) {
            (Incoming::GetOk(origin), Some(content)) => {
                Ok(Some(Delivery::new(Arc::clone(&self.lease), origin, &content)))
            }
            _ => Ok(None),
        }
    }

    async fn declare(
        &self,
        id: MethodId,
        names: &[(&'static str, &str)],
        flags: Option<&[bool]>,
        arguments: Option<&FieldTable>,
        expects: &'static [MethodId],
    ) -> Result<Reply, ChannelError> {
        let channel = self.lease.id.number;
        let frame = Declaration { channel, id, names, flags, arguments }.encode()?;
        self.lease.call(frame, expects, None).await
    }
}

fn counted(reply: &Reply) -> Result<u32, ChannelError> {
    match &reply.method {
        Incoming::Counted { messages, .. } => Ok(*messages),
        other => Err(unexpected(other)),
    }
}

/// The session matches answers with calls by method number, so this answer has another shape only if
/// a caller in this crate names the wrong one.
fn unexpected(method: &Incoming) -> ChannelError {
    ChannelError::Closed { code: 0, text: format!("method {} answers another call", method.id()) }
}

/// `basic.cancel` for a consumer.
pub(crate) fn cancel_frame(channel: u16, consumer_tag: &str, no_wait: bool) -> Result<Bytes, TooLong> {
    method_frame(channel, method::BASIC_CANCEL, |buffer| {
        put_short(buffer, "consumer_tag", consumer_tag)?;
        buffer.put_u8(u8::from(no_wait));
        Ok(())
    })
}
