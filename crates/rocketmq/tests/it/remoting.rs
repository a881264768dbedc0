//! Sending over the remoting protocol, written apart from the crate: no producer of consign sends this way.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SEND_MESSAGE: u32 = 10;
/// The flag of a half message.
const PREPARED: u32 = 4;

/// Sends a message with that id, body and keys to queue 0.
pub async fn send(broker: &str, topic: &str, id: &str, body: &[u8]) {
    let properties = format!("UNIQ_KEY\u{1}{id}\u{2}KEYS\u{1}{id}-key\u{2}TAGS\u{1}paid\u{2}");
    sent(broker, topic, &properties, 0, body).await;
}

/// Sends a half message that was born at the beginning of 1970: the broker gives it up at its next round.
pub async fn send_expired_half(broker: &str, topic: &str, id: &str, body: &[u8]) {
    let properties =
        format!("UNIQ_KEY\u{1}{id}\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{topic}\u{2}colour\u{1}red\u{2}");
    sent(broker, topic, &properties, PREPARED, body).await;
}

async fn sent(broker: &str, topic: &str, properties: &str, flags: u32, body: &[u8]) {
    let fields = json!({
        "producerGroup": topic, "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
        "queueId": "0", "sysFlag": flags.to_string(), "bornTimestamp": "0", "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    });
    let header = json!({
        "code": SEND_MESSAGE, "language": "OTHER", "version": 473, "opaque": 7, "flag": 0, "extFields": fields,
    });
    let answer = converse(broker, &header, body).await;
    assert_eq!(answer["code"], 0, "{answer}");
}

async fn converse(address: &str, header: &Value, body: &[u8]) -> Value {
    let header = serde_json::to_vec(header).unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_u32(u32::try_from(4 + header.len() + body.len()).unwrap()).await.unwrap();
    stream.write_u32(u32::try_from(header.len()).unwrap()).await.unwrap();
    stream.write_all(&header).await.unwrap();
    stream.write_all(body).await.unwrap();
    let _length = stream.read_u32().await.unwrap();
    let mut answer = vec![0; usize::try_from(stream.read_u32().await.unwrap()).unwrap()];
    stream.read_exact(&mut answer).await.unwrap();
    serde_json::from_slice(&answer).unwrap()
}
