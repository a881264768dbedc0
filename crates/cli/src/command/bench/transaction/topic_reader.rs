//! Reading a topic at its brokers, without a consumer: what is there, and nothing else.

use anyhow::Context;
use consign_broker::rocketmq::Admin;

use super::audit::Audit;

/// How many messages a call asks for; a broker gives fewer as it is configured.
const MESSAGES_MAX: u32 = 256;

/// A place in every queue of a topic.
pub struct TopicReader {
    admin: Admin,
    topic: String,
    queues: Vec<Queue>,
}

struct Queue {
    broker: String,
    number: u32,
    offset: u64,
}

#[derive(serde::Deserialize)]
struct Payload {
    #[serde(rename = "orderId")]
    order: u32,
}

impl TopicReader {
    /// A reader that begins where the topic ends now: a topic that was there before may not be gone altogether yet.
    /// A group of the topic's name asks.
    pub async fn at_the_end(admin: &Admin, topic: &str) -> anyhow::Result<Self> {
        let mut queues = Vec::new();
        for broker in admin.masters().await? {
            let found = admin.topic(&broker.address, topic).await?;
            let found = found.with_context(|| format!("broker {} has no topic {topic}", broker.name))?;
            for number in 0..found.read_queues {
                let offset = admin.end_offset(&broker.address, topic, number).await?;
                queues.push(Queue { broker: broker.address.clone(), number, offset });
            }
        }
        Ok(Self { admin: admin.clone(), topic: topic.to_owned(), queues })
    }

    /// Reads on to the end of every queue.
    pub async fn read_into(&mut self, audit: &mut Audit) -> anyhow::Result<()> {
        for queue in &mut self.queues {
            loop {
                let pulled = self
                    .admin
                    .pull(&queue.broker, &self.topic, &self.topic, queue.number, queue.offset, MESSAGES_MAX)
                    .await?;
                for message in &pulled.messages {
                    let payload: Payload =
                        serde_json::from_slice(&message.body).context("a message is not the bench's own")?;
                    audit.read(payload.order);
                }
                queue.offset = pulled.next_offset;
                if !pulled.more {
                    break;
                }
            }
        }
        Ok(())
    }
}
