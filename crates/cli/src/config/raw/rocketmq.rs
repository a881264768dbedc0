//! What only RocketMQ has, as written.

use consign_core::transaction::Spans;
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

/// `[transaction]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawTransaction {
    pub destination: Option<String>,
    pub topics: Vec<String>,
    pub store: Option<String>,
    pub longest_local_seconds: u64,
    pub first_check_seconds: Option<u64>,
    pub horizon_hours: u64,
    pub keep_hours: u64,
    pub keep_unconfirmed_hours: u64,
    pub keep_message: String,
    pub first_look_seconds: u64,
    pub repair_seconds: u64,
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

impl Default for RawTransaction {
    /// The engine's own spans, so that they are written down once.
    fn default() -> Self {
        let spans = Spans::default();
        Self {
            destination: None,
            topics: Vec::new(),
            store: None,
            longest_local_seconds: spans.longest().as_secs(),
            first_check_seconds: None,
            horizon_hours: spans.horizon().as_secs() / 3600,
            keep_hours: spans.keep().as_secs() / 3600,
            keep_unconfirmed_hours: spans.keep_unconfirmed().as_secs() / 3600,
            keep_message: "until_confirmed".into(),
            first_look_seconds: 120,
            repair_seconds: 60,
        }
    }
}
