//! The config as written: every key, its type and its default. The checked form is [`super::Config`].
//!
//! Required keys are optional here, so that a missing one is reported together with everything else. Values that
//! have a fixed set of words stay text, for the same reason.

use std::collections::BTreeMap;
use std::time::Duration;

use consign_core::relay::RelaySettings;
use consign_core::retry::RetryPolicy;
use serde::{Deserialize, Serialize};

mod consumer;
mod rocketmq;
mod share;

pub use consumer::{RawBinding, RawCompare, RawConsumer, RawDeadLetter, RawGuard, RawHistory, RawStatement};
pub use rocketmq::{RawGroup, RawTopic, RawTransaction};
pub use share::Share;

/// The whole file.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Raw {
    pub store: Option<RawStore>,
    pub outbox: Vec<RawOutbox>,
    pub inbox: RawInbox,
    pub relay: RawRelay,
    pub retry: RawRetry,
    pub destination: BTreeMap<String, RawDestination>,
    pub route: Vec<RawRoute>,
    pub consumer: Vec<RawConsumer>,
    pub transaction: Option<RawTransaction>,
    pub filter: Option<RawFilter>,
    pub setup: RawSetup,
}

/// `[setup]`
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RawSetup {
    pub on_start: bool,
    pub sql_file: Option<String>,
}

/// `[store]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawStore {
    pub url: Option<String>,
    pub password_file: Option<String>,
    pub time_zone: Option<String>,
    pub tls_ca_file: Option<String>,
    pub connections: u64,
}

/// `[[outbox]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawOutbox {
    pub name: String,
    pub table: String,
    pub columns: BTreeMap<String, String>,
    pub on_sent: String,
    pub retention_days: Option<u64>,
}

/// `[inbox]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawInbox {
    pub table: String,
    pub columns: BTreeMap<String, String>,
    pub retention_days: Option<u64>,
    pub replay_horizon_days: u64,
}

/// `[filter]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawFilter {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub url: Option<String>,
    pub password_file: Option<String>,
    pub tls_ca_file: Option<String>,
    pub prefix: String,
    pub ttl_seconds: Option<u64>,
    pub timeout_milliseconds: u64,
}

/// `[relay]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawRelay {
    pub name: String,
    pub mode: String,
    pub on_dead: String,
    pub partitions: u64,
    pub partition_lease_seconds: u64,
    pub batch_rows: u64,
    pub batch_bytes: u64,
    pub window: u64,
    pub window_bytes: u64,
    pub held_rows: Option<u64>,
    pub held_bytes: u64,
    pub lease_seconds: u64,
    pub publish_deadline_seconds: u64,
    pub margin_seconds: u64,
    pub poll_min_milliseconds: u64,
    pub poll_max_milliseconds: u64,
    pub settle_linger_milliseconds: u64,
    pub sweep_seconds: u64,
    pub sweep_rows: u64,
    pub sweep_delay_seconds: Option<u64>,
    pub drain_seconds: u64,
    pub wakeup: Option<String>,
    pub attempt_log: String,
    pub attempt_days: u64,
}

/// `[retry]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawRetry {
    pub base_seconds: u64,
    pub cap_seconds: u64,
    pub jitter: Share,
    pub attempts_max: u64,
    pub min_age_before_dead_seconds: u64,
    pub max_age_seconds: Option<u64>,
    pub unroutable: String,
}

/// `[destination.NAME.retry]` and `retry = { … }` of a route: what differs.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RawRetryPart {
    pub base_seconds: Option<u64>,
    pub cap_seconds: Option<u64>,
    pub jitter: Option<Share>,
    pub attempts_max: Option<u64>,
    pub min_age_before_dead_seconds: Option<u64>,
    pub max_age_seconds: Option<u64>,
    pub unroutable: Option<String>,
}

/// `[destination.NAME]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawDestination {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub url: Option<String>,
    pub password_file: Option<String>,
    pub tls_ca_file: Option<String>,
    pub tls_client_cert_file: Option<String>,
    pub tls_client_key_file: Option<String>,
    pub channels: u64,
    pub message_bytes_max: Option<u64>,
    pub exchange: Option<RawExchange>,
    pub path: Option<String>,
    pub endpoints: Vec<String>,
    pub name_servers: Vec<String>,
    pub message_type: Option<String>,
    pub delay_seconds: Option<u64>,
    pub accept_statuses: Vec<String>,
    pub empty_body: Option<String>,
    pub retry: Option<RawRetryPart>,
    pub queue: Vec<RawQueue>,
    pub topic: Vec<RawTopic>,
    pub group: Vec<RawGroup>,
}

/// `exchange = { … }` of a destination.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawExchange {
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub durable: bool,
}

/// `[[destination.NAME.queue]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawQueue {
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub kind: String,
    pub durable: bool,
    pub bindings: Vec<String>,
    pub dead_letter_exchange: Option<String>,
    pub dead_letter_key: Option<String>,
    pub dead_letter_strategy: Option<String>,
    pub delivery_limit: Option<i64>,
    pub max_length: Option<u64>,
    pub overflow: Option<String>,
}

/// `[[route]]`
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub struct RawRoute {
    pub event_type: Option<String>,
    pub destination: Option<String>,
    pub key: String,
    pub retry: Option<RawRetryPart>,
}

impl Default for RawStore {
    fn default() -> Self {
        Self { url: None, password_file: None, time_zone: None, tls_ca_file: None, connections: 8 }
    }
}

impl Default for RawOutbox {
    fn default() -> Self {
        Self {
            name: "outbox".into(),
            table: "outbox_event".into(),
            columns: BTreeMap::new(),
            on_sent: "keep".into(),
            retention_days: None,
        }
    }
}

impl Default for RawInbox {
    fn default() -> Self {
        Self {
            table: "consumed_operation".into(),
            columns: BTreeMap::new(),
            retention_days: None,
            replay_horizon_days: 7,
        }
    }
}

impl Default for RawFilter {
    fn default() -> Self {
        Self {
            kind: None,
            url: None,
            password_file: None,
            tls_ca_file: None,
            prefix: "consign".into(),
            ttl_seconds: None,
            timeout_milliseconds: 50,
        }
    }
}

impl Default for RawRelay {
    /// The engine's own defaults, so that they are written down once.
    fn default() -> Self {
        let settings = RelaySettings::default();
        Self {
            name: "relay".into(),
            mode: "competing".into(),
            on_dead: "block".into(),
            partitions: 64,
            partition_lease_seconds: 10,
            batch_rows: settings.batch_rows.into(),
            batch_bytes: whole(settings.batch_bytes),
            window: whole(settings.window),
            window_bytes: whole(settings.window_bytes),
            held_rows: None,
            held_bytes: whole(settings.held_bytes),
            lease_seconds: settings.lease.as_secs(),
            publish_deadline_seconds: settings.publish.deadline.as_secs(),
            margin_seconds: settings.publish.margin.as_secs(),
            poll_min_milliseconds: milliseconds(settings.poll_min),
            poll_max_milliseconds: milliseconds(settings.poll_max),
            settle_linger_milliseconds: milliseconds(settings.settle_linger),
            sweep_seconds: settings.sweep_every.as_secs(),
            sweep_rows: settings.sweep_rows.into(),
            sweep_delay_seconds: None,
            drain_seconds: settings.drain.as_secs(),
            wakeup: None,
            attempt_log: "all".into(),
            attempt_days: 7,
        }
    }
}

impl Default for RawRetry {
    /// The policy's own defaults, so that they are written down once.
    fn default() -> Self {
        let policy = RetryPolicy::default();
        Self {
            base_seconds: policy.base.as_secs(),
            cap_seconds: policy.cap.as_secs(),
            jitter: Share(policy.jitter),
            attempts_max: policy.attempts_max.into(),
            min_age_before_dead_seconds: policy.min_age_before_dead.as_secs(),
            max_age_seconds: None,
            unroutable: "retry".into(),
        }
    }
}

impl From<RawRetry> for RawRetryPart {
    fn from(whole: RawRetry) -> Self {
        Self {
            base_seconds: Some(whole.base_seconds),
            cap_seconds: Some(whole.cap_seconds),
            jitter: Some(whole.jitter),
            attempts_max: Some(whole.attempts_max),
            min_age_before_dead_seconds: Some(whole.min_age_before_dead_seconds),
            max_age_seconds: whole.max_age_seconds,
            unroutable: Some(whole.unroutable),
        }
    }
}

impl Default for RawDestination {
    fn default() -> Self {
        Self {
            kind: None,
            url: None,
            password_file: None,
            tls_ca_file: None,
            tls_client_cert_file: None,
            tls_client_key_file: None,
            channels: 1,
            message_bytes_max: None,
            exchange: None,
            path: None,
            endpoints: Vec::new(),
            name_servers: Vec::new(),
            message_type: None,
            delay_seconds: None,
            accept_statuses: Vec::new(),
            empty_body: None,
            retry: None,
            queue: Vec::new(),
            topic: Vec::new(),
            group: Vec::new(),
        }
    }
}

impl Default for RawExchange {
    fn default() -> Self {
        Self { name: None, kind: "topic".into(), durable: true }
    }
}

impl Default for RawQueue {
    fn default() -> Self {
        Self {
            name: None,
            kind: "quorum".into(),
            durable: true,
            bindings: Vec::new(),
            dead_letter_exchange: None,
            dead_letter_key: None,
            dead_letter_strategy: None,
            delivery_limit: None,
            max_length: None,
            overflow: None,
        }
    }
}

impl Default for RawRoute {
    fn default() -> Self {
        Self { event_type: None, destination: None, key: "{event_type}".into(), retry: None }
    }
}

fn whole(number: usize) -> u64 {
    u64::try_from(number).expect("a usize has at most 64 bits")
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).expect("default spans are far below 2^64 milliseconds")
}
