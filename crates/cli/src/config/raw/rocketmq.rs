//! What only destinations of type rocketmq have, as written.

use serde::{Deserialize, Serialize};

/// `[[destination.NAME.topic]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawTopic {
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub queues: u64,
}

/// `[[destination.NAME.group]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawGroup {
    pub name: Option<String>,
    pub topic: Option<String>,
    pub tags: Vec<String>,
    pub ordered: Option<bool>,
    pub retries: u64,
    pub broker_retries: bool,
    pub dead_letter_topic: bool,
    pub invisible_seconds: u64,
}

impl Default for RawTopic {
    fn default() -> Self {
        Self { name: None, kind: "normal".into(), queues: 8 }
    }
}

impl Default for RawGroup {
    fn default() -> Self {
        Self {
            name: None,
            topic: None,
            tags: Vec::new(),
            ordered: None,
            retries: 16,
            broker_retries: false,
            dead_letter_topic: false,
            invisible_seconds: 300,
        }
    }
}
