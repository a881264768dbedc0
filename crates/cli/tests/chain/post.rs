//! What the tests beside the crash tests share: queues to put messages into and to look into, configs made of text,
//! and short commands.

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::time::Duration;

use consign_amqp::{Connection, ConsumeOptions, FieldTable, FieldValue, Properties, Publication, Verdict};
use futures_util::StreamExt;
use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use crate::harness::{self, Broker, World, connect, consign};

/// Long enough for a loaded machine; conditions end the wait as soon as they hold.
pub const SOON: Duration = Duration::from_secs(40);

/// A message as it lay in a queue.
#[derive(Clone, Debug)]
pub struct Taken {
    pub id: String,
    pub kind: Option<String>,
    pub headers: FieldTable,
    pub body: Vec<u8>,
}

impl Taken {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(FieldValue::as_text)
    }
}

/// A connection to a broker, to put messages into queues and to look into them.
pub struct Post(Connection);

impl Post {
    pub async fn open(broker: Broker) -> Self {
        Self(connect(broker).await)
    }

    /// Publishes to one queue and waits for the confirm.
    pub async fn send(&self, queue: &str, id: &str, kind: &str, body: &str) {
        let publisher = self.0.open_publisher().await.unwrap();
        let publication = Publication {
            exchange: String::new(),
            routing_key: queue.into(),
            properties: Properties {
                message_id: Some(id.into()),
                kind: Some(kind.into()),
                delivery_mode: Some(2),
                ..Properties::default()
            },
            body: body.to_owned().into(),
        };
        let verdict = publisher.publish(publication, Instant::now() + SOON).await;
        assert!(matches!(verdict, Verdict::Acked { .. }), "{queue}: {verdict:?}");
    }

    /// Publishes many messages to one queue, in order, and waits for all confirms.
    pub async fn send_all(
        &self,
        queue: &str,
        kind: &str,
        messages: impl IntoIterator<Item = (String, String)>,
    ) {
        const IN_FLIGHT: usize = 256;
        let publisher = self.0.open_publisher().await.unwrap();
        let confirms = futures_util::stream::iter(messages).map(|(id, body)| {
            let publication = Publication {
                exchange: String::new(),
                routing_key: queue.into(),
                properties: Properties {
                    message_id: Some(id),
                    kind: Some(kind.into()),
                    delivery_mode: Some(2),
                    ..Properties::default()
                },
                body: body.into(),
            };
            publisher.publish(publication, Instant::now() + SOON)
        });
        let mut confirms = confirms.buffered(IN_FLIGHT);
        while let Some(verdict) = confirms.next().await {
            assert!(matches!(verdict, Verdict::Acked { .. }), "{queue}: {verdict:?}");
        }
    }

    /// How many messages wait in a queue.
    pub async fn ready(&self, queue: &str) -> u32 {
        self.0.open_channel().await.unwrap().queue_declare_passive(queue).await.unwrap().messages
    }

    /// Takes the next message out of a queue.
    pub async fn take(&self, queue: &str) -> Option<Taken> {
        let channel = self.0.open_channel().await.unwrap();
        let delivery = channel.get(queue).await.unwrap()?;
        let properties = delivery.properties.unwrap();
        let taken = Taken {
            id: properties.message_id.unwrap_or_default(),
            kind: properties.kind,
            headers: properties.headers,
            body: delivery.body.to_vec(),
        };
        delivery.handle.ack().unwrap();
        Some(taken)
    }

    /// Takes everything out of a queue.
    pub async fn take_all(&self, queue: &str) -> Vec<Taken> {
        let mut all = Vec::new();
        while let Some(taken) = self.take(queue).await {
            all.push(taken);
        }
        all
    }

    pub async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        let channel = self.0.open_channel().await.unwrap();
        channel.queue_bind(queue, exchange, key, &FieldTable::new()).await.unwrap();
    }

    pub async fn delete(&self, queues: &[String], exchanges: &[String]) {
        for queue in queues {
            let channel = self.0.open_channel().await.unwrap();
            channel.queue_delete(queue, false, false).await.unwrap();
        }
        for exchange in exchanges {
            let channel = self.0.open_channel().await.unwrap();
            channel.exchange_delete(exchange, false).await.unwrap();
        }
    }

    /// The ids in a stream from its beginning, as soon as there are `count`.
    pub async fn stream_ids(&self, queue: &str, count: usize) -> Vec<String> {
        let mut options = ConsumeOptions::new(NonZeroU16::new(100).unwrap());
        options.arguments.insert("x-stream-offset", "first");
        let mut consumer = self.0.open_consumer(queue, options).await.unwrap();
        let mut ids = Vec::new();
        while ids.len() < count {
            let next = tokio::time::timeout(SOON, consumer.next()).await;
            let delivery = next.expect("the stream has more messages").unwrap();
            ids.push(delivery.properties.unwrap().message_id.unwrap());
            delivery.handle.ack().unwrap();
        }
        ids
    }
}

/// The url of the world's own database.
pub fn store_url(world: &World) -> String {
    world.store_url()
}

/// A store and quick spans, the beginning of every config here.
pub fn beginning(store: &str) -> String {
    format!(
        "[store]\nurl = \"{store}\"\n\n\
         [relay]\nlease_seconds = 10\npublish_deadline_seconds = 5\nmargin_seconds = 2\npoll_max_milliseconds = 50\n\
         sweep_seconds = 1\nsweep_delay_seconds = 1\n\n[retry]\nbase_seconds = 1\ncap_seconds = 1\n\n"
    )
}

/// Writes a config into the world's folder.
pub fn write(world: &World, file: &str, text: &str) -> PathBuf {
    let path = world.folder.path().join(file);
    std::fs::write(&path, text).unwrap();
    path
}

/// How a short command ended.
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a short command to its end.
pub fn call(arguments: &[&str]) -> Ended {
    let output = consign(arguments);
    Ended {
        code: output.status.code().expect("a short command ends by itself"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs a short command with a config.
pub fn run(arguments: &[&str], config: &Path) -> Ended {
    call(&[arguments, &["--config", harness::text(config)]].concat())
}

/// Runs a short command that must succeed.
pub fn must(arguments: &[&str], config: &Path) {
    let ended = run(arguments, config);
    assert_eq!(ended.code, 0, "{arguments:?}: {}{}", ended.stdout, ended.stderr);
}

/// Everything to one exchange, which the queue `<name>-audit` is bound to by `binding`.
pub fn catch_all(world: &World, broker: &str, extra: &str) -> String {
    let name = &world.name;
    format!(
        "{}[destination.main]\ntype = \"rabbitmq\"\nurl = \"{broker}\"\nexchange = {{ name = \"{name}\" }}\n{extra}\n\
         [[destination.main.queue]]\nname = \"{name}-audit\"\ntype = \"classic\"\nbindings = [\"#\"]\n\n\
         [[route]]\nevent_type = \"*\"\ndestination = \"main\"\n",
        beginning(&store_url(world))
    )
}

/// The text a query gives; empty for NULL.
pub async fn cell(world: &World, sql: &str) -> String {
    let cell: Option<String> =
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&world.pool).await.unwrap();
    cell.unwrap_or_default()
}
