//! Sending half messages over the remoting protocol, which no producer of consign does: a half message can be born long
//! ago there, and the broker gives such a one up at its next round.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends a half message born at the beginning of 1970.
pub async fn send_expired_half(broker: &str, topic: &str, id: &str, body: &[u8]) {
    let properties =
        format!("UNIQ_KEY\u{1}{id}\u{2}TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{topic}\u{2}colour\u{1}red\u{2}");
    let fields = json!({
        "producerGroup": topic, "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
        "queueId": "0", "sysFlag": "4", "bornTimestamp": "0", "flag": "0", "properties": properties,
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    });
    let header = json!({
        "code": 10, "language": "OTHER", "version": 473, "opaque": 7, "flag": 0, "extFields": fields,
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
