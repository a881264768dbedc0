//! Reading stored messages.

use super::command::Command;
use super::stored::StoredMessage;
use super::{Admin, AdminError, missing_as_none, number, refused, request, response};

/// Messages of one queue, from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The messages, in the order of the queue; empty also when some were skipped.
    pub messages: Vec<StoredMessage>,
    /// Where to go on.
    pub next_offset: u64,
    /// Whether more may be there now.
    pub more: bool,
}

impl Admin {
    /// Reads at most `limit` messages of a queue from `offset` on, without waiting and without moving any group.
    /// `group` must exist; it is only who asks. A topic that does not exist (yet) is empty.
    pub async fn pull(
        &self,
        address: &str,
        group: &str,
        topic: &str,
        queue: u32,
        offset: u64,
        limit: u32,
    ) -> Result<Pulled, AdminError> {
        const CALL: &str = "for messages";
        /// The request brings its subscription with it.
        const WITH_SUBSCRIPTION: u32 = 4;
        let request = Command::request(request::PULL_MESSAGE)
            .with("consumerGroup", group)
            .with("topic", topic)
            .with("queueId", queue)
            .with("queueOffset", offset)
            .with("maxMsgNums", limit)
            .with("sysFlag", WITH_SUBSCRIPTION)
            .with("commitOffset", "0")
            .with("suspendTimeoutMillis", "0")
            .with("subscription", "*")
            .with("subVersion", "0")
            .with("expressionType", "TAG");
        let answer = self.send(address, CALL, &request).await?;
        let (messages, more) = match answer.code {
            response::SUCCESS => (decoded(address, CALL, &answer)?, true),
            response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED => (Vec::new(), true),
            response::PULL_NOT_FOUND => (Vec::new(), false),
            response::TOPIC_NOT_EXIST => {
                return Ok(Pulled { messages: Vec::new(), next_offset: offset, more: false });
            }
            _ => return Err(refused(address, CALL, answer)),
        };
        Ok(Pulled { messages, next_offset: number(address, CALL, &answer, "nextBeginOffset")?, more })
    }

    /// The copies of a message that are visible in a topic of the broker at `address`, found by the id its producer
    /// gave it. The index behind it is written shortly after the message.
    pub async fn copies(
        &self,
        address: &str,
        topic: &str,
        message_id: &str,
    ) -> Result<Vec<StoredMessage>, AdminError> {
        const CALL: &str = "for the copies of a message";
        let request = Command::request(request::QUERY_MESSAGE)
            .with("topic", topic)
            .with("key", message_id)
            .with("maxNum", "32")
            .with("beginTimestamp", "0")
            .with("endTimestamp", i64::MAX.to_string())
            .with("_UNIQUE_KEY_QUERY", true);
        let answered = self.call(address, CALL, request).await;
        let Some(answer) = missing_as_none(answered, response::QUERY_NOT_FOUND)? else {
            return Ok(Vec::new());
        };
        let mut copies = decoded(address, CALL, &answer)?;
        // The index holds hashes: other messages may stand under the same one.
        copies.retain(|copy| copy.message_id() == Some(message_id) && copy.topic == topic);
        Ok(copies)
    }

    /// Asks the broker at `address` to check a discarded half message again, from the first check on. `copy_id` is
    /// [`StoredMessage::copy_id`]. The discarded copy stays where it is.
    pub async fn resume_checks(&self, address: &str, copy_id: &str) -> Result<(), AdminError> {
        let request = Command::request(request::RESUME_CHECK_HALF_MESSAGE).with("msgId", copy_id);
        self.call(address, "to resume the checks of a half message", request).await.map(drop)
    }
}

fn decoded(address: &str, call: &'static str, answer: &Command) -> Result<Vec<StoredMessage>, AdminError> {
    StoredMessage::decode_all(answer.body.clone()).map_err(|reason| AdminError::Malformed {
        address: address.to_owned(),
        call,
        reason,
    })
}
