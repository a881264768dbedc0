//! Declaring and comparing on a connection. A refused declaration costs its channel, so the next one opens another.

use std::time::Duration;

use consign_amqp::{
    Channel, ChannelError, ConnectOptions, Connection, ExchangeDeclaration, FieldTable, QueueDeclaration,
    ServerInfo,
};
use tokio::time::timeout;

use super::TopologyError;
use crate::rabbitmq::connection::with_causes;

/// How long one declaration may take: leader elections of quorum queues included.
const CALL_WITHIN: Duration = Duration::from_secs(15);

/// What comparing a declaration with the broker came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Same,
    Missing,
    Differs { argument: String, wanted: String, found: String },
    Refused { code: u16, text: String },
}

pub(super) struct Broker {
    connection: Connection,
    channel: Option<Channel>,
}

/// The broker's answer to one call.
type Answer<T> = Result<Result<T, (u16, String)>, TopologyError>;

impl Broker {
    pub async fn open(connect: &ConnectOptions) -> Result<Self, TopologyError> {
        let mut connect = connect.clone();
        connect.connection_name.get_or_insert_with(|| "consign topology".to_owned());
        let connection = Connection::open(&connect)
            .await
            .map_err(|error| TopologyError::Unavailable(with_causes(&error)))?;
        Ok(Self { connection, channel: None })
    }

    pub fn server(&self) -> &ServerInfo {
        self.connection.server()
    }

    pub async fn declare_exchange(
        &mut self,
        name: &str,
        declaration: &ExchangeDeclaration,
    ) -> Result<(), TopologyError> {
        let answer = self.call(async |channel| channel.exchange_declare(name, declaration).await).await?;
        answer.map_err(|(code, text)| refused(format!("exchange {name:?}"), code, text))
    }

    pub async fn declare_queue(
        &mut self,
        name: &str,
        declaration: &QueueDeclaration,
    ) -> Result<(), TopologyError> {
        let answer = self.declare_queue_once(name, declaration).await?;
        answer.map_err(|(code, text)| refused(format!("queue {name:?}"), code, text))
    }

    /// A classic queue that was declared without a type has none to compare: to it the explicit type is another.
    async fn declare_queue_once(&mut self, name: &str, declaration: &QueueDeclaration) -> Answer<()> {
        let answer = self.call(async |channel| channel.queue_declare(name, declaration).await).await?;
        let Err((code, text)) = answer else { return Ok(Ok(())) };
        let classic =
            declaration.arguments.get("x-queue-type").and_then(|kind| kind.as_text()) == Some("classic");
        if !classic || !text.contains("'x-queue-type'") || !text.contains("current is none") {
            return Ok(Err((code, text)));
        }
        let mut untyped = declaration.clone();
        untyped.arguments.remove("x-queue-type");
        Ok(self.call(async |channel| channel.queue_declare(name, &untyped).await).await?.map(drop))
    }

    pub async fn bind(&mut self, queue: &str, exchange: &str, key: &str) -> Result<(), TopologyError> {
        let arguments = FieldTable::new();
        let answer =
            self.call(async |channel| channel.queue_bind(queue, exchange, key, &arguments).await).await?;
        let subject = || format!("the binding of queue {queue:?} to exchange {exchange:?} with key {key:?}");
        answer.map_err(|(code, text)| refused(subject(), code, text))
    }

    pub async fn exchange_exists(&mut self, name: &str) -> Result<bool, TopologyError> {
        let answer = self.call(async |channel| channel.exchange_declare_passive(name).await).await?;
        Ok(!matches!(answer, Err((404, _))))
    }

    /// Declares only what exists already, so that comparing never creates.
    pub async fn compare_exchange(
        &mut self,
        name: &str,
        declaration: &ExchangeDeclaration,
    ) -> Result<Compared, TopologyError> {
        if !self.exchange_exists(name).await? {
            return Ok(Compared::Missing);
        }
        let answer = self.call(async |channel| channel.exchange_declare(name, declaration).await).await?;
        Ok(compared(answer))
    }

    /// Declares only what exists already, so that comparing never creates.
    pub async fn compare_queue(
        &mut self,
        name: &str,
        declaration: &QueueDeclaration,
    ) -> Result<Compared, TopologyError> {
        let exists = self.call(async |channel| channel.queue_declare_passive(name).await).await?;
        match exists {
            Err((404, _)) => Ok(Compared::Missing),
            Err((code, text)) => Ok(Compared::Refused { code, text }),
            Ok(_) => Ok(compared(self.declare_queue_once(name, declaration).await?)),
        }
    }

    /// Runs one call on an open channel, within a limit of time.
    async fn call<T>(&mut self, call: impl AsyncFnOnce(&Channel) -> Result<T, ChannelError>) -> Answer<T> {
        let unavailable = |error: ChannelError| TopologyError::Unavailable(error.to_string());
        let channel = match self.channel.take().filter(|channel| channel.ended().is_none()) {
            Some(channel) => channel,
            None => self.connection.open_channel().await.map_err(unavailable)?,
        };
        let answer = timeout(CALL_WITHIN, call(&channel)).await;
        self.channel = Some(channel);
        match answer {
            Ok(Ok(value)) => Ok(Ok(value)),
            Ok(Err(ChannelError::Closed { code, text })) => Ok(Err((code, text))),
            // The name or an argument cannot be expressed: as good as a refusal by the broker.
            Ok(Err(ChannelError::Invalid(text))) => Ok(Err((0, text))),
            Ok(Err(error)) => Err(unavailable(error)),
            Err(_) => Err(TopologyError::Unavailable(format!("no answer within {CALL_WITHIN:?}"))),
        }
    }
}

fn compared(answer: Result<(), (u16, String)>) -> Compared {
    let Err((code, text)) = answer else { return Compared::Same };
    match difference(&text) {
        Some((argument, wanted, found)) => Compared::Differs { argument, wanted, found },
        None => Compared::Refused { code, text },
    }
}

fn refused(subject: String, code: u16, text: String) -> TopologyError {
    match difference(&text) {
        Some((argument, wanted, found)) => TopologyError::Differs { subject, argument, wanted, found },
        None => TopologyError::Refused { subject, code, text },
    }
}

/// Reads `inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'`, or with
/// `received the value 'x' of type 'longstr' but current is none`.
fn difference(text: &str) -> Option<(String, String, String)> {
    let (argument, rest) = text.split_once("inequivalent arg '")?.1.split_once('\'')?;
    let (wanted, found) = rest.split_once("received ")?.1.split_once(" but current is ")?;
    Some((argument.to_owned(), value(wanted), value(found)))
}

/// The quoted value of `the value 'x' of type 'longstr'`, or the words as they are.
fn value(words: &str) -> String {
    words
        .split_once('\'')
        .and_then(|(_, rest)| rest.split_once('\''))
        .map_or(words, |(value, _)| value)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_differing_argument_and_both_values_are_read_from_the_brokers_words() {
        let flag = "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'";
        let absent = "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received the value '5' of type 'long' but current is none";
        let other = "PRECONDITION_FAILED - inequivalent arg 'x-overflow' for queue 'q' in vhost '/': received none but current is the value 'drop-head' of type 'longstr'";
        let read =
            |text| difference(text).map(|(argument, wanted, found)| [argument, wanted, found].join(" "));

        assert_eq!(read(flag).as_deref(), Some("durable true false"));
        assert_eq!(read(absent).as_deref(), Some("x-max-length 5 none"));
        assert_eq!(read(other).as_deref(), Some("x-overflow none drop-head"));
        assert_eq!(read("NOT_FOUND - no queue 'q' in vhost '/'"), None);
    }
}
